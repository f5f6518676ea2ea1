package plan_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/dra"
	"github.com/hyperaccel/lpuctl/pkg/dra/plan"
	"github.com/hyperaccel/lpuctl/pkg/simulate"
)

// server is the inventory of a simulated node.
func server(t testing.TB, n simulate.Node) *discovery.Inventory {
	t.Helper()
	root := filepath.Join(t.TempDir(), "node")
	if _, err := n.Write(root); err != nil {
		t.Fatal(err)
	}
	inv, err := discovery.Scan(t.Context(), root, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

func orion(t testing.TB) *discovery.Inventory { return server(t, simulate.Node{Profile: "orion"}) }

// planned is the plan of wishes, which must be good ones.
func planned(t testing.TB, in *plan.Input, wishes string) *plan.Plan {
	t.Helper()
	if faults := in.ReadWishes("wishes.yaml", []byte(wishes)); len(faults) > 0 {
		t.Fatal(faults)
	}
	p, err := in.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// claim is a claim for a device of a class.
func claim(name, class string) string {
	return fmt.Sprintf(`---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s}
spec:
  devices:
    requests:
      - name: lpus
        exactly: {deviceClassName: %s}
`, name, class)
}

// TestRefusesWhereFabricHasNoArc takes LPUs away at random, and wants a refusal exactly where the fabric of the node has no
// arc of the wanted size.
func TestRefusesWhereFabricHasNoArc(t *testing.T) {
	random := rand.New(rand.NewPCG(16, 10))
	for _, n := range []simulate.Node{{Profile: "orion"}} {
		inv := server(t, n)
		specs := dra.Slices(inv, dra.Options{Node: "node1"})
		single := map[string]string{} // device of one LPU, by address
		for _, s := range specs {
			for i := range s.Devices {
				if d := &s.Devices[i]; dra.Size(d) == 1 {
					single[dra.MembersOf(d)[0].String()] = d.Name
				}
			}
		}
		refused := 0
		for round := range 300 {
			in := &plan.Input{}
			in.AddSlices("node1", specs)
			var free []int
			for i := range inv.LPUs {
				if random.IntN(2) == 0 {
					free = append(free, i)
					continue
				}
				in.AddUse("team/job-"+inv.LPUs[i].Name, "node1", single[inv.LPUs[i].Address.String()])
			}
			size := []int{1, 2, 4, 8}[random.IntN(4)]
			class := "lpu"
			if size > 1 {
				class = fmt.Sprint("lpu-", size)
			}
			w := planned(t, in, claim("job", class)).Wishes[0]
			fits := len(inv.Fabric().Arcs(free, size)) > 0
			if w.Fits != fits {
				t.Fatalf("round %d: %d of %v: the plan says %t, the fabric %t", round, size, free, w.Fits, fits)
			}
			if !fits {
				refused++
				want := fmt.Sprintf("%d LPUs free, not connected", len(free))
				if len(free) < size {
					want = fmt.Sprintf("%d LPUs free, %d wanted", len(free), size)
				}
				if w.Refused[0].Reason != want {
					t.Fatalf("round %d: %d of %v: %q, expected %q", round, size, free, w.Refused[0].Reason, want)
				}
				continue
			}
			var got []int
			for _, d := range w.Devices {
				for _, a := range d.LPUs {
					got = append(got, slices.IndexFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Address.String() == a }))
				}
			}
			if ordered, pieces := inv.Fabric().Order(got); pieces != 1 || len(got) != size || !slices.Equal(ordered, got) && size > 1 {
				t.Fatalf("round %d: %d of %v: got %v, in %d pieces", round, size, free, got, pieces)
			}
			if longest := longest(inv, slices.DeleteFunc(slices.Clone(free), func(i int) bool { return slices.Contains(got, i) })); w.Left.Longest != longest {
				t.Fatalf("round %d: %v left %d, expected %d", round, free, w.Left.Longest, longest)
			}
		}
		if refused < 20 {
			t.Errorf("only %d refusals: the test tries too little", refused)
		}
	}
}

// longest is the largest published size of an arc that can be made of free LPUs.
func longest(inv *discovery.Inventory, free []int) int {
	for _, size := range []int{8, 4, 2, 1} {
		if len(inv.Fabric().Arcs(free, size)) > 0 {
			return size
		}
	}
	return 0
}

var _ = strings.Join
