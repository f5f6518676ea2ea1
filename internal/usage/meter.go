package usage

import (
	"fmt"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// Clock is a moment by two clocks: how long something took is measured by the time since
// boot, which no user can set, and the hour that it belongs to is that of the wall clock.
type Clock struct {
	Wall time.Time
	Boot time.Duration // host.SinceBoot
}

// Now is the present moment.
func Now() Clock { return Clock{time.Now().Round(0), host.SinceBoot()} }

// unseen is the longest time between two looks for which it is counted whether the node was
// open: after a longer one, in which the machine slept, nothing is known.
const unseen = 5 * time.Minute

// mostRows are kept until they can be written: a month of a server of eight LPUs.
const mostRows = 10000

// Holding is a lease.
type Holding struct {
	ID    string
	UID   int
	User  string
	LPUs  []LPU
	Since time.Duration // since boot
}

// held is a lease that lasts.
type held struct {
	Holding
	at    time.Duration // it is counted until then
	looks []look        // the latest one at each of its LPUs
}

type look struct {
	at   time.Duration
	open bool
}

// wait is a wish in the queue.
type wait struct {
	uid   int
	user  string
	since time.Duration
}

// Meter measures. It does no input and output and has no clock. It is not safe for
// concurrent use.
type Meter struct {
	program string // how the runs of this arbiter begin
	run     string
	runs    int
	// Of the present hour, and what is not written yet. Their keys have no runs.
	rows    map[key]*Row
	changed map[key]bool
	left    int64 // the latest hour, Unix, whose row was forgotten
	held    map[string]*held
	waits   map[string]wait
}

// NewMeter returns a meter for an arbiter that begins now.
func NewMeter(boot string, now Clock) *Meter {
	m := &Meter{
		program: fmt.Sprintf("%s-%d.", bootOf(boot), now.Boot), left: -1,
		rows: map[key]*Row{}, changed: map[key]bool{}, held: map[string]*held{}, waits: map[string]wait{},
	}
	m.nextRun()
	return m
}

// Program is how the runs of this arbiter begin.
func (m *Meter) Program() string { return m.program }

// bootOf shortens the id of a boot: there are few in a journal.
func bootOf(boot string) string { return boot[:min(8, len(boot))] }

func (m *Meter) nextRun() {
	m.runs++
	m.run = fmt.Sprint(m.program, m.runs)
}

// row is the row of an hour, a user and an LPU; it is to be written again. A row that was
// forgotten is not known any more, as when the clock is set back: then there is another
// one, of another run.
func (m *Meter) row(hour time.Time, uid int, user string, l LPU) *Row {
	k := key{hour: hour.Unix(), uid: uid, address: l.Address}
	r := m.rows[k]
	if r == nil {
		if k.hour <= m.left {
			m.nextRun()
		}
		r = &Row{Hour: hour, UID: uid, User: Name(user), Address: l.Address, Name: Name(l.Name), Run: m.run}
		m.rows[k] = r
	}
	m.changed[k] = true
	return r
}

// Resume takes up leases that an arbiter before has given. until is up to when the journal
// has them.
func (m *Meter) Resume(now Clock, h Holding, until time.Duration) {
	k := m.hold(h, max(h.Since, until))
	for i := range k.looks {
		k.looks[i].at = now.Boot // what was open before is not known
	}
	if until < h.Since {
		m.count(now, k)
	}
	m.advance(now, k)
}

// Begin takes up a lease that is given now.
func (m *Meter) Begin(now Clock, h Holding) {
	m.count(now, m.hold(h, h.Since))
	m.advance(now, m.held[h.ID])
}

func (m *Meter) hold(h Holding, at time.Duration) *held {
	k := &held{h, at, slices.Repeat([]look{{at: h.Since}}, len(h.LPUs))}
	m.held[h.ID] = k
	return k
}

// count counts a lease in the hour in which it began.
func (m *Meter) count(now Clock, k *held) {
	hour := now.hour(k.Since)
	m.row(hour, k.UID, k.User, LPU{}).Leases++
	for _, l := range k.LPUs {
		m.row(hour, k.UID, k.User, l).Leases++
	}
}

// Holds reports whether a lease is being measured.
func (m *Meter) Holds(id string) bool { return m.held[id] != nil }

// End ends the leases that do not last. From the latest look to its end an LPU counts as
// that look has shown it. It reports whether there were any.
func (m *Meter) End(now Clock, lasts func(id string) bool) (ended bool) {
	for id, k := range m.held {
		if lasts(id) {
			continue
		}
		m.advance(now, k)
		for i := range k.LPUs {
			m.look(now, k, i, look{now.Boot, k.looks[i].open})
		}
		delete(m.held, id)
		ended = true
	}
	return ended
}

// Measures reports whether there are leases to be looked at.
func (m *Meter) Measures() bool { return len(m.held) > 0 }

// Wait takes up a wish that waits, since a time since boot.
func (m *Meter) Wait(id string, uid int, user string, since time.Duration) {
	m.waits[id] = wait{uid, user, since}
}

// Waited counts the wait of a wish that has left the queue, with LPUs or without.
func (m *Meter) Waited(now Clock, id string) {
	w, waits := m.waits[id]
	if !waits {
		return
	}
	delete(m.waits, id)
	took := max(0, now.Boot-w.since).Milliseconds()
	m.row(now.hour(now.Boot), w.uid, w.user, LPU{}).add(&Row{Waits: 1, Waited: took, Longest: took})
}

// Advance counts all leases until now.
func (m *Meter) Advance(now Clock) {
	for _, k := range m.held {
		m.advance(now, k)
	}
}

func (m *Meter) advance(now Clock, k *held) {
	from := k.at
	k.at = max(from, now.Boot)
	for _, l := range k.LPUs {
		now.hours(from, now.Boot, func(hour time.Time, took, until time.Duration) {
			r := m.row(hour, k.UID, k.User, l)
			r.Leased += milliseconds(until) - milliseconds(until-took)
			r.Until = until
		})
	}
}

// Saw takes what a look that began at a time since boot has shown: whether an LPU, by its
// address, is held open. Between two looks a node counts as open if it was at both, and as
// half as long if it was at one. At its begin a lease counts as not open.
func (m *Meter) Saw(now Clock, began time.Duration, open func(address string) bool) {
	for _, k := range m.held {
		for i, l := range k.LPUs {
			m.look(now, k, i, look{began, open(l.Address)})
		}
	}
}

func (m *Meter) look(now Clock, k *held, i int, this look) {
	last := k.looks[i]
	if this.at <= last.at {
		return
	}
	k.looks[i] = this
	share := time.Duration(0)
	for _, l := range []look{last, this} {
		if l.open && this.at-last.at <= unseen {
			share++
		}
	}
	if share == 0 {
		return
	}
	now.hours(last.at, this.at, func(hour time.Time, took, until time.Duration) {
		m.row(hour, k.UID, k.User, k.LPUs[i]).Open += (milliseconds(until) - milliseconds(until-took)) * int64(share) / 2
	})
}

// milliseconds is a time since boot. Rounding the ends of parts, and not their lengths,
// loses nothing where there are many.
func milliseconds(t time.Duration) int64 { return t.Milliseconds() }

// hour is the hour of a time since boot, as the clock is set now.
func (c Clock) hour(at time.Duration) time.Time {
	return c.Wall.Add(at - c.Boot).UTC().Truncate(time.Hour)
}

// hours calls a function with each hour of a time, how much of the time is in it, and
// until when.
func (c Clock) hours(from, to time.Duration, do func(hour time.Time, took, until time.Duration)) {
	for from < to {
		hour := c.hour(from)
		took := min(to-from, hour.Add(time.Hour).Sub(c.Wall.Add(from-c.Boot)))
		from += took
		do(hour, took, from)
	}
}

// Changed returns the rows that have to be written. If they cannot be, they are given back
// with [Meter.Again], else [Meter.Written] says so.
func (m *Meter) Changed() []Row {
	var rows []Row
	for k := range m.changed {
		rows = append(rows, *m.rows[k])
	}
	clear(m.changed)
	return rows
}

// Rows returns all rows that are not forgotten yet.
func (m *Meter) Rows() []Row {
	var rows []Row
	for _, r := range m.rows {
		rows = append(rows, *r)
	}
	return rows
}

// Again says that rows were not written. If that goes on for so long that there are too
// many of them, all but those of the present hour are lost.
func (m *Meter) Again(now Clock, rows []Row) {
	for i := range rows {
		k := rows[i].key()
		k.run = ""
		m.changed[k] = true
	}
	if len(m.rows) > mostRows {
		clear(m.changed)
		m.Written(now)
	}
}

// Written says that all rows that [Meter.Changed] has returned were written: those of
// other hours than the present one are forgotten.
func (m *Meter) Written(now Clock) {
	present := now.hour(now.Boot).Unix()
	for k := range m.rows {
		if k.hour != present && !m.changed[k] {
			m.left = max(m.left, k.hour)
			delete(m.rows, k)
		}
	}
}
