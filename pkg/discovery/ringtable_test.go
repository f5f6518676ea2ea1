package discovery_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/machines"
	"github.com/hyperaccel/lpuctl/test/plant"
)

func simulated(t *testing.T, node simulate.Node) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "node")
	if _, err := node.Write(root); err != nil {
		t.Fatal(err)
	}
	return root
}

func scan(t *testing.T, root string, options discovery.Options) *discovery.Inventory {
	t.Helper()
	inv, err := discovery.Scan(context.Background(), root, options)
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

func TestRingsOfANode(t *testing.T) {
	inv := scan(t, simulated(t, simulate.Node{Profile: "orion", LPUs: 16}), discovery.Options{})
	if len(inv.Rings) != 2 || len(inv.Problems) != 0 {
		t.Fatalf("rings %v, problems %v", inv.Rings, inv.Problems)
	}
	want := discovery.Ring{
		ID: "ring1", Closed: true, DeadLinks: [][2]string{},
		Members: []string{"lpu8", "lpu9", "lpu10", "lpu11", "lpu12", "lpu13", "lpu14", "lpu15"},
	}
	if diff := cmp.Diff(want, inv.Rings[1]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(&discovery.RingPlace{ID: "ring1", Position: 0, Previous: "lpu15", Next: "lpu9"}, inv.LPUs[8].Ring); diff != "" {
		t.Error(diff)
	}
	if inv.RingTable == nil || inv.RingTable.Format != "hyperdex" || !strings.HasSuffix(inv.RingTable.Path, "table.json") {
		t.Errorf("table %v", inv.RingTable)
	}
}

// TestAHole: a table keyed by address keeps the place of a card that is gone.
func TestAHole(t *testing.T) {
	root := simulated(t, simulate.Node{Profile: "orion", LPUs: 4})
	plant.File(t, filepath.Join(root, "etc/lpuctl/ring.yaml"),
		"apiVersion: lpuctl.hyperaccel.ai/v1alpha1\nkind: RingTable\nrings: [[\"0000:43:00\", \"0000:44:00\", \"0000:45:00\", \"0000:46:00\"]]\n")
	for _, function := range []string{"0000:44:00.0", "0000:44:00.1"} {
		if err := os.Remove(filepath.Join(root, "sys/bus/pci/devices", function)); err != nil {
			t.Fatal(err)
		}
	}
	inv := scan(t, root, discovery.Options{})
	if len(inv.LPUs) != 4 || !inv.LPUs[1].Absent || inv.LPUs[1].Address.String() != "0000:44:00.1" || inv.LPUs[1].Usable {
		t.Fatalf("lpu1: %+v", inv.LPUs[1])
	}
	if l := inv.LPUs[2]; l.Address.String() != "0000:45:00.1" || !l.Usable || l.Ring.Previous != "lpu1" {
		t.Errorf("lpu2: %+v", l)
	}
	if diff := cmp.Diff([][2]string{{"lpu0", "lpu1"}, {"lpu1", "lpu2"}}, inv.Rings[0].DeadLinks); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"ring-absent-card"}, machines.IDs(inv.Problems)); diff != "" {
		t.Error(diff)
	}
}

// TestDeadCables: an unhealthy LPU makes its cables dead, for choosing too, and one in doubt does not. The spec must not change with
// health, so what it is made of stays as it is.
func TestDeadCables(t *testing.T) {
	for fault, dead := range map[string][][2]string{
		"unbound": {{"lpu2", "lpu3"}, {"lpu3", "lpu0"}}, "recovery": {{"lpu2", "lpu3"}, {"lpu3", "lpu0"}}, "": {},
	} {
		node := simulate.Node{Profile: "orion", LPUs: 4}
		if fault != "" {
			node.Faults = []simulate.Fault{{Name: fault, Index: 3}}
		}
		root := simulated(t, node)
		if fault == "" {
			plant.File(t, filepath.Join(root, "sys/bus/pci/devices/0000:46:00.1/dev_offline"), "1\n")
		}
		inv := scan(t, root, discovery.Options{})
		if diff := cmp.Diff(dead, inv.Rings[0].DeadLinks); diff != "" {
			t.Errorf("%s: %s", fault, diff)
		}
		want := 1
		if len(dead) > 0 {
			want = 0
		}
		if arcs := inv.Fabric().Arcs([]int{0, 3}, 2); len(arcs) != want || len(inv.Cabled().Arcs([]int{0, 3}, 2)) != 1 {
			t.Errorf("%s: over a cable of lpu3: %v", fault, arcs)
		}
	}
}

