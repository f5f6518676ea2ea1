package ring

import (
	"fmt"
	"math/bits"
	"slices"
)

// Choice is the answer of [Fabric.Choose].
type Choice struct {
	// Cards that were chosen, in the order of their rings.
	Cards []int
	// Pieces is how many arcs they are: 1 says that they are connected. 0: the cabling is
	// not known.
	Pieces int
}

// Choose picks k of the free cards, all those in must among them, so that they are
// connected and the cards that stay free can serve those who come next. A connected set
// is an arc of a ring over cables that work. Of all arcs that have the cards in must, the
// first difference in this list decides:
//
//   - the arcs that stay free, longest first, are longer;
//   - it is on the ring with the fewest free cards;
//   - it has cards of fewer aligned pairs of the ring: positions 0 and 1, 2 and 3, and
//     so on;
//   - it breaks fewer of the aligned pairs that are wholly free;
//   - the indices rise or fall all along it: its ring order equals address order or its
//     reverse;
//   - it starts where its free arc starts, if that is at least half as long as the ring;
//   - it has cards on fewer NUMA nodes; behind fewer PCIe switches;
//   - it starts at a lower position, on an earlier ring.
//
// Where cables do not work, the positions of pairs are counted from the start of each
// chain that is left.
//
// If there is no such arc, the set has as few pieces as there can be. It grows step by
// step from the cards in must: first the shortest gaps between its pieces are filled as
// far as the cards that are still needed allow, then its pieces grow, then further free
// arcs are used: the shortest that has all cards that are still needed, else the longest.
// Cards are taken from an end of a free arc, so that the rest of it stays whole.
//
// Where the cabling is not known, cards are taken NUMA node by NUMA node, and on a node
// PCIe switch by PCIe switch: first where cards in must are, then from the smallest group
// that has all that are still needed, else from the largest; in order of index.
//
// If there are groups, such as the cards behind each switch, the answer lies wholly in
// one of them. Where it is no arc, it is in the group where it has the fewest pieces, of
// equals in the one with the fewest free cards.
//
// The answer depends on nothing else, not on the order or the repetition of cards. cards
// is the memory for the answer, and up to 64 cards an arc needs no other. An error says
// why there is no such set.
func (f *Fabric) Choose(cards, free, must []int, k int, groups ...[]int) (Choice, error) {
	var buf [2][loopMax]uint64
	s := search{Fabric: f, size: k, free: f.masks(buf[0][:], free), must: f.masks(buf[1][:], must), groups: f.groupMasks(groups)}
	if err := s.check(free, must); err != nil {
		return Choice{}, err
	}
	if best := s.bestArc(); best.cards != 0 {
		return Choice{f.loops[best.loop].append(cards[:0], best.start, k), 1}, nil
	}
	if len(groups) == 0 {
		s.gather()
		return s.taken(cards), nil
	}
	return s.gatherInGroup()
}

// taken is the answer where the cards in must are all that are asked for.
func (s *search) taken(cards []int) Choice {
	choice := Choice{Cards: cards[:0]}
	for i, set := range s.must {
		for start, length := range s.loops[i].runs(set) {
			choice.Cards = s.loops[i].append(choice.Cards, start, length)
			if s.cabled {
				choice.Pieces++
			}
		}
	}
	return choice
}

// search is one question to a fabric: which cards to choose.
type search struct {
	*Fabric
	size int // how many cards are asked for
	// free and must have, for each loop, the set of its cards that are free, and of those
	// that must be included.
	free, must []uint64
	musts      int // how many must be included
	// groups has, for each group and loop, the set of its cards; none: no matter where the
	// cards are.
	groups [][]uint64
}

// inGroup reports whether cards of a loop are all in one group.
func (s *search) inGroup(loop int, cards uint64) bool {
	return len(s.groups) == 0 || slices.ContainsFunc(s.groups, func(group []uint64) bool { return cards&^group[loop] == 0 })
}

