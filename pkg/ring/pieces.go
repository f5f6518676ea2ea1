package ring

import "math/bits"

// pieceSearch looks for the best set that is no arc, with the memory that it needs for up to 64 cards.
type pieceSearch struct {
	search
	fewest  int      // pieces that a set can have
	taken   []uint64 // the best set so far; nothing yet unless found
	found   bool
	left    vector // the arcs that stay free with it
	oneRing bool   // it is on one ring

	gaps  [loopMax]gap
	cells [loopMax + 1]cell
	picks [loopMax * (loopMax + 1)]uint8
}

// find asks of each arc, the longest first, whether it can be the largest piece of a set with as few pieces as
// there can be, and fills up the rest.
func (p *pieceSearch) find() {
	o := p.outline()
	p.fewest = o.fewest()
	for size := min(p.size-p.fewest+1, p.longest); !p.found; size-- {
		for i := range p.loops {
			p.tryArcs(i, size)
		}
	}
}

// tryArcs tries the arcs of a loop as the largest piece. Those that end where the free cards do, without a card that
// must be taken, are as good one as the other.
func (p *pieceSearch) tryArcs(i, size int) {
	l := &p.loops[i]
	links, likeBefore := l.links(p.free[i]), false
	for starts := l.arcStarts(p.free[i], size); starts != 0; starts &= starts - 1 {
		start := bits.TrailingZeros64(starts)
		if p.must[i] == 0 && l.ahead(links, start) == size-1 && l.behind(links, start) == 0 {
			if likeBefore {
				continue
			}
			likeBefore = true
		}
		before := p.must[i]
		p.must[i] |= l.arc(start, size)
		p.tryLargest(i)
		p.must[i] = before
	}
}

// tryLargest fills up a set whose largest piece is an arc of a loop, one that must be taken, and keeps it if it is
// better than the best.
func (p *pieceSearch) tryLargest(loop int) {
	o := p.outline()
	if o.rest < 0 || o.fewest() != p.fewest {
		return
	}
	left, _ := p.fill(&o, -1)
	oneRing := len(p.loops) == 1
	if !oneRing && !p.mustElsewhere(loop) {
		leftThere, ok := p.fill(&o, loop)
		if oneRing = ok && leftThere == left; !oneRing {
			p.fill(&o, -1)
		}
	}
	if p.found && !p.left.less(left) && (p.left != left || p.oneRing || !oneRing) {
		return
	}
	p.found, p.left, p.oneRing = true, left, oneRing
	copy(p.taken, p.must)
	for _, g := range o.gaps {
		p.taken[g.loop] |= p.loops[g.loop].arc(g.firstTaken(len(p.loops[g.loop].cards)), g.taken)
	}
}

// gap is free cards in a row that need not be taken.
type gap struct {
	loop, start, length int
	kind                gapKind
	fromEnd             bool // cards are taken from its last one back
	taken               int
}

// gapKind says where a gap lies, and so what it costs to take cards of it.
type gapKind uint8

const (
	apart   gapKind = iota // no card that must be taken is near: any that is taken makes a piece more
	between                // between two such cards: unless it is filled, these are two pieces
	beside                 // beside one: what is taken joins its piece
)

// cost is how many pieces it makes to take n cards.
func (g *gap) cost(n int) int {
	if g.kind == apart && n > 0 || g.kind == between && n < g.length {
		return 1
	}
	return 0
}

// firstTaken is the position of the first card that is taken, on a loop of n cards.
func (g *gap) firstTaken(n int) int {
	if g.fromEnd {
		return (g.start + g.length - g.taken) % n
	}
	return g.start % n
}

// outline is what cards that must be taken leave to be decided.
type outline struct {
	gaps   []gap
	pieces int // that there are if every gap between is filled and none apart is touched
	rest   int // cards to be taken out of the gaps
}

func (p *pieceSearch) outline() outline {
	o := outline{gaps: p.gaps[:0], rest: p.size}
	for i := range p.loops {
		l := &p.loops[i]
		o.rest -= bits.OnesCount64(p.must[i])
		for r := l.runs(p.free[i]); r.next(); {
			must := p.must[i] & l.arc(r.start, r.length)
			if must != 0 {
				o.pieces++
			}
			o.gaps = addGaps(o.gaps, i, l, must, r.start, r.length)
		}
	}
	return o
}

