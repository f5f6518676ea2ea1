package ring

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// link is one link as the table lists it, between positions in Table.IDs. In a table that
// is [parser.directed], to is on the right of from.
type link struct {
	from, to int
	end      int  // in a directed table, the end that lists it: 0 from, 1 to
	ring     bool // it is part of a ring, which lists each cable once
	at       location
}

// pair is two neighbours, with the links between them.
type pair struct {
	link // the first one
	// listed is the number of links, by the end that lists them; then [0] with to on the
	// right of from, [1] on the left.
	listed   [2][2]int
	repeated []link   // links that the same end has listed before
	turned   location // of the first link with to on the left of from
}

// cables is the number of cables with to on the right of from (side 0) or on the left
// (1).
func (p *pair) cables(side int) int { return max(p.listed[0][side], p.listed[1][side]) }

// fromBoth reports whether there are cables on a side and both ends list them.
func (p *pair) fromBoth(side int) bool {
	return p.listed[0][side] > 0 && p.listed[0][side] == p.listed[1][side]
}

// pairs groups the links by the two cards that they connect. It returns all pairs, and
// the pairs of each card.
func (r *parser) pairs() (all []*pair, of [][]*pair) {
	of = make([][]*pair, len(r.IDs))
	index := make(map[[2]int]*pair, len(r.links))
	for _, l := range r.links {
		if l.from == l.to {
			r.add(finding.RingSelfLink, l.at, r.name(l.from), "a link from %s to itself", r.name(l.from))
			continue
		}
		key := [2]int{min(l.from, l.to), max(l.from, l.to)}
		p := index[key]
		if p == nil {
			p = &pair{link: l}
			index[key] = p
			all = append(all, p)
			of[l.from] = append(of[l.from], p)
			of[l.to] = append(of[l.to], p)
		}
		end, side := l.end, 0
		if l.from != p.from {
			if r.directed() {
				side, p.turned = 1, cmp.Or(p.turned, l.at)
			} else { // the same link listed from the other end
				end = 1
			}
		}
		p.ring = p.ring || l.ring
		p.listed[end][side]++
		if p.listed[end][side] > 1 {
			p.repeated = append(p.repeated, l)
		}
	}
	return all, of
}

// directed reports whether the table says which neighbour is on the left and which on the
// right.
func (r *parser) directed() bool { return r.Format == FormatHyperdex }

// checkLinks checks all links together and puts the cables into the table.
func (r *parser) checkLinks() {
	complete := !r.HasErrors()
	all, of := r.pairs()
	for _, p := range all {
		r.checkPorts(p, len(of[p.from]) == 1 && len(of[p.to]) == 1)
		for side, l := range [][2]int{{p.from, p.to}, {p.to, p.from}} {
			r.Links = append(r.Links, slices.Repeat([][2]int{l}, p.cables(side))...)
		}
	}
	if complete { // else the other end may be a link that could not be read
		r.checkBothEnds(all)
	}
	for card, pairs := range of {
		r.checkNeighbours(card, pairs)
	}
}

// checkPorts reports two neighbours with more cables than they have ports for. Two cards
// that are alone, without other neighbours, have two ports for each other, others have
// one.
func (r *parser) checkPorts(p *pair, alone bool) {
	if alone && p.cables(0)+p.cables(1) <= 2 {
		return
	}
	a, b := r.name(p.from), r.name(p.to)
	for _, l := range p.repeated {
		r.add(finding.RingLinkTwice, l.at, a+", "+b, "the link between %s and %s is there twice (first on line %d)", a, b, p.at.line)
	}
	if !alone && p.cables(1) > 0 {
		r.add(finding.RingConflict, p.turned, a+", "+b, "%s is on the left of %s here and on its right on line %d", b, a, p.at.line).
			Remedy = "correct the direction of one of the links"
	}
}

// checkBothEnds reports cables that only one end lists, in a table where both ends list
// others.
func (r *parser) checkBothEnds(all []*pair) {
	if !slices.ContainsFunc(all, func(p *pair) bool { return p.fromBoth(0) || p.fromBoth(1) }) {
		return
	}
	for _, p := range all {
		if a, b := r.name(p.from), r.name(p.to); !p.ring && p.listed[0] != p.listed[1] {
			r.add(finding.RingOneSided, location{line: p.at.line}, a+", "+b,
				"the cable between %s and %s is listed from one end only, but other cables from both ends", a, b)
		}
	}
}

