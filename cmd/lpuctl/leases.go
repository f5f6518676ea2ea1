package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/shell"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// withArbiter connects to the arbiter for one request. While it is busy, it is asked again.
func withArbiter(root host.Root, ask func(*lease.Client) error) error {
	return lease.Patiently(context.Background(), lease.Patience, func() error {
		client, err := lease.DialIn(root)
		if err != nil {
			return err
		}
		return errors.Join(ask(client), client.Close())
	})
}

// selection is the wish as the arbiter reads it. LPUs are known to it by their addresses.
func (w *wish) selection(inv *discovery.Inventory, kind string) (lease.Selection, error) {
	if w.size < 1 {
		return lease.Selection{}, cli.Usage("-n %d: at least one LPU", w.size)
	}
	s := lease.Selection{Count: w.size, Connected: w.connected, Place: w.place}
	if len(w.must) == 0 {
		return s, nil
	}
	must, err := withNodes(kind, inv, w.must)
	s.Must = addressesOf(inv, must)
	return s, err
}

// timeText is a time for people, as in documents; "" for the zero time, which is never.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// share is what the arbiter says of an LPU, for the columns of a table.
type share struct{ id, holder, since, until, purpose string }

// unleased stands in place of an id where a process uses an LPU without a lease.
const unleased = "none"

// keptBack stands in place of an id where an LPU is kept back after a lease.
const keptBack = "kept-back"

// shareOf says who has an LPU or has reserved it, or that it is used without a lease.
func shareOf(l *discovery.LPU) (s share) {
	switch {
	case l.Leased != nil:
		return heldBy(l.Leased)
	case l.Reserved != nil && len(l.Users) > 0:
		s = heldBy(l.Reserved)
		s.id = unleased + "," + s.id
	case l.Reserved != nil:
		return heldBy(l.Reserved)
	case l.KeptBack != "":
		s.id, s.purpose = keptBack, l.KeptBack
	case len(l.Users) > 0:
		s.id = unleased
	}
	return s
}

func heldBy(h *discovery.Holder) share {
	s := share{h.ID, h.String(), timeText(h.Since), timeText(h.Until), cmp.Or(h.Command, h.Reason)}
	if s.until != "" && h.Until.Before(time.Now()) {
		s.until += " over"
	}
	return s
}

// text is the same on one line: "l7 of bob(1000) since 2026-11-24T10:00:00Z: vllm".
func (s share) text() string {
	text := s.id + " of " + s.holder + " since " + s.since
	if s.until != "" {
		text += " until " + s.until
	}
	if s.purpose != "" {
		text += ": " + shell.Printable(s.purpose)
	}
	return text
}

// sharesByLease reports whether the LPUs of this node are shared by leases: a user can
// ask for one, or has one.
func sharesByLease(root host.Root, inv *discovery.Inventory) bool {
	return root.Exists(lease.Socket) ||
		slices.ContainsFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Leased != nil || l.Reserved != nil || l.KeptBack != "" })
}
