package discovery

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hyperaccel/lpuctl/internal/stall"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// cards are what a watcher keeps of each card between its scans.
type cards struct {
	all map[pci.Address]*card
	// answered receives when a card has answered that was late.
	answered chan struct{}
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
	latest *LPU
	late   *read         // one that goes on, or whose answer was not taken yet; nil if there is none
	took   time.Duration // how long the latest read took that ended in time
}

// read is a read of a card, and answer what it found.
type (
	read struct {
		answer chan answer // receives it
		left   atomic.Bool // no scan waits for it any more, so that a watcher has to hear of its end
	}
	answer struct {
		lpu  LPU
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

// updateCards reads those cards that are due. A card that does not answer soon does not
// delay the scan: it stays as it was read last, and a later scan takes what it answers.
// It is waited for only if it seems that another card has its node now.
func (s *scan) updateCards(ctx context.Context, lpus []function, found []LPU) {
	kept := make([]*card, len(lpus))
	for i, f := range lpus {
		kept[i] = s.cards.of(f.address)
	}
	update := func(patience time.Duration) {
		stall.InParallel(len(lpus), func(i int) { found[i] = s.updateCard(ctx, kept[i], i, lpus[i], patience) })
	}
	update(s.Patience)
	isLate := func(c *card) bool { return c.late != nil }
	if slices.ContainsFunc(kept, isLate) && shareNodes(found) {
		update(s.CardDeadline)
	}
	if !slices.ContainsFunc(kept, isLate) {
		select {
		case <-s.cards.answered: // their answers were taken
		default:
		}
	}
}

// shareNodes reports whether two LPUs claim the same node.
func shareNodes(lpus []LPU) bool {
	var all []string
	for i := range lpus {
		all = append(all, lpus[i].claims()...)
	}
	slices.Sort(all)
	return len(slices.Compact(all)) < len(all)
}

// updateCard is an LPU as it is or, if it does not answer in time, as it was.
func (s *scan) updateCard(ctx context.Context, c *card, index int, f function, patience time.Duration) LPU {
	if !f.readable() {
		c.latest, c.late, c.due = nil, nil, false
		return s.readCard(ctx, index, f)
	}
	if c.latest == nil || c.latest.Index != index || c.latest.Model != f.model.Name {
		c.due = false
		a := s.answer(ctx, index, f)
		c.take(a)
		return a.lpu
	}
	var tooLate <-chan time.Time
	if patience = max(patience, slower*c.took); patience < s.CardDeadline {
		tooLate = time.After(patience)
	}
	for answers := true; answers && (c.due || c.late != nil); {
		if c.late == nil {
			c.late, c.due = s.startReading(ctx, index, f), false
		}
		select {
		case a := <-c.late.answer:
			c.take(a)
			answers = s.tree.Shortage() == nil
		case <-tooLate:
			c.leave()
			answers = false
		case <-ctx.Done():
			c.leave()
			answers = false
		}
	}
	lpu := *c.latest
	lpu.equip(f.model)
	return lpu
}

// startReading begins to read a card. The read does not end with the scan, but when the
// deadline of the card is over.
func (s *scan) startReading(ctx context.Context, index int, f function) *read {
	r := &read{answer: make(chan answer, 1)}
	s.holders.Add(1)
	go func() {
		defer s.release()
		r.answer <- s.answer(context.WithoutCancel(ctx), index, f)
		if !r.left.Load() {
			return
		}
		select {
		case s.cards.answered <- struct{}{}:
		default: // it is known already that one has answered
		}
	}()
	return r
}

// answer reads a card, and measures how long that takes.
func (s *scan) answer(ctx context.Context, index int, f function) answer {
	began := time.Now()
	lpu := s.readCard(ctx, index, f)
	return answer{lpu, time.Since(began), s.tree.Shortage()}
}
