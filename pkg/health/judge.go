package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// State is the state of an LPU.
type State string

// The states of an LPU. It is unknown while what is wrong may pass by itself, or if a
// read did not end in time.
const (
	Healthy   State = "healthy"
	Unhealthy State = "unhealthy"
	Unknown   State = "unknown"
)

// Event is what the kernel tells of an LPU between two readings.
type Event string

// The events. A driver with error handlers reports those of recovery
// (Documentation/PCI/pci-error-recovery.rst).
const (
	Bound          Event = "bound" // a driver was bound to it; also: it is new on the bus
	Unbound        Event = "unbound"
	Renumbered     Event = "renumbered"      // its node was made again
	RecoveryBegan  Event = "recovery began"  // ERROR_EVENT=BEGIN_RECOVERY
	RecoveryEnded  Event = "recovery ended"  // ERROR_EVENT=SUCCESSFUL_RECOVERY
	RecoveryFailed Event = "recovery failed" // ERROR_EVENT=FAILED_RECOVERY
	// Released: no process uses it any more that did before it was bound again.
	Released Event = "released"
)

// Judge remembers the readings of LPUs, each by an id such as its PCI address. Its
// methods are called by one caller at a time. Times are since boot (CLOCK_BOOTTIME), so
// that a record makes sense to the next process of this boot, also after the clock was set.
type Judge struct {
	policy Policy
	cards  map[string]*Record
}

// NewJudge makes a judge that remembers records of an earlier process of this boot; they
// may be nil.
func NewJudge(policy Policy, records map[string]Record) *Judge {
	j := &Judge{policy, map[string]*Record{}}
	for id, r := range records {
		j.cards[id] = r.clone()
	}
	return j
}

// Record is what is remembered of one LPU.
type Record struct {
	Device uint64 `json:"device"` // [Reading.Device]
	State  State  `json:"state"`
	// Since is when the state began.
	Since time.Duration `json:"since"`
	// Reasons are those of the latest verdict.
	Reasons finding.List `json:"reasons"`

	Good     bool          `json:"good"`     // whether the latest readings are good
	Readings int           `json:"readings"` // how many in a row are, or are not
	First    time.Duration `json:"first"`    // when the first of these was
	Latest   time.Duration `json:"latest"`   // when the last one was

	// Passing is since when a passing signal lasts.
	Passing map[finding.ID]time.Duration `json:"passing,omitempty"`
	Latched map[finding.ID]time.Duration `json:"latched,omitempty"` // when an event reported it
	// Counters are by the finding that its growth is.
	Counters map[finding.ID]Count `json:"counters,omitempty"`
	Best     Link                 `json:"best"` // the best link that was seen
	// Nodes are the paths of its device nodes, of now and from before: who used it when
	// it was bound again may hold those.
	Nodes []string `json:"nodes,omitempty"`
	// Revived says that a driver was bound, and that the card has answered since.
	Revived bool `json:"revived,omitempty"`
	// Driverless says that no driver was bound at the latest reading. One that is bound then
	// is new, though perhaps no event has reported it.
	Driverless bool `json:"driverless,omitempty"`
}

// Count is what is remembered of a counter.
type Count struct {
	Value uint64        `json:"value"` // at the latest reading
	From  uint64        `json:"from"`  // at the beginning of the time in which growth is counted
	Began time.Duration `json:"began"` // when that time began
	Grew  time.Duration `json:"grew"`  // when it had grown too much for the last time; 0: never
}

func (c *Record) clone() *Record {
	copied := *c
	copied.Passing, copied.Latched, copied.Counters = maps.Clone(c.Passing), maps.Clone(c.Latched), maps.Clone(c.Counters)
	copied.Nodes = slices.Clone(c.Nodes)
	return &copied
}

// Records are what must outlive the process.
func (j *Judge) Records() map[string]Record {
	records := map[string]Record{}
	for id, c := range j.cards {
		records[id] = *c.clone()
	}
	return records
}