// checkNeighbours reports a card with more than two neighbours, or with two on the same
// side.
func (r *parser) checkNeighbours(card int, pairs []*pair) {
	var others []string
	for _, p := range pairs {
		others = append(others, r.name(p.from+p.to-card))
	}
	name, names := r.name(card), theFirst(others)
	switch {
	case len(pairs) > 2:
		r.add(finding.RingDegree, pairs[2].at, name+", "+names, "%s has %d neighbours (%s), but only two ports", name, len(others), names)
	case len(pairs) == 2 && r.directed() && (pairs[0].from == card) == (pairs[1].from == card):
		side := "left"
		if pairs[0].from == card {
			side = "right"
		}
		r.add(finding.RingConflict, location{line: pairs[1].at.line}, name+", "+names,
			"both %s and %s are on the %s of %s", others[0], others[1], side, name).
			Remedy = "correct the direction of one of the links"
	}
}

// shownNames is how many names of a list are shown.
const shownNames = 8

// theFirst is the first names of a list.
func theFirst(names []string) string {
	if len(names) > shownNames {
		names = append(slices.Clone(names[:shownNames]), "...")
	}
	return strings.Join(names, ", ")
}

// piece is cards in a row that are not known to be a whole ring: a chain, two cards with
// one cable, or a card without cables. No cable leads to the left of its first card and
// to the right of its last one.
type piece struct {
	size        int
	first, last string
}

// checkRings reports rings that are not whole, and that there are several.
func (r *parser) checkRings() {
	single := max(len(r.IDs), r.positions()) == 1 // there is no other card to be cabled to
	var sizes []string
	var pieces []piece
	chains := 0
	for _, ring := range newCabling(len(r.IDs), r.Links).Rings {
		size, links := len(ring.Cards), len(ring.Links)
		p := piece{size, r.name(ring.Cards[0]), r.name(ring.Cards[0])}
		if size > 1 {
			sizes = append(sizes, strconv.Itoa(size))
			p.first, p.last = r.name(ring.Links[0][0]), r.name(ring.Links[links-1][1])
		} else if !single {
			r.isolated(p.first, r.IDs[ring.Cards[0]].at())
		}
		if links < size {
			pieces = append(pieces, p)
		}
		if !ring.Closed {
			chains++
		}
	}
	if r.byIndex() && !single {
		for _, card := range r.unmentioned(r.positions()) {
			r.isolated(card, location{})
			pieces = append(pieces, piece{1, card, card})
		}
	}
	switch {
	case chains > 0 && len(pieces) == 1:
		r.chain(pieces[0])
	case chains > 0:
		r.chains(pieces)
	}
	if chains == 0 || len(pieces) == 1 {
		r.several(sizes)
	}
}

// several reports that there are several rings, unless other numbers keep them apart.
// HyperDex takes the order of the file for one ring.
func (r *parser) several(sizes []string) {
	if len(sizes) < 2 || r.Container > 0 {
		return
	}
	f := r.add(finding.RingSeveral, location{}, "", "%d rings (%s cards)", len(sizes), theFirst(sizes))
	if r.forHyperdex() && r.Refused() == nil {
		f.Message += ", which HyperDex takes for one: it computes over cables from one to the other, which do not exist"
		f.Remedy = "write the table so that HyperDex takes each ring by itself: " + r.convert()
	}
}

// forHyperdex reports whether the table is one that HyperDex's program reads, or should
// be able to read. One by address is read by later releases, which are not public.
func (r *parser) forHyperdex() bool { return r.directed() && r.byIndex() }

// convert is the command that writes the table as HyperDex's program needs it.
func (r *parser) convert() string {
	command := "lpuctl ring convert --to hyperdex --output " + shell.Quoted(r.report.file, r.report.file)
	if len(r.Extra) > 0 {
		command += "; it leaves out what it does not know: " + theFirst(r.Extra)
	}
	return command
}

