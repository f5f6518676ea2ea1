package lease

import (
	"context"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// The queue goes to a client a part at a time: each costs the arbiter as much as any other
// request, however many wait, and is an answer of bounded size. List, which clients of
// releases before know, stays as it is.

// queuePart is how many wishes at most are in an answer.
const queuePart = 64

// QueueFrom asks who waits.
type QueueFrom struct {
	After uint64 `json:"after,omitempty"` // [Queued.Order] of the latest that is known; 0: none is
}

// Queue are wishes of the queue that follow each other.
type Queue struct {
	Waiting []Queued `json:"waiting"`
	More    bool     `json:"more,omitempty"` // wishes come after these
}

// Queued is a wish in the queue, and what it waits for. Times are since boot
// (CLOCK_BOOTTIME), in nanoseconds.
type Queued struct {
	ID    string `json:"id"`    // of the lease that it becomes: "l9"
	Order uint64 `json:"order"` // higher than that of those before
	Peer
	Wish  Selection     `json:"wish"`
	Since time.Duration `json:"since"`
	Mine  bool          `json:"mine,omitempty"` // of the user who asks
	Why   string        `json:"why"`            // it has none yet
	// Holders are leases, and reservations of others, that have LPUs which it could use. They
	// have only these LPUs here.
	Holders []Lease `json:"holders,omitempty"`
}

// Queue returns the wishes that wait after one with such a number, the next ones first, as
// a user sees them.
func (b *Book) Queue(now time.Duration, uid int, after uint64) *Queue {
	b.expire(now)
	first := slices.IndexFunc(b.queue, func(e *entry) bool { return e.asked > after })
	if first < 0 {
		return &Queue{Waiting: []Queued{}}
	}
	q := &Queue{Waiting: []Queued{}, More: len(b.queue)-first > queuePart}
	p := b.before(first, nil)
	for _, e := range b.queue[first:min(first+queuePart, len(b.queue))] {
		q.Waiting = append(q.Waiting, Queued{
			ID: e.ID, Order: e.asked, Peer: e.Peer, Wish: e.Wish.Selection, Since: e.Since, Mine: e.UID == uid,
			Why: b.why(now, e, p.blocked), Holders: b.holders(e),
		})
		p.block(e)
	}
	return q
}

// holders are who has LPUs that a wish waits for: of those that it could use or, if
// reservations of others keep it from all, of those that it wants.
func (b *Book) holders(e *entry) (all []Lease) {
	s := &e.Wish.Selection
	if r := b.ownFault(e.UID, s); r != nil && r.ID == finding.LeaseLimit {
		return nil
	}
	cards := b.couldUse(e)
	if len(cards) == 0 {
		cards = b.cards(func(l *discovery.LPU) bool {
			return b.inPool(l) && s.Place.Allows(l) && (len(s.Must) < s.Count || slices.Contains(s.Must, l.Address))
		})
	}
	leased := b.leased()
	for _, card := range cards {
		l := b.lpu(card)
		of := Lease{}
		if holder := leased[l.Address]; holder != nil {
			of = holder.Lease
		} else if r := b.keeper(e.UID, l.Address); r != nil {
			of = Lease{ID: r.ID, Peer: r.Peer, Since: r.Since, Until: r.Until}
		} else {
			continue
		}
		i := slices.IndexFunc(all, func(have Lease) bool { return have.ID == of.ID })
		if i < 0 {
			of.LPUs = nil
			i, all = len(all), append(all, of)
		}
		all[i].LPUs = append(all[i].LPUs, LPU{l.Address, l.Name})
	}
	return all
}

// keeper is the reservation of another user that has an LPU; nil if there is none.
func (b *Book) keeper(uid int, a pci.Address) *Reservation {
	for i := range b.reservations {
		r := &b.reservations[i]
		if r.UID != uid && slices.ContainsFunc(r.LPUs, func(l LPU) bool { return l.Address == a }) {
			return r
		}
	}
	return nil
}

// Queue returns who waits, in order.
func (c *Client) Queue(ctx context.Context) ([]Queued, error) {
	all := []Queued{}
	for {
		var from QueueFrom
		if len(all) > 0 {
			from.After = all[len(all)-1].Order
		}
		a, err := c.ask(ctx, Request{Queue: &from}, nil)
		if err != nil {
			return nil, err
		}
		if all = append(all, a.Queue.Waiting...); !a.Queue.More || len(a.Queue.Waiting) == 0 {
			return all, nil
		}
	}
}
