package discovery

import (
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// Fabric returns how the LPUs are cabled, for choosing among them: card i is LPUs[i]. Only a cable to an absent LPU is dead
// in it. The fabric must not change with health, because the CDI spec is made from it; so it does not use Ring.DeadLinks.
func (inv *Inventory) Fabric() *ring.Fabric {
	index := make(map[string]int, len(inv.LPUs))
	places := make([]ring.Place, len(inv.LPUs))
	switches := map[string]int{}
	for i, l := range inv.LPUs {
		index[l.Name] = i
		behind := l.PCIeRoot
		if l.Switch != nil {
			behind = l.Switch.String()
		}
		if _, ok := switches[behind]; !ok {
			switches[behind] = len(switches)
		}
		places[i] = ring.Place{NUMANode: -1, Switch: switches[behind]}
		if l.NUMANode != nil {
			places[i].NUMANode = *l.NUMANode
		}
	}
	if inv.RingTable == nil {
		return ring.NewFabric(places, nil, nil)
	}
	cabling := &ring.Cabling{}
	var dead [][2]int
	for _, r := range inv.Rings {
		cards := make([]int, len(r.Members))
		for i, name := range r.Members {
			cards[i] = index[name]
		}
		cabling.Rings = append(cabling.Rings, ring.Ring{Cards: cards, Closed: r.Closed})
		for i, card := range cards {
			next := cards[(i+1)%len(cards)]
			if inv.LPUs[card].Absent || inv.LPUs[next].Absent {
				dead = append(dead, [2]int{card, next})
			}
		}
	}
	return ring.NewFabric(places, cabling, dead)
}
