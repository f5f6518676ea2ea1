package lease

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// A change must cost no more with a thousand wishes in the queue than with ten. So what a
// wish could use is found once, and again only when something has changed that it depends
// on; the queue is gone through only as far as an LPU without a lease is left; and those
// who wait get their places a few at a time.

// marks say something of each LPU, by position in the inventory.
type marks []bool

// line is what a book knows of its queue beside the wishes.
type line struct {
	of map[int]int // wishes in the queue, by user
	// What a wish could use is another as soon as era or that of its user is: both only
	// grow.
	era   uint64
	eraOf map[int]uint64

	untold int // wishes that Tell has not come to since the latest change
	next   int // where in the queue Tell goes on
}

func newLine() line { return line{of: map[int]int{}, eraOf: map[int]uint64{}} }

// claims are the LPUs that a wish could use, as of an era.
type claims struct {
	cards []int
	ever  []int // if no user had any; found only where wishes go first
	era   uint64
}

// step is a change of the queue: a wish that waits from now on or, if it is nil, the end
// of one.
type step struct {
	waits *entry
	ended string // its id
}

// offersAs reports whether the same LPUs can be leased as in another view, by the same
// limits and in the same places.
func (v *View) offersAs(o *View) bool {
	return v.Limits == o.Limits && v.Backfill == o.Backfill &&
		reflect.DeepEqual(v.Pool, o.Pool) && maps.Equal(v.Sockets, o.Sockets) && maps.Equal(v.Pods, o.Pods) &&
		slices.EqualFunc(v.Inventory.LPUs, o.Inventory.LPUs, func(x, y discovery.LPU) bool {
			return x.Address == y.Address && x.Name == y.Name && x.Fit() == y.Fit() && (x.Cordoned == nil) == (y.Cordoned == nil) &&
				reflect.DeepEqual(x.NUMANode, y.NUMANode) && reflect.DeepEqual(x.Switch, y.Switch)
		})
}

// full is the refusal of a wish for which the queue has no room; nil if it has.
func (b *Book) full(uid int) *Refusal {
	limits := b.Limits
	switch {
	case uid == 0:
		return nil
	case limits.Waiting > 0 && b.line.of[uid] >= limits.Waiting:
		return refuse(finding.LeaseLimit, fmt.Sprintf("a user may have %d wishes in the queue, and has %d", limits.Waiting, b.line.of[uid]),
			"end some of the commands that wait for LPUs; root can raise leases.maxWaiting")
	case limits.AllWaiting > 0 && len(b.queue) >= limits.AllWaiting:
		return refuse(finding.LeaseBusy, fmt.Sprintf("%d wishes wait, and the queue takes no more", len(b.queue)), "ask again later")
	}
	return nil
}

// wait appends a wish to the queue.
func (b *Book) wait(e *entry) {
	b.queue = append(b.queue, e)
	b.line.of[e.UID]++
	b.steps = append(b.steps, step{waits: e})
}

// leave takes a wish out of the queue, if it is there.
func (b *Book) leave(e *entry) {
	i := slices.Index(b.queue, e)
	if i < 0 {
		return
	}
	b.queue = slices.Delete(b.queue, i, i+1)
	if b.line.of[e.UID]--; b.line.of[e.UID] == 0 {
		delete(b.line.of, e.UID)
	}
	b.steps = append(b.steps, step{ended: e.ID})
	b.untell()
}

// takeSteps returns the changes of the queue since the latest takeSteps.
func (b *Book) takeSteps() []step {
	steps := b.steps
	b.steps = nil
	return steps
}

// couldUse are the LPUs that a wish in the queue could use, though others may have them now.
func (b *Book) couldUse(e *entry) []int {
	if era := b.line.era + b.line.eraOf[e.UID]; e.era != era {
		e.claims = claims{b.possible(e.UID, &e.Wish.Selection), b.ever(&e.Wish.Selection), era}
	}
	return e.cards
}

// pass goes through the queue, and sums up which LPUs the wishes could use.
type pass struct {
	*Book
	blocked marks
	free    marks // as far as it is the same for all users
	left    marks // LPUs without a lease
	some    int   // of left that are not blocked
	gaps    *gaps // nil: no wish goes first
}

