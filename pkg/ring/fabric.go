package ring

import "math/bits"

// Place is where a card sits in its server: the positions that two cards share are equal.
type Place struct {
	NUMANode int // -1: not known
	Switch   int // number of the PCIe switch or root port that the card is behind; -1: not known
}

// Fabric is the cards of a server and the cables between them that work, made ready to be chosen from. Cards are
// their indices. It does not change, and any number of goroutines may use it.
type Fabric struct {
	places  []Place
	loops   []loop
	spots   []spot // of each card
	cabled  bool   // the cabling is known
	weights weights
	hubs    []hub // where cables are not known
	nodes   int   // NUMA nodes of the hubs
}

// spot is where a card is cabled.
type spot struct{ loop, position int }

// loopMax is how many cards a loop can have: one bit of a word each.
const loopMax = 64

// NewFabric makes a fabric of as many cards as there are places. Without a ring table, when it is not known which
// cards are neighbours, cabling is nil. dead are the cables that do not work: each cuts a ring into a chain. Cards
// out of range are left out, and a ring of more than 64 cards, which no server has, is cut after each 64.
func NewFabric(places []Place, cabling *Cabling, dead [][2]int) *Fabric {
	f := &Fabric{places: places, cabled: cabling != nil, spots: make([]spot, len(places))}
	for i := range f.spots {
		f.spots[i].loop = -1
	}
	if cabling != nil {
		for _, r := range cabling.Rings {
			f.addRing(r, dead)
		}
	}
	for card := range places {
		if f.spots[card].loop < 0 {
			f.addLoop([]int{card}, false, nil)
		}
	}
	if !f.cabled {
		f.hubs, f.nodes = newHubs(places)
	}
	f.weights = newWeights(f.loops)
	return f
}

func (f *Fabric) addRing(r Ring, dead [][2]int) {
	var cards []int
	for _, card := range r.Cards {
		if card >= 0 && card < len(f.places) && f.spots[card].loop < 0 {
			f.spots[card].loop = len(f.loops) // so that a card that stands twice is taken once
			cards = append(cards, card)
		}
	}
	closed := r.Closed && len(cards) == len(r.Cards) && len(cards) <= loopMax
	for len(cards) > loopMax {
		f.addLoop(cards[:loopMax], false, dead)
		cards = cards[loopMax:]
	}
	if len(cards) > 0 {
		f.addLoop(cards, closed, dead)
	}
}

func (f *Fabric) addLoop(cards []int, closed bool, dead [][2]int) {
	n := len(cards)
	l := loop{cards: cards, all: lowest(n), joined: lowest(n - 1)}
	if closed && n > 2 {
		l.joined = l.all
	}
	for i, card := range cards {
		f.spots[card] = spot{len(f.loops), i}
		next := cards[(i+1)%n]
		if next > card {
			l.rising |= 1 << i
		}
		for _, d := range dead {
			if d == [2]int{card, next} || d == [2]int{next, card} {
				l.joined &^= 1 << i
			}
		}
	}
	l.numaNodes = groups(cards, func(card int) int { return f.places[card].NUMANode })
	l.switches = groups(cards, func(card int) int { return f.places[card].Switch })
	f.loops = append(f.loops, l)
}

// groups are the sets of cards that share a number.
func groups(cards []int, number func(card int) int) []uint64 {
	var sets []uint64
	at := map[int]int{}
	for i, card := range cards {
		n := number(card)
		if _, ok := at[n]; !ok {
			at[n] = len(sets)
			sets = append(sets, 0)
		}
		sets[at[n]] |= 1 << i
	}
	return sets
}

// Cabled tells whether it is known which cards are neighbours.
func (f *Fabric) Cabled() bool { return f.cabled }

// Arcs are all sets of k of the given cards that follow each other over cables that work, each in the order of
// its ring: by ring, then by position of the first card. A whole closed ring is one arc, from its first card.
// Nil where the cabling is not known.
func (f *Fabric) Arcs(cards []int, k int) [][]int {
	if !f.cabled || k < 1 {
		return nil
	}
	var arcs [][]int
	for i, set := range f.masks(nil, cards) {
		l := &f.loops[i]
		for starts := l.arcStarts(set, k); starts != 0; starts &= starts - 1 {
			arcs = append(arcs, l.append(nil, bits.TrailingZeros64(starts), k))
		}
	}
	return arcs
}

// FreeArcs takes cards apart into the longest arcs they make, in the order of the rings. Where the cabling is
// not known each card is one by itself.
func (f *Fabric) FreeArcs(cards []int) [][]int {
	arcs := [][]int{}
	for i, set := range f.masks(nil, cards) {
		l := &f.loops[i]
		for r := l.runs(set); r.next(); {
			arcs = append(arcs, l.append(nil, r.start, r.length))
		}
	}
	return arcs
}

// Order puts cards into the order of their rings, each ring from its first break on, and tells of how many arcs
// they are made.
func (f *Fabric) Order(cards []int) (ordered []int, pieces int) {
	for _, arc := range f.FreeArcs(cards) {
		ordered = append(ordered, arc...)
		pieces++
	}
	return ordered, pieces
}

// masks are the cards as one set of positions for each loop, in buf if it is long enough. Cards out of range are
// left out.
func (f *Fabric) masks(buf []uint64, cards []int) []uint64 {
	if len(f.loops) > len(buf) {
		buf = make([]uint64, len(f.loops))
	}
	buf = buf[:len(f.loops)]
	for _, card := range cards {
		if card >= 0 && card < len(f.spots) {
			s := f.spots[card]
			buf[s.loop] |= 1 << s.position
		}
	}
	return buf
}
