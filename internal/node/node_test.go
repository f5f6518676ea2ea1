package node_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// inventory is that of a simulated server with eight LPUs under root.
func inventory(t *testing.T, root string) *discovery.Inventory {
	t.Helper()
	if _, err := (simulate.Node{Profile: "orion"}).Write(root); err != nil {
		t.Fatal(err)
	}
	inv, err := discovery.Scan(t.Context(), root, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

// found is a scan that finds an inventory.
func found(inv *discovery.Inventory) node.Scan {
	return func(context.Context) (*discovery.Inventory, error) { return inv, nil }
}

// changed is an inventory with other LPUs.
func changed(inv *discovery.Inventory, change func(lpus []discovery.LPU) []discovery.LPU) *discovery.Inventory {
	next := *inv
	next.LPUs = change(slices.Clone(inv.LPUs))
	return &next
}

// health is H for each healthy device of a snapshot and U for each other one.
func health(s *node.Snapshot) string {
	text := ""
	for _, d := range s.Devices {
		if d.Healthy {
			text += "H"
		} else {
			text += "U"
		}
	}
	return text
}

func TestHealthFollowsTheInventory(t *testing.T) {
	inv := inventory(t, filepath.Join(t.TempDir(), "node"))
	unknown := changed(inv, func(lpus []discovery.LPU) []discovery.LPU {
		lpus[3].Health = discovery.HealthUnknown
		return lpus
	})
	unhealthy := changed(inv, func(lpus []discovery.LPU) []discovery.LPU {
		lpus[3].Health = discovery.Unhealthy
		lpus[3].Reasons = finding.List{
			finding.New(finding.Recovering, "", "a warning", ""), finding.New(finding.NoDriver, "", "no driver", ""),
			finding.New(finding.NoDriver, "", "the same id again", ""),
		}
		return lpus
	})
	gone := changed(inv, func(lpus []discovery.LPU) []discovery.LPU { return slices.Delete(lpus, 3, 4) })
	var log bytes.Buffer
	n := node.New(slog.New(slog.NewTextHandler(&log, nil)))
	for _, step := range []struct {
		what         string
		inv          *discovery.Inventory
		health, says string
	}{
		{"unknown from the start", unknown, "HHHUHHHH", "lpu=lpu3 health=Unhealthy"},
		{"healthy", inv, "HHHHHHHH", "lpu=lpu3 health=Healthy"},
		{"unknown later", unknown, "HHHHHHHH", ""},
		{"unhealthy", unhealthy, "HHHUHHHH", `health=Unhealthy reason="no driver"`},
		{"unknown after that", unknown, "HHHUHHHH", ""},
		{"healthy again", inv, "HHHHHHHH", "health=Healthy"},
		{"gone", gone, "HHHHHHHU", `lpu="" health=Unhealthy reason="it is not in the machine any more"`},
		{"still gone", gone, "HHHHHHHU", ""},
		{"back", inv, "HHHHHHHH", "lpu=lpu3 health=Healthy"},
		{"unhealthy at the end", unhealthy, "HHHUHHHH", "health=Unhealthy"},
	} {
		log.Reset()
		s := n.Update(t.Context(), node.Spec{}, found(step.inv))
		if got := health(s); got != step.health || len(s.Cards) != len(step.inv.LPUs) {
			t.Errorf("%s: the devices are %s with %d LPUs, want %s", step.what, got, len(s.Cards), step.health)
		}
		if got := log.String(); !strings.Contains(got, step.says) || (got == "") != (step.says == "") {
			t.Errorf("%s: logged %q, want %q", step.what, got, step.says)
		}
	}
	var text bytes.Buffer
	if err := node.WriteMetrics(&text, n.Metrics()...); err != nil {
		t.Fatal(err)
	}
	sample := `lpuctl_lpu_reason{lpu="lpu3",device="pci-0000-46-00.1",reason="no-driver",severity="error"} 1`
	if strings.Count(text.String(), sample+"\n") != 1 {
		t.Errorf("not exactly one %s in\n%s", sample, &text)
	}
}

// TestDeviceIsUnhealthyWithoutItsName: here the spec cannot be written, because a file stands where its directory should.
func TestDeviceIsUnhealthyWithoutItsName(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	inv := inventory(t, root)
	good, err := cdi.Locate(root, cdi.DefaultSpecDir, cdi.DefaultKind)
	if err != nil {
		t.Fatal(err)
	}
	bad := good
	bad.Path = filepath.Join(root, "sys/bus/pci/devices/0000:43:00.1/vendor/x.json")
	var log bytes.Buffer
	n := node.New(slog.New(slog.NewTextHandler(&log, nil)))
	if err := n.Ready(); err == nil {
		t.Error("ready before the first snapshot")
	}
	for range 2 {
		s := n.Update(t.Context(), node.Spec{File: bad}, found(inv))
		if health(s) != "UUUUUUUU" || s.Devices[0].Reason() != "the CDI spec does not define it" || n.Ready() == nil {
			t.Errorf("%s because %q, ready: %v", health(s), s.Devices[0].Reason(), n.Ready())
		}
	}
	if strings.Count(log.String(), "is not as it should be") != 1 {
		t.Errorf("the log is %s", &log)
	}
	if s := n.Update(t.Context(), node.Spec{File: good}, found(inv)); health(s) != "HHHHHHHH" || n.Ready() != nil {
		t.Errorf("with a good spec: %s, ready: %v", health(s), n.Ready())
	}
	if len(inv.LPUs[0].Reasons) > 0 {
		t.Errorf("the inventory was changed: %v", inv.LPUs[0].Reasons)
	}
}

// TestNewNumbersNeedANewFile: a runtime remembers the numbers of nodes until the spec file is another one, so serve replaces the file
// when they change, though it does not say them, and only then.
func TestNewNumbersNeedANewFile(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	m, err := simulate.Node{Profile: "lpu", LPUs: 8}.Start(root)
	if err != nil {
		t.Fatal(err)
	}
	file, err := cdi.Locate(root, cdi.DefaultSpecDir, cdi.DefaultKind)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	n := node.New(slog.New(slog.NewTextHandler(&log, nil)))
	watcher := watch.New(root, watch.Options{}, func() time.Duration { return time.Duration(n.Now().UnixNano()) })
	ofX, ofY := m.Card(2).Numbers, m.Card(5).Numbers
	for _, step := range []struct {
		what   string
		change func() error
		writes int
	}{
		{"at the start", nil, 1},
		{"nothing changes", nil, 0},
		{"two cards exchange their numbers", func() error {
			return errors.Join(m.Renumber(2, simulate.Numbers{Major: 240}), m.Renumber(5, ofX), m.Renumber(2, ofY))
		}, 1},
		{"nothing changes again", nil, 0},
		{"a refresh has replaced the file", func() error {
			held, err := file.Hold(t.Context())
			if err != nil {
				return err
			}
			defer held.Release()
			inv, err := watcher.Scan(t.Context())
			if err != nil {
				return err
			}
			spec, _, err := cdi.Spec(inv, cdi.Options{})
			return errors.Join(err, m.Renumber(5, simulate.Numbers{Major: 240}),
				unwritten(cdi.SpecAndTables(file.Root, inv, cdi.Options{})), held.Write(spec))
		}, 0},
	} {
		log.Reset()
		if step.change != nil {
			if err := step.change(); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if s := n.Update(t.Context(), node.Spec{File: file}, watcher.Scan); s == nil || health(s) != "HHHHHHHH" {
				t.Errorf("%s: %s", step.what, &log)
			}
		}
		if got := strings.Count(log.String(), "wrote the CDI spec"); got != step.writes {
			t.Errorf("%s: %d writes, want %d: %s", step.what, got, step.writes, &log)
		}
	}
}

func TestScannedLogsAnErrorOnce(t *testing.T) {
	var log bytes.Buffer
	n := node.New(slog.New(slog.NewTextHandler(&log, nil)))
	for _, err := range []error{errors.New("one"), errors.New("one"), errors.New("two"), nil, errors.New("two")} {
		n.Update(t.Context(), node.Spec{}, func(context.Context) (*discovery.Inventory, error) { return &discovery.Inventory{}, err })
	}
	if got := strings.Count(log.String(), "the machine cannot be read"); got != 3 {
		t.Errorf("logged %d times, not 3: %s", got, &log)
	}
	var text bytes.Buffer
	if err := node.WriteMetrics(&text, n.Metrics()...); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"lpuctl_scan_duration_seconds_count 5\n", "lpuctl_scan_failures_total 4\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
}

// TestSensorsAreMetrics while the LPU is there.
func TestSensorsAreMetrics(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	m, err := simulate.Node{Profile: "orion", LPUs: 2}.Start(root)
	if err != nil {
		t.Fatal(err)
	}
	n := node.New(slog.New(slog.DiscardHandler))
	watcher := watch.New(root, watch.Options{}, func() time.Duration { return time.Hour })
	metrics := func() string {
		n.Update(t.Context(), node.Spec{}, watcher.Scan)
		var text bytes.Buffer
		if err := node.WriteMetrics(&text, n.Metrics()...); err != nil {
			t.Fatal(err)
		}
		return text.String()
	}
	const of0, of1 = `{lpu="lpu0",device="pci-0000-43-00.1"`, `{lpu="lpu1",device="pci-0000-44-00.1"`
	samples := func(of string) []string {
		return []string{
			"lpuctl_lpu_temperature_celsius" + of + `,sensor="FPGA TEMP"} 41`, "lpuctl_lpu_temperature_celsius" + of + `,sensor="HBM TEMP"} 44`,
			"lpuctl_lpu_power_watts" + of + "} 38.5",
			"lpuctl_lpu_link_width_lanes" + of + "} 16", "lpuctl_lpu_link_speed_gigatransfers" + of + "} 8",
		}
	}
	text := metrics()
	for _, sample := range append(samples(of0), samples(of1)...) {
		if strings.Count(text, sample+"\n") != 1 {
			t.Errorf("not exactly one %s in\n%s", sample, text)
		}
	}
	if err := m.Unplug(1); err != nil {
		t.Fatal(err)
	}
	text = metrics()
	for i, sample := range samples(of1) {
		if strings.Contains(text, sample) || !strings.Contains(text, samples(of0)[i]) {
			t.Errorf("an LPU that is gone has %s, or the other one has it not, in\n%s", sample, text)
		}
	}
}

// TestMetricsSayWhatIsKnown: of two sensors with one label the hotter one counts, not their sum, and a spec that nobody has looked at does
// not drift, nor not.
func TestMetricsSayWhatIsKnown(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	inventory(t, root)
	inv, err := discovery.Scan(t.Context(), root, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, celsius := range []float64{70, 40} {
		inv.LPUs[0].Temperatures[i].Label, inv.LPUs[0].Temperatures[i].Celsius = "temp1", celsius
	}
	file, err := cdi.Locate(root, cdi.DefaultSpecDir, cdi.DefaultKind)
	if err != nil {
		t.Fatal(err)
	}
	n := node.New(slog.New(slog.DiscardHandler))
	metrics := func() string {
		var text bytes.Buffer
		if err := node.WriteMetrics(&text, n.Metrics()...); err != nil {
			t.Fatal(err)
		}
		return text.String()
	}
	if text := metrics(); strings.Contains(text, "lpuctl_spec_drift{") {
		t.Errorf("nothing is known, and the spec drifts:\n%s", text)
	}
	n.Update(t.Context(), node.Spec{}, found(inv))
	if text := metrics(); strings.Contains(text, "lpuctl_spec_drift{") {
		t.Errorf("there is no spec, and it drifts:\n%s", text)
	}
	n.Update(t.Context(), node.Spec{File: file}, found(inv))
	text := metrics()
	for _, sample := range []string{
		`lpuctl_lpu_temperature_celsius{lpu="lpu0",device="pci-0000-43-00.1",sensor="temp1"} 70`, `lpuctl_spec_drift{differs="nodes"} 0`,
	} {
		if strings.Count(text, sample+"\n") != 1 {
			t.Errorf("not exactly one %s in\n%s", sample, text)
		}
	}
}

// TestARingTableThatGoesIsSaid: without it nobody knows which LPUs are connected.
func TestARingTableThatGoesIsSaid(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	inv := inventory(t, root)
	without := *inv
	without.RingTable, without.Rings = nil, nil
	var log bytes.Buffer
	n := node.New(slog.New(slog.NewTextHandler(&log, nil)))
	for range 2 {
		n.Update(t.Context(), node.Spec{}, found(inv))
		n.Update(t.Context(), node.Spec{}, found(&without))
		n.Update(t.Context(), node.Spec{}, found(&without))
	}
	if got := strings.Count(log.String(), "there is no ring table any more"); got != 2 {
		t.Errorf("said %d times, not 2: %s", got, &log)
	}
}

// unwritten is why ring tables could not be put in place; nil if they are.
func unwritten(_ *specs.Spec, _ finding.List, tables, _ error) error { return tables }
