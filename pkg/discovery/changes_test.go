package discovery_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/machines"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// expectNodes checks that each LPU has the node that its card has, and none else, verified where there is a /dev.
func expectNodes(t *testing.T, m *simulate.Machine, inv *discovery.Inventory) {
	t.Helper()
	for _, l := range inv.LPUs {
		c := m.Card(l.Index)
		want := discovery.Node{Path: c.Node, Major: c.Numbers.Major, Minor: c.Numbers.Minor, Verified: m.DeviceNodes()}
		if l.Address != c.Address || len(l.Nodes) != 1 || l.Nodes[0] != want {
			t.Errorf("%s %s has %+v, its card has %+v", l.Name, l.Address, l.Nodes, want)
		}
	}
}

// TestSwappedNodes: every profile's nodes are followed when drivers give them to other cards.
func TestSwappedNodes(t *testing.T) {
	for _, profile := range []string{"orion", "lpu", "edge"} {
		m, root := machines.Start(t, simulate.Node{Profile: profile, LPUs: 3})
		expectNodes(t, m, scan(t, root, discovery.Options{}))
		machines.Must(t, m.SwapNodes(0, 2))
		expectNodes(t, m, scan(t, root, discovery.Options{}))
		machines.Must(t, m.Renumber(1, simulate.Numbers{Major: 10, Minor: 229}))
		expectNodes(t, m, scan(t, root, discovery.Options{}))
	}
}

// TestAPathRuleThatGuesses: a rule that counts gives cards the nodes of others. Without /dev nobody can tell; with it no
// node is handed out that is not the card's.
func TestAPathRuleThatGuesses(t *testing.T) {
	m, root := machines.Start(t, simulate.Node{Profile: "orion"})
	models := discovery.MergeModels(discovery.BuiltinModels(), []discovery.Model{
		{Name: "orion-u55c", Nodes: []string{"path:/dev/dri/renderD13{index}"}},
	})
	inv := scan(t, root, discovery.Options{Models: models})
	for _, l := range inv.LPUs {
		right := m.Card(l.Index).Node == "/dev/dri/renderD13"+string('0'+rune(l.Index))
		if got := len(l.Nodes) == 1; m.DeviceNodes() && (got != right || l.Usable != right) || !m.DeviceNodes() && (!got || l.Nodes[0].Verified) {
			t.Errorf("%s: node %+v, its card has %s, reasons %v", l.Name, l.Nodes, m.Card(l.Index).Node, l.Reasons)
		}
	}
}

