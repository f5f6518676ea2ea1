package lease

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// End asks for the end of a lease, or of a wish that waits. Only root may.
type End struct {
	ID string `json:"id"` // "l7"
}

// Over is said to the holder of a lease that is over.
type Over struct {
	// At is when root ended the lease, since boot (CLOCK_BOOTTIME, in nanoseconds); 0: its
	// time is over. A client of a release before reads only 0, and nothing is sent of that.
	At time.Duration `json:"at,omitempty"`
}

// Released are the reservations that were given back.
type Released struct {
	IDs []string `json:"ids"`
}

func checkLease(id string) error {
	if _, err := number(id, "l"); err != nil {
		return fmt.Errorf("%.40q is not the id of a lease, such as l7", id)
	}
	return nil
}

// HowToEnd says what ends that for which the lease is, in the words of a remedy. The lease
// may have been handed on, and the number of the process that asked be that of another.
func (l *Lease) HowToEnd() string {
	if l.Container != "" {
		return fmt.Sprintf("stop the container %.12s", l.Container)
	}
	return fmt.Sprintf("kill %d, if that is still a program of %s", l.PID, l.Peer)
}

// ReleaseAll ends all reservations of a user.
func (b *Book) ReleaseAll(now time.Duration, conn Conn, uid int) {
	b.state++
	b.expire(now)
	var all []Reservation
	ids := []string{}
	for _, r := range b.reservations {
		if r.UID == uid {
			all, ids = append(all, r), append(ids, r.ID)
		}
	}
	for _, id := range ids {
		b.unreserve(id)
		b.changed.Reservations = true
	}
	b.promise(conn, Answer{Released: &Released{ids}}, func() {
		for _, r := range all {
			b.keep(r)
		}
	})
	b.serve(now)
}

// End ends a lease for root: its time is over now, and its holder hears that. The LPUs stay
// with it until it has ended. A wish that waits with that id is taken out of the queue.
func (b *Book) End(now time.Duration, conn Conn, uid int, id string) {
	b.state++
	b.expire(now)
	var e *entry
	for _, of := range slices.Concat(b.leases, b.queue) {
		if of.ID == id {
			e = of
		}
	}
	switch {
	case e == nil:
		b.refuse(conn, finding.LeaseUnknown, "there is no lease "+id, "see who has what, and who waits: lpuctl list; lpuctl queue")
		return
	case uid != 0 && uid == e.UID:
		b.refuse(conn, finding.LeaseUnknown, id+" is your lease, and ends with what it is for", "end that: "+e.HowToEnd())
		return
	case uid != 0:
		b.refuse(conn, finding.LeaseUnknown, id+" is a lease of "+e.String()+", and only root ends it", "ask that user, or root")
		return
	case e.Grant == nil:
		b.end(now, e)
		b.send(e.conn, Answer{Refused: refuse(finding.LeaseEnded, "root has taken "+id+" out of the queue", "ask root why, and ask again")})
		b.serve(now)
	default:
		if !e.isOver(now) {
			e.Until, e.Grant.Until = now, now
			b.changed.Leases = true
			b.line.eraOf[e.UID]++
		}
		e.over, e.taken = true, true
		if !e.Gone {
			b.send(e.conn, Answer{Over: &Over{now}})
		}
	}
	ended := e.Lease
	b.send(conn, Answer{Ended: &ended})
}

// forfeited reports whether a lease ends though its container runs: root has ended it, the
// arbiter may not end the container, and no process has the LPUs. A user can bind a lease
// to any container of root's, one that runs as long as the node.
func (b *Book) forfeited(e *entry) bool {
	return e.taken && !e.MayEnd && e.Until < b.Began && !slices.ContainsFunc(e.LPUs, func(of LPU) bool {
		l := b.at(of.Address)
		return l == nil || l.Absent || l.UsersHidden || len(l.Users) > 0
	})
}

// ReleaseAll gives back all reservations of the user, and returns their ids.
func (c *Client) ReleaseAll(ctx context.Context) ([]string, error) {
	a, err := c.ask(ctx, Request{ReleaseAll: &struct{}{}}, nil)
	if err != nil {
		return nil, err
	}
	return a.Released.IDs, nil
}

// End ends a lease, or takes a wish out of the queue, for root. It returns what was ended,
// which has no LPUs if it waited.
func (c *Client) End(ctx context.Context, id string) (*Lease, error) {
	a, err := c.ask(ctx, Request{End: &End{id}}, nil)
	return a.Ended, err
}

// orOutdated returns a refusal in plain words where it is that of an arbiter of a release
// before, which does not know what was asked.
func (r *Refusal) orOutdated() *Refusal {
	if r.ID == finding.LeaseRequest && strings.Contains(r.Message, "unknown field") {
		return refuse(r.ID, "the arbiter is of an older lpuctl, and does not know this request", r.Remedy)
	}
	return r
}