// Verdict is what readings and events mean together.
type Verdict struct {
	State   State
	Since   time.Duration // when the state began
	Reasons finding.List  // those of the reading, and those of its history
}

// apart is the least time between two readings that both count. A scan that is repeated
// at once, to write the CDI spec of it, says nothing new about health.
const apart = 50 * time.Millisecond

// See takes one more reading of an LPU. The first one counts as it is, but what may pass
// by itself leaves the state unknown.
func (j *Judge) See(id, subject string, r Reading, now time.Duration) Verdict {
	c := j.cards[id]
	if c == nil || r.Device != 0 && c.Device != 0 && c.Device != r.Device {
		c = c.successor(now)
		j.cards[id] = c
	}
	if r.Device != 0 {
		if c.Driverless && r.Driver != "" {
			j.Tell(id, Bound, now) // again, if the kernel has reported it
		}
		c.Device, c.Driverless = r.Device, r.Driver == ""
	}
	reasons := c.believed(&r)
	// What history shows takes the place of what the reading alone says of the same.
	history := c.history(subject, &r, &j.policy, now)
	reasons = slices.DeleteFunc(reasons, func(f finding.Finding) bool { return history.Has(f.ID) })
	reasons = append(reasons, history...)
	c.follow(r.Nodes)
	c.count(reasons, now)
	state := c.next(reasons, &j.policy, now)
	if c.Good && state != Healthy {
		reasons.Add(finding.Recovering, subject, "it counts as healthy again when it has stayed healthy for a moment", "")
	}
	if state != c.State {
		c.State, c.Since = state, now
	}
	c.Reasons = reasons
	return Verdict{c.State, c.Since, reasons}
}

// successor is the record of another device at the same address. The state goes on,
// because a card that comes back has to stay healthy for a moment too; what was counted
// or reported of the one before does not. Who used the one before has lost it.
func (c *Record) successor(now time.Duration) *Record {
	if c == nil {
		return &Record{}
	}
	next := &Record{
		State: c.State, Since: c.Since, Good: c.Good, Readings: c.Readings, First: c.First, Latest: c.Latest, Nodes: c.Nodes,
	}
	at, rebound := c.Latched[finding.Rebound]
	if c.State == Healthy {
		at, rebound = now, true
	}
	if rebound {
		next.Latched = map[finding.ID]time.Duration{finding.Rebound: at}
	}
	return next
}

// formerNodes is how many paths of nodes are remembered.
const formerNodes = 8

// follow remembers the nodes that the LPU has, and the latest that it had.
func (c *Record) follow(nodes []string) {
	for _, n := range nodes {
		if !slices.Contains(c.Nodes, n) {
			c.Nodes = append(c.Nodes, n)
		}
	}
	c.Nodes = c.Nodes[max(0, len(c.Nodes)-formerNodes):]
}

// Rebound is an LPU whose driver was bound again while it was healthy.
type Rebound struct {
	At    time.Duration // when that was seen last
	Nodes []string      // paths of the nodes that it has or had before
}

// Rebound are these LPUs, by id.
func (j *Judge) Rebound() map[string]Rebound {
	all := map[string]Rebound{}
	for id, c := range j.cards {
		if at, ok := c.Latched[finding.Rebound]; ok {
			all[id] = Rebound{at, c.Nodes}
		}
	}
	return all
}

// Tell takes an event of an LPU into account. The next reading shows what follows from
// it.
func (j *Judge) Tell(id string, e Event, now time.Duration) {
	c := j.cards[id]
	if c == nil {
		return // the first reading will count as it is
	}
	if c.Latched == nil {
		c.Latched = map[finding.ID]time.Duration{}
	}
	switch e {
	case RecoveryBegan:
		c.Latched[finding.InRecovery] = now
	case RecoveryEnded:
		delete(c.Latched, finding.InRecovery)
		c.Latched[finding.Recovered] = now
	case RecoveryFailed:
		delete(c.Latched, finding.InRecovery)
		c.Latched[finding.RecoveryFailed] = now
	case Bound:
		delete(c.Latched, finding.InRecovery)
		delete(c.Latched, finding.RecoveryFailed)
		c.Revived = true
	case Released:
		delete(c.Latched, finding.Rebound)
	}
	// If it is not healthy, no process uses it.
	if c.State == Healthy && (e == Bound || e == Unbound || e == Renumbered) {
		c.Latched[finding.Rebound] = now
	}
}