// TestIDsThatCannotBeRead: a card whose ids cannot be read keeps its place, or else the inventory says that it is undecided.
func TestIDsThatCannotBeRead(t *testing.T) {
	hideIDs := []string{"vendor", "device", "subsystem_vendor", "subsystem_device", "class"}
	noModalias := append(slices.Clone(hideIDs), "modalias")
	nothing := append(slices.Clone(noModalias), "uevent")
	bertha := discovery.MergeModels(discovery.BuiltinModels(), []discovery.Model{
		{Name: "bertha", Match: []discovery.Match{{Vendor: "20fb", Device: "0010", Subdevice: "0001", Class: "120000"}}},
	})
	const table = "apiVersion: lpuctl.hyperaccel.ai/v1alpha1\nkind: RingTable\nrings: [[\"0000:43:00\", \"0000:44:00\", \"0000:45:00\"]]\n"
	second := pci.Address{Bus: 0x44}
	for name, c := range map[string]struct {
		profile string
		hide    []string
		table   string
		known   []pci.Address
		want    string // state and first reason of the second LPU
	}{
		"modalias":                     {"bertha", hideIDs, "", nil, "healthy: unreadable-attribute"},
		"modalias, for some ids":       {"bertha", []string{"subsystem_device"}, "", nil, "healthy: unreadable-attribute"},
		"uevent":                       {"bertha", noModalias, "", nil, "healthy: unreadable-attribute"},
		"uevent, with a short class":   {"orion", noModalias, "", nil, "healthy: unreadable-attribute"},
		"management function":          {"orion", nothing, "", nil, "healthy: unreadable-attribute"},
		"class device":                 {"lpu", nothing, "", nil, "healthy: unreadable-attribute"},
		"ring table":                   {"bertha", nothing, table, nil, "read stalled: read-stalled"},
		"last identities":              {"bertha", nothing, "", []pci.Address{second}, "read stalled: read-stalled"},
		"nothing":                      {"bertha", nothing, "", nil, ""},
		"last identities are of other": {"bertha", nothing, "", []pci.Address{{Bus: 0x43}, {Bus: 0x45}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, root := machines.Start(t, simulate.Node{Profile: c.profile, LPUs: 3})
			if c.table != "" {
				plant.File(t, filepath.Join(root, "etc/lpuctl/ring.yaml"), c.table)
			}
			machines.Must(t, m.Hide(1, c.hide...))
			inv := scan(t, root, discovery.Options{Models: bertha, Known: func() ([]pci.Address, error) { return c.known, nil }})
			if c.want == "" {
				if err := inv.Undecided(); len(inv.LPUs) != 2 || err == nil || !strings.HasPrefix(err.Error(), "0000:44:00.0: ") {
					t.Errorf("%d LPUs, undecided: %v", len(inv.LPUs), err)
				}
				if !inv.Problems.HasErrors() || !slices.Contains(machines.IDs(inv.Problems), "unreadable-function") {
					t.Errorf("problems %v", inv.Problems)
				}
				return
			}
			if err := inv.Undecided(); len(inv.LPUs) != 3 || err != nil || inv.LPUs[2].Address != m.Card(2).Address {
				t.Fatalf("LPUs %+v, undecided: %v, problems %v", inv.LPUs, err, inv.Problems)
			}
			l := inv.LPUs[1]
			if got := l.State() + ": " + string(l.Reasons[0].ID); got != c.want || l.Address != m.Card(1).Address || l.Absent {
				t.Errorf("%s, want %s: %+v", got, c.want, l)
			}
		})
	}
}

// TestOtherFunctionsThatCannotBeRead: what is surely no LPU is no problem, whether its ids are known from elsewhere or it is
// the management function of a card.
func TestOtherFunctionsThatCannotBeRead(t *testing.T) {
	everything := []string{"vendor", "device", "class", "modalias", "uevent"}
	for name, c := range map[string]struct {
		address string
		hide    []string
		want    []string // ids of problems
	}{
		"a disk with a modalias": {"0000:02:00.0", everything[:3], nil},
		"a disk without":         {"0000:02:00.0", everything[:4], nil},
		"a disk that is mute":    {"0000:02:00.0", everything, []string{"unreadable-function"}},
		"a management function":  {"0000:44:00.0", everything, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, root := machines.Start(t, simulate.Node{Profile: "orion", LPUs: 3})
			for _, attribute := range c.hide {
				file := filepath.Join(root, "sys/bus/pci/devices", c.address, attribute)
				machines.Must(t, os.Remove(file), os.Mkdir(file, 0o755))
			}
			inv := scan(t, root, discovery.Options{})
			diff, decided := cmp.Diff(c.want, machines.IDs(inv.Problems)), inv.Undecided() == nil
			if diff != "" || len(inv.LPUs) != 3 || decided != (c.want == nil) {
				t.Errorf("%d LPUs, undecided %v, problems %s", len(inv.LPUs), inv.Undecided(), diff)
			}
		})
	}
}

// TestCardsWithoutAManagementModel: an operator's model that says nothing of management does not make healthy cards look as if
// they had to be flashed.
func TestCardsWithoutAManagementModel(t *testing.T) {
	m, root := machines.Start(t, simulate.Node{Profile: "orion", LPUs: 3})
	mine := discovery.Model{
		Name: "mine", Match: []discovery.Match{{Vendor: "10ee", Device: "505d"}}, Drivers: []string{"xocl"}, Nodes: []string{"drm:render"},
	}
	models := discovery.MergeModels(discovery.BuiltinModels(), []discovery.Model{mine})
	for _, hide := range [][]string{nil, {"vendor"}, {"vendor", "modalias", "uevent"}} {
		machines.Must(t, m.Hide(1, hide...))
		inv := scan(t, root, discovery.Options{Models: models})
		if len(inv.LPUs) != 3 || len(inv.Problems) != 0 {
			t.Errorf("%v: %d LPUs, problems %v", hide, len(inv.LPUs), inv.Problems)
		}
	}
	// A card whose LPU function is gone is still reported.
	machines.Must(t, m.Show(1), os.Remove(filepath.Join(root, "sys/bus/pci/devices/0000:44:00.1")))
	if got := machines.IDs(scan(t, root, discovery.Options{Models: models}).Problems); !slices.Contains(got, "card-without-lpu") {
		t.Errorf("problems %v", got)
	}
}

