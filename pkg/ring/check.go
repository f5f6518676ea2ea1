package ring

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// statement is one link as the table states it, between positions in Table.IDs.
type statement struct {
	from, to int
	end      int  // which end states it, where the table tells left from right: 0 from, 1 to
	ring     bool // it follows from a ring, which stands for both ends
	at       place
}

// pair is what the table states about two neighbours.
type pair struct {
	a, b     int // as the first statement has them
	line     int
	stated   [2][2]int // how often: [0] b on the right of a, [1] on the left; then by the end that states it
	ring     bool
	repeated []statement // those that one end had made already
	turned   place       // the first that has b on the left
}

// cables is how many there are with b on the right of a (0) or on the left (1).
func (p *pair) cables(side int) int { return max(p.stated[side][0], p.stated[side][1]) }

// bothEnds tells whether both ends state the cables on a side.
func (p *pair) bothEnds(side int) bool { return p.stated[side][0] == p.stated[side][1] }

func (p *pair) add(s statement, directed bool) {
	side, end := 0, s.end
	switch turned := s.from != p.a; {
	case directed && turned:
		side = 1
		p.turned = cmp.Or(p.turned, s.at)
	case turned: // nothing tells left from right: the end that comes first states it
		end = 1
	}
	p.ring = p.ring || s.ring
	p.stated[side][end]++
	if p.stated[side][end] > 1 {
		p.repeated = append(p.repeated, s)
	}
}

// gathered is what all statements come to.
type gathered struct {
	pairs      []*pair
	neighbours [][]neighbour // of each card, each once
}

type neighbour struct {
	card int
	at   place // of the first statement
}

func (r *reader) gather(directed bool) *gathered {
	g := &gathered{neighbours: make([][]neighbour, len(r.table.IDs))}
	index := make(map[[2]int]*pair, len(r.statements))
	for _, s := range r.statements {
		if s.from == s.to {
			card := r.table.IDs[s.from].String()
			r.add(finding.RingSelfLink, s.at, []string{card}, "a link from "+card+" to itself", "remove it; look for a loop-back plug or a cable with both ends in one card")
			continue
		}
		key := [2]int{min(s.from, s.to), max(s.from, s.to)}
		p := index[key]
		if p == nil {
			p = &pair{a: s.from, b: s.to, line: s.at.line}
			index[key] = p
			g.pairs = append(g.pairs, p)
			g.neighbours[s.from] = append(g.neighbours[s.from], neighbour{s.to, s.at})
			g.neighbours[s.to] = append(g.neighbours[s.to], neighbour{s.from, s.at})
		}
		p.add(s, directed)
	}
	return g
}

// checkLinks judges the links that were stated and puts them into the table. directed says that the table tells
// left from right.
func (r *reader) checkLinks(directed bool) {
	complete := !r.findings.HasErrors()
	g := r.gather(directed)
	for _, p := range g.pairs {
		for range p.cables(0) {
			r.table.Links = append(r.table.Links, Link{p.a, p.b, p.line})
		}
		if r.checkPorts(p, len(g.neighbours[p.a]) == 1 && len(g.neighbours[p.b]) == 1) {
			for range p.cables(1) {
				r.table.Links = append(r.table.Links, Link{p.b, p.a, p.line})
			}
		}
	}
	if complete { // else what is missing may be what could not be read
		r.checkBothEnds(g.pairs)
	}
	for card, neighbours := range g.neighbours {
		r.checkDegree(card, neighbours)
	}
	if directed {
		r.checkSides(g)
	}
}

// checkPorts reports two neighbours with more cables than they have ports for: two if they have nobody else, or
// one. It tells whether they can be on both sides of each other.
func (r *reader) checkPorts(p *pair, alone bool) bool {
	if alone && p.cables(0)+p.cables(1) <= 2 {
		return true
	}
	a, b := r.table.IDs[p.a].String(), r.table.IDs[p.b].String()
	for _, s := range p.repeated {
		r.add(finding.RingLinkTwice, s.at, []string{a, b}, fmt.Sprintf("the link between %s and %s stands here again (first on line %d)", a, b, p.line), "remove it")
	}
	if !alone && p.cables(1) > 0 {
		r.add(finding.RingConflict, p.turned, []string{a, b}, fmt.Sprintf("%s is on the left of %s here and on its right on line %d", b, a, p.line),
			"correct the direction of one of the links")
	}
	return alone
}

