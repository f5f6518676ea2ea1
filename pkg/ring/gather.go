package ring

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

// offer is free cards of one loop that can be taken next.
type offer struct {
	loop  int
	cards uint64
	// cost is compared number by number: the offer with the lower cost is better, the
	// first of equals.
	cost []int
}

// gather takes free cards, the best offer first, until there are enough, and adds them to
// those in must. It is needed where no arc is free that has all cards in must, and where
// the cabling is not known.
func (s *search) gather() {
	for need := s.size - s.musts; need > 0; {
		var offers []offer
		for i := range s.loops {
			if s.cabled {
				offers = s.offerArcs(offers, i, need)
			} else {
				offers = s.offerNear(offers, i, need)
			}
		}
		best := slices.MinFunc(offers, func(a, b offer) int { return slices.Compare(a.cost, b.cost) })
		s.must[best.loop] |= best.cards
		need -= bits.OnesCount64(best.cards)
	}
}

// gatherInGroup gathers in each group that has enough free cards and all those in must,
// and returns the best answer.
func (s *search) gatherInGroup() (best Choice, err error) {
	fewest := 0 // free cards of the best group
	for _, group := range s.groups {
		inside, count, musts := *s, 0, 0
		inside.free, inside.must = slices.Clone(s.free), slices.Clone(s.must)
		for i := range group {
			inside.free[i] &= group[i]
			count += bits.OnesCount64(inside.free[i])
			musts += bits.OnesCount64(s.must[i] & group[i])
		}
		if count < s.size || musts < s.musts {
			continue
		}
		inside.gather()
		choice := inside.taken(nil)
		if diff := cmp.Or(choice.Pieces-best.Pieces, count-fewest); best.Cards == nil || diff < 0 {
			best, fewest = choice, count
		}
	}
	if best.Cards == nil {
		err = fmt.Errorf("no group has %d free cards and all that must be included", s.size)
	}
	return best, err
}

// offerArcs offers both ends of each free arc of a loop, as many cards as are needed. An
// offer that joins two pieces is best, the one with the fewest cards first; next best is
// one that makes a piece longer; last is a new piece. This order gives as few pieces as
// there can be. Of two offers that are equal in this, the one with more cards is better,
// and of equally many those from the shorter free arc.
func (s *search) offerArcs(offers []offer, i, need int) []offer {
	l, taken := &s.loops[i], s.must[i]
	for start, length := range l.runs(s.free[i] &^ taken) {
		size := min(need, length)
		for _, first := range [2]int{start, (start + length - size) % len(l.cards)} {
			cards := l.arc(first, size)
			cost := []int{l.pieces(taken|cards) - l.pieces(taken), -size, length}
			if cost[0] < 0 {
				cost[1] = size
			}
			offers = append(offers, offer{i, cards, cost})
		}
	}
	return offers
}

// offerNear offers cards that share a NUMA node and a PCIe switch, as many as are needed.
// The node is chosen first.
func (s *search) offerNear(offers []offer, i, need int) []offer {
	l, taken, free := &s.loops[i], s.must[i], s.free[i]&^s.must[i]
	for _, node := range l.numaNodes {
		for _, behind := range l.switches {
			group := node & behind
			if cards := firstOf(group&free, need); cards != 0 {
				cost := append(groupCost(node&free, node&taken, need), groupCost(group&free, group&taken, need)...)
				offers = append(offers, offer{i, cards, cost})
			}
		}
	}
	return offers
}

// groupCost says in which order groups of cards are used: first those with cards that are
// taken already; then the smallest that has all that are needed, else the largest.
func groupCost(free, taken uint64, need int) []int {
	count := bits.OnesCount64(free)
	return []int{-min(1, bits.OnesCount64(taken)), -min(need, count), count}
}
