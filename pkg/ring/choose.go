package ring

import (
	"fmt"
	"math/bits"
)

// Choice is the answer of [Fabric.Choose].
type Choice struct {
	// Cards that were chosen, in the order of their rings.
	Cards []int
	// Pieces is how many arcs they are: 1 says that they are connected. 0: the cabling is not known.
	Pieces int
}

// Choose picks k of the free cards, all those in must among them, so that they are connected and the cards that
// stay free can serve those who come next. The first of these that tells two sets apart decides:
//
//   - it is connected: an arc of a ring over cables that work;
//   - of those that are not: it has fewer pieces; its largest piece is larger;
//   - the arcs that stay free, longest first, are longer;
//   - it is an arc on the ring with the fewest free cards; pieces are on one ring rather than on several;
//   - (arcs from here on) the indices rise or fall all along it: it does not wrap past the address order;
//   - it has cards of fewer aligned pairs of the ring: positions 0 and 1, 2 and 3, and so on;
//   - it breaks fewer whole free aligned blocks, the largest first: 2^j cards from a multiple of 2^j;
//   - it has cards on fewer NUMA nodes; behind fewer PCIe switches;
//   - it starts at a lower position, on an earlier ring.
//
// Where the cabling is not known, cards on few NUMA nodes and behind few switches are picked, in order of index.
//
// The answer depends on nothing else, not on the order or the repetition of cards. cards is the memory for the answer,
// and up to 64 cards no other is needed. An error says what is wrong with the wish.
func (f *Fabric) Choose(cards, free, must []int, k int) (Choice, error) {
	var buf [3][loopMax]uint64
	s := search{Fabric: f, size: k, free: f.masks(buf[0][:], free), must: f.masks(buf[1][:], must)}
	if err := s.check(free, must); err != nil {
		return Choice{}, err
	}
	if !f.cabled {
		return Choice{Cards: s.near(cards[:0])}, nil
	}
	s.measure()
	if best, ok := s.bestArc(); ok {
		return Choice{f.loops[best.loop].append(cards[:0], best.start, k), 1}, nil
	}
	p := pieceSearch{search: s, taken: f.masks(buf[2][:], nil)}
	p.find()
	cards = cards[:0]
	for i, set := range p.taken {
		for r := f.loops[i].runs(set); r.next(); {
			cards = f.loops[i].append(cards, r.start, r.length)
		}
	}
	return Choice{cards, p.fewest}, nil
}

// search is one wish put to a fabric. Sets are masks for each loop.
type search struct {
	*Fabric
	size       int
	free, must []uint64
	left       vector // the arcs that are free now
	longest    int    // of them
}

// check says what is wrong with the wish for some of the free cards, those in must among them.
func (s *search) check(free, must []int) error {
	count, musts := 0, 0
	for i, set := range s.free {
		count += bits.OnesCount64(set)
		musts += bits.OnesCount64(s.must[i])
	}
	for _, card := range free {
		if uint(card) >= uint(len(s.spots)) {
			return fmt.Errorf("there is no card %d: there are %d", card, len(s.spots))
		}
	}
	for _, card := range must {
		if uint(card) >= uint(len(s.spots)) || s.free[s.spots[card].loop]>>s.spots[card].position&1 == 0 {
			return fmt.Errorf("card %d must be included and is not free", card)
		}
	}
	switch {
	case s.size < 1:
		return fmt.Errorf("%d cards cannot be chosen", s.size)
	case s.size > count:
		return fmt.Errorf("%d cards are asked for and %d are free", s.size, count)
	case s.size < musts:
		return fmt.Errorf("%d cards are asked for and %d must be included", s.size, musts)
	}
	return nil
}

func (s *search) measure() {
	for i, set := range s.free {
		for r := s.loops[i].runs(set); r.next(); {
			s.left = s.left.plus(s.weights[r.length])
			s.longest = max(s.longest, r.length)
		}
	}
}

