package watch

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/uevent"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// startListening begins to receive uevents, so that a change is seen at once, and so that
// one between two looks is seen at all. The kernel tells of its own machine only. The
// result is nil where uevents cannot be had; then the next look shows a change.
func (w *Watcher) startListening(ctx context.Context) <-chan uevent.Event {
	var fs unix.Statfs_t
	if unix.Statfs(filepath.Join(w.root, "sys"), &fs) != nil || fs.Type != unix.SYSFS_MAGIC {
		return nil
	}
	listener, err := uevent.Listen(ctx, func(devPath, subsystem []byte) bool {
		a, ok := lastFunction(devPath)
		return string(subsystem) == "pci" || ok && w.isOurs(a)
	})
	if err != nil {
		return nil
	}
	w.listener.Store(listener)
	return listener.Events()
}

// lastFunction returns the PCI function that a device is, or that it belongs to, if there
// is one.
func lastFunction[Path string | []byte](devPath Path) (last pci.Address, ok bool) {
	for f := range uevent.Functions(devPath) {
		last, ok = f, true
	}
	return last, ok
}

func (w *Watcher) isOurs(a pci.Address) bool {
	ours := w.ours.Load()
	return ours != nil && (*ours)[a]
}

// take reports an event to the judge, and has the machine scanned soon.
func (w *Watcher) take(e uevent.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, ok := lastFunction(e.DevPath)
	if !e.Overflow && (!ok || !w.isOurs(a)) {
		return // a glance will show whether it is a new LPU
	}
	if ok {
		w.cards.of(a).due = true
		w.prober.forget(a)
	} else {
		w.cards.want()
	}
	// udevadm trigger repeats events of devices to which nothing has happened.
	if told := eventOf(&e); told != "" && !e.Synthetic {
		w.judge.Tell(a.String(), told, w.sinceBoot())
	}
}

// eventOf is what a uevent of an LPU, or of its class device, means for its health; "" if
// nothing.
func eventOf(e *uevent.Event) health.Event {
	switch {
	case e.ErrorEvent == "BEGIN_RECOVERY":
		return health.RecoveryBegan
	case e.ErrorEvent == "SUCCESSFUL_RECOVERY":
		return health.RecoveryEnded
	case e.ErrorEvent == "FAILED_RECOVERY":
		return health.RecoveryFailed
	case e.Subsystem == "pci" && (e.Action == "bind" || e.Action == "add"):
		return health.Bound
	case e.Subsystem == "pci" && (e.Action == "unbind" || e.Action == "remove"):
		return health.Unbound
	case e.DevName != "" && (e.Action == "add" || e.Action == "remove"):
		return health.Renumbered
	}
	return ""
}

// release ends the warning that an LPU was bound again when no process uses it any more
// that did before. Where some processes cannot be seen the warning ends with time. Users
// are found by the nodes that the LPU has and had, so that of an LPU without one it is
// not known.
func (w *Watcher) release(ctx context.Context, inv *discovery.Inventory, now time.Duration) {
	rebound := w.judge.Rebound()
	if len(rebound) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	view := *inv
	view.LPUs = slices.Clone(inv.LPUs)
	for i := range view.LPUs {
		l := &view.LPUs[i]
		l.Nodes = withFormer(inv, l.Nodes, rebound[l.Address.String()].Nodes)
	}
	discovery.FindUsers(ctx, w.root, &view)
	for i, l := range view.LPUs {
		r, warned := rebound[l.Address.String()]
		before := func(u discovery.User) bool { return u.Started < r.At }
		if warned && len(inv.LPUs[i].Nodes) > 0 && l.Users != nil && !l.UsersHidden && !slices.ContainsFunc(l.Users, before) {
			w.judge.Tell(l.Address.String(), health.Released, now)
		}
	}
	inv.Records = w.judge.Records() // so that the warning is not remembered either
}

// withFormer adds the nodes that an LPU had before to those that it has, unless another
// LPU has them now.
func withFormer(inv *discovery.Inventory, nodes []discovery.Node, former []string) []discovery.Node {
	nodes = slices.Clip(nodes)
	for _, path := range former {
		has := func(n discovery.Node) bool { return n.Path == path }
		if !slices.ContainsFunc(inv.LPUs, func(l discovery.LPU) bool { return slices.ContainsFunc(l.Nodes, has) }) {
			nodes = append(nodes, discovery.Node{Path: path})
		}
	}
	return nodes
}

// listen says which LPUs there are, for the listener. If an LPU has come or gone, or its
// driver has, and no uevent was ever received, it says that none arrive.
func (w *Watcher) listen(inv *discovery.Inventory) {
	ours := make(map[pci.Address]bool, len(inv.LPUs))
	for _, l := range inv.LPUs {
		ours[l.Address] = true
	}
	w.ours.Store(&ours)
	listener := w.listener.Load()
	if listener == nil {
		return
	}
	counts := listener.Counts()
	inv.Uevents = &counts
	w.silent = counts.Received == 0 && (w.silent || w.latest != nil && !sameDrivers(w.latest, inv))
	if w.silent {
		inv.Problems.Add(finding.UeventsSilent, "uevents", "changes of the machine are seen by polling, because no uevents arrive here", "")
	}
}

// sameDrivers reports whether two inventories have the same LPUs with the same drivers.
func sameDrivers(a, b *discovery.Inventory) bool {
	drivers := map[pci.Address]*discovery.LPU{}
	for i := range a.LPUs {
		drivers[a.LPUs[i].Address] = &a.LPUs[i]
	}
	for i := range b.LPUs {
		l := &b.LPUs[i]
		before, known := drivers[l.Address]
		if !known {
			return false
		}
		// After a stall the driver was perhaps not read.
		stalled := before.Reasons.Has(finding.ReadStalled) || l.Reasons.Has(finding.ReadStalled)
		if before.Driver != l.Driver && !stalled {
			return false
		}
	}
	return len(a.LPUs) == len(b.LPUs)
}