func TestState(t *testing.T) {
	l := discovery.LPU{Usable: true, Health: discovery.HealthUnknown, Reasons: finding.List{
		{Severity: finding.Warning, ID: "slow-link"}, {Severity: finding.Error, ID: "no-driver"},
	}}
	if got := l.State(); got != "unknown" {
		t.Errorf("a usable LPU is %q", got)
	}
	l.Usable = false
	if got := l.State(); got != "no driver" {
		t.Errorf("it is %q", got)
	}
}

func TestTablesThatAreNotUsed(t *testing.T) {
	good := "apiVersion: lpuctl.hyperaccel.ai/v1alpha1\nkind: RingTable\nrings: [[0, 1, 2, 3]]\n"
	for name, c := range map[string]struct {
		spoil func(t *testing.T, path string)
		want  string
	}{
		"written by others": {func(t *testing.T, path string) {
			plant.File(t, path, good)
			if err := os.Chmod(path, 0o664); err != nil {
				t.Fatal(err)
			}
		}, "ring-unsafe"},
		"a link": {func(t *testing.T, path string) {
			plant.File(t, path+".target", good)
			if err := os.Symlink("ring.yaml.target", path); err != nil {
				t.Fatal(err)
			}
		}, ""}, // within the root links are followed, and the target is judged
		"a directory": {func(t *testing.T, path string) {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}, "ring-unsafe"},
		"too large":    {func(t *testing.T, path string) { plant.File(t, path, strings.Repeat("#", 1<<20+1)) }, "ring-too-large"},
		"not a table":  {func(t *testing.T, path string) { plant.File(t, path, "{") }, "ring-syntax"},
		"for another":  {func(t *testing.T, path string) { plant.File(t, path, strings.Replace(good, ", 3", "", 1)) }, "ring-count"},
		"one of whole": {func(t *testing.T, path string) { plant.File(t, path, good) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := simulated(t, simulate.Node{Profile: "lpu", LPUs: 4})
			path := filepath.Join(root, "etc/lpuctl/ring.yaml")
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			c.spoil(t, path)
			inv := scan(t, root, discovery.Options{})
			got := strings.Join(machines.IDs(inv.Problems), ",")
			if got != c.want || (c.want == "") != (len(inv.Rings) == 1) || len(inv.LPUs) != 4 {
				t.Errorf("problems %q, want %q; rings %v", got, c.want, inv.Rings)
			}
		})
	}
	missing := filepath.Join(t.TempDir(), "nowhere")
	inv := scan(t, simulated(t, simulate.Node{Profile: "orion", LPUs: 2}), discovery.Options{RingTable: missing})
	if got := machines.IDs(inv.Problems); len(got) != 1 || got[0] != "ring-unreadable" || len(inv.Rings) != 0 {
		t.Errorf("a table that was asked for and is not there: %v", inv.Problems)
	}
}

// TestRingTableOfConfigMap: a ring table that was asked for may be a file of a ConfigMap, as the kubelet mounts it: a link, through a link
// to a directory. It is still refused if others may write to it, or if the link is another user's.
func TestRingTableOfConfigMap(t *testing.T) {
	root := simulated(t, simulate.Node{Profile: "lpu", LPUs: 4})
	dir := t.TempDir()
	path, data := filepath.Join(dir, "ring.yaml"), filepath.Join(dir, "..2026_11_23", "ring.yaml")
	if err := os.Mkdir(filepath.Dir(data), 0o755); err != nil {
		t.Fatal(err)
	}
	plant.File(t, data, "apiVersion: lpuctl.hyperaccel.ai/v1alpha1\nkind: RingTable\nrings: [[0, 1, 2, 3]]\n")
	for link, target := range map[string]string{filepath.Join(dir, "..data"): "..2026_11_23", path: "..data/ring.yaml"} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	want := func(problems ...string) {
		t.Helper()
		inv := scan(t, root, discovery.Options{RingTable: path})
		if got := machines.IDs(inv.Problems); !slices.Equal(got, problems) || (len(inv.Rings) == 1) != (problems == nil) {
			t.Errorf("problems %q, want %q; rings %v", got, problems, inv.Rings)
		}
		if inv.RingTable != nil && inv.RingTable.Path != path {
			t.Errorf("it is called %s", inv.RingTable.Path)
		}
	}
	want()
	if os.Getuid() == 0 {
		if err := os.Lchown(path, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		want("ring-unsafe")
		if err := os.Lchown(path, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(data, 0o666); err != nil {
		t.Fatal(err)
	}
	want("ring-unsafe")
}
