package discovery_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/ring"
	"github.com/hyperaccel/lpuctl/test/machines"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// ringTable is one in our own format: rings and single cables of cards by index.
func ringTable(rings string, cables ...[2]int) string {
	text := "apiVersion: lpuctl.hyperaccel.ai/v1alpha1\nkind: RingTable\n"
	if rings != "" {
		text += "rings: [" + rings + "]\n"
	}
	for i, c := range cables {
		if i == 0 {
			text += "links:\n"
		}
		text += fmt.Sprintf("- {a: %d, b: %d}\n", c[0], c[1])
	}
	return text
}

// cabling is all that an inventory says of how LPUs are connected: rings, places, and the sets of the spec.
func cabling(t *testing.T, inv *discovery.Inventory) string {
	t.Helper()
	text := fmt.Sprintf("%+v\n", inv.Rings)
	for _, l := range inv.LPUs {
		text += fmt.Sprintf("%s %s: %+v\n", l.Name, l.Address, l.Ring)
	}
	spec, _, err := cdi.Spec(inv, cdi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := cdi.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return text + string(data)
}

// containerTables are the tables for containers with each LPU, with two LPUs and with all.
func containerTables(write func(cards []int) []byte, lpus int) (text string) {
	var all []int
	for i := range lpus {
		all = append(all, i)
		text += string(write([]int{i})) + string(write([]int{i, (i + 1) % lpus}))
	}
	return text + string(write(all))
}

// TestLastRingIsTheSameCabling: rings of every length and direction, chains, two rings, cards without a cable.
// Containers get the tables that follow from what is written.
func TestLastRingIsTheSameCabling(t *testing.T) {
	type shape struct {
		lpus  int
		table string
	}
	shapes := map[string]shape{
		"a pair with one cable":      {2, ringTable("[0, 1]")},
		"a pair with two cables":     {2, ringTable("", [2]int{0, 1}, [2]int{1, 0})},
		"one pair of four":           {4, ringTable("[0, 3]")},
		"a chain":                    {4, ringTable("", [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 3})},
		"a chain out of order":       {5, ringTable("", [2]int{3, 1}, [2]int{1, 4}, [2]int{4, 0}, [2]int{0, 2})},
		"a chain to the left":        {4, ringTable("", [2]int{3, 2}, [2]int{2, 1}, [2]int{1, 0})},
		"a ring to the left":         {5, ringTable("[4, 3, 2, 1, 0]")},
		"a pair to the left":         {2, ringTable("[1, 0]")},
		"two rings":                  {8, ringTable("[0, 1, 2, 3], [4, 5, 6, 7]")},
		"two crossed rings":          {8, ringTable("[0, 2, 4, 6], [1, 3, 5, 7]")},
		"two pairs, one cable, two":  {4, ringTable("[0, 1]", [2]int{2, 3}, [2]int{3, 2})},
		"a ring, a chain, two alone": {8, ringTable("[1, 3, 5]", [2]int{0, 7})},
	}
	for n := 3; n <= 16; n++ {
		order := make([]string, n)
		for i := range order {
			order[i] = fmt.Sprint(i * (n/2 + n%2 + 1) % n)
		}
		if slices.Sort(order); len(slices.Compact(order)) < n { // not a ring of all
			order = nil
			for i := range n {
				order = append(order, fmt.Sprint(i))
			}
		}
		shapes[fmt.Sprint("a ring of ", n)] = shape{n, ringTable("[" + strings.Join(order, ", ") + "]")}
	}
	roots := map[int]string{} // by number of LPUs
	for name, s := range shapes {
		root := roots[s.lpus]
		if root == "" {
			root = simulated(t, simulate.Node{Profile: "lpu", LPUs: s.lpus})
			roots[s.lpus] = root
		}
		t.Run(name, func(t *testing.T) {
			installed := filepath.Join(root, discovery.InstalledRingTable)
			plant.File(t, installed, s.table)
			inv := scan(t, root, discovery.Options{})
			if inv.RingTable == nil || inv.Problems.HasErrors() {
				t.Fatalf("not used: %v", inv.Problems)
			}
			kept, findings := ring.Parse("kept", inv.LastRing())
			if findings.HasErrors() {
				t.Fatalf("%v\n%s", findings, inv.LastRing())
			}
			plant.File(t, installed, "{")
			again := scan(t, root, discovery.Options{LastRing: kept})
			if diff := cmp.Diff(cabling(t, inv), cabling(t, again)); diff != "" {
				t.Errorf("of\n%s\n%s", inv.LastRing(), diff)
			}
			table, _ := ring.Parse("table", []byte(s.table))
			bound, _ := ring.Bind(table, inv.RingCards())
			want := containerTables(func(cards []int) []byte { return ring.WriteContainer(bound, cards) }, s.lpus)
			for what, inv := range map[string]*discovery.Inventory{"the table": inv, "the kept cabling": again} {
				if diff := cmp.Diff(want, containerTables(inv.ContainerTable, s.lpus)); diff != "" {
					t.Errorf("by %s: %s", what, diff)
				}
			}
			if again.LastRing() != nil {
				t.Error("a kept cabling is taken for a new one")
			}
		})
	}
}

// breakages are the ways in which the ring table of a machine of four cards stops to be usable.
func breakages() map[string]func(t *testing.T, m *simulate.Machine, table string) {
	return map[string]func(t *testing.T, m *simulate.Machine, table string){
		"not a table":  func(t *testing.T, _ *simulate.Machine, table string) { plant.File(t, table, "{") },
		"empty":        func(t *testing.T, _ *simulate.Machine, table string) { plant.File(t, table, "") },
		"a card less":  func(t *testing.T, _ *simulate.Machine, table string) { plant.File(t, table, ringTable("[0, 1, 2]")) },
		"a card twice": func(t *testing.T, _ *simulate.Machine, table string) { plant.File(t, table, ringTable("[0, 1, 2, 2]")) },
		"too large": func(t *testing.T, _ *simulate.Machine, table string) {
			plant.File(t, table, strings.Repeat("#", 1<<20+1))
		},
		"not readable": func(t *testing.T, _ *simulate.Machine, table string) { unreadable(t, table) },
		"not safe":     func(t *testing.T, _ *simulate.Machine, table string) { machines.Must(t, os.Chmod(table, 0o666)) },
		"a directory": func(t *testing.T, _ *simulate.Machine, table string) {
			machines.Must(t, os.Remove(table))
			machines.Must(t, os.Mkdir(table, 0o755))
		},
		"a card is out": func(t *testing.T, m *simulate.Machine, _ string) { machines.Must(t, m.Unplug(1)) }, // a table by index counts the cards
	}
}

// unreadable makes reads of a file fail, for root too: it leads to itself.
func unreadable(t *testing.T, file string) {
	t.Helper()
	machines.Must(t, os.Remove(file))
	machines.Must(t, os.Symlink(filepath.Base(file), file))
}

// chained is a machine of four cards on a chain that is not in the order of addresses, and its ring table.
func chained(t *testing.T) (root string, m *simulate.Machine, table string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "node")
	m, err := (simulate.Node{Profile: "lpu", LPUs: 4}).Start(root)
	machines.Must(t, err)
	table = filepath.Join(root, discovery.InstalledRingTable)
	plant.File(t, table, ringTable("", [2]int{2, 0}, [2]int{0, 3}, [2]int{3, 1}))
	return root, m, table
}

