// Package driver hands out the LPUs of a node by dynamic resource allocation (DRA): it
// tells the scheduler of them, gives containers what their claims were allocated, and
// tells the kubelet how healthy it is.
//
// The decisions are elsewhere, and know no cluster: what is published in package dra, who
// has which LPU in package claim, and whether the driver may hand out LPUs at all in
// package owner.
package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Options is what a driver works with.
type Options struct {
	Node      *node.Node
	Spec      node.Spec // the CDI spec of the node, which Update keeps right
	Publisher *dra.Publisher
	Claims    *claim.Store
	Gate      *owner.Gate
	// OnCDIOff is what is done while Node.Runtime has CDI off: node.FailOnCDIOff or
	// node.WarnOnCDIOff.
	OnCDIOff node.OnCDIOff
	// InUse returns the claims that pods have, as the kubelet knows it. nil: they are not
	// known.
	InUse  func(context.Context) ([]cdi.Claim, error)
	Client kubernetes.Interface
	Name   string // of the node
	PodUID string // not "": another instance may run at the same time, with another one
	// KubeletDir is the kubelet's directory, with plugins and plugins_registry. It has the
	// same path for the kubelet and here, because the driver sends paths in it to the
	// kubelet.
	KubeletDir string
	// NodeInterval is how often it is asked whether the node is still the same. 0: every 30 s.
	NodeInterval time.Duration
	Log          *slog.Logger
}

// Driver is a running driver.
type Driver struct {
	Options

	updating sync.Mutex // held by Update
	last     *node.Snapshot
	changes  chan struct{} // has room for one: what is published may have to be looked at
	// Closed when the files of prepared claims have been looked after for the first time.
	restored chan struct{}

	runtime atomic.Pointer[node.Runtime] // of the latest Update
	health  health
	state   atomic.Pointer[publishState]
	// The mode in which the API server did not store what it was given; 0: in none.
	dropped atomic.Int32
	// claimChanges counts the claims that were prepared or given back.
	claimChanges atomic.Int64
	pulses       struct{ publish, files, collect node.Pulse }

	registered atomic.Bool
	// A kubelet has registered the driver, which may have deleted slices, or made its node
	// again.
	renewed  atomic.Bool
	restarts chan struct{} // has room for one: the sockets are to be made again

	publishes, prepares, unprepares *node.Metric
}

// New makes a driver, and lets its parts tell each other what they have to know.
func New(o Options) *Driver {
	d := &Driver{
		Options: o, changes: make(chan struct{}, 1), restored: make(chan struct{}), restarts: make(chan struct{}, 1),
		publishes: node.NewMetric("counter", "lpuctl_dra_publishes_total", "How often ResourceSlices were to be written, by result."),
		prepares: node.NewMetric("counter", "lpuctl_dra_prepares_total",
			"Claims that were prepared, by result. refused: another one has the LPUs, or the driver does not own them."),
		unprepares: node.NewMetric("counter", "lpuctl_dra_unprepares_total", "Claims that were given back, by result."),
	}
	for _, result := range []string{success, failure} {
		d.publishes.Add(0, "result", result)
		d.prepares.Add(0, "result", result)
		d.unprepares.Add(0, "result", result)
	}
	d.prepares.Add(0, "result", refused)
	d.state.Store(&publishState{})
	d.runtime.Store(&node.Runtime{})
	d.Gate.Changed = d.wake
	d.Publisher.Held = func(a pci.Address) string { return d.Gate.Look().Why(a) }
	d.Publisher.Leased = func(a pci.Address) bool { return d.Gate.Look().Leased(a) }
	d.Publisher.Prepared = d.prepared
	d.Claims.Devices = d.Publisher
	d.Claims.Inventory = d.Node.Latest
	d.Claims.Refuse = d.refuse
	d.Claims.Confirm = d.Gate.Ask
	d.Node.Early = d.health.see
	return d
}

// Results of calls, as metrics name them.
const (
	success = "success"
	failure = "failure"
	refused = "refused"
)

// Update takes the next snapshot of the node. It returns false if the machine cannot be
// read.
func (d *Driver) Update(ctx context.Context, scan node.Scan) bool {
	d.updating.Lock()
	defer d.updating.Unlock()
	runtime := d.Node.AskRuntime(d.OnCDIOff)
	d.runtime.Store(&runtime)
	s := d.Node.Update(ctx, d.Spec, scan)
	if s == nil {
		return false
	}
	if d.last == nil || !dra.SameDevices(d.last, s) {
		d.health.see(s)
		d.wake()
	}
	d.last = s
	return true
}

// wake has what is published looked at.
func (d *Driver) wake() {
	select {
	case d.changes <- struct{}{}:
	default: // one look sees all changes
	}
}

// Run works until ctx ends. The claims of before are restored before the kubelet may ask
// for anything.
func (d *Driver) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { d.Gate.Run(ctx) })
	running.Go(func() { d.publish(ctx) })
	running.Go(func() { d.keepFiles(ctx) })
	for _, part := range []func(context.Context){d.collect, d.serve} {
		running.Go(func() {
			select {
			case <-ctx.Done():
			case <-d.restored:
				part(ctx)
			}
		})
	}
}

