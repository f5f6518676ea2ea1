// Package exporter serves the metrics of a node on which no program hands out LPUs to pods.
package exporter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/pods"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Exporter keeps what the metrics of a node are made of up to date.
type Exporter struct {
	pods    *pods.Node
	node    *node.Node
	spec    node.Spec
	watcher *watch.Watcher

	updating sync.Mutex                   // held by update
	use      atomic.Pointer[node.Use]     // nil before the first look
	lost     atomic.Pointer[finding.List] // about containers that read the host's ring table

	// changed has room for one. It says that the inventory is another one than when it was
	// looked who has the LPUs.
	changed chan struct{}
	fault   node.LatestFault // about leases
	unseen  node.LatestFault // whether another program has the metrics
}

// New returns the exporter of a node. scan are the options of its scans, spec is the CDI
// spec, which it does not write, and neither what memory keeps: the files are those of
// serve and of the boot unit.
func New(of *pods.Node, scan discovery.Options, memory node.Memory, spec node.Spec) *Exporter {
	spec.ReadOnly, memory.ReadOnly = true, true
	e := &Exporter{
		pods: of, node: node.New(of.Log), spec: spec, changed: make(chan struct{}, 1),
		watcher: watch.New(string(of.Root), watch.Options{Scan: scan, Patience: watch.Patience}, host.SinceBoot),
	}
	e.node.Memory = memory
	e.lost.Store(&finding.List{})
	e.node.Beside = func(*discovery.Inventory) finding.List { return *e.lost.Load() }
	return e
}

// TakenError says that a program hands out the LPUs of the node to pods, and has the
// metrics of the node.
type TakenError struct{ by owner.Owner }

func (e *TakenError) Error() string {
	return e.by.Program() + " runs on this node, and has the metrics of its LPUs"
}

// Remedy says where the metrics are.
func (*TakenError) Remedy() string {
	return "take its metrics (--listen), and switch the exporter off: sudo systemctl disable --now lpuctl-exporter.service"
}

// Refused returns a *TakenError if a program is known to hand out the LPUs of this node to
// pods, whose metrics say the same. If none can be seen it only warns: the exporter gives
// nothing away, and what is there of a program may be of one that was killed.
func (e *Exporter) Refused() error {
	now := e.pods.Owner().Stand()
	program, err := now.Program()
	if program != "" {
		return &TakenError{program}
	}
	if e.unseen.IsNew(err) {
		e.pods.Log.Warn("it cannot be known whether another program has the metrics of this node",
			"error", strings.ReplaceAll(err.Error(), "\n", "; "), "remedy", "if nothing has the socket or the lock that is named, remove it")
	}
	return nil
}

// Run watches the node with an interval between two looks, and answers at a listener until
// ctx ends; end ends it. build are labels that identify the build.
func (e *Exporter) Run(
	ctx context.Context, end context.CancelCauseFunc, listener net.Listener, interval time.Duration, build ...string,
) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		if err := node.ServeHTTP(ctx, listener, e, e.pods.Log, build...); !errors.Is(err, http.ErrServerClosed) {
			end(err)
		}
	})
	running.Go(func() { e.node.Memory.FollowCordons(ctx, func() { e.update(ctx) }) })
	running.Go(func() { e.followUse(ctx) })
	node.WatchAndTell(ctx, e.watcher, interval, func() bool {
		if err := e.Refused(); err != nil { // serve has come
			end(err)
			return false
		}
		return e.update(ctx)
	})
}

// update takes the next snapshot of the node. It returns false if the machine cannot be
// read.
func (e *Exporter) update(ctx context.Context) bool {
	e.updating.Lock()
	defer e.updating.Unlock()
	before := e.node.Latest()
	s := e.node.Update(ctx, e.spec, e.watcher.Scan)
	if s == nil {
		return false
	}
	if s.Inventory != before.Inventory {
		select {
		case e.changed <- struct{}{}:
		default: // it is known already
		}
	}
	return true
}

// followUse looks who has the LPUs after each change of the inventory, at most once a
// second. Without a change there is a new inventory every ten seconds. It is apart from
// the watch, because there may be many processes.
func (e *Exporter) followUse(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.changed:
		}
		e.lookWho(ctx, e.node.Latest().Inventory)
		host.WaitBeat(ctx, time.Second)
	}
}

// lookWho looks who has the LPUs of an inventory.
func (e *Exporter) lookWho(ctx context.Context, of *discovery.Inventory) {
	inv := *of
	inv.LPUs, inv.Problems = slices.Clone(of.LPUs), slices.Clone(of.Problems)
	node.FindUsers(ctx, e.pods.Root, &inv)
	lost := node.LostTables(ctx, e.pods.Root, &inv)
	marked, err := lease.MarkNow(e.pods.Root, e.node.Memory.Dir, &inv)
	if ctx.Err() != nil { // the look may be half-way
		return
	}
	if e.fault.IsNew(err) {
		lease.WarnUnread(e.pods.Log, err)
	}
	e.lost.Store(&lost)
	e.use.Store(&node.Use{ReadAt: time.Now(), Inventory: marked, LeasesKnown: err == nil})
}

// Alive returns an error if the machine, or who has its LPUs, was looked at once and is
// not looked at any more.
func (e *Exporter) Alive() error {
	if use := e.use.Load(); use != nil {
		if age := time.Since(use.ReadAt); age > 2*node.MaxAge {
			return fmt.Errorf("who has the LPUs was looked up %v ago for the last time", age.Round(time.Second))
		}
	}
	return e.node.Alive()
}

// Ready returns no error if the metrics are those of now, or else why not.
func (e *Exporter) Ready() (phase string, err error) {
	latest := e.node.Latest()
	if latest.Inventory == nil || e.use.Load() == nil {
		return "", errors.New("the machine has not been read yet")
	}
	if err := latest.Fresh(time.Now(), node.MaxAge); err != nil {
		return "", err
	}
	return "ok", e.Alive()
}

// Metrics are those of the node and of who has its LPUs; build are labels that identify
// the build.
func (e *Exporter) Metrics(build ...string) []*node.Metric {
	return slices.Concat(e.node.Metrics(build...), e.use.Load().Metrics())
}