// keptBy are the ids of findings about a kept cabling.
func keptBy(inv *discovery.Inventory) (kept bool) {
	return slices.ContainsFunc(inv.Problems, func(f finding.Finding) bool {
		return f.ID == finding.RingKept && f.Severity == finding.Warning
	})
}

// TestATableThatBreaks: whatever happens to it, the rings, the sets and the indices stay, and it is said.
func TestATableThatBreaks(t *testing.T) {
	for name, spoil := range breakages() {
		t.Run(name, func(t *testing.T) {
			root, m, table := chained(t)
			now := time.Unix(0, 0)
			w := watch.New(root, watch.Options{}, func() time.Duration { return time.Duration(now.UnixNano()) })
			look := func() *discovery.Inventory {
				t.Helper()
				inv, err := w.Scan(t.Context())
				machines.Must(t, err)
				return inv
			}
			before := look()
			machines.Must(t, os.MkdirAll(filepath.Join(root, "var/lib/lpuctl"), 0o755))
			plant.File(t, filepath.Join(root, discovery.LastRingTable), string(before.LastRing()))
			spoil(t, m, table)
			command := scan(t, root, discovery.Options{}) // one that remembers nothing
			machines.Must(t, os.RemoveAll(filepath.Join(root, "var/lib/lpuctl")))
			serve := look() // one that has no file
			for what, inv := range map[string]*discovery.Inventory{"a command": command, "serve": serve} {
				if len(inv.LPUs) != 4 || len(inv.Rings) != 1 || !slices.Equal(inv.Rings[0].Members, before.Rings[0].Members) {
					t.Errorf("%s: %d LPUs, rings %+v, want %+v", what, len(inv.LPUs), inv.Rings, before.Rings)
				}
				if name != "a card is out" {
					if diff := cmp.Diff(cabling(t, before), cabling(t, inv)); diff != "" {
						t.Errorf("%s: %s", what, diff)
					}
				} else if !inv.LPUs[1].Absent || len(inv.Rings[0].DeadLinks) != 1 {
					t.Errorf("%s: %+v, lpu1 %+v", what, inv.Rings, inv.LPUs[1])
				}
				// A watcher that has seen the card still counts it, and so can use the table.
				if name != "a card is out" || what == "a command" {
					if !keptBy(inv) || !inv.RingTable.Kept || inv.LastRing() != nil {
						t.Errorf("%s: nothing is said: %+v, %v", what, inv.RingTable, inv.Problems)
					}
				}
			}
			if fresh := scan(t, root, discovery.Options{}); len(fresh.Rings) != 0 || keptBy(fresh) {
				t.Errorf("without anything that is kept: %+v", fresh.Rings)
			}
		})
	}
}

