package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/usage"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// While there are leases the node is looked at, to see whether it is open: a second after
// a lease has begun, and then ever more seldom.
const (
	firstMeasure = time.Second
	mostMeasure  = time.Minute
	// How often the journal is written while nothing but the time changes.
	keepUsage = 10 * time.Minute
	// After the journal was read for users it is not read for so many times as long.
	restReading = 10
)

// ledger measures who uses what, and keeps it in a journal. All of that goes on beside the
// loop of Serve, and no lease depends on it.
type ledger struct {
	journal *usage.Journal // nil: none is kept
	meter   *usage.Meter
	clock   *time.Timer
	pause   time.Duration // until the next look
	beside  sync.WaitGroup

	due     bool          // something has begun or ended that is not written yet
	writing []usage.Row   // nil: none are being written
	written time.Duration // when it began the latest time
	failed  string        // the latest error, which is said once

	asks    []usageAsk
	reading bool
}

// usageAsk is a connection that waits for a report.
type usageAsk struct {
	*connection
	usage.Query
}

// keepLedger begins to measure. leases are those of the arbiter before.
func (a *Arbiter) keepLedger(leases []*entry) {
	l, j := &a.ledger, a.Usage
	if j == nil {
		return
	}
	if j.Keep <= 0 {
		if err := j.Forget(); err != nil {
			a.Log.Error("the journal of usage cannot be removed", "error", err, "id", finding.LeaseUsage)
		}
		return
	}
	now := usage.Now()
	l.journal, l.meter = j, usage.NewMeter(a.boot, now)
	until, unread, err := j.Resume(a.boot, now.Wall)
	if err != nil {
		a.Log.Warn("the journal of usage cannot be used: what it has is missing", "error", err, "id", finding.LeaseUsage)
	}
	if unread > 0 {
		a.Log.Warn("lines of the journal of usage cannot be read, and are left out", "lines", unread, "id", finding.LeaseUsage)
	}
	for _, e := range leases {
		if e.Grant != nil {
			h := e.holding()
			l.meter.Resume(now, h, until[usage.Lease{UID: h.UID, Address: h.LPUs[0].Address}])
		}
	}
	l.settle(a.book)
}

// holding is a lease as the meter reads it.
func (e *entry) holding() usage.Holding {
	h := usage.Holding{ID: e.ID, UID: e.UID, User: e.User, Since: e.Since}
	for _, l := range e.LPUs {
		h.LPUs = append(h.LPUs, usage.LPU{Address: l.Address.String(), Name: l.Name})
	}
	return h
}

// settle takes up which leases there are now.
func (l *ledger) settle(b *Book) {
	if l.journal == nil {
		return
	}
	now, lasts := usage.Now(), map[string]bool{}
	for _, e := range b.leases {
		lasts[e.ID] = true
		if !l.meter.Holds(e.ID) {
			l.meter.Begin(now, e.holding())
			l.due, l.pause = true, firstMeasure
			l.clock.Reset(l.pause)
		}
	}
	if l.meter.End(now, func(id string) bool { return lasts[id] }) {
		l.due = true
	}
}

// waits takes up changes of the queue.
func (l *ledger) waits(steps []step) {
	if l.journal == nil {
		return
	}
	now := usage.Now()
	for _, s := range steps {
		if s.waits != nil {
			l.meter.Wait(s.waits.ID, s.waits.UID, s.waits.User, s.waits.Since)
		} else {
			l.meter.Waited(now, s.ended)
			l.due = true
		}
	}
}

// measure takes what a look has shown; nil: it has failed.
func (l *ledger) measure(began time.Duration, inv *discovery.Inventory) {
	if l.journal == nil || !l.meter.Measures() {
		return
	}
	now := usage.Now()
	if inv != nil {
		open := map[string]bool{}
		for i := range inv.LPUs {
			open[inv.LPUs[i].Address.String()] = len(inv.LPUs[i].Users) > 0
		}
		l.meter.Saw(now, began, func(address string) bool { return open[address] })
	}
	l.meter.Advance(now)
	l.due = l.due || now.Boot-l.written > keepUsage
	l.clock.Reset(l.pause)
	l.pause = min(2*l.pause, max(mostMeasure, dutyCycle*(now.Boot-began)))
}

// keepUsage has the journal written if that is due.
func (a *Arbiter) keepUsage() {
	l := &a.ledger
	if l.journal == nil || !l.due || l.writing != nil {
		return
	}
	rows, now := l.meter.Changed(), usage.Now()
	if l.due = false; len(rows) == 0 {
		return
	}
	l.writing, l.written = rows, now.Boot
	l.beside.Go(func() {
		err := l.journal.Append(rows, l.meter.Program(), now.Wall)
		a.do(func() { a.keptUsage(rows, err) })
	})
}