// checkHyperdex reports what HyperDex's program cannot read, and where it takes something
// else for a cable than the table has.
func (r *parser) checkHyperdex() {
	if !r.forHyperdex() {
		return
	}
	hyperdex := func(at location, format string, args ...any) {
		r.add(finding.RingHyperdex, at, "", format, args...).Remedy = "write it as HyperDex needs it: " + r.convert()
	}
	if err := r.Refused(); err != nil {
		hyperdex(location{}, "HyperDex ends with an error: %v", err)
		return
	}
	whole := Reading{Ring: true}
	for _, e := range r.Entries[:r.Count] {
		if e.Side != sideRight && strings.EqualFold(e.Side, sideRight) {
			hyperdex(e.at, "HyperDex takes %q for left: it knows %q only", e.Side, sideRight)
			return
		}
		whole.IDs, whole.Left = append(whole.IDs, e.ID), append(whole.Left, e.Side != sideRight)
	}
	jumps := r.jumps(r.Hops(whole))
	switch {
	case len(jumps) <= r.ends():
	case jumps[0] == r.Count-1:
		hyperdex(location{}, "HyperDex takes these cards for a ring, but no cable of its own leads from %s back to %s",
			Name(whole.IDs[r.Count-1]), Name(whole.IDs[0]))
	default:
		r.order(r.Entries[jumps[0]], r.Entries[jumps[0]+1])
	}
}

// jumps is the positions of the hops for which there is no cable. Those from and to
// numbers that no card of the container or node has do not count.
func (r *parser) jumps(hops []Hop) (positions []int) {
	for i, h := range hops {
		if inside := r.Container == 0 || max(h.From, h.To) < r.Container; inside && !h.Cabled {
			positions = append(positions, i)
		}
	}
	return positions
}

// ends is how many times one ring ends and another one follows, which [parser.several]
// reports. In a table of [WriteContainer] or [WriteNode] another number stands between
// them.
func (r *parser) ends() int {
	rings := newCabling(len(r.IDs), r.Links).Rings
	if r.Container > 0 || len(rings) == 1 {
		return 0
	}
	return len(rings)
}

// order reports two entries that follow each other, but are not cabled so: HyperDex's
// program takes the order of the file for that of the ring.
func (r *parser) order(from, to Entry) {
	a, b, side := Name(from.ID), Name(to.ID), "right"
	if from.Side != sideRight {
		side = "left"
	}
	what := fmt.Sprintf("%s follows %s, but is not on the %s of it", b, a, side)
	if a == b {
		what = "two links from " + a + " follow each other"
	}
	r.add(finding.RingFileOrder, location{line: to.at.line}, theFirst(slices.Compact([]string{a, b})),
		"the links are not in the order of the cables: %s", what).Remedy = "write it in the order of the cables: " + r.convert()
}

// chain reports the one piece that is not a whole ring: it lacks the cable from its last
// card to its first. A table by address may leave out other cards of the same ring, which
// have no cables; a table by index lists all cards of the node.
func (r *parser) chain(p piece) {
	cable, unless := p.last+"-"+p.first, ""
	if !r.byIndex() && r.Count == 0 {
		unless = "if the ring has no more cards, "
	}
	f := r.add(finding.RingChain, location{}, p.last+", "+p.first,
		"a chain of %d cards, not a ring: %sthe cable %s is missing", p.size, unless, cable)
	f.Remedy = "check the cable between " + p.last + " and " + p.first
}

// chains reports several pieces. Which cables they lack is not known: it depends on how
// they were put together.
func (r *parser) chains(pieces []piece) {
	var sizes, ends []string
	for _, p := range pieces {
		sizes = append(sizes, strconv.Itoa(p.size))
		ends = append(ends, p.first)
		if p.size > 1 {
			ends = append(ends, p.last)
		}
	}
	names := theFirst(ends)
	f := r.add(finding.RingChain, location{}, names, "%d chains (%s cards), not a ring: %s have a port without a cable%s",
		len(pieces), theFirst(sizes), names, r.oneRing(pieces))
	f.Remedy = "check the cables of " + names + "; then run hyperdex-net again"
}

// oneRing says with which cables two pieces are one ring. More than two pieces can be put
// together in too many ways.
func (r *parser) oneRing(pieces []piece) string {
	if len(pieces) != 2 {
		return ""
	}
	a, b := pieces[0], pieces[1]
	way := func(x, y string) string { return a.last + "-" + x + " and " + y + "-" + a.first }
	text := "; they are one ring with " + way(b.first, b.last)
	if !r.directed() && a.size > 1 && b.size > 1 { // else left and right leave one way
		text += ", or with " + way(b.last, b.first)
	}
	return text
}
