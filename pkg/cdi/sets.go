package cdi

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// sets are the LPUs of each set device, by position in the inventory: every arc of every
// ring that is whole, by ring, size and start. On rings of more than 8 LPUs only arcs of
// 2, 4, 8 and so on, which is what workloads come in.
func sets(inv *discovery.Inventory, f *ring.Fabric) (all [][]int) {
	for _, r := range inv.Rings {
		n := len(r.Members)
		cards := slices.DeleteFunc(cardsWithNode(inv), func(card int) bool { return !slices.Contains(r.Members, inv.LPUs[card].Name) })
		for k := 2; k <= n; k++ {
			if n <= 8 || k&(k-1) == 0 {
				all = append(all, f.Arcs(cards, k)...)
			}
		}
	}
	return all
}

// cardsWithNode are the LPUs that have a node, by position in the inventory.
func cardsWithNode(inv *discovery.Inventory) (cards []int) {
	for i, l := range inv.LPUs {
		if len(l.Nodes) > 0 {
			cards = append(cards, i)
		}
	}
	return cards
}

func pick(inv *discovery.Inventory, cards []int) []discovery.LPU {
	lpus := make([]discovery.LPU, len(cards))
	for i, card := range cards {
		lpus[i] = inv.LPUs[card]
	}
	return lpus
}

// setName is the name of a set device: "lpu6-7-0-1", the indices in ring order.
func setName(lpus []discovery.LPU) string { return "lpu" + joinIndices(lpus, "-") }

func joinIndices(lpus []discovery.LPU, separator string) string {
	indices := make([]string, len(lpus))
	for i, l := range lpus {
		indices[i] = strconv.Itoa(l.Index)
	}
	return strings.Join(indices, separator)
}

// listVariables describe the LPUs of a container as a whole. They belong to a set of LPUs
// only: when two devices that are injected together set one variable, the last silently
// wins. LPU_RING_ORDER is the same LPUs as positions in the order of PCI addresses, by
// which XRT numbers them inside the container. A single LPU has position 0 there, whether
// or not a ring is known.
func listVariables(inRing []discovery.LPU, connected, known bool) []Variable {
	const source = "list of the container's LPUs"
	variables := append(driverVersion(inRing), Variable{visibleDevices, joinIndices(inRing, ","), source})
	if known || len(inRing) == 1 {
		positions := make([]string, len(inRing))
		for i, l := range inRing {
			before := 0 // indices are given in the order of addresses
			for _, other := range inRing {
				if other.Index < l.Index {
					before++
				}
			}
			positions[i] = strconv.Itoa(before)
		}
		variables = append(variables, Variable{ringOrder, strings.Join(positions, ","), source})
	}
	if known {
		variables = append(variables, Variable{connectedLPUs, strconv.FormatBool(connected), "ring table"})
	}
	return append(variables, Variable{numberOfLPUs, strconv.Itoa(len(inRing)), source})
}

// Container puts the LPUs at these positions of an inventory into ring order, and returns
// the variables that describe them as a whole: which they are, how they are cabled, and
// the driver version that they share.
func Container(inv *discovery.Inventory, f *ring.Fabric, cards []int) (inRing []discovery.LPU, variables []Variable) {
	ordered, pieces := f.Order(cards)
	inRing = pick(inv, ordered)
	return inRing, listVariables(inRing, pieces == 1, f.Cabled())
}
