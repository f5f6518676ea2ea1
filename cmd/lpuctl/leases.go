package main

import (
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

// untilText is when a time since boot is, for people; "" for 0, which is never.
func untilText(until time.Duration) string {
	if until == 0 {
		return ""
	}
	at := time.Now().Add(until - host.SinceBoot())
	if time.Until(at) > 20*time.Hour {
		return at.Format("2006-01-02 15:04")
	}
	return at.Format("15:04")
}

// holderText says who has an LPU or has reserved it, or that a process uses it without a
// lease.
func holderText(l *discovery.LPU) string {
	says := func(how string, h *discovery.Holder) string {
		text := how + h.String()
		if h.Command != "" {
			text += " " + shell.Printable(h.Command)
		}
		if until := untilText(h.Until); until != "" {
			text += " until " + until
		}
		return text
	}
	switch {
	case l.Leased != nil:
		return says("", l.Leased)
	case l.Reserved != nil && len(l.Users) > 0:
		return "in use without a lease, " + says("reserved by ", l.Reserved)
	case l.Reserved != nil:
		return says("reserved by ", l.Reserved)
	case l.KeptBack != "":
		return "kept back: " + shell.Printable(l.KeptBack)
	case len(l.Users) > 0:
		return "in use without a lease"
	}
	return ""
}

// sharesByLease reports whether the LPUs of this node are shared by leases: a user can
// ask for one, or has one.
func sharesByLease(root host.Root, inv *discovery.Inventory) bool {
	return root.Exists(lease.Socket) ||
		slices.ContainsFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Leased != nil || l.Reserved != nil || l.KeptBack != "" })
}