// TestLostFunction: an LPU that is expected, and of whose card only the management function is
// there, says so itself. The card is flashed at once only if it says that it runs its factory
// image.
func TestLostFunction(t *testing.T) {
	_, root := machines.Start(t, simulate.Node{Profile: "orion", LPUs: 3})
	installed := filepath.Join(root, discovery.InstalledRingTable)
	machines.Must(t, os.MkdirAll(filepath.Dir(installed), 0o755), os.Remove(filepath.Join(root, "sys/bus/pci/devices/0000:44:00.1")))
	flash := "flash the LPU shell: xbmgmt program --base --device 0000:44:00.0"
	for _, golden := range []bool{false, true} {
		if golden {
			plant.File(t, filepath.Join(root, "sys/bus/pci/devices/0000:44:00.0/recovery"), "1\n")
		}
		for name, c := range map[string]struct {
			table   string
			options discovery.Options
			is      string
		}{
			"expected": {`links: [{a: "0000:43:00.1", b: "0000:44:00.1"}]`, discovery.Options{},
				"absent: there is no LPU function at 0000:44:00.1, which the ring table names; the card's management function 0000:44:00.0 is there"},
			"known": {"", discovery.Options{Seen: []pci.Address{{Bus: 0x44, Function: 1}}},
				"gone: there is no LPU function at 0000:44:00.1, where one was before; the card's management function 0000:44:00.0 is there"},
			"unknown": {"", discovery.Options{}, "card-without-lpu: management function of a card of model orion-u55c, " +
				"but the card shows no LPU function"},
		} {
			machines.Must(t, os.RemoveAll(installed), os.RemoveAll(filepath.Join(root, "opt")))
			if c.table != "" {
				plant.File(t, installed, "apiVersion: lpuctl.hyperaccel.ai/v1alpha1\nkind: RingTable\n"+c.table+"\n")
			}
			inv := scan(t, root, c.options)
			all := slices.Clone(inv.Problems)
			for _, l := range inv.LPUs {
				all = append(all, l.Reasons...)
			}
			all = all.ForPeople()
			if golden {
				c.is += ": it runs its factory image"
			}
			if got := string(all[0].ID) + ": " + all[0].Message; got != c.is || strings.HasPrefix(all[0].Remedy, flash) != golden ||
				golden == strings.HasSuffix(all[0].Remedy, ": echo 1 > /sys/bus/pci/rescan") || name != "unknown" && all.Has(finding.CardWithoutLPU) {
				t.Errorf("%s, golden %t: %v, remedy %q; want %s", name, golden, all, all[0].Remedy, c.is)
			}
		}
	}
}

