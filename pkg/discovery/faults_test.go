package discovery

import (
	"cmp"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestFaults scans what a real kernel showed of one card in many states (test/vm/lab/capture). Without history some faults do not show.
func TestFaults(t *testing.T) {
	nodes := []string{"class:lpu", "class:uio"}
	models := []Model{
		{Name: "vm-u55c", Match: []Match{{Vendor: "10ee", Device: "505d"}}, Drivers: []string{"lpu_sim"}, Nodes: nodes,
			Management: &ManagementMatch{Device: "505c"}},
		{Name: "vm-e1000e", Match: []Match{{Vendor: "8086", Device: "10d3"}}, Drivers: []string{"lpu_sim", "uio_pci_generic"}, Nodes: nodes},
	}
	for name, want := range map[string]struct {
		reasons string // ids
		health  Health
		link    Link // the zero value: none
	}{
		"well":             {"", Healthy, Link{8, 16, 8, 16}},
		"unbound":          {"no-driver", Unhealthy, Link{8, 16, 8, 16}},
		"link-x4":          {"link-degraded", Healthy, Link{8, 4, 8, 16}},
		"link-x0":          {"", Healthy, Link{0, 0, 8, 16}},
		"all-ones":         {"no-answer", HealthUnknown, Link{}},
		"dead-and-rebound": {"power-lost", Unhealthy, Link{}},
		"asleep":           {"asleep", Healthy, Link{}},
		"dead-asleep":      {"asleep", Healthy, Link{}},
		"bus-reset":        {"", Healthy, Link{8, 16, 8, 16}},
		"well-aer":         {"", Healthy, Link{2.5, 1, 2.5, 1}},
		"recovered":        {"aer-nonfatal", Healthy, Link{2.5, 1, 2.5, 1}},
		"not-recovered":    {"", Healthy, Link{2.5, 1, 2.5, 1}},
	} {
		inv := scanOf(t, plant.Capture(t, "faults/"+name+".tar.gz"), models)
		if len(inv.LPUs) != 1 || len(inv.Problems) != 0 {
			t.Errorf("%s: %d LPUs, problems %v", name, len(inv.LPUs), inv.Problems)
			continue
		}
		l := inv.LPUs[0]
		var ids []string
		for _, r := range l.Reasons {
			ids = append(ids, string(r.ID))
		}
		if got := strings.Join(ids, ","); got != want.reasons || l.Health != want.health {
			t.Errorf("%s: reasons %q, health %s; want %q, %s", name, got, l.Health, want.reasons, want.health)
		}
		if shown := map[bool]string{true: "-", false: string(want.health)}[want.reasons == "asleep"]; l.Condition() != shown {
			t.Errorf("%s: people are shown %q, want %q", name, l.Condition(), shown)
		}
		if isBound := want.reasons != "no-driver"; (len(l.Nodes) == 1) != isBound {
			t.Errorf("%s: nodes %v", name, l.Nodes)
		}
		if link := cmp.Or(l.Link, &Link{}); *link != want.link {
			t.Errorf("%s: link %+v", name, link)
		}
	}
	inv := scanOf(t, plant.Capture(t, "faults/removed.tar.gz"), models)
	if len(inv.LPUs) != 0 || len(inv.Problems) != 1 || inv.Problems[0].ID != "card-without-lpu" {
		t.Errorf("removed: LPUs %v, problems %v", inv.LPUs, inv.Problems)
	}
}
