package ring

import "math/bits"

// loop is a ring or chain of at most 64 cards. A set of them is a word: bit i is the card at position i.
type loop struct {
	cards     []int
	all       uint64   // every position
	joined    uint64   // bit i: a cable that works leads from position i to the next
	rising    uint64   // bit i: the next card has a higher index
	numaNodes []uint64 // the cards of each NUMA node
	switches  []uint64 // the cards behind each PCIe switch
}

// lowest is the set of the first n positions.
func lowest(n int) uint64 {
	if n >= loopMax {
		return ^uint64(0)
	}
	return 1<<n - 1
}

// back turns a set so that position i comes to be 0.
func (l *loop) back(set uint64, i int) uint64 {
	n := len(l.cards)
	return (set>>i | set<<(n-i)) & l.all
}

// arc is the k positions from start on.
func (l *loop) arc(start, k int) uint64 {
	n := len(l.cards)
	return l.back(lowest(k), (n-start)%n)
}

// links is the positions of a set from which a cable leads to one of the set.
func (l *loop) links(set uint64) uint64 { return set & l.joined & l.back(set, 1) }

// whole tells whether a set is all of a closed ring, which starts nowhere.
func (l *loop) whole(set uint64) bool {
	return len(l.cards) > 1 && l.links(set) == l.all
}

// arcStarts is where the arcs of k cards of a set start.
func (l *loop) arcStarts(set uint64, k int) uint64 {
	if k > len(l.cards) {
		return 0
	}
	starts, links := set, l.links(set)
	for i := 0; i < k-1 && starts != 0; i++ {
		starts &= l.back(links, i)
	}
	if k == len(l.cards) {
		starts &= -starts // a whole ring has one name
	}
	return starts
}

// runs goes through the longest arcs that a set is made of: for r := l.runs(set); r.next(); { r.start, r.length }
type runs struct {
	l             *loop
	links, starts uint64
	start, length int
}

func (l *loop) runs(set uint64) runs {
	r := runs{l: l, links: l.links(set)}
	r.starts = set &^ l.back(r.links, len(l.cards)-1)
	if l.whole(set) {
		r.starts = 1
	}
	return r
}

func (r *runs) next() bool {
	if r.starts == 0 {
		return false
	}
	r.start = bits.TrailingZeros64(r.starts)
	r.starts &= r.starts - 1
	r.length = min(1+r.l.ahead(r.links, r.start), len(r.l.cards))
	return true
}

// ahead counts the links that follow each other from a position on.
func (l *loop) ahead(links uint64, position int) int {
	return bits.TrailingZeros64(^l.back(links, position))
}

// behind counts the links that lead to a position.
func (l *loop) behind(links uint64, position int) int {
	return bits.LeadingZeros64(^(l.back(links, position) << (loopMax - len(l.cards))))
}

// append adds the k cards from a position on.
func (l *loop) append(cards []int, start, k int) []int {
	for i := range k {
		cards = append(cards, l.cards[(start+i)%len(l.cards)])
	}
	return cards
}

// monotone tells whether the indices along an arc only rise or only fall: then cards that are neighbours on the
// ring are neighbours in the order of PCI addresses too, by which XRT numbers them in a container.
func (l *loop) monotone(start, k int) bool {
	steps := l.arc(start, k-1)
	rises := steps & l.rising
	return rises == 0 || rises == steps
}

// blocks counts the aligned blocks that a set holds whole and connected: 2^j cards from a position that is a
// multiple of 2^j. Byte j-1 of the answer is for 2^j, so that answers compare by the largest blocks first.
func (l *loop) blocks(set uint64) uint64 {
	links := l.links(set)
	count := uint64(0)
	for j := 1; j <= 6 && 1<<j <= len(l.cards); j++ {
		half := 1 << (j - 1)
		set &= set >> half & (links >> (half - 1)) & multiples(j)
		count |= uint64(bits.OnesCount64(set)) << (8 * (j - 1))
	}
	return count
}

// multiples is the positions that are multiples of 2^j.
func multiples(j int) uint64 { return ^uint64(0) / lowest(1<<j) }

// spread counts the groups that an arc has cards of.
func spread(groups []uint64, arc uint64) int {
	n := 0
	for _, g := range groups {
		if g&arc != 0 {
			n++
		}
	}
	return n
}
