package cdi

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// sets returns the LPUs of each set device: every arc of every ring that is whole, by ring, size and start.
// On rings of more than 8 LPUs only arcs of 2, 4, 8 and so on, which is what workloads come in.
func sets(inv *discovery.Inventory, f *ring.Fabric) [][]discovery.LPU {
	var all [][]discovery.LPU
	for _, r := range inv.Rings {
		n := len(r.Members)
		cards := cardsWithNode(inv, func(l *discovery.LPU) bool { return l.Ring != nil && l.Ring.ID == r.ID })
		for k := 2; k <= n; k++ {
			if n > 8 && k&(k-1) != 0 {
				continue
			}
			for _, arc := range f.Arcs(cards, k) {
				all = append(all, pick(inv, arc))
			}
		}
	}
	return all
}

// cardsWithNode is the LPUs, by position in the inventory, that have a node and are wanted.
func cardsWithNode(inv *discovery.Inventory, wanted func(*discovery.LPU) bool) []int {
	var cards []int
	for i := range inv.LPUs {
		if l := &inv.LPUs[i]; len(l.Nodes) > 0 && wanted(l) {
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

// NameOf is the device in the inventory's spec that stands for the LPUs at these positions, which are in ring
// order: one LPU, a set, or all; "" if there is none.
func NameOf(inv *discovery.Inventory, cards []int) string {
	if len(cards) == 1 {
		return inv.LPUs[cards[0]].Name
	}
	name := SetName(pick(inv, cards))
	f := inv.Fabric()
	if slices.ContainsFunc(sets(inv, f), func(set []discovery.LPU) bool { return SetName(set) == name }) {
		return name
	}
	if everyone := cardsWithNode(inv, func(*discovery.LPU) bool { return true }); len(everyone) == len(cards) {
		return AllDevice
	}
	return ""
}

// SetName is the name of a set device: "lpu6-7-0-1", the indices in ring order.
func SetName(lpus []discovery.LPU) string { return "lpu" + joinIndices(lpus, "-") }

func joinIndices(lpus []discovery.LPU, separator string) string {
	indices := make([]string, len(lpus))
	for i, l := range lpus {
		indices[i] = strconv.Itoa(l.Index)
	}
	return strings.Join(indices, separator)
}

// listVariables tell a container which LPUs of the host it has. They belong to a set of LPUs only: when two
// devices that are injected together set one variable, the last silently wins. LPU_RING_ORDER is the same
// LPUs as positions in the order of PCI addresses, by which XRT numbers them inside the container.
func listVariables(inRing []discovery.LPU, connected, known bool) []Variable {
	const source = "list of the container's LPUs"
	variables := []Variable{{"LPU_VISIBLE_DEVICES", joinIndices(inRing, ","), source}}
	if known {
		byAddress := make([]int, len(inRing)) // indices are given in that order
		for i, l := range inRing {
			byAddress[i] = l.Index
		}
		slices.Sort(byAddress)
		positions := make([]string, len(inRing))
		for i, l := range inRing {
			position, _ := slices.BinarySearch(byAddress, l.Index)
			positions[i] = strconv.Itoa(position)
		}
		variables = append(variables, Variable{"LPU_RING_ORDER", strings.Join(positions, ","), source},
			Variable{"LPU_CONNECTED", strconv.FormatBool(connected), "ring table"})
	}
	return append(variables, Variable{"NUM_LPU_DEVICES", strconv.Itoa(len(inRing)), source})
}

// Container puts the LPUs at these positions of an inventory into ring order, and returns the variables that tell a container
// which they are.
func Container(inv *discovery.Inventory, f *ring.Fabric, cards []int) (inRing []discovery.LPU, variables []Variable) {
	ordered, pieces := f.Order(cards)
	inRing = pick(inv, ordered)
	return inRing, listVariables(inRing, pieces == 1, f.Cabled())
}