// check says why no set of the size asked for can be chosen from free that has all cards
// in must. It counts musts.
func (s *search) check(free, must []int) error {
	count := 0
	for i, set := range s.free {
		count += bits.OnesCount64(set)
		s.musts += bits.OnesCount64(s.must[i])
	}
	for _, card := range free {
		if !s.has(card) {
			return fmt.Errorf("there is no card %d: there are %d", card, len(s.spots))
		}
	}
	for _, card := range must {
		if !s.has(card) || s.free[s.spots[card].loop]>>s.spots[card].position&1 == 0 {
			return fmt.Errorf("card %d must be included and is not free", card)
		}
	}
	switch {
	case s.size < 1:
		return fmt.Errorf("%d cards cannot be chosen", s.size)
	case s.size > count:
		return fmt.Errorf("%d cards are asked for and %d are free", s.size, count)
	case s.size < s.musts:
		return fmt.Errorf("%d cards are asked for and %d must be included", s.size, s.musts)
	}
	return nil
}

// arcCounts is how many arcs there are of each length. The longest lengths come first, so
// that of two counts, compared number by number, the larger one has the longer arcs.
type arcCounts [loopMax]uint16

// arc is a candidate: cards that follow each other, and what it is compared by. Its
// slices and LostBy are not set while it is compared.
type arc struct {
	Candidate
	loop, start int
	cards       uint64    // positions on its loop
	left        arcCounts // the arcs that stay free: larger is better
	wraps       int       // 1: Wraps; 0: not
	behind      int       // 1: Behind; 0: not
}

// bestArc is the best arc of the size asked for that has all cards in must, of equals the
// first. It has no cards if there is none.
func (s *search) bestArc() (best arc) {
	for a := range s.arcs {
		if diff, _ := compare(&a, &best); diff < 0 || best.cards == 0 {
			best = a
		}
	}
	return best
}

// arcs yields every arc of the size asked for that has all cards in must, the lowest
// start on the earliest ring first. There is none if the cabling is not known.
func (s *search) arcs(yield func(arc) bool) {
	if !s.cabled {
		return
	}
	for i := range s.loops {
		l, free := &s.loops[i], s.free[i]
		whole, behind := l.wholePairs(free), l.behind(free)
		for starts := l.arcStarts(free, s.size); starts != 0; starts &= starts - 1 {
			start := bits.TrailingZeros64(starts)
			cards := l.arc(start, s.size)
			if bits.OnesCount64(s.must[i]&cards) < s.musts || !s.inGroup(i, cards) {
				continue
			}
			a := arc{
				loop: i, start: start, cards: cards,
				left:   s.without(i, cards),
				wraps:  l.wraps(start, s.size),
				behind: int(behind >> start & 1),
				Candidate: Candidate{
					RingFree:  bits.OnesCount64(free),
					Pairs:     bits.OnesCount64(l.pairs(cards)),
					Broken:    bits.OnesCount64(l.pairs(cards) & whole),
					NUMANodes: spread(l.numaNodes, cards), Switches: spread(l.switches, cards),
				},
			}
			if !yield(a) {
				return
			}
		}
	}
}

// without counts the arcs that stay free when cards of one loop are taken.
func (s *search) without(loop int, cards uint64) (left arcCounts) {
	for i, free := range s.free {
		if i == loop {
			free &^= cards
		}
		for _, length := range s.loops[i].runs(free) {
			left[loopMax-length]++
		}
	}
	return left
}

// compare is below 0 if a is better than b and above 0 if b is better, and says what
// decided: the criteria are in the order in which they are asked. It is 0 if a and b
// differ in nothing but where they start.
func compare(a, b *arc) (diff int, decided string) {
	for _, by := range [...]struct {
		diff      int
		criterion string
	}{
		{slices.Compare(b.left[:], a.left[:]), "longer arcs stay free"},
		{a.RingFree - b.RingFree, "it is on the ring with the fewest free LPUs"},
		{a.Pairs - b.Pairs, "it splits fewer aligned pairs"},
		{a.Broken - b.Broken, "it breaks fewer free pairs"},
		{a.wraps - b.wraps, "its ring order equals address order or its reverse"},
		{a.behind - b.behind, "it is at the start of a long free arc"},
		{a.NUMANodes - b.NUMANodes, "it is on fewer NUMA nodes"},
		{a.Switches - b.Switches, "it is behind fewer PCIe switches"},
	} {
		if by.diff != 0 {
			return by.diff, by.criterion
		}
	}
	return 0, "it starts at the lower position"
}