// prepared are the devices of prepared claims, with their LPUs.
func (d *Driver) prepared() map[string][]pci.Address {
	all := map[string][]pci.Address{}
	claims, err := d.Claims.Claims()
	if err != nil {
		d.Log.Error("prepared claims cannot be read", "error", err)
	}
	for _, c := range claims {
		for _, r := range c.Requests {
			for _, device := range r.Devices {
				all[device.Name] = device.Members
			}
		}
	}
	return all
}

// refuse says why an LPU must not be given now.
func (d *Driver) refuse(a pci.Address) error {
	if why := d.health.sick(a); why != "" {
		return errors.New(why)
	}
	// This is of now: the snapshot may be from before.
	if withheld := d.runtime.Load().Withheld(d.OnCDIOff); len(withheld) > 0 {
		return errors.New(withheld[0].Message + "; " + withheld[0].Remedy)
	}
	return nil
}

// Alive returns an error if a loop has stopped to turn.
func (d *Driver) Alive() error {
	now := time.Now()
	for _, loop := range []struct {
		pulse *node.Pulse
		does  string
		limit time.Duration
	}{
		{&d.pulses.publish, "publishes slices", 2 * node.MaxAge},
		{&d.pulses.files, "looks after the files of claims", node.MaxAge},
		{&d.pulses.collect, "collects claims", 5 * collectInterval},
	} {
		if err := loop.pulse.Alive(loop.does, now, loop.limit); err != nil {
			return err
		}
	}
	return d.Node.Alive()
}

// Ready returns no error if pods can get LPUs, or else why not. A driver that is not the
// owner of the LPUs is ready for when it is.
func (d *Driver) Ready() (phase string, err error) {
	if err := d.Node.Unread(); err != nil {
		return "", err
	}
	latest := d.Node.Latest()
	if latest.Inventory == nil {
		return "", errors.New("the machine has not been read yet")
	}
	if err := latest.Fresh(time.Now(), node.MaxAge); err != nil {
		return "", err
	}
	if !d.registered.Load() {
		return "", errors.New("the kubelet has not registered the driver")
	}
	if s := d.state.Load(); !s.published {
		return "", fmt.Errorf("the API server does not have the slices of this node: %s", s.why)
	}
	if why := d.Gate.Look().All(); why != nil {
		return "no LPU is offered: " + why.Message, d.Alive()
	}
	if runtime := d.runtime.Load(); runtime.CDI == node.CDIOff {
		return "ok, but " + runtime.Says(d.OnCDIOff) + ": " + runtime.Reason.Message, d.Alive()
	}
	return "ok", d.Alive()
}

// keepFiles looks after the files of prepared claims: the kubelet asks for a claim only
// once for each pod, and a container that starts again needs them.
func (d *Driver) keepFiles(ctx context.Context) {
	logged, seen := "", ""
	var full time.Time
	for began := time.Now(); d.Node.Latest().Inventory == nil && ctx.Err() == nil && time.Since(began) < firstPatience; {
		// It takes the machine to render a file, and none to take claims back.
		host.WaitBeat(ctx, firstLook)
	}
	for first := true; ctx.Err() == nil; host.WaitBeat(ctx, time.Second) {
		d.pulses.files.Beat(time.Now())
		state := host.State(d.Claims.SpecDir) + host.State(filepath.Join(d.Claims.Dir, claim.DirName))
		if !first && state == seen && time.Since(full) < filesInterval {
			continue
		}
		if state != seen { // files have come or gone, or are to be written
			d.hear(ctx)
		}
		if full = time.Now(); !first && !d.Claims.Missing() && !d.missingMetadata() {
			seen = state
			continue
		}
		logged = d.restore(ctx, logged)
		seen = "" // to look whether that has helped
		if first {
			close(d.restored)
		}
		first = false
	}
	d.pulses.files.Rest()
}

// How often files are looked at though none has come or gone, and whether the machine has
// been read for the first time.
const (
	filesInterval = 4 * time.Second // what is lost is there again within five
	firstLook     = 50 * time.Millisecond
	firstPatience = 10 * time.Second
)

// hear has the kubelet say which claims pods have: of one that has lost its record and
// its CDI file, nothing else tells. While the kubelet does not answer, what it said last
// counts.
func (d *Driver) hear(ctx context.Context) {
	if d.InUse == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if claims, err := d.InUse(ctx); err == nil {
		d.Claims.Hear(claims)
	}
}

// restore makes the files of prepared claims again. What it has to say is logged unless it
// was logged already.
func (d *Driver) restore(ctx context.Context, logged string) (said string) {
	findings, err := d.Claims.Restore(ctx)
	if metadataErr := d.restoreMetadata(); err == nil {
		err = metadataErr
	}
	said = fmt.Sprint(findings, err)
	if said == logged || ctx.Err() != nil {
		return said
	}
	for _, f := range findings {
		d.Log.Warn("a prepared claim is not as it was left", "severity", f.Severity, "id", f.ID, "problem", f.String(), "remedy", f.Remedy)
	}
	if err != nil {
		d.Log.Error("the files of prepared claims cannot be kept; a container that starts again may not find its LPUs", "error", err)
	}
	d.wake()
	return said
}
