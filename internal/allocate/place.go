package allocate

import (
	"fmt"
	"slices"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Near is what the LPUs of a wish must have in common. A single LPU always does.
type Near string

// The values of Near, as requests to the arbiter of leases have them.
const (
	Anywhere   Near = ""
	SameSwitch Near = "switch" // LPU.Switch
	SameSocket Near = "socket" // the processor package of LPU.NUMANode; see [discovery.Sockets]
	SameNUMA   Near = "numa"   // LPU.NUMANode
)

// Place limits where the LPUs of a wish are. The zero Place allows any.
type Place struct {
	Near     Near `json:"near,omitempty"`
	NUMANode *int `json:"numaNode,omitempty"` // with SameNUMA: this one; nil: any one
}

func (p Place) String() string {
	switch {
	case p.Near == Anywhere:
		return "this node"
	case p.NUMANode != nil:
		return numaNode(*p.NUMANode)
	}
	return map[Near]string{SameSwitch: "one PCIe switch", SameSocket: "one socket", SameNUMA: "one NUMA node"}[p.Near]
}

func numaNode(number int) string { return fmt.Sprint("NUMA node ", number) }

// Groups divides LPUs, given as positions in the inventory, by what they share, and says
// what that is. LPUs that the place does not allow are in no group. Sockets are those of
// [discovery.Sockets].
func (p Place) Groups(inv *discovery.Inventory, sockets map[int]int, cards []int) (groups [][]int, shared []string) {
	for _, card := range cards {
		name := p.shares(&inv.LPUs[card], sockets)
		if name == "" {
			continue
		}
		i := slices.Index(shared, name)
		if i < 0 {
			i, groups, shared = len(shared), append(groups, nil), append(shared, name)
		}
		groups[i] = append(groups[i], card)
	}
	return groups, shared
}

// Allows reports whether an LPU may be taken, if the others are near it.
func (p Place) Allows(l *discovery.LPU) bool { return p.shares(l, nil) != "" }

// shares names what an LPU shares with others: nothing but itself where that is not
// known, and "" if the LPU is not allowed.
func (p Place) shares(l *discovery.LPU, sockets map[int]int) string {
	switch {
	case p.Near == Anywhere:
		return p.String()
	case p.Near == SameSwitch && l.Switch != nil:
		return "switch " + l.Switch.String()
	case p.Near == SameSwitch:
		return l.Name
	case p.NUMANode != nil && (l.NUMANode == nil || *l.NUMANode != *p.NUMANode):
		return ""
	case l.NUMANode == nil:
		return l.Name
	}
	if socket, known := sockets[*l.NUMANode]; known && p.Near == SameSocket {
		return fmt.Sprint("socket ", socket)
	}
	return numaNode(*l.NUMANode)
}