// believed are the reasons of a reading without those that events have refuted: the loss
// of power, if the driver was bound since and the card answers, because the kernel goes on
// calling such a card D3cold if it cannot read its power state; and a reset during
// recovery, because the kernel does it then, and its driver knows.
func (c *Record) believed(r *Reading) finding.List {
	if r.PowerState == "D0" || r.AllOnes { // of all ones: it died again
		c.Revived = false
	}
	revived := c.Revived && r.PowerLost() && r.Link.Width > 0
	_, recovering := c.Latched[finding.InRecovery]
	return slices.DeleteFunc(slices.Clone(r.Reasons), func(f finding.Finding) bool {
		return revived && f.ID == finding.PowerLost || recovering && f.ID == finding.ResetBehindDriver
	})
}

// history is what a reading shows only beside earlier ones, and what events reported.
func (c *Record) history(subject string, r *Reading, p *Policy, now time.Duration) (all finding.List) {
	for _, counter := range []struct {
		id    finding.ID
		value *uint64
		limit uint64
		what  string
	}{
		{finding.AERFatal, r.AERFatal, 0, "fatal errors on the PCI bus"},
		{finding.AERNonFatal, r.AERNonFatal, p.NonFatalErrors, "errors on the PCI bus that are not fatal and not corrected"},
		{finding.AERCorrectable, r.AERCorrectable, p.CorrectableErrors, "corrected errors on the PCI bus"},
		{finding.ECCUncorrectable, cmp.Or(r.Sensors, &Sensors{}).ECC, 0, "uncorrectable errors of its memory"},
	} {
		if grown := c.grown(counter.id, counter.value, counter.limit, p.CounterQuiet, now); grown > 0 {
			all.Add(counter.id, subject, fmt.Sprintf("it had %d %s", grown, counter.what), "")
		}
	}
	all = append(all, c.link(subject, r, p)...)
	for _, event := range []struct {
		id   finding.ID
		what string
	}{
		{finding.InRecovery, "the kernel is recovering it from an error on the PCI bus"},
		{finding.RecoveryFailed, "the kernel could not recover it from an error on the PCI bus"},
		{finding.Recovered, "the kernel recovered it from an error on the PCI bus"},
		{finding.Rebound, "its driver was bound again, or its node was made anew: what used it before may have lost it"},
	} {
		at, latched := c.Latched[event.id]
		if finding.RuleOf(event.id).Severity == finding.Warning && now-at >= p.CounterQuiet {
			delete(c.Latched, event.id)
		} else if latched {
			all.Add(event.id, subject, event.what, "")
		}
	}
	return all
}

// grown returns by how much a counter has grown, if that is more than a limit within a
// time, and not yet forgotten. The first value is the baseline; so is one that fell,
// because then something set the counter back. A counter that cannot be read, such as
// that of a card that has fallen asleep, says what it said before.
func (c *Record) grown(id finding.ID, value *uint64, limit uint64, quiet, now time.Duration) uint64 {
	n, known := c.Counters[id]
	if value == nil {
		if n.Grew == 0 || now-n.Grew >= quiet {
			return 0
		}
		return n.Value - n.From
	}
	switch {
	case !known || *value < n.Value:
		n = Count{Value: *value, From: *value, Began: now}
	case now-max(n.Grew, n.Began) >= quiet:
		// What is new since the last reading counts, what was before does not.
		n = Count{Value: n.Value, From: n.Value, Began: now}
	}
	if *value > n.Value && *value-n.From > limit {
		n.Grew = now
	}
	n.Value = *value
	if c.Counters == nil {
		c.Counters = map[finding.ID]Count{}
	}
	c.Counters[id] = n
	if n.Grew == 0 {
		return 0
	}
	return n.Value - n.From
}