// TestSameCard: a virtual function of an LPU, and a second function of its card, are said to be of
// that card. They keep their indices.
func TestSameCard(t *testing.T) {
	_, root := machines.Start(t, simulate.Node{Profile: "orion", LPUs: 2})
	const second, virtual = "0000:44:00.2", "0000:44:01.0"
	for _, function := range []string{second, virtual} {
		dir := filepath.Join(root, "sys/devices/pci0000:40", function)
		link := filepath.Join(root, "sys/bus/pci/devices", function)
		machines.Must(t, os.MkdirAll(dir, 0o755), os.Symlink("../../../devices/pci0000:40/"+function, link))
		plant.File(t, filepath.Join(dir, "vendor"), "0x10ee\n")
		plant.File(t, filepath.Join(dir, "device"), "0x505d\n")
	}
	physfn := filepath.Join(root, "sys/bus/pci/devices", virtual, "physfn")
	for target, want := range map[string]string{
		"../0000:44:00.1": "0000:44:01.0 is a virtual function (SR-IOV) of 0000:44:00.1, which is lpu1: both are one card",
		"../0000:01:00.0": "", // of no LPU
		"":                "", // another card
	} {
		machines.Must(t, os.RemoveAll(physfn))
		if target != "" {
			machines.Must(t, os.Symlink(target, physfn))
		}
		inv := scan(t, root, discovery.Options{})
		says := map[string]string{}
		for _, p := range inv.Problems {
			if p.ID == finding.SameCard {
				i := slices.IndexFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Name == p.Subject })
				says[inv.LPUs[i].Address.String()] += p.Message
			}
		}
		if len(inv.LPUs) != 4 || says[second] != "0000:44:00.2 is a function of the same card as 0000:44:00.1, which is lpu1" ||
			says[virtual] != want || says["0000:43:00.1"]+says["0000:44:00.1"] != "" {
			t.Errorf("physfn %q: %d LPUs, %q", target, len(inv.LPUs), says)
		}
	}
}

// TestUnreadableClass: where a class cannot be listed, its LPUs are not seen.
func TestUnreadableClass(t *testing.T) {
	_, root := machines.Start(t, simulate.Node{Profile: "lpu", LPUs: 3})
	class := filepath.Join(root, "sys/class/lpu")
	machines.Must(t, os.RemoveAll(class), os.WriteFile(class, nil, 0o644))
	if inv := scan(t, root, discovery.Options{}); inv.Undecided() == nil || len(inv.LPUs) != 0 {
		t.Errorf("%d LPUs, undecided: %v", len(inv.LPUs), inv.Undecided())
	}
	_, root = machines.Start(t, simulate.Node{Profile: "orion", LPUs: 1})
	class = filepath.Join(root, "sys/class/drm")
	machines.Must(t, os.RemoveAll(class), os.WriteFile(class, nil, 0o644))
	inv := scan(t, root, discovery.Options{})
	const why = "its device node is not known, because devices of class drm cannot be listed: "
	if r := inv.LPUs[0].Reasons; len(r) != 1 || r[0].ID != finding.NoNode || !strings.HasPrefix(r[0].Message, why) ||
		r[0].Remedy != inv.Problems[0].Remedy {
		t.Errorf("%v", r)
	}
}

// TestScansDuringChanges scans while two cards swap their nodes and a third goes and comes back. A scan may see any moment
// between two changes, but never a node that its card does not have in either state, and nothing odd about a card that is left
// alone.
func TestScansDuringChanges(t *testing.T) {
	m, root := machines.Start(t, simulate.Node{Profile: "orion", LPUs: 4}) // LPUs of profile lpu are none as long as they have no node
	has := func(i int) discovery.Node {
		c := m.Card(i)
		return discovery.Node{Path: c.Node, Major: c.Numbers.Major, Minor: c.Numbers.Minor, Verified: m.DeviceNodes()}
	}
	swapped := []discovery.Node{has(0), has(2)}
	allowed := map[string][]discovery.Node{"lpu0": swapped, "lpu1": {has(1)}, "lpu2": swapped, "lpu3": {has(3)}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		var err error
		for ctx.Err() == nil && err == nil {
			err = errors.Join(m.SwapNodes(0, 2), m.Unplug(3), m.Hide(1, "vendor"), m.Show(1), m.Replug(3))
		}
		done <- err
	}()
	defer func() {
		stop()
		machines.Must(t, <-done)
		for _, l := range scan(t, root, discovery.Options{}).LPUs {
			if !l.Usable {
				t.Errorf("at rest: %+v", l)
			}
		}
	}()
	for range 100 {
		inv := scan(t, root, discovery.Options{})
		if len(inv.LPUs) < 3 || !inv.LPUs[1].Usable || len(inv.LPUs[1].Nodes) != 1 {
			t.Fatalf("LPUs %+v, problems %v", inv.LPUs, inv.Problems)
		}
		for _, l := range inv.LPUs {
			for _, n := range l.Nodes {
				if !slices.Contains(allowed[l.Name], n) {
					t.Errorf("%s has %+v", l.Name, n)
				}
			}
		}
	}
}