// checkBothEnds reports cables stated from one end only in a table that states others from both.
func (r *reader) checkBothEnds(pairs []*pair) {
	if !slices.ContainsFunc(pairs, func(p *pair) bool {
		return p.cables(0) > 0 && p.bothEnds(0) || p.cables(1) > 0 && p.bothEnds(1)
	}) {
		return
	}
	for _, p := range pairs {
		if p.ring || p.bothEnds(0) && p.bothEnds(1) {
			continue
		}
		a, b := r.table.IDs[p.a].String(), r.table.IDs[p.b].String()
		r.add(finding.RingOneSided, place{line: p.line}, []string{a, b}, fmt.Sprintf("the cable between %s and %s is stated from one end only, others from both", a, b),
			"state every cable once, or every cable from both ends")
	}
}

func (r *reader) checkDegree(card int, neighbours []neighbour) {
	if len(neighbours) <= 2 {
		return
	}
	name := r.table.IDs[card].String()
	var others []string
	for _, n := range neighbours {
		others = append(others, r.table.IDs[n.card].String())
	}
	r.add(finding.RingDegree, neighbours[2].at, append([]string{name}, others[:min(len(others), few)]...),
		fmt.Sprintf("%s has %d neighbours (%s) and two ports", name, len(others), theFirst(others)), "remove the links that are not cables")
}

// few is how many names one message lists.
const few = 8

func theFirst(names []string) string {
	if len(names) > few {
		return strings.Join(names[:few], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}

// checkSides reports cards with more than one neighbour on a side. Where there are too many neighbours
// altogether, checkDegree said so.
func (r *reader) checkSides(g *gathered) {
	sides := [2][]int{make([]int, len(g.neighbours)), make([]int, len(g.neighbours))} // left, right; 0: none, else position+1
	take := func(card, side, other, line int) {
		first := sides[side][card]
		if first == 0 || first == other+1 {
			sides[side][card] = other + 1
			return
		}
		if len(g.neighbours[card]) > 2 {
			return
		}
		name, a, b := r.table.IDs[card].String(), r.table.IDs[first-1].String(), r.table.IDs[other].String()
		r.add(finding.RingConflict, place{line: line}, []string{name, a, b}, fmt.Sprintf("both %s and %s are on the %s of %s", a, b, [2]string{"left", "right"}[side], name),
			"correct the direction of one of the links")
	}
	for _, l := range r.table.Links {
		take(l.A, 1, l.B, l.Line)
		take(l.B, 0, l.A, l.Line)
	}
}

// warn reports what is notable about the rings of a sound table.
func (r *reader) warn() {
	links := make([][2]int, len(r.table.Links))
	for i, l := range r.table.Links {
		links[i] = [2]int{l.A, l.B}
	}
	var sizes []string
	var alone []int
	for _, ring := range newCabling(len(r.table.IDs), links).Rings {
		size := len(ring.Cards)
		if size == 1 {
			alone = append(alone, ring.Cards[0])
			continue
		}
		sizes = append(sizes, strconv.Itoa(size))
		if ring.Closed {
			continue
		}
		first, last := r.table.IDs[ring.Links[0][0]].String(), r.table.IDs[ring.Links[size-2][1]].String()
		r.add(finding.RingChain, place{}, []string{last, first}, fmt.Sprintf("a chain of %d cards, no ring: the cable %s-%s is missing", size, last, first),
			fmt.Sprintf("check the cable between %s and %s", last, first))
	}
	if len(sizes) > 1 {
		r.add(finding.RingSeveral, place{}, nil, fmt.Sprintf("%d rings (%s cards)", len(sizes), theFirst(sizes)), "nothing, if the cards are meant to be cabled so")
	}
	if max(len(r.table.IDs), r.table.positions()) == 1 {
		return // a card that has nobody to be cabled to
	}
	for _, card := range alone {
		r.isolated(r.table.IDs[card].String(), r.places[card])
	}
	if r.table.byIndex() {
		for _, card := range r.unmentioned(r.table.positions()) {
			r.isolated(card, place{})
		}
	}
}

func (r *report) isolated(card string, at place) {
	r.add(finding.RingIsolated, at, []string{card}, card+" is in no link", "check its cables; it can be used by itself")
}
