package watch

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hyperaccel/lpuctl/internal/stall"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// sensorPeriod is how often a watcher reads the sensors of a card.
const sensorPeriod = 10 * time.Second

// cards are what a watcher keeps of each card between its scans.
type cards struct {
	patience, deadline time.Duration // as in the options of the watcher

	all   map[pci.Address]*card
	reads stall.Reads
	// answered receives when a card has answered that was late.
	answered chan struct{}

	// Of the scan that goes on.
	now    time.Duration                   // when it began, since boot
	probes map[pci.Address]discovery.Probe // what is known of configuration spaces
}

// card is what a watcher keeps of one card.
type card struct {
	eye  eye
	seen string // the latest glance at it
	// due: the card is to be read again. A glance or an event shows that it has changed, or
	// everything is read.
	due bool
	// latest is the card as it was read last, before it was compared with others; nil if
	// it is not known.
	latest *discovery.LPU
	late   *read         // one that goes on, or whose answer was not taken yet; nil if there is none
	took   time.Duration // how long the latest read took that ended in time

	serial string // "" if the card is gone, because another card may come in its place
	// sensed is what its sensors said at sensedAt, since boot; nil: they are to be read.
	sensed   *discovery.Sensed
	sensedAt time.Duration
}

// read is a read of a card, and answer what it found.
type (
	read struct {
		answer chan answer // receives it
		left   atomic.Bool // no scan waits for it any more, so that a watcher has to hear of its end
	}
	answer struct {
		lpu  discovery.LPU
		took time.Duration
		// shortage is what a read of the card had, or one of another card at the same time; nil
		// if there was none.
		shortage error
	}
)

// leave is for a scan that waits no longer. An answer that came meanwhile is taken,
// because the watcher does not learn of it.
func (c *card) leave() {
	c.late.left.Store(true)
	select {
	case a := <-c.late.answer:
		c.take(a)
	default:
	}
}

// take takes what was read. After a shortage the card stays as it was, and is read again.
func (c *card) take(a answer) {
	c.late = nil
	if a.shortage != nil {
		c.due = true
		return
	}
	c.latest = &a.lpu
	if !a.lpu.Reasons.Has(finding.ReadStalled) {
		c.took = a.took
	}
}

// slower is how many times as long as the last time a card or a glance may take before it
// is late. What takes long on a slow or busy machine is not late for that.
const slower = 4

// of is what is kept of a card, from now on.
func (c *cards) of(a pci.Address) *card {
	if c.all[a] == nil {
		c.all[a] = &card{}
	}
	return c.all[a]
}

// want says that all cards are to be read again.
func (c *cards) want() {
	for _, card := range c.all {
		card.due = true
	}
}

// wanted reports whether one of the cards is to be read again, or has answered that was
// late.
func (c *cards) wanted() bool {
	for _, card := range c.all {
		if card.due || card.late != nil && len(card.late.answer) > 0 {
			return true
		}
	}
	return false
}

// Reads are those that have not ended.
func (c *cards) Reads() *stall.Reads { return &c.reads }

// Update reads those cards that are due. A card that does not answer soon does not delay
// the scan: it stays as it was read last, and a later scan takes what it answers. It is
// waited for only if it seems that another card has its node now.
func (c *cards) Update(ctx context.Context, found []discovery.Card) []discovery.LPU {
	kept, lpus := make([]*card, len(found)), make([]discovery.LPU, len(found))
	for i := range found {
		kept[i] = c.of(found[i].Address)
	}
	update := func(patience time.Duration) {
		stall.InParallel(len(found), func(i int) { lpus[i] = c.update(ctx, kept[i], &found[i], patience) })
	}
	update(c.patience)
	isLate := func(k *card) bool { return k.late != nil }
	if slices.ContainsFunc(kept, isLate) && discovery.ShareNodes(lpus) {
		update(c.deadline)
	}
	if !slices.ContainsFunc(kept, isLate) {
		select {
		case <-c.answered: // their answers were taken
		default:
		}
	}
	return lpus
}

// update returns an LPU as it is or, if it does not answer in time, as it was.
func (c *cards) update(ctx context.Context, kept *card, found *discovery.Card, patience time.Duration) discovery.LPU {
	if found.Model == "" {
		kept.latest, kept.late, kept.due = nil, nil, false
		return found.Read(ctx, discovery.Known{})
	}
	known := discovery.Known{Serial: kept.serial, Probe: c.probes[found.Address]}
	if c.now-kept.sensedAt < sensorPeriod {
		known.Sensed = kept.sensed
	}
	if kept.latest == nil || kept.latest.Index != found.Index || kept.latest.Model != found.Model {
		kept.due = false
		a := answerOf(ctx, found, known)
		kept.take(a)
		return a.lpu
	}
	var tooLate <-chan time.Time
	if patience = max(patience, slower*kept.took); patience < c.deadline {
		tooLate = time.After(patience)
	}
	for answers := true; answers && (kept.due || kept.late != nil); {
		if kept.late == nil {
			kept.late, kept.due = c.start(ctx, found, known), false
		}
		select {
		case a := <-kept.late.answer:
			kept.take(a)
			answers = found.Shortage() == nil
		case <-tooLate:
			kept.leave()
			answers = false
		case <-ctx.Done():
			kept.leave()
			answers = false
		}
	}
	return *kept.latest
}

// start begins to read a card. The read does not end with the scan, but when the deadline
// of the card is over.
func (c *cards) start(ctx context.Context, found *discovery.Card, known discovery.Known) *read {
	r, release := &read{answer: make(chan answer, 1)}, found.Hold()
	go func() {
		defer release()
		r.answer <- answerOf(context.WithoutCancel(ctx), found, known)
		if !r.left.Load() {
			return
		}
		select {
		case c.answered <- struct{}{}:
		default: // it is known already that one has answered
		}
	}()
	return r
}

// answerOf reads a card, and measures how long that takes.
func answerOf(ctx context.Context, found *discovery.Card, known discovery.Known) answer {
	began := time.Now()
	lpu := found.Read(ctx, known)
	return answer{lpu, time.Since(began), found.Shortage()}
}

// keep remembers the serial numbers and the sensors that were read, so that the next
// scans need not read them. Where a read did not end in time the card is left alone for
// as long. Sensors that show a fault are read at each scan, so that a fault that counts
// was read as often as the policy wants.
func (c *cards) keep(inv *discovery.Inventory, policy *health.Policy) {
	for _, l := range inv.LPUs {
		kept := c.of(l.Address)
		kept.serial = l.Serial
		switch sensors := l.Reading.Sensors; {
		case l.Reasons.Has(finding.ReadStalled):
			kept.sensed, kept.sensedAt = &discovery.Sensed{Device: l.Reading.Device}, c.now
		case kept.sensed != nil && kept.sensed.Sensors == sensors: // it was not read again
		case sensors == nil, sensors.Findings("", policy).HasErrors():
			kept.sensed = nil
		default:
			kept.sensed, kept.sensedAt = &discovery.Sensed{Device: l.Reading.Device, Sensors: sensors}, c.now
		}
	}
}
