package ring

import (
	"math/bits"
	"slices"
)

// Candidate is an arc that [Fabric.Choose] weighed.
type Candidate struct {
	Cards     []int     `json:"-"`                // in the order of the ring
	FreeAfter []int     `json:"freeAfter"`        // lengths of the arcs that stay free, longest first
	RingFree  int       `json:"ringFree"`         // free cards on its ring, before
	Wraps     bool      `json:"wraps"`            // past the order of the PCI addresses
	Pairs     int       `json:"pairs"`            // aligned pairs of the ring it has cards of
	Broken    []int     `json:"broken"`           // whole free aligned blocks it takes cards of: of 2 cards, 4, 8 and so on
	NUMANodes int       `json:"numaNodes"`        // it has cards on
	Switches  int       `json:"switches"`         // it has cards behind
	LostBy    Criterion `json:"lostBy,omitempty"` // what makes the best one better; "" for the best itself
}

// Explain is all arcs that Choose picks from, the best first: the first is its answer. There is none where the answer
// is pieces, where the cabling is not known, and where Choose has an error.
func (f *Fabric) Explain(free, must []int, k int) []Candidate {
	s := search{Fabric: f, size: k, free: f.masks(nil, free), must: f.masks(nil, must)}
	if !f.cabled || s.check(free, must) != nil {
		return nil
	}
	s.measure()
	var arcs []arc
	s.eachArc(func(a arc) { arcs = append(arcs, a) })
	slices.SortFunc(arcs, func(a, b arc) int {
		if better, _ := s.compare(&a, &b); better {
			return -1
		}
		return 1
	})
	candidates := make([]Candidate, len(arcs))
	for i, a := range arcs {
		candidates[i] = s.candidate(&a)
		if i > 0 {
			_, candidates[i].LostBy = s.compare(&arcs[0], &a)
		}
	}
	return candidates
}

func (s *search) candidate(a *arc) Candidate {
	l := &s.loops[a.loop]
	c := Candidate{
		Cards: l.append(nil, a.start, s.size), FreeAfter: []int{}, RingFree: a.room, Wraps: a.wraps, Pairs: a.pairs,
		NUMANodes: spread(l.numaNodes, a.cards), Switches: spread(l.switches, a.cards),
	}
	for i, set := range s.free {
		if i == a.loop {
			set &^= a.cards
		}
		for r := s.loops[i].runs(set); r.next(); {
			c.FreeAfter = append(c.FreeAfter, r.length)
		}
	}
	slices.SortFunc(c.FreeAfter, func(a, b int) int { return b - a })
	for j := range bits.Len(uint(len(l.cards))) - 1 {
		c.Broken = append(c.Broken, int(a.broken>>(8*j)&0xff))
	}
	return c
}
