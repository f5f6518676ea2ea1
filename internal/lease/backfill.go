package lease

import (
	"math"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// With View.Backfill a wish can go first: it gets LPUs that a wish ahead could use, where
// it gives them back before that wish can start. What decides is when things end: leases
// whose time has an end, and reservations. Until the first of the ends that matter to the
// wishes ahead, these all wait, with the wish that goes first and without it; and then the
// LPUs are there again. So no wish ahead starts later than the ends of that moment promise.

const (
	// deepest is how many wishes ahead another passes at most: more would make a change
	// cost more the more wait.
	deepest = 128
	// endsWithin is how long after its time a lease has ended, where its end is enforced.
	endsWithin = time.Minute

	never time.Duration = math.MaxInt64
)

// gaps say for how long a wish can have LPUs without a wish ahead starting later. LPUs
// are positions in the inventory, and times since boot.
type gaps struct {
	now time.Duration
	// until is when, for each LPU, a wish ahead that could use it may start.
	until  []time.Duration
	holder []*entry // who has each leased; nil: no user
	// busy are those whose time is not known: no user has one leased, and it is in use or
	// being cleaned.
	busy  marks
	kept  []time.Duration       // the first end of what is reserved of it
	own   map[int]time.Duration // the first end of what a user has
	first time.Duration         // the first of all
	bars  marks                 // room for what barred returns
	back  time.Duration         // after the time of a lease, until another can have its LPUs
}

// gaps are those of a moment, before the wishes ahead are looked at; nil where no wish
// goes first.
func (b *Book) gaps(now time.Duration) *gaps {
	if !b.Backfill {
		return nil
	}
	n := len(b.Inventory.LPUs)
	g := &gaps{
		now: now, until: slices.Repeat([]time.Duration{never}, n), holder: make([]*entry, n), busy: make(marks, n),
		kept: slices.Repeat([]time.Duration{never}, n), own: map[int]time.Duration{}, first: never, bars: make(marks, n),
		back: endsWithin + b.hookLimit,
	}
	leased := b.leased()
	for i := range n {
		l := b.lpu(i)
		g.holder[i] = leased[l.Address]
		if g.busy[i] = g.holder[i] == nil && b.comes(l); g.busy[i] {
			g.first = 0
		}
	}
	for _, e := range b.leases {
		g.end(e.UID, e.Until)
	}
	for _, r := range b.reservations {
		g.end(r.UID, r.Until)
		for i := range n {
			if slices.ContainsFunc(r.LPUs, func(l LPU) bool { return l.Address == b.lpu(i).Address }) {
				g.kept[i] = min(g.kept[i], r.Until)
			}
		}
	}
	return g
}

// comes reports whether an LPU without a lease may be free at any moment, and is not yet: a
// process has it or may have it, the hook has still to run, or no look has shown it since.
// One on which the hook has failed does not come by itself. So no wish counts on it, and
// none is promised it.
func (b *Book) comes(l *discovery.LPU) bool {
	last := b.ended[l.Address]
	return !b.failed(l.Address) && (len(l.Users) > 0 || last != nil && !last.clear || b.endedSince(l.Address, b.Began))
}

// end says that something ends that a user has; 0: never.
func (g *gaps) end(uid int, at time.Duration) {
	if at == 0 {
		return
	}
	if first, has := g.own[uid]; !has || at < first {
		g.own[uid] = at
	}
	g.first = min(g.first, at)
}

// pass makes the gaps shorter by the wish that comes next in the queue: its LPUs count as
// taken from the moment when it may start.
func (g *gaps) pass(b *Book, e *entry) {
	could, start := b.couldUse(e), never
	for _, card := range e.ever {
		start = min(start, g.kept[card])
	}
	if b.line.of[e.UID] > 1 { // what else the user gets may keep this wish from holding others back
		start = min(start, g.first)
	}
	if first, has := g.own[e.UID]; has && len(could) < len(e.ever) {
		start = min(start, first)
	}
	if len(could) > 0 {
		start = min(start, g.start(e))
	}
	for _, card := range e.ever {
		g.until[card] = min(g.until[card], start)
	}
}

// start is when a wish may start as far as it waits for LPUs: at the first end of a lease
// for which it waits. It does not wait for the leases of those who went first, unless
// they are all that it waits for. 0: one has no end.
func (g *gaps) start(e *entry) time.Duration {
	start, passed, there := never, never, 0
	for _, card := range e.ever {
		start = min(start, g.until[card]) // when a wish that keeps it from this one may start
		switch h := g.holder[card]; {
		case g.busy[card]:
			return 0
		case h == nil:
			there++
		case h.asked > e.asked && h.Until > 0:
			there++
			passed = min(passed, h.Until)
		case h.UID != e.UID || h.Until > 0:
			start = min(start, h.Until)
		}
	}
	if there >= e.Wish.Count {
		start = min(start, passed)
	}
	return start
}

// some reports whether a wish could go first on some of the LPUs.
func (g *gaps) some(left marks) bool {
	if g != nil {
		for card, is := range left {
			if is && g.until[card] > g.now+g.back {
				return true
			}
		}
	}
	return false
}

// barred are the LPUs that a wish cannot have though it goes first; nil if it cannot go
// first: its end is not known, or its user has other wishes in the queue, which hold back
// others no longer while their user has more.
func (p *pass) barred(e *entry) marks {
	g, limit, same := p.gaps, p.limit(e), p.line.of[e.UID]
	if p.open[e.conn] == e {
		same--
	}
	if g == nil || limit == 0 || same > 0 {
		return nil
	}
	end := g.now + limit + g.back
	for card, until := range g.until {
		g.bars[card] = until < end
	}
	return g.bars
}

// fill finds LPUs for a wish that goes before those of the pass; nil if there are none.
func (p *pass) fill(e *entry) *allocate.Decision {
	if barred := p.barred(e); barred != nil && p.may(e, barred) {
		return p.choose(e.UID, &e.Wish.Selection, barred, p.Began)
	}
	return nil
}

// goesFirst finds LPUs for a new wish that goes before all that wait; nil if there are
// none.
func (b *Book) goesFirst(now time.Duration, e *entry) *allocate.Decision {
	if len(b.queue) == 0 || len(b.queue) > deepest {
		return nil
	}
	return b.before(len(b.queue), b.gaps(now)).fill(e)
}
