package ring

import "slices"

// Candidate is an arc that [Fabric.Choose] weighed.
type Candidate struct {
	Cards     []int `json:"-"`         // in the order of the ring
	FreeAfter []int `json:"freeAfter"` // lengths of the arcs that stay free, longest first
	RingFree  int   `json:"ringFree"`  // free cards on its ring, before
	Pairs     int   `json:"pairs"`     // aligned pairs of the ring it has cards of
	Broken    int   `json:"broken"`    // of these, those that were wholly free
	// Wraps: its ring order is neither the order of PCI addresses nor the reverse.
	Wraps bool `json:"wraps"`
	// Behind: it starts behind the start of a free arc that is at least half as long as
	// the ring.
	Behind    bool `json:"behind"`
	NUMANodes int  `json:"numaNodes"` // it has cards on
	Switches  int  `json:"switches"`  // it has cards behind
	// LostBy is what makes the best one better; "" for the best itself.
	LostBy string `json:"lostBy,omitempty"`
}

// Explain is all arcs that Choose picks from, the best first: the first is its answer.
// There is none where no arc is free, where the cabling is not known, and where Choose
// has an error.
func (f *Fabric) Explain(free, must []int, k int, groups ...[]int) []Candidate {
	s := search{Fabric: f, size: k, free: f.masks(nil, free), must: f.masks(nil, must), groups: f.groupMasks(groups)}
	if s.check(free, must) != nil {
		return nil
	}
	arcs := slices.SortedStableFunc(s.arcs, func(a, b arc) int {
		diff, _ := compare(&a, &b)
		return diff
	})
	candidates := make([]Candidate, len(arcs))
	for i, a := range arcs {
		l, c := &s.loops[a.loop], a.Candidate
		c.Cards, c.FreeAfter = l.append(nil, a.start, k), []int{}
		c.Wraps, c.Behind = a.wraps > 0, a.behind > 0
		for i, count := range a.left {
			c.FreeAfter = append(c.FreeAfter, slices.Repeat([]int{loopMax - i}, int(count))...)
		}
		if i > 0 {
			_, c.LostBy = compare(&arcs[0], &a)
		}
		candidates[i] = c
	}
	return candidates
}
