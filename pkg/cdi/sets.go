package cdi

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// sets returns the LPUs of each set device: every arc of every ring that is whole, by ring, size and start.
// On rings of more than 8 LPUs only arcs of 2, 4, 8 and so on, which is what workloads come in.
func sets(inv *discovery.Inventory, withNodes []discovery.LPU) [][]discovery.LPU {
	byName := map[string]discovery.LPU{}
	for _, l := range withNodes {
		byName[l.Name] = l
	}
	var all [][]discovery.LPU
	for _, r := range inv.Rings {
		n := len(r.Members)
		for k := 2; k <= n; k++ {
			if n > 8 && k&(k-1) != 0 {
				continue
			}
			for start := range starts(r, k) {
				if arc := arcOf(r, start, k, byName); arc != nil {
					all = append(all, arc)
				}
			}
		}
	}
	return all
}

// starts is how many arcs of k LPUs a ring has. The whole ring is one set, named from its first LPU.
func starts(r discovery.Ring, k int) int {
	switch n := len(r.Members); {
	case k == n:
		return 1
	case r.Closed:
		return n
	default:
		return n - k + 1
	}
}

// arcOf is k LPUs that follow each other; nil if one has no node or a cable between them is dead.
func arcOf(r discovery.Ring, start, k int, byName map[string]discovery.LPU) []discovery.LPU {
	n := len(r.Members)
	arc := make([]discovery.LPU, 0, k)
	for i := range k {
		name := r.Members[(start+i)%n]
		l, ok := byName[name]
		if !ok || i > 0 && r.Dead(arc[i-1].Name, name) {
			return nil
		}
		arc = append(arc, l)
	}
	return arc
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

// inRingOrder puts LPUs in the order of their rings, each ring from where it is broken, if it is, and those on
// no ring last. connected says that they are one arc.
func inRingOrder(inv *discovery.Inventory, lpus []discovery.LPU) (ordered []discovery.LPU, connected bool) {
	byName := map[string]discovery.LPU{}
	for _, l := range lpus {
		byName[l.Name] = l
	}
	pieces := 0
	for _, r := range inv.Rings {
		for _, piece := range piecesOf(r, byName) {
			ordered = append(ordered, piece...)
			pieces++
		}
	}
	for _, l := range lpus {
		if l.Ring == nil {
			ordered = append(ordered, l)
			pieces++
		}
	}
	return ordered, pieces == 1
}

// piecesOf are the arcs that some of a ring's members make, in ring order from the first break on.
func piecesOf(r discovery.Ring, ours map[string]discovery.LPU) [][]discovery.LPU {
	n := len(r.Members)
	starts := make([]bool, n) // whether member i is ours and the one before it is not joined to it
	first := 0
	for i := n - 1; i >= 0; i-- {
		before, here := r.Members[(i+n-1)%n], r.Members[i]
		_, has := ours[here]
		_, hasBefore := ours[before]
		joined := hasBefore && (i > 0 || r.Closed) && !r.Dead(before, here)
		if starts[i] = has && !joined; starts[i] {
			first = i
		}
	}
	var pieces [][]discovery.LPU
	for i := range n {
		at := (first + i) % n
		l, has := ours[r.Members[at]]
		if !has {
			continue
		}
		if starts[at] || len(pieces) == 0 { // a whole ring starts nowhere
			pieces = append(pieces, nil)
		}
		pieces[len(pieces)-1] = append(pieces[len(pieces)-1], l)
	}
	return pieces
}

// listVariables tell a container which LPUs of the host it has. They belong to a set of LPUs only: when two
// devices that are injected together set one variable, the last silently wins. LPU_RING_ORDER is the same
// LPUs as positions in the order of PCI addresses, by which XRT numbers them inside the container.
func listVariables(inRing []discovery.LPU, connected, known bool) []string {
	variables := []string{"LPU_VISIBLE_DEVICES=" + joinIndices(inRing, ",")}
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
		variables = append(variables, "LPU_RING_ORDER="+strings.Join(positions, ","), "LPU_CONNECTED="+strconv.FormatBool(connected))
	}
	return append(variables, "NUM_LPU_DEVICES="+strconv.Itoa(len(inRing)))
}