// arc is a candidate: cards that follow each other, with what speaks for it.
type arc struct {
	loop, start int
	cards       uint64
	left        vector // the arcs that stay free: larger is better
	room        int    // free cards on its ring: fewer is better
	wraps       bool
	pairs       int    // aligned pairs it has cards of: fewer is better
	broken      uint64 // whole free aligned blocks it takes cards of: fewer is better
	set         bool
}

// bestArc is the best arc of the size wished for that has all cards it must.
func (s *search) bestArc() (arc, bool) {
	var best arc
	s.eachArc(func(a arc) {
		if !best.set {
			best = a
		} else if better, _ := s.compare(&a, &best); better {
			best = a
		}
	})
	return best, best.set
}

func (s *search) eachArc(visit func(arc)) {
	for i := range s.loops {
		l := &s.loops[i]
		starts := l.arcStarts(s.free[i], s.size)
		if starts == 0 || s.mustElsewhere(i) {
			continue
		}
		room, links, blocks := bits.OnesCount64(s.free[i]), l.links(s.free[i]), l.blocks(s.free[i])
		for ; starts != 0; starts &= starts - 1 {
			start := bits.TrailingZeros64(starts)
			cards := l.arc(start, s.size)
			if s.must[i]&^cards != 0 {
				continue
			}
			visit(arc{
				loop: i, start: start, cards: cards, room: room, set: true,
				left:   s.without(l, links, start),
				wraps:  !l.monotone(start, s.size),
				pairs:  bits.OnesCount64((cards | cards>>1) & multiples(1)),
				broken: blocks - l.blocks(s.free[i]&^cards),
			})
		}
	}
}

// mustElsewhere tells whether a card that must be included is on another loop than the i-th.
func (s *search) mustElsewhere(i int) bool {
	for j, set := range s.must {
		if set != 0 && j != i {
			return true
		}
	}
	return false
}

// without is the arcs that stay free when an arc is taken: one becomes what is before and what is behind it.
func (s *search) without(l *loop, links uint64, start int) vector {
	n := len(l.cards)
	if n > 1 && links == l.all {
		return s.left.minus(s.weights[n]).plus(s.weights[n-s.size])
	}
	before, behind := l.behind(links, start), l.ahead(links, (start+s.size-1)%n)
	return s.left.minus(s.weights[before+s.size+behind]).plus(s.weights[before]).plus(s.weights[behind])
}

// Criterion is what made one arc better than another.
type Criterion string

// The criteria, in the order in which they are asked.
const (
	ByFreeArcs Criterion = "longer arcs stay free"
	ByRoom     Criterion = "it is on the ring with the fewest free LPUs"
	ByWrap     Criterion = "it does not wrap past the address order"
	ByPairs    Criterion = "it opens fewer aligned pairs"
	ByBlocks   Criterion = "it breaks fewer aligned blocks"
	ByNUMA     Criterion = "it is on fewer NUMA nodes"
	BySwitch   Criterion = "it is behind fewer PCIe switches"
	ByStart    Criterion = "it starts at the lower position"
)

// compare tells whether a is better than b, and what decided.
func (s *search) compare(a, b *arc) (better bool, by Criterion) {
	switch {
	case a.left != b.left:
		return b.left.less(a.left), ByFreeArcs
	case a.room != b.room:
		return a.room < b.room, ByRoom
	case a.wraps != b.wraps:
		return b.wraps, ByWrap
	case a.pairs != b.pairs:
		return a.pairs < b.pairs, ByPairs
	case a.broken != b.broken:
		return a.broken < b.broken, ByBlocks
	}
	la, lb := &s.loops[a.loop], &s.loops[b.loop]
	if x, y := spread(la.numaNodes, a.cards), spread(lb.numaNodes, b.cards); x != y {
		return x < y, ByNUMA
	}
	if x, y := spread(la.switches, a.cards), spread(lb.switches, b.cards); x != y {
		return x < y, BySwitch
	}
	if a.loop != b.loop {
		return a.loop < b.loop, ByStart
	}
	return a.start < b.start, ByStart
}
