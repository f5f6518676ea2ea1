package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/topology"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// TestOneTruthAboutCables: the matrix of topology, the set devices of the spec, and allocate agree how far it is over live cables
// from one usable LPU to another.
func TestOneTruthAboutCables(t *testing.T) {
	faults := func(name string, indices ...int) (all []simulate.Fault) {
		for _, i := range indices {
			all = append(all, simulate.Fault{Name: name, Index: i})
		}
		return all
	}
	for name, c := range map[string]struct {
		lpus   int
		faults []simulate.Fault
		table  string   // instead of the simulated one, which is a ring
		pulled []string // cards that are taken out of the machine
	}{
		"a whole ring":              {lpus: 8},
		"a ring of two":             {lpus: 2},
		"half a ring of two":        {lpus: 2, faults: faults("unbound", 1)},
		"no driver":                 {lpus: 8, faults: faults("unbound", 2)},
		"a virtual machine's":       {lpus: 3, faults: faults("vfio", 0)},
		"two of a ring":             {lpus: 8, faults: faults("unbound", 1, 5)},
		"neighbours of a ring":      {lpus: 8, faults: faults("two-nodes", 7, 0)},
		"factory image, has a node": {lpus: 8, faults: faults("recovery", 3)},
		"an absent card":            {lpus: 8, table: ringTable(8), pulled: []string{"0000:45:00"}},
		"two absent cards":          {lpus: 8, table: ringTable(8), pulled: []string{"0000:45:00", "0000:85:00"}},
		"absent, and no driver":     {lpus: 4, table: ringTable(4), faults: faults("unbound", 1), pulled: []string{"0000:43:00"}},
		"a chain": {
			lpus: 4, table: "links: [{a: lpu0, b: lpu1}, {a: lpu1, b: lpu2}, {a: lpu2, b: lpu3}]",
			faults: faults("unbound", 1),
		},
		"two rings":         {lpus: 7, table: "rings: [[0, 1, 2, 3], [4, 5, 6]]", faults: faults("unbound", 1, 6)},
		"one beside a ring": {lpus: 4, table: "rings: [[0, 1, 2], [3]]"},
		"in another order":  {lpus: 6, table: "rings: [[0, 3, 5, 1, 4, 2]]", faults: faults("unbound", 5)},
	} {
		t.Run(name, func(t *testing.T) {
			inv := scanOf(t, simulate.Node{Profile: "orion", LPUs: c.lpus, Faults: c.faults}, c.table, c.pulled)
			drawn, handedOut, chosen := inMatrix(inv), inSpec(t, inv), inChoice(t, inv)
			if !slices.Equal(drawn, handedOut) || !slices.Equal(drawn, chosen) {
				t.Errorf("matrix:   %v\nspec:     %v\nallocate: %v", drawn, handedOut, chosen)
			}
			if len(drawn) == 0 && c.lpus > 2 {
				t.Error("nothing is connected")
			}
		})
	}
}

// ringTable is a table of one ring, by PCI address, of the first LPUs of profile orion.
func ringTable(lpus int) string {
	addresses := []string{"43", "44", "45", "46", "83", "84", "85", "86"}[:lpus]
	return `rings: [["0000:` + strings.Join(addresses, `:00", "0000:`) + `:00"]]`
}

func scanOf(t *testing.T, node simulate.Node, table string, pulled []string) *discovery.Inventory {
	t.Helper()
	root := filepath.Join(t.TempDir(), "node")
	if _, err := node.Write(root); err != nil {
		t.Fatal(err)
	}
	if table != "" {
		text := "apiVersion: lpuctl.hyperaccel.ai/v1alpha1\nkind: RingTable\n" + table + "\n"
		if err := os.MkdirAll(filepath.Join(root, "etc/lpuctl"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, discovery.InstalledRingTable), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, card := range pulled {
		for _, function := range []string{".0", ".1"} {
			if err := os.Remove(filepath.Join(root, "sys/bus/pci/devices", card+function)); err != nil {
				t.Fatal(err)
			}
		}
	}
	inv, err := discovery.Scan(t.Context(), root, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if inv.RingTable == nil {
		t.Fatalf("the ring table is not used: %v", inv.Problems)
	}
	return inv
}

// inMatrix is what topology says of every two usable LPUs that are connected: "lpu0-lpu2:2" if two cables are between them.
func inMatrix(inv *discovery.Inventory) (distances []string) {
	_, rows := topology.New(inv).Matrix()
	for a, b := range usablePairs(inv) {
		if cables, connected := strings.CutPrefix(rows[a][b+1], "R"); connected {
			distances = append(distances, distance(inv, a, b, cables))
		}
	}
	return distances
}

// inSpec is the same after the smallest set device that has both LPUs, and none that is not usable.
func inSpec(t *testing.T, inv *discovery.Inventory) (distances []string) {
	t.Helper()
	spec, _, err := cdi.Spec(inv, cdi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var sets [][]int
	for _, d := range spec.Devices {
		for _, variable := range d.ContainerEdits.Env {
			indices, isList := strings.CutPrefix(variable, "LPU_VISIBLE_DEVICES=")
			if !isList || !slices.Contains(d.ContainerEdits.Env, "LPU_CONNECTED=true") {
				continue
			}
			var set []int
			for index := range strings.SplitSeq(indices, ",") {
				card, err := strconv.Atoi(index)
				if err != nil {
					t.Fatal(err)
				}
				set = append(set, card)
			}
			if !slices.ContainsFunc(set, func(card int) bool { return !inv.LPUs[card].Usable }) {
				sets = append(sets, set)
			}
		}
	}
	slices.SortFunc(sets, func(a, b []int) int { return len(a) - len(b) })
	for a, b := range usablePairs(inv) {
		i := slices.IndexFunc(sets, func(set []int) bool { return slices.Contains(set, a) && slices.Contains(set, b) })
		if i >= 0 {
			distances = append(distances, distance(inv, a, b, strconv.Itoa(len(sets[i])-1)))
		}
	}
	return distances
}

// inChoice is the same after the smallest connected LPUs that allocate finds with both among them.
func inChoice(t *testing.T, inv *discovery.Inventory) (distances []string) {
	t.Helper()
	for a, b := range usablePairs(inv) {
		for size := 2; size <= len(inv.LPUs); size++ {
			w := allocate.Wish{Size: size, Free: allocate.Free(inv), Must: []int{a, b}, Connected: true}
			if _, err := allocate.Decide(inv, inv.Fabric(), w); err == nil {
				distances = append(distances, distance(inv, a, b, strconv.Itoa(size-1)))
				break
			}
		}
	}
	return distances
}

func distance(inv *discovery.Inventory, a, b int, cables string) string {
	return fmt.Sprintf("%s-%s:%s", inv.LPUs[a].Name, inv.LPUs[b].Name, cables)
}

// usablePairs are every two usable LPUs, the lower one first.
func usablePairs(inv *discovery.Inventory) func(yield func(a, b int) bool) {
	usable := allocate.Free(inv)
	return func(yield func(a, b int) bool) {
		for i, a := range usable {
			for _, b := range usable[i+1:] {
				if !yield(a, b) {
					return
				}
			}
		}
	}
}
