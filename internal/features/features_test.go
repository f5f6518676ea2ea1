package features

import (
	"context"
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// validValue is what Kubernetes asks of the value of a label.
var validValue = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)

func scan(t *testing.T, root string) *discovery.Inventory {
	t.Helper()
	inv, err := discovery.Scan(context.Background(), root, discovery.Options{Models: discovery.BuiltinModels()})
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

// TestLabels: the labels say what is in the machine, and nothing of what may change with pods or health.
func TestLabels(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: 8}).Write(root); err != nil {
		t.Fatal(err)
	}
	inv, machine := scan(t, root), new(Machine)
	want := map[string]string{
		countLabel: "8", modelLabel: "orion-u55c", ringSizesLabel: "8", ringLargestLabel: "8",
		driverLabel: "xocl", driverVersionLabel: "2.15.225", shellLabel: inv.LPUs[0].Shell,
		numaNodesLabel: "2", numaLargestLabel: "4",
	}
	if diff := cmp.Diff(want, machine.Labels(inv)); diff != "" {
		t.Error(diff)
	}
	for key, value := range machine.Labels(inv) {
		if value == "" || !validValue.MatchString(value) {
			t.Errorf("%s=%q", key, value)
		}
	}
	for i := range inv.LPUs {
		inv.LPUs[i].Health, inv.LPUs[i].Usable, inv.LPUs[i].Cordoned = discovery.Unhealthy, false, &health.Cordon{}
	}
	if diff := cmp.Diff(want, machine.Labels(inv)); diff != "" {
		t.Error("it changes with health: ", diff)
	}
	inv.LPUs[2].Absent, inv.LPUs[5].Absent = true, true
	maps.Copy(want, map[string]string{countLabel: "6", ringSizesLabel: "4_2", ringLargestLabel: "4", numaLargestLabel: "3"})
	if diff := cmp.Diff(want, machine.Labels(inv)); diff != "" {
		t.Error("two cards lost: ", diff)
	}
}

// TestLabelsOfNothing: of a machine without LPUs there is nothing to say but that.
func TestLabelsOfNothing(t *testing.T) {
	if diff := cmp.Diff(map[string]string{countLabel: "0"}, new(Machine).Labels(&discovery.Inventory{})); diff != "" {
		t.Error(diff)
	}
}

// TestLabelsOfDifferentLPUs: all values are there. Without a ring table nothing is said of rings, and an absent card is not counted.
func TestLabelsOfDifferentLPUs(t *testing.T) {
	node := 1
	inv := &discovery.Inventory{LPUs: []discovery.LPU{
		{Model: "orion-u55c", Driver: "xocl", DriverVersion: "2.16.204+,4be1c3d", Place: discovery.Place{NUMANode: &node}},
		{Model: "bertha"}, {Model: "orion-u55c", Driver: "xocl"}, {Model: "lpu", Absent: true},
	}}
	machine := new(Machine)
	want := map[string]string{
		countLabel: "3", modelLabel: "bertha_orion-u55c", driverLabel: "xocl",
		driverVersionLabel: "2.16.204", numaNodesLabel: "1", numaLargestLabel: "1",
	}
	if diff := cmp.Diff(want, machine.Labels(inv)); diff != "" {
		t.Error(diff)
	}
}

// TestLabelsStay: one reload of the driver, or a card that hangs, takes no label away and changes none. Another driver does, and a card
// that was gone may be another one.
func TestLabelsStay(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	m, err := (simulate.Node{Profile: "orion", LPUs: 4}).Start(root)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	machine := new(Machine)
	want := machine.Labels(scan(t, root))
	for i := range 4 {
		must(m.Unbind(i))
		if diff := cmp.Diff(want, machine.Labels(scan(t, root))); diff != "" {
			t.Errorf("%d without a driver: %s", i+1, diff)
		}
	}
	for i := range 4 {
		must(m.Bind(i))
	}
	inv := scan(t, root)
	hanging := inv.LPUs[1]
	hanging.Driver, hanging.DriverVersion, hanging.Shell, hanging.NUMANode = "", "", "", nil // as of one that does not answer
	inv.LPUs[1] = hanging
	if diff := cmp.Diff(want, machine.Labels(inv)); diff != "" {
		t.Error("one hangs: ", diff)
	}
	without := maps.Clone(want)
	delete(without, driverVersionLabel)
	delete(without, shellLabel)
	without[driverLabel] = "vfio-pci"
	for i := range inv.LPUs {
		inv.LPUs[i].Driver, inv.LPUs[i].DriverVersion, inv.LPUs[i].Shell = "vfio-pci", "", ""
	}
	if diff := cmp.Diff(without, machine.Labels(inv)); diff != "" {
		t.Error("another driver: ", diff)
	}
	machine.Labels(&discovery.Inventory{})
	delete(without, driverLabel)
	without[numaLargestLabel] = "3" // one hangs
	for i := range inv.LPUs {
		inv.LPUs[i].Driver = ""
	}
	if diff := cmp.Diff(without, machine.Labels(inv)); diff != "" {
		t.Error("other cards: ", diff)
	}
}

func TestValue(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "2.18.179": "2.18.179", "5.15.0+": "5.15.0", "a+b": "a_b", "+_.": "", "käse": "k_se", "(x)": "x", "a\nb=c": "a_b_c", "@x": "x",
		strings.Repeat("x", 70):         strings.Repeat("x", 63),
		strings.Repeat("x", 62) + "+y":  strings.Repeat("x", 62),
		"+++" + strings.Repeat("x", 63): strings.Repeat("x", 63),
	} {
		if got := labelValue(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestFile(t *testing.T) {
	expiry := time.Date(2026, 11, 22, 13, 30, 15, 999, time.FixedZone("", 3600))
	body := Body(map[string]string{"b.c/d": "2", "a": "1"}, map[string]string{"a": "3"})
	got := string(Text(expiry, body))
	want := "# +expiry-time=2026-11-22T12:30:15Z\n# Written by lpuctl serve, which writes it again.\na=3\nb.c/d=2\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	at, rest, err := Split([]byte(got))
	if err != nil || rest != body || !at.Equal(expiry.Truncate(time.Second)) {
		t.Errorf("%v %q %v", at, rest, err)
	}
	for _, bad := range []string{"", "a=1\n", "# +expiry-time=tomorrow\na=1\n", "# +expiry-time=2026-11-22T12:30:15Z"} {
		if _, _, err := Split([]byte(bad)); err == nil {
			t.Errorf("%q is taken for a file", bad)
		}
	}
}

// FuzzSplit: whatever is in place of the file is one of ours, and is made again as it is, or an error.
func FuzzSplit(f *testing.F) {
	f.Add("# +expiry-time=2026-11-22T12:30:15Z\na=1\n")
	f.Add("# +expiry-time=2026-11-22T12:30:15.5+01:00\n")
	f.Fuzz(func(t *testing.T, text string) {
		expiry, body, err := Split([]byte(text))
		if err != nil {
			return
		}
		if again, rest, err := Split(Text(expiry, body)); err != nil || rest != body || again.Sub(expiry).Abs() >= time.Second {
			t.Errorf("%q: %v %q %v", text, again, rest, err)
		}
	})
}

// FuzzValue: whatever a driver says, the value is one that Kubernetes takes.
func FuzzValue(f *testing.F) {
	f.Add("2.16.204,4be1c3d+")
	f.Fuzz(func(t *testing.T, text string) {
		if value := labelValue(text); !validValue.MatchString(value) {
			t.Errorf("%q became %q", text, value)
		}
	})
}
