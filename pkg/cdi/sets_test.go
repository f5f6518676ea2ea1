package cdi

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// ringOf puts the LPUs of an inventory on a ring in the order of their indices.
func ringOf(inv *discovery.Inventory, closed bool, dead ...[2]string) *discovery.Inventory {
	r := discovery.Ring{ID: "ring0", Closed: closed, DeadLinks: dead}
	for i := range inv.LPUs {
		r.Members = append(r.Members, inv.LPUs[i].Name)
		inv.LPUs[i].Ring = &discovery.RingPlace{ID: r.ID, Position: i}
	}
	inv.Rings, inv.RingTable = []discovery.Ring{r}, &discovery.TableRef{}
	return inv
}

// setNames are the names of the set devices in a spec.
func setNames(t *testing.T, inv *discovery.Inventory) []string {
	t.Helper()
	var names []string
	for _, d := range mustSpec(t, inv, Options{}).Devices {
		if strings.Contains(d.Name, "-") && !strings.HasPrefix(d.Name, "pci-") {
			names = append(names, d.Name)
		}
	}
	return names
}

func TestSets(t *testing.T) {
	without := ringOf(node(4), true)
	without.LPUs[1].Nodes = nil
	unhealthy := ringOf(node(4), true, [2]string{"lpu0", "lpu1"}, [2]string{"lpu1", "lpu2"})
	unhealthy.LPUs[1].Usable = false
	for name, c := range map[string]struct {
		inv  *discovery.Inventory
		want string
	}{
		"no table":    {node(3), ""},
		"a pair":      {ringOf(node(2), true), "lpu0-1"},
		"a ring":      {ringOf(node(4), true), "lpu0-1 lpu1-2 lpu2-3 lpu3-0 lpu0-1-2 lpu1-2-3 lpu2-3-0 lpu3-0-1 lpu0-1-2-3"},
		"a chain":     {ringOf(node(4), false), "lpu0-1 lpu1-2 lpu2-3 lpu0-1-2 lpu1-2-3 lpu0-1-2-3"},
		"dead cables": {unhealthy, "lpu0-1 lpu1-2 lpu2-3 lpu3-0 lpu0-1-2 lpu1-2-3 lpu2-3-0 lpu3-0-1 lpu0-1-2-3"}, // of no concern to the spec
		"a hole":      {without, "lpu2-3 lpu3-0 lpu2-3-0"},
	} {
		t.Run(name, func(t *testing.T) {
			oneString := cmp.Transformer("all", func(s []string) string { return strings.Join(s, " ") })
			if diff := cmp.Diff(strings.Fields(c.want), setNames(t, c.inv), oneString); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := setNames(t, ringOf(node(16), true)); len(got) != 16+16+16+1 {
		t.Errorf("a ring of 16 has %d sets: %v", len(got), got)
	}
}

func TestListVariables(t *testing.T) {
	hole := ringOf(node(8), true)
	hole.LPUs[2].Nodes = nil
	scattered := ringOf(node(4), true)
	scattered.LPUs[1].Nodes, scattered.LPUs[3].Nodes = nil, nil
	for name, c := range map[string]struct {
		inv    *discovery.Inventory
		device string
		want   string
	}{
		"plain arc": {ringOf(node(8), true), "lpu2-3-4-5",
			"LPU_VISIBLE_DEVICES=2,3,4,5 LPU_RING_ORDER=0,1,2,3 LPU_CONNECTED=true NUM_LPU_DEVICES=4"},
		"wrapping arc": {ringOf(node(8), true), "lpu6-7-0-1",
			"LPU_VISIBLE_DEVICES=6,7,0,1 LPU_RING_ORDER=2,3,0,1 LPU_CONNECTED=true NUM_LPU_DEVICES=4"},
		"all":         {ringOf(node(3), true), "all", "LPU_VISIBLE_DEVICES=0,1,2 LPU_RING_ORDER=0,1,2 LPU_CONNECTED=true NUM_LPU_DEVICES=3"},
		"all, a hole": {hole, "all", "LPU_VISIBLE_DEVICES=3,4,5,6,7,0,1 LPU_RING_ORDER=2,3,4,5,6,0,1 LPU_CONNECTED=true NUM_LPU_DEVICES=7"},
		"scattered":   {scattered, "all", "LPU_VISIBLE_DEVICES=0,2 LPU_RING_ORDER=0,1 LPU_CONNECTED=false NUM_LPU_DEVICES=2"},
		"no table":    {node(2), "all", "LPU_VISIBLE_DEVICES=0,1 NUM_LPU_DEVICES=2"},
	} {
		t.Run(name, func(t *testing.T) {
			env := mustSpec(t, c.inv, Options{Devices: []string{c.device}}).Devices[0].ContainerEdits.Env
			if diff := cmp.Diff(strings.Fields(c.want), env); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSetsHaveTheNodesOfTheirLPUs in ring order.
func TestSetsHaveTheNodesOfTheirLPUs(t *testing.T) {
	d := mustSpec(t, ringOf(node(4), true), Options{Devices: []string{"lpu3-0"}}).Devices[0]
	var nodes []string
	for _, n := range d.ContainerEdits.DeviceNodes {
		nodes = append(nodes, n.Path)
	}
	if !slices.Equal(nodes, []string{"/dev/lpu3", "/dev/lpu0"}) || len(d.ContainerEdits.Mounts) != 1 {
		t.Errorf("%+v", d.ContainerEdits)
	}
}
