package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// dialArbiter connects to the arbiter of this node. While it is busy, it is asked again
// for as long as a user waits.
func dialArbiter(root host.Root, wait time.Duration) (client *lease.Client, err error) {
	socket, err := root.Resolve(lease.Socket)
	if err != nil {
		return nil, err
	}
	err = lease.Patiently(context.Background(), max(wait, lease.Patience), func() (err error) {
		client, err = lease.Dial(socket)
		return err
	})
	return client, err
}

// withArbiter connects to the arbiter for one request.
func withArbiter(root host.Root, ask func(*lease.Client) error) error {
	client, err := dialArbiter(root, 0)
	if err != nil {
		return err
	}
	return errors.Join(ask(client), client.Close())
}

// selection is a wish as the arbiter reads it. LPUs are known to it by their addresses.
func (a *app) selection(inv *discovery.Inventory, w wish) (lease.Selection, error) {
	if w.size < 1 {
		return lease.Selection{}, cli.Usage("-n %d: at least one LPU", w.size)
	}
	s := lease.Selection{Count: w.size, Connected: w.connected, Place: w.place}
	if len(w.must) == 0 {
		return s, nil
	}
	must, err := a.withNodes(inv, w.must)
	s.Must = addressesOf(inv, must)
	return s, err
}

// leasedNames are the names that leased LPUs have in an inventory, in the same order.
func leasedNames(inv *discovery.Inventory, leased []lease.LPU) (names []string, err error) {
	for _, of := range leased {
		i := slices.IndexFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Address == of.Address && !l.Absent })
		if i < 0 {
			return nil, cli.Fail(cli.ExitFailed, "try again", "the LPU at %s was leased, and has left the bus since", of.Address)
		}
		names = append(names, inv.LPUs[i].Name)
	}
	return names, nil
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
			text += " " + cli.Printable(h.Command)
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
	case len(l.Users) > 0:
		return "in use without a lease"
	}
	return ""
}

// sharesByLease reports whether the LPUs of this node are shared by leases: a user can
// ask for one, or has one.
func sharesByLease(root host.Root, inv *discovery.Inventory) bool {
	return root.Exists(lease.Socket) ||
		slices.ContainsFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Leased != nil || l.Reserved != nil })
}

// lease asks the arbiter for LPUs, and waits for them if that is wished.
func (a *app) lease(ctx context.Context, client *lease.Client, o runOptions, command string) (*grant, error) {
	inv, err := a.scan(ctx)
	if err != nil {
		return nil, err
	}
	selection, err := a.selection(inv, o.wish)
	if err != nil {
		return nil, err
	}
	w := lease.Wish{Selection: selection, For: o.limit, Wait: o.wait > 0, DryRun: o.dryRun, Command: shortened(command)}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	// The timer runs from the first answer. Before, no program knows what is waited for.
	var timer *time.Timer
	told := ""
	var granted *lease.Grant
	err = lease.Patiently(ctx, max(o.wait, lease.Patience), func() (err error) {
		granted, err = client.Wish(ctx, w, func(p lease.Place) {
			if timer == nil {
				timer = time.AfterFunc(o.wait, func() { end(errWaited) })
			}
			told = p.Why
			a.Say("waiting, place %d of %d: %s", p.Place, p.Of, p.Why)
		})
		return err
	})
	if timer != nil {
		timer.Stop()
	}
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errWaited):
		return nil, cli.Fail(exitNotStarted, "wait longer, or ask for fewer", "waited %v: %s", o.wait, told)
	case err != nil:
		return nil, err
	case granted.UsersHidden:
		a.Say("warning: the arbiter cannot see all processes: somebody may use an LPU without a lease")
	}
	if o.wait > 0 { // the machine may have changed meanwhile
		if inv, err = a.scan(ctx); err != nil {
			return nil, err
		}
	}
	names, err := leasedNames(inv, granted.LPUs)
	return &grant{inv: inv, lpus: names, connected: granted.Connected, until: granted.Until}, err
}

var errWaited = errors.New("waited long enough")

// shortened is the name of a program as far as the arbiter takes it.
func shortened(command string) string {
	name := cli.Printable(path.Base(command))
	if lease.CheckReason(name) != nil {
		return ""
	}
	return fmt.Sprintf("%.60s", name)
}
