package ring

import (
	"math/bits"
	"slices"
)

// Place is where a card sits in its server. Two cards on the same NUMA node or behind the
// same switch have equal numbers.
type Place struct {
	NUMANode int // -1: not known
	Switch   int // number of the PCIe switch or root port that the card is behind; -1: not known
}

// Fabric is the cards of a server and the cables between them that work, in the form in
// which [Fabric.Choose] needs them. A card is its index. A Fabric does not change, so any
// number of goroutines may use it.
type Fabric struct {
	places []Place
	loops  []loop
	spots  []spot // of each card
	cabled bool   // the cabling is known; if not, the loops have all cards and no cables
}

// spot is the loop that a card is on, and its position there. The loop is -1 while it is
// on none.
type spot struct{ loop, position int }

// loopMax is how many cards a loop can have, because a set of its cards is one word of 64
// bits.
const loopMax = 64

// NewFabric makes a fabric of as many cards as there are places. Without a ring table,
// when it is not known which cards are neighbours, cabling is nil. dead are the cables
// that do not work: each cuts a ring into a chain. Cards out of range are left out, and a
// ring of more than 64 cards, which no server has, is cut after each 64.
func NewFabric(places []Place, cabling *Cabling, dead [][2]int) *Fabric {
	f := &Fabric{places: places, cabled: cabling != nil, spots: slices.Repeat([]spot{{loop: -1}}, len(places))}
	everyone, alone := Ring{}, []Ring{}
	for card := range places {
		everyone.Cards = append(everyone.Cards, card)
		alone = append(alone, Ring{Cards: []int{card}})
	}
	rings := []Ring{everyone}
	if f.cabled {
		// A card that is on a ring is not alone, and taken only once.
		rings = slices.Concat(cabling.Rings, alone)
	}
	for _, r := range rings {
		var cards []int // those that are on no ring yet
		for _, card := range r.Cards {
			if f.has(card) && f.spots[card].loop < 0 {
				f.spots[card].loop = len(f.loops) // so that a card that stands twice is taken once
				cards = append(cards, card)
			}
		}
		closed := r.Closed && len(cards) == len(r.Cards) && len(cards) > 2 && len(cards) <= loopMax
		for chunk := range slices.Chunk(cards, loopMax) {
			f.addLoop(chunk, closed, dead)
		}
	}
	return f
}

func (f *Fabric) addLoop(cards []int, closed bool, dead [][2]int) {
	n := len(cards)
	l := loop{cards: cards, all: lowest(n)}
	for i, card := range cards {
		f.spots[card] = spot{len(f.loops), i}
		next := cards[(i+1)%n]
		works := !slices.Contains(dead, [2]int{card, next}) && !slices.Contains(dead, [2]int{next, card})
		if works && f.cabled && (closed || i < n-1) {
			l.joined |= 1 << i
		}
		if next > card {
			l.rising |= 1 << i
		}
	}
	l.numaNodes = groups(cards, func(card int) int { return f.places[card].NUMANode })
	l.switches = groups(cards, func(card int) int { return f.places[card].Switch })
	l.pair()
	f.loops = append(f.loops, l)
}

// groups are the sets of cards with equal numbers, in the order of their first cards.
func groups(cards []int, number func(card int) int) (sets []uint64) {
	for _, first := range cards {
		set := uint64(0)
		for i, card := range cards {
			if number(card) == number(first) {
				set |= 1 << i
			}
		}
		if !slices.Contains(sets, set) {
			sets = append(sets, set)
		}
	}
	return sets
}

// Cabled reports whether it is known which cards are neighbours.
func (f *Fabric) Cabled() bool { return f.cabled }

// Arcs are all sets of k of the given cards that follow each other over cables that work,
// each in the order of its ring: by ring, then by position of the first card. A whole
// closed ring is one arc, from its first card. Nil where the cabling is not known.
func (f *Fabric) Arcs(cards []int, k int) (arcs [][]int) {
	if !f.cabled || k < 1 {
		return nil
	}
	for i, set := range f.masks(nil, cards) {
		l := &f.loops[i]
		for starts := l.arcStarts(set, k); starts != 0; starts &= starts - 1 {
			arcs = append(arcs, l.append(nil, bits.TrailingZeros64(starts), k))
		}
	}
	return arcs
}

// FreeArcs splits cards into the longest arcs they make, in the order of the rings. Where
// the cabling is not known each card is one by itself.
func (f *Fabric) FreeArcs(cards []int) [][]int {
	arcs := [][]int{}
	for i, set := range f.masks(nil, cards) {
		l := &f.loops[i]
		for start, length := range l.runs(set) {
			arcs = append(arcs, l.append(nil, start, length))
		}
	}
	return arcs
}

// Order puts cards into the order of their rings and counts the arcs that they make. An
// arc that goes past the last position of its ring stays in one row: 7 0 1, not 0 1 7.
func (f *Fabric) Order(cards []int) (ordered []int, pieces int) {
	arcs := f.FreeArcs(cards)
	return slices.Concat(arcs...), len(arcs)
}

// masks are the cards as one set of positions for each loop, in buf if it is long enough.
// Cards out of range are left out.
func (f *Fabric) masks(buf []uint64, cards []int) []uint64 {
	buf = append(buf[:0], make([]uint64, len(f.loops))...)
	for _, card := range cards {
		if f.has(card) {
			s := f.spots[card]
			buf[s.loop] |= 1 << s.position
		}
	}
	return buf
}

// groupMasks are several sets of cards as masks makes them.
func (f *Fabric) groupMasks(groups [][]int) (masks [][]uint64) {
	for _, group := range groups {
		masks = append(masks, f.masks(nil, group))
	}
	return masks
}

func (f *Fabric) has(card int) bool { return card >= 0 && card < len(f.spots) }
