package discovery

import (
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// Fabric returns how the LPUs are cabled, for choosing among them: card i is LPUs[i]. The
// cables of an LPU that is absent or unhealthy are dead, because it passes nothing on.
// Those of an LPU in doubt are not.
func (inv *Inventory) Fabric() *ring.Fabric { return inv.FabricWithout(inv.unhealthy()) }

// Cabled returns how the LPUs are cabled, whether or not they are healthy. The CDI spec
// is made from it, which must not change with health.
func (inv *Inventory) Cabled() *ring.Fabric { return inv.FabricWithout(nil) }

// unhealthy are the LPUs that are.
func (inv *Inventory) unhealthy() (cards []int) {
	for i, l := range inv.LPUs {
		if l.Health == Unhealthy {
			cards = append(cards, i)
		}
	}
	return cards
}

// FabricWithout returns how the LPUs are cabled if the cables of some, by position in
// LPUs, are dead. Those of absent LPUs are anyway.
func (inv *Inventory) FabricWithout(cards []int) *ring.Fabric {
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
			if inv.passesNothing(l[0], cards) || inv.passesNothing(l[1], cards) {
				dead = append(dead, l)
			}
		}
	}
	return ring.NewFabric(places, cabling, dead)
}

func (inv *Inventory) passesNothing(card int, dead []int) bool {
	return inv.LPUs[card].Absent || slices.Contains(dead, card)
}

// markDeadLinks sets Ring.DeadLinks by the health of the LPUs.
func (inv *Inventory) markDeadLinks() {
	unhealthy := inv.unhealthy()
	for i, cabled := range inv.cabling().Rings {
		r := &inv.Rings[i]
		r.DeadLinks = [][2]string{}
		for j, cable := range r.Cables() {
			next := cabled.Cards[(j+1)%len(cabled.Cards)]
			if inv.passesNothing(cabled.Cards[j], unhealthy) || inv.passesNothing(next, unhealthy) {
				r.DeadLinks = append(r.DeadLinks, cable)
			}
		}
	}
}

// DownSince returns since when an LPU at one end of a cable has been absent or unhealthy,
// in the time since boot; if both are, it is the earlier time. It is false of a cable
// that is not dead, and where nothing is remembered.
func (inv *Inventory) DownSince(cable [2]string) (since time.Duration, known bool) {
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		if !slices.Contains(cable[:], l.Name) || !l.Absent && l.Health != Unhealthy {
			continue
		}
		if record, has := inv.Records[l.Address.String()]; has && (!known || record.Since < since) {
			since, known = record.Since, true
		}
	}
	return since, known
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
		for _, name := range r.Members {
			made.Cards = append(made.Cards, index[name])
		}
		made.Links = ring.Links(made.Cards, r.Closed && !r.OneCable, r.Leftward)
		c.Rings = append(c.Rings, made)
	}
	return c
}

// ContainerTable returns the ring table for a container that has the LPUs at these
// positions, as [ring.WriteContainer] writes it.
func (inv *Inventory) ContainerTable(cards []int) []byte {
	return ring.WriteContainer(inv.cabling(), cards)
}
