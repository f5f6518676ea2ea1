//go:build dra

package dra

import (
	"fmt"
	"slices"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// server is a server with rings and chains of healthy LPUs, and what does not work of it.
type server struct {
	name    string
	loops   [][]int // indices of LPUs in the order of the cables
	chains  bool    // the loops are open
	badCard int     // -1: none
	badLink int     // the first loop's cable behind this position; -1: none
}

func row(from, count int) (cards []int) {
	for i := range count {
		cards = append(cards, from+i)
	}
	return cards
}

func (s *server) count() (n int) {
	for _, l := range s.loops {
		n += len(l)
	}
	return n
}

// inventory is what a scan finds of it: two LPUs behind a switch, half of them on a NUMA node.
func (s *server) inventory() *discovery.Inventory {
	inv := &discovery.Inventory{RingTable: &discovery.TableRef{Path: "ring.yaml", Format: "lpuctl"}}
	for i := range s.count() {
		numaNode := 2 * i / s.count()
		l := discovery.LPU{
			Name: fmt.Sprint("lpu", i), Index: i, Model: "orion-u55c", DriverVersion: "2.17.391", Shell: "xilinx_u55c_gen3x16_xdma_base_3",
			Address: address(i),
			Place: discovery.Place{
				PCIeRoot: fmt.Sprintf("pci0000:%02x", numaNode), NUMANode: &numaNode, Switch: &pci.Address{Bus: uint8(i / 2)},
			},
			Equipment: discovery.Equipment{MemoryGiB: 16}, Usable: true, Health: discovery.Healthy,
		}
		if i == s.badCard {
			l.Usable, l.Health = false, discovery.Unhealthy
		}
		inv.LPUs = append(inv.LPUs, l)
	}
	for i, cards := range s.loops {
		r := discovery.Ring{ID: fmt.Sprint("ring", i), Closed: !s.chains || len(cards) <= 2, DeadLinks: [][2]string{}}
		for j, card := range cards {
			r.Members = append(r.Members, fmt.Sprint("lpu", card))
			if i == 0 && j == s.badLink {
				r.DeadLinks = append(r.DeadLinks, [2]string{fmt.Sprint("lpu", card), fmt.Sprint("lpu", cards[(j+1)%len(cards)])})
			}
		}
		inv.Rings = append(inv.Rings, r)
	}
	return inv
}

func address(card int) pci.Address {
	return pci.Address{Bus: uint8(0x41 + card), Function: 1}
}

func card(a pci.Address) int { return int(a.Bus) - 0x41 }

// fabric is the same server as the device plugin knows it, built by another package.
func (s *server) fabric() *ring.Fabric {
	cabling, dead := &ring.Cabling{}, [][2]int{}
	for i, cards := range s.loops {
		cabling.Rings = append(cabling.Rings, ring.Ring{Cards: cards, Closed: !s.chains})
		for j, one := range cards {
			next := cards[(j+1)%len(cards)]
			if i == 0 && j == s.badLink || one == s.badCard || next == s.badCard {
				dead = append(dead, [2]int{one, next})
			}
		}
	}
	places := slices.Repeat([]ring.Place{{}}, s.count())
	return ring.NewFabric(places, cabling, dead)
}

// servers are rings of 3 to 16, chains, several rings, and each dead cable and card.
func servers() (all []server) {
	whole := func(name string, chains bool, loops ...[]int) {
		all = append(all, server{name, loops, chains, -1, -1})
	}
	for n := 3; n <= 16; n++ {
		whole(fmt.Sprint("ring of ", n), false, row(0, n))
	}
	for _, n := range []int{2, 3, 5, 8, 12} {
		whole(fmt.Sprint("chain of ", n), true, row(0, n))
	}
	whole("two rings of 4", false, row(0, 4), row(4, 4))
	whole("two rings of 8", false, row(0, 8), row(8, 8))
	whole("rings of 3, 1 and 4", false, row(0, 3), row(3, 1), row(4, 4))
	whole("chains of 3 and 5", true, row(0, 3), row(3, 5))
	whole("a ring that is not in the order of the addresses", false, []int{0, 2, 4, 6, 7, 5, 3, 1})
	for _, n := range []int{3, 4, 8} {
		for i := range n {
			all = append(all, server{fmt.Sprintf("ring of %d, cable %d dead", n, i), [][]int{row(0, n)}, false, -1, i})
			all = append(all, server{fmt.Sprintf("ring of %d, card %d dead", n, i), [][]int{row(0, n)}, false, i, -1})
		}
	}
	for i := range 4 {
		all = append(all, server{fmt.Sprintf("chain of 5, cable %d dead", i), [][]int{row(0, 5)}, true, -1, i})
	}
	return all
}
