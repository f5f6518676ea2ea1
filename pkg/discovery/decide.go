package discovery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// Fabric is how the LPUs are cabled, ready to be chosen from: card i is LPUs[i]. A cable to an absent LPU is dead, and no
// other: what is made of the fabric, such as the spec, depends on cabling and cards but not on health. So it does not use
// Ring.DeadLinks.
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

// Free is the LPUs that somebody can have: usable, and held open by nobody that FindUsers saw.
func (inv *Inventory) Free() []int {
	free := []int{}
	for i, l := range inv.LPUs {
		if l.Usable && len(l.Users) == 0 {
			free = append(free, i)
		}
	}
	return free
}

// Decision is which LPUs to take, and why.
type Decision struct {
	LPUs []string `json:"lpus"` // in ring order
	// Connected says that the LPUs follow each other on a ring; nil: no ring table says who is neighbour of whom.
	Connected   *bool       `json:"connected,omitempty"`
	FreeAfter   [][]string  `json:"freeAfter"` // the arcs that stay free
	Explanation Explanation `json:"explanation"`

	Chosen []int `json:"-"` // positions of LPUs in the inventory
}

// Explanation is what a decision was made of.
type Explanation struct {
	Size        int         `json:"size"`
	Free        []string    `json:"free"`
	MustInclude []string    `json:"mustInclude"`
	Candidates  []Candidate `json:"candidates"` // connected sets, the best first
	Reason      string      `json:"reason"`
}

// Candidate is a connected set that was weighed.
type Candidate struct {
	LPUs []string `json:"lpus"` // in ring order
	ring.Candidate
}

// Decide picks size of the free LPUs, which are positions in the inventory, all those in must among them. The rule is
// that of [ring.Fabric.Choose], and so are the errors.
func (inv *Inventory) Decide(f *ring.Fabric, free, must []int, size int) (*Decision, error) {
	choice, err := f.Choose(nil, free, must, size)
	if err != nil {
		return nil, err
	}
	rest := slices.DeleteFunc(slices.Clone(free), func(card int) bool { return slices.Contains(choice.Cards, card) })
	d := inv.NoDecision(free, must, size)
	d.LPUs, d.Chosen = inv.names(choice.Cards), choice.Cards
	d.FreeAfter = inv.ArcsOf(f, rest)
	if f.Cabled() {
		connected := choice.Pieces == 1
		d.Connected = &connected
	}
	for _, c := range f.Explain(free, must, size) {
		d.Explanation.Candidates = append(d.Explanation.Candidates, Candidate{inv.names(c.Cards), c})
	}
	d.Explanation.Reason = inv.reason(f, d, choice)
	return d, nil
}

// NoDecision is what is told of a wish that cannot be fulfilled, but for the reason.
func (inv *Inventory) NoDecision(free, must []int, size int) *Decision {
	return &Decision{LPUs: []string{}, FreeAfter: [][]string{}, Explanation: Explanation{
		Size: size, Free: inv.names(free), MustInclude: inv.names(must), Candidates: []Candidate{},
	}}
}

// ArcsOf takes LPUs apart into the longest arcs they make, by name.
func (inv *Inventory) ArcsOf(f *ring.Fabric, cards []int) [][]string {
	arcs := [][]string{}
	for _, arc := range f.FreeArcs(cards) {
		arcs = append(arcs, inv.names(arc))
	}
	return arcs
}

// reason is the decision in a sentence.
func (inv *Inventory) reason(f *ring.Fabric, d *Decision, choice ring.Choice) string {
	candidates := d.Explanation.Candidates
	switch {
	case !f.Cabled():
		return "there is no ring table: taken by NUMA node, PCIe switch and address"
	case len(candidates) == 1:
		return "it is the only connected set"
	case len(candidates) > 1:
		return fmt.Sprintf("better than %s: %s", strings.Join(candidates[1].LPUs, " "), candidates[1].LostBy)
	}
	pieces := []string{}
	for _, arc := range inv.ArcsOf(f, choice.Cards) {
		pieces = append(pieces, strings.Join(arc, " "))
	}
	return fmt.Sprintf("no set is connected; the fewest pieces are %d: %s", choice.Pieces, strings.Join(pieces, ", "))
}

func (inv *Inventory) names(cards []int) []string {
	names := make([]string, len(cards))
	for i, card := range cards {
		names[i] = inv.LPUs[card].Name
	}
	return names
}