// TestAKeptCablingOfOtherCards is not used: it must name each LPU that is there. Neither is one that others can write to.
func TestAKeptCablingOfOtherCards(t *testing.T) {
	root, _, table := chained(t)
	good := scan(t, root, discovery.Options{}).LastRing()
	plant.File(t, table, "{")
	for name, c := range map[string]struct {
		spoil func(t *testing.T, kept string)
		want  bool
	}{
		"of these": {func(*testing.T, string) {}, true},
		"of these and one more": {func(t *testing.T, kept string) {
			edit(t, kept, "links:\n", "rings: [[\"0000:99:00.0\"]]\nlinks:\n")
		}, true},
		"of other cards":         {func(t *testing.T, kept string) { edit(t, kept, "0000:43:00.0", "0000:99:00.0") }, false},
		"others can write to it": {func(t *testing.T, kept string) { machines.Must(t, os.Chmod(kept, 0o666)) }, false},
		"a link":                 {func(t *testing.T, kept string) { unreadable(t, kept) }, false},
		"not a table":            {func(t *testing.T, kept string) { plant.File(t, kept, "{") }, false},
		"by index, and too few":  {func(t *testing.T, kept string) { plant.File(t, kept, ringTable("[0, 1, 2]")) }, false},
		"by index, and as many":  {func(t *testing.T, kept string) { plant.File(t, kept, ringTable("[0, 1, 2, 3]")) }, false},
		"a directory": {func(t *testing.T, kept string) {
			machines.Must(t, os.Remove(kept))
			machines.Must(t, os.Mkdir(kept, 0o755))
		}, false},
		"one that is none any more": {func(t *testing.T, kept string) { machines.Must(t, os.Remove(kept)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			kept := filepath.Join(root, discovery.LastRingTable)
			machines.Must(t, os.RemoveAll(filepath.Dir(kept)))
			machines.Must(t, os.MkdirAll(filepath.Dir(kept), 0o755))
			plant.File(t, kept, string(good))
			c.spoil(t, kept)
			got := scan(t, root, discovery.Options{})
			if (len(got.Rings) > 0) != c.want || keptBy(got) != c.want || (got.RingTable != nil) != c.want {
				t.Errorf("rings %+v of %+v, problems %v", got.Rings, got.RingTable, got.Problems)
			}
			if !c.want && len(got.LPUs) != 4 {
				t.Errorf("%d LPUs", len(got.LPUs))
			}
			if inv := scan(t, root, discovery.Options{RingTable: kept + ".not-there"}); keptBy(inv) != c.want {
				t.Errorf("a table that was asked for and is not there: %v", inv.Problems)
			}
		})
	}
}

func edit(t *testing.T, file, old, new string) {
	t.Helper()
	data, err := os.ReadFile(file)
	machines.Must(t, err)
	if !strings.Contains(string(data), old) {
		t.Fatalf("no %q in\n%s", old, data)
	}
	plant.File(t, file, strings.ReplaceAll(string(data), old, new))
}