func (b *Book) pass() *pass {
	n := len(b.Inventory.LPUs)
	p := &pass{b, make(marks, n), make(marks, n), make(marks, n), 0, nil}
	leased := b.leased()
	for i := range n {
		l := b.lpu(i)
		if leased[l.Address] == nil && b.inPool(l) {
			p.left[i] = true
			p.some++
			p.free[i] = len(l.Users) == 0 && !b.endedSince(l.Address, b.Began)
		}
	}
	return p
}

// done reports whether the rest of the queue changes nothing: no LPU is left that a wish
// could get, or that a wish could keep from later ones.
func (p *pass) done() bool { return p.some == 0 && !p.gaps.some(p.left) }

// block keeps LPUs that a wish could use from those that come later.
func (p *pass) block(e *entry) {
	if p.gaps != nil {
		p.gaps.pass(p.Book, e)
	}
	for _, card := range p.couldUse(e) {
		if !p.blocked[card] {
			p.blocked[card] = true
			if p.left[card] {
				p.some--
			}
		}
	}
}

// may reports whether so many LPUs are free, but for some, that a wish could be granted.
func (p *pass) may(e *entry, but marks) bool {
	return count(p.couldUse(e), func(card int) bool { return p.free[card] && !but[card] }) >= e.Wish.Count
}

// find finds LPUs for the wish that comes next; nil if there are none.
func (p *pass) find(e *entry) (d *allocate.Decision) {
	if p.may(e, p.blocked) {
		d = p.choose(e.UID, &e.Wish.Selection, p.blocked, p.Began)
	}
	if d == nil {
		d = p.fill(e)
	}
	return d
}

// serve grants what can be granted to those who wait, in their order.
func (b *Book) serve(now time.Duration) {
	b.expire(now)
	b.untell()
	if b.Closed != "" {
		for _, e := range slices.Clone(b.queue) {
			b.end(now, e)
			b.send(e.conn, Answer{Refused: b.closed()})
		}
	}
	p := b.before(0, b.gaps(now))
	ahead := 0
	for _, e := range slices.Clone(b.queue) {
		if ahead == deepest {
			p.gaps = nil
		}
		if p.done() {
			return
		}
		if d := p.find(e); d != nil {
			b.grant(now, e, d)
			if p.gaps == nil {
				p = p.without(d.Chosen)
			} else {
				p = b.before(ahead, b.gaps(now))
			}
			continue
		}
		p.block(e)
		ahead++
	}
}

// without is the pass after a grant of LPUs, which no wish had blocked.
func (p *pass) without(chosen []int) *pass {
	for _, card := range chosen {
		p.left[card], p.free[card] = false, false
	}
	p.some -= len(chosen)
	return p
}

// blocked are the LPUs without a lease that wishes in the queue could use. No wish that
// comes later gets these.
func (b *Book) blocked() marks { return b.before(len(b.queue), nil).blocked }

// before is a pass of so many wishes.
func (b *Book) before(n int, g *gaps) *pass {
	p := b.pass()
	p.gaps = g
	for _, e := range b.queue[:n] {
		if p.done() {
			break
		}
		p.block(e)
	}
	return p
}

// untell has all who wait get their places, as far as these are others now.
func (b *Book) untell() { b.line.untold = len(b.queue) }

// Tell comes to at most so many of those who wait, one after the other, and says to each
// where in the queue it is, if that is something new. It reports whether there are more
// that it has not come to since the latest change.
func (b *Book) Tell(now time.Duration, most int) (more bool) {
	if b.line.untold = min(b.line.untold, len(b.queue)); b.line.untold == 0 {
		return false
	}
	if b.line.next >= len(b.queue) {
		b.line.next = 0
	}
	for p := b.before(b.line.next, nil); most > 0 && b.line.untold > 0; most-- {
		e := b.queue[b.line.next]
		b.line.next++
		b.say(now, e, b.line.next, p.blocked)
		p.block(e)
		if b.line.untold--; b.line.next == len(b.queue) {
			b.line.next, p = 0, b.pass()
		}
	}
	return b.line.untold > 0
}

// say says to one who waits at which place it is, if that is another than before, or
// another that it waits for. That others come after it is nothing new.
func (b *Book) say(now time.Duration, e *entry, place int, blocked marks) {
	const noTime = -1
	p := Place{Place: place, Of: len(b.queue), Why: b.why(noTime, e, blocked)}
	if p.Place == e.place.Place && p.Why == e.place.Why {
		return
	}
	e.place = p
	p.Why = b.why(now, e, blocked)
	b.send(e.conn, Answer{Waiting: &p})
}
