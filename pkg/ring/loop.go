package ring

import (
	"iter"
	"math/bits"
)

// loop is a ring or chain of at most 64 cards. A set of its cards is one word: bit i
// stands for the card at position i. So unions, intersections and counts of sets are
// single instructions.
type loop struct {
	cards     []int
	all       uint64   // every position
	joined    uint64   // bit i: a cable that works leads from position i to the next
	rising    uint64   // bit i: the next card has a higher index
	numaNodes []uint64 // the cards of each NUMA node
	switches  []uint64 // the cards behind each PCIe switch
	odd       uint64   // the second position of each aligned pair
}

// pair finds the aligned pairs. A dead cable cuts the loop into chains, and the pairs of
// each chain are counted from its own start: across a gap no two cards can be used
// together. A closed ring is counted from position 0.
func (l *loop) pair() {
	for start, length := range l.runs(l.all) {
		for i := 1; i < length; i += 2 {
			l.odd |= 1 << ((start + i) % len(l.cards))
		}
	}
}

// pairs is the aligned pairs that a set has cards of, each as its first position. At the
// end of a chain of odd length one card is a pair by itself.
func (l *loop) pairs(set uint64) uint64 { return set&^l.odd | l.back(set&l.odd, 1) }

// wholePairs is the aligned pairs of two cards that a set has both cards of.
func (l *loop) wholePairs(set uint64) uint64 { return set &^ l.odd & l.back(set&l.odd, 1) }

// lowest is the set of the first n positions: 2^n - 1 has its n lowest bits set. Of a
// word, 2^64 is 0, so this holds for 64 too.
func lowest(n int) uint64 { return 1<<n - 1 }

// firstOf is the first n cards of a set.
func firstOf(set uint64, n int) (first uint64) {
	for ; n > 0 && set != 0; n-- {
		first |= set & -set // x & -x is the lowest bit of x
		set &= set - 1      // x & (x-1) is x without its lowest bit
	}
	return first
}

// back rotates a set by i positions, so that position i becomes 0: what is shifted out on
// the right comes in again on the left, at the length of the loop instead of that of the
// word.
func (l *loop) back(set uint64, i int) uint64 {
	n := len(l.cards)
	return (set>>i | set<<(n-i)) & l.all
}

// arc is the k positions from start on: the first k positions, rotated forward.
func (l *loop) arc(start, k int) uint64 {
	n := len(l.cards)
	return l.back(lowest(k), (n-start)%n)
}

// links is the positions in a set from which a cable leads to the next position, which is
// in the set too.
func (l *loop) links(set uint64) uint64 { return set & l.joined & l.back(set, 1) }

// arcStarts is the positions where an arc of k cards of a set starts: k-1 links follow
// each other from there, so the links are rotated by 0 to k-2 positions and intersected.
func (l *loop) arcStarts(set uint64, k int) uint64 {
	if k > len(l.cards) {
		return 0
	}
	starts, links := set, l.links(set)
	for i := 0; i < k-1 && starts != 0; i++ {
		starts &= l.back(links, i)
	}
	if k == len(l.cards) {
		starts &= -starts // a whole ring is one arc, so only its lowest start is kept
	}
	return starts
}

// runs yields the start and the length of each longest arc that a set is made of.
func (l *loop) runs(set uint64) iter.Seq2[int, int] {
	return func(yield func(start, length int) bool) {
		links := l.links(set)
		for starts := l.runStarts(set); starts != 0; starts &= starts - 1 {
			start := bits.TrailingZeros64(starts)
			// This counts the links that follow each other from start on.
			following := bits.TrailingZeros64(^l.back(links, start))
			if !yield(start, min(1+following, len(l.cards))) {
				return
			}
		}
	}
}

// runStarts is where the longest arcs of a set start: at each card that no link leads to.
// Links rotated by one position are the cards that one leads to. A whole closed ring
// starts at position 0.
func (l *loop) runStarts(set uint64) uint64 {
	links := l.links(set)
	if links == l.all {
		return 1
	}
	return set &^ l.back(links, len(l.cards)-1)
}

// pieces is how many arcs a set is made of.
func (l *loop) pieces(set uint64) int { return bits.OnesCount64(l.runStarts(set)) }

// append appends the k cards from a position on.
func (l *loop) append(cards []int, start, k int) []int {
	for i := range k {
		cards = append(cards, l.cards[(start+i)%len(l.cards)])
	}
	return cards
}

// wraps is 0 if the indices along an arc only rise or only fall, else 1. If it is 0,
// cards that are neighbours on the ring are neighbours in the order of PCI addresses too,
// by which XRT numbers them in a container.
func (l *loop) wraps(start, k int) int {
	steps := l.arc(start, k-1)
	rises := steps & l.rising
	if rises == 0 || rises == steps {
		return 0
	}
	return 1
}

// behind is the positions in long free arcs, which are at least half as long as the loop,
// but for the first one of each. A whole ring has no first one.
func (l *loop) behind(free uint64) (positions uint64) {
	if l.links(free) == l.all {
		return 0
	}
	for start, length := range l.runs(free) {
		if 2*length >= len(l.cards) {
			positions |= l.arc(start, length) &^ (1 << start)
		}
	}
	return positions
}

// spread counts the groups of cards that an arc has cards of.
func spread(groups []uint64, arc uint64) int {
	n := 0
	for _, g := range groups {
		if g&arc != 0 {
			n++
		}
	}
	return n
}