// link finds a link that is slower or narrower than it could be, and than it was. A card
// in a slot that is narrower than the card is not degraded, and some boards slow down
// while they are idle before a driver is bound.
func (c *Record) link(subject string, r *Reading, p *Policy) (all finding.List) {
	if r.AllOnes || r.Link.Width == 0 || r.Link.SpeedGTs == 0 {
		return nil
	}
	below := func(now, best, most float64) bool { return now < best && (most == 0 || now < most) }
	if below(r.Link.SpeedGTs, c.Best.SpeedGTs, r.MaxLink.SpeedGTs) ||
		below(float64(r.Link.Width), float64(c.Best.Width), float64(r.MaxLink.Width)) {
		f := all.Add(finding.LinkDegraded, subject, fmt.Sprintf("its link is %.1f GT/s x%d, and was %.1f GT/s x%d",
			r.Link.SpeedGTs, r.Link.Width, c.Best.SpeedGTs, c.Best.Width), "")
		if p.DegradedLink == DegradedUnhealthy {
			f.Severity = finding.Error
		}
	}
	c.Best = Link{max(c.Best.SpeedGTs, r.Link.SpeedGTs), max(c.Best.Width, r.Link.Width)}
	return all
}

// count counts one more reading.
func (c *Record) count(reasons finding.List, now time.Duration) {
	if good := !reasons.HasErrors(); good != c.Good || c.Readings == 0 {
		c.Good, c.Readings, c.First = good, 0, now
	}
	if c.Readings == 0 || now-c.Latest >= apart {
		c.Readings, c.Latest = c.Readings+1, now
	}
	passing := map[finding.ID]time.Duration{}
	if reasons.Has(finding.ReadStalled) {
		maps.Copy(passing, c.Passing) // what could not be read may last
	}
	for _, f := range reasons {
		if classOf(f) == Passing {
			passing[f.ID] = now
			if since, lasts := c.Passing[f.ID]; lasts {
				passing[f.ID] = since
			}
		}
	}
	c.Passing = passing
}

// weigh reports whether one of the reasons leaves no doubt, and whether all that is wrong
// may still pass by itself.
func (c *Record) weigh(reasons finding.List, p *Policy, now time.Duration) (certain, mayPass bool) {
	mayPass = true
	for _, f := range reasons {
		switch classOf(f) {
		case Hint:
		case Passing:
			mayPass = mayPass && now-c.Passing[f.ID] < p.graceOf(f.ID)
		case Confirmed:
			mayPass = false
		default:
			certain, mayPass = true, false
		}
	}
	return certain, mayPass
}

// next is the state after a reading with these reasons.
func (c *Record) next(reasons finding.List, p *Policy, now time.Duration) State {
	certain, mayPass := c.weigh(reasons, p, now)
	first := c.State == ""
	switch {
	case c.Good && (first || c.State == Healthy || c.Readings >= p.GoodReadings && now-c.First >= p.GoodFor):
		return Healthy
	case c.Good:
		return c.State
	case certain:
		return Unhealthy
	case first:
		return StateOf(reasons)
	case c.State == Unhealthy || c.Readings < p.BadReadings:
		return c.State
	case mayPass:
		return Unknown
	}
	return Unhealthy
}

// Next returns when the earliest grace ends, and whether one is under way or an LPU has
// to prove that it is healthy again. Until all is settled the machine is to be read at
// every interval, and again at that time.
func (j *Judge) Next(now time.Duration) (at time.Duration, unsettled bool) {
	for _, c := range j.cards {
		unsettled = unsettled || c.State == Unknown || c.Good != (c.State == Healthy)
		for id, since := range c.Passing {
			if ends := since + j.policy.graceOf(id); ends > now && (at == 0 || ends < at) {
				at = ends
			}
		}
	}
	return at, unsettled
}