// addGaps adds the gaps of one free arc, of which the cards in must are taken.
func addGaps(gaps []gap, loop int, l *loop, must uint64, start, length int) []gap {
	if must == 0 {
		return append(gaps, gap{loop: loop, start: start, length: length, kind: apart})
	}
	ring := length == len(l.cards) && l.whole(l.all)
	if ring { // begin at a card that must be taken
		start = bits.TrailingZeros64(must)
	}
	first, end := len(gaps), 0 // end: of the card before the gap
	for must = l.back(must, start); must != 0; must &= must - 1 {
		at := bits.TrailingZeros64(must)
		g := gap{loop: loop, start: start + end, length: at - end, kind: between}
		if end == 0 {
			g.kind, g.fromEnd = beside, true
		}
		if g.length > 0 {
			gaps = append(gaps, g)
		}
		end = at + 1
	}
	if end < length {
		gaps = append(gaps, gap{loop: loop, start: start + end, length: length - end, kind: beside})
	}
	if ring && len(gaps) > first {
		openRing(gaps[first:])
	}
	return gaps
}

// openRing makes the longest gap of a closed ring the one that may stay open at no cost: m cards around a ring with
// m gaps are m-1 pieces more only if all are open. Which gap that is does not matter to what can be reached,
// because two gaps can change places.
func openRing(gaps []gap) {
	longest := &gaps[0]
	for i := range gaps {
		gaps[i].kind = between
		if gaps[i].length > longest.length {
			longest = &gaps[i]
		}
	}
	longest.kind = beside
}

// fewest is how few pieces there can be: the shortest gaps between are filled first; when all are, those beside are
// free, and then the longest apart are taken. What is left over when a gap between cannot be filled fits into it.
func (o *outline) fewest() int {
	var betweens, aparts [loopMax + 1]uint16 // how many there are of each length
	pieces, rest, open, longest, besides := o.pieces, o.rest, 0, 0, 0
	for i := range o.gaps {
		g := &o.gaps[i]
		longest = max(longest, g.length)
		switch g.kind {
		case between:
			betweens[g.length]++
			open++
		case apart:
			aparts[g.length]++
		case beside:
			besides += g.length
		}
	}
	for length := 1; length <= min(rest, longest); length++ {
		filled := min(int(betweens[length]), rest/length)
		rest -= filled * length
		open -= filled
	}
	if open > 0 {
		return pieces + open
	}
	rest -= besides
	for length := longest; length > 0 && rest > 0; length-- {
		taken := min(int(aparts[length]), (rest+length-1)/length)
		rest -= taken * length
		pieces += taken
	}
	return pieces
}

// cell is the best way to take some number of cards out of some of the gaps.
type cell struct {
	pieces int // less than 0: there is none
	left   vector
}

func (c cell) better(than cell) bool {
	return than.pieces < 0 || c.pieces < than.pieces || c.pieces == than.pieces && than.left.less(c.left)
}

// fill takes the rest of the cards out of the gaps, of one loop or of all (-1), so that it makes as few pieces and
// leaves as long arcs as it can, by dynamic programming over the gaps. It tells which arcs stay free.
func (p *pieceSearch) fill(o *outline, loop int) (vector, bool) {
	cells, picks := p.cells[:], p.picks[:]
	width := o.rest + 1
	if width > len(cells) {
		cells = make([]cell, width)
	}
	if width*len(o.gaps) > len(picks) {
		picks = make([]uint8, width*len(o.gaps))
	}
	cells[0] = cell{}
	for t := 1; t < width; t++ {
		cells[t].pieces = -1
	}
	reach := 0 // how many cards the gaps so far have
	for i := range o.gaps {
		g := &o.gaps[i]
		most := g.length
		if loop >= 0 && g.loop != loop {
			most = 0
		}
		for t := min(o.rest, reach+most); t >= 0; t-- {
			best := cell{pieces: -1}
			for n := max(0, t-reach); n <= min(most, t); n++ {
				from := cells[t-n]
				if from.pieces < 0 {
					continue
				}
				with := cell{from.pieces + g.cost(n), from.left.plus(p.weights[g.length-n])}
				if with.better(best) {
					best, picks[i*width+t] = with, uint8(n)
				}
			}
			cells[t] = best
		}
		reach += most
	}
	if cells[o.rest].pieces < 0 {
		return vector{}, false
	}
	t := o.rest
	for i := len(o.gaps) - 1; i >= 0; i-- {
		o.gaps[i].taken = int(picks[i*width+t])
		t -= o.gaps[i].taken
	}
	return cells[o.rest].left, true
}