// keptUsage goes on after rows were written, or were not. Those that were not are written
// when something is due again: a full disk stops no leases.
func (a *Arbiter) keptUsage(rows []usage.Row, err error) {
	l := &a.ledger
	l.writing = nil
	if err == nil {
		l.meter.Written(usage.Now())
		l.failed = ""
		return
	}
	l.meter.Again(usage.Now(), rows)
	if text := err.Error(); text != l.failed {
		a.Log.Error("the journal of usage cannot be written; leases go on", "error", text, "id", finding.LeaseUsage)
		l.failed = text
	}
}

// closeLedger writes what is left.
func (a *Arbiter) closeLedger() {
	l := &a.ledger
	if l.journal == nil {
		return
	}
	l.beside.Wait()
	l.settle(a.book)
	l.meter.Advance(usage.Now())
	l.meter.Again(usage.Now(), l.writing) // it is not known whether they were; twice does no harm
	if rows := l.meter.Changed(); len(rows) > 0 {
		a.keptUsage(rows, l.journal.Append(rows, l.meter.Program(), time.Now()))
	}
	l.journal.Close()
}

// askUsage takes a request for a report. A user may read what is of that user, root all.
func (a *Arbiter) askUsage(c *connection, q usage.Query) {
	own := q.User == "" || q.User == fmt.Sprint(c.peer.UID) || q.User == c.peer.User
	switch {
	case a.ledger.journal == nil:
		a.book.refuse(c.conn, finding.LeaseNoUsage, "no usage is recorded on this node",
			"root can have it recorded: set leases.usageDays in /etc/lpuctl/config.yaml, and start the arbiter again")
	case c.peer.UID != 0 && !own:
		a.book.refuse(c.conn, finding.LeaseNoUsage, fmt.Sprintf("user %q is another one: only root may see what others have used", q.User),
			"ask without --user, or as root")
	default:
		c.busy = true
		a.ledger.asks = append(a.ledger.asks, usageAsk{c, q})
		a.readUsage()
	}
}

// readUsage has the journal read for all who have asked. Reading all of it takes some
// tenths of a second, so there is a rest after that.
func (a *Arbiter) readUsage() {
	l := &a.ledger
	if l.reading || len(l.asks) == 0 {
		return
	}
	l.meter.Advance(usage.Now())
	asks, rows := l.asks, l.meter.Rows()
	l.asks, l.reading = nil, true
	l.beside.Go(func() {
		began := host.SinceBoot()
		answers := usageAnswers(l.journal, asks, rows)
		took := host.SinceBoot() - began
		a.do(func() {
			for i, k := range asks {
				if a.conns[k.conn] == k.connection {
					k.busy = false
					a.book.send(k.conn, answers[i])
				}
			}
		})
		time.AfterFunc(restReading*took, func() {
			a.do(func() {
				l.reading = false
				a.readUsage()
			})
		})
	})
}

// usageAnswers are the answers to those who ask for reports.
func usageAnswers(j *usage.Journal, asks []usageAsk, rows []usage.Row) []Answer {
	queries := make([]usage.Ask, len(asks))
	for i, k := range asks {
		queries[i] = usage.Ask{Query: k.Query, By: k.peer.UID}
	}
	reports, err := j.Reports(queries, rows, time.Now())
	answers := make([]Answer, len(asks))
	for i := range answers {
		if err != nil {
			answers[i].Refused = refuse(finding.LeaseNoUsage,
				"the journal of usage cannot be read: "+err.Error(), "see what is wrong with that file")
			continue
		}
		reports[i].Cut(maxAnswer - maxRequest)
		answers[i].Usage = reports[i]
		answers[i].text, _ = answers[i].marshal()
	}
	return answers
}

// Usage returns how much users have had of the LPUs: who is not root, that user.
func (c *Client) Usage(ctx context.Context, q usage.Query) (*usage.Report, error) {
	all := &usage.Report{Since: q.Since, Until: q.Until, Users: []usage.User{}}
	for {
		a, err := c.ask(ctx, Request{Usage: &q}, nil)
		if err != nil {
			return nil, err
		}
		all.Users, all.Unread = append(all.Users, a.Usage.Users...), a.Usage.Unread
		if !a.Usage.More {
			return all, nil
		}
		if len(a.Usage.Users) == 0 {
			return nil, errors.New("the arbiter leaves out what it has")
		}
		q.After = &all.Users[len(all.Users)-1].UID
	}
}
