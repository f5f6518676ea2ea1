package discovery

import (
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// Fabric returns how the LPUs are cabled, for choosing among them: card i is LPUs[i]. Only a cable to an absent LPU is dead
// in it. The fabric must not change with health, because the CDI spec is made from it; so it does not use Ring.DeadLinks.
func (inv *Inventory) Fabric() *ring.Fabric {
	places := make([]ring.Place, len(inv.LPUs))
	switches := map[string]int{}
	for i, l := range inv.LPUs {
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
	cabling := inv.cabling()
	var dead [][2]int
	for _, r := range cabling.Rings {
		for _, l := range r.Links {
			if inv.LPUs[l[0]].Absent || inv.LPUs[l[1]].Absent {
				dead = append(dead, l)
			}
		}
	}
	return ring.NewFabric(places, cabling, dead)
}

// cabling is how the LPUs of the rings are cabled: card i is LPUs[i].
func (inv *Inventory) cabling() *ring.Cabling {
	index := make(map[string]int, len(inv.LPUs))
	for i, l := range inv.LPUs {
		index[l.Name] = i
	}
	c := &ring.Cabling{}
	for _, r := range inv.Rings {
		made := ring.Ring{Closed: r.Closed}
		for i, name := range r.Members {
			made.Cards = append(made.Cards, index[name])
			if next := (i + 1) % len(r.Members); next > 0 || r.Closed {
				made.Links = append(made.Links, [2]int{index[name], index[r.Members[next]]})
			}
		}
		c.Rings = append(c.Rings, made)
	}
	return c
}
