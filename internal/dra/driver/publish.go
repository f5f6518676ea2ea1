package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
)

// Times of publishing.
const (
	publishTurn  = 20 * time.Second // the loop turns at least so often
	askTimeout   = 10 * time.Second // of one question to the API server
	nodeInterval = 30 * time.Second // [Options.NodeInterval]
	probeAgain   = 10 * time.Minute // how often it is asked whether it keeps more fields by now
	checkFirst   = 1200 * time.Millisecond
	// How often it is asked whether it has what it should have, once it has.
	checkAgain = 5 * time.Minute
	backoffMax = 30 * time.Second

	checksPatience = 4 // checks in a row, two seconds and a half together
	// After a kubelet has come: one that starts deletes the slices of its node.
	renewalChecks = 6
	syncDelay     = 10 * time.Second // after which changes by other programs are corrected
)

// mode is what can be published, by what fields the API server keeps.
type mode int32

const (
	unknown  mode = iota
	withheld      // it drops taints, without which nothing could be taken back: nothing is published
	singles       // it drops counters: single LPUs, which share nothing
	arcs          // it keeps all
)

// publishState is what other goroutines know of publishing. It does not change.
type publishState struct {
	published bool   // the API server has what it should have
	why       string // not
	mode      mode
}

// publication is what publish works with. Only its goroutine uses it.
type publication struct {
	*Driver

	controller *resourceslice.Controller // nil: none runs
	end        context.CancelFunc        // of the controller
	nodeUID    types.UID                 // by which slices belong to the node; "": not known
	nodeAsked  time.Duration             // since boot; likewise all that follow
	mode       mode
	ceiling    mode // it has dropped fields of what is above
	probed     time.Duration

	looked looked // what the slices were made of
	again  time.Duration

	want []resourceapi.ResourceSliceSpec // nil: nothing yet
	made mode                            // for which the Publisher has made them last
	// When to check whether they are there; 0: they need not be.
	check    time.Duration
	checks   int // that have failed
	renewals int // checks to come though they find nothing
	failures int // in a row
	retry    time.Duration
	logged   string
}

// looked is what slices are made of.
type looked struct {
	snapshot *node.Snapshot
	view     *owner.View
	mode     mode
	claims   int64 // how often claims were prepared or given back
}

func (l looked) same(other looked) bool {
	return other.snapshot != nil && dra.SameDevices(l.snapshot, other.snapshot) && l.view == other.view && l.mode == other.mode &&
		l.claims == other.claims
}

// publish keeps the slices of this node as they should be, until ctx ends. They stay
// then: an instance that follows takes them over.
func (d *Driver) publish(ctx context.Context) {
	p := &publication{Driver: d, ceiling: arcs}
	defer p.stop()
	defer d.pulses.publish.Rest()
	for ctx.Err() == nil {
		d.pulses.publish.Beat(time.Now())
		wait := p.step(ctx)
		select {
		case <-ctx.Done():
		case <-d.changes:
		case <-time.After(wait):
		}
	}
}

// step does what is due, and returns how long nothing is.
func (p *publication) step(ctx context.Context) time.Duration {
	now := host.SinceBoot()
	// A drop in a mode of before is withdrawn already.
	if in := mode(p.dropped.Swap(int32(unknown))); in != unknown && in <= p.mode {
		p.withdraw(now)
	}
	if p.renewed.Swap(false) {
		p.nodeAsked, p.renewals = 0, renewalChecks
		if p.want != nil {
			p.check, p.checks = now, 1
		}
	}
	if now < p.retry {
		return min(p.retry-now, publishTurn)
	}
	if err := p.prepareToPublish(ctx, now); err != nil {
		return p.failed(ctx, now, err)
	}
	if p.mode != withheld {
		p.look(ctx, now)
	}
	if p.check > 0 && now >= p.check {
		if err := p.verify(ctx, now); err != nil {
			return p.failed(ctx, now, err)
		}
	}
	p.failures, p.logged = 0, ""
	wait := publishTurn
	for _, at := range []time.Duration{p.again, p.check} {
		if at > 0 {
			wait = min(wait, max(0, at-now))
		}
	}
	return wait
}

// failed notes that the API server did not do as it should, and returns how long to wait.
func (p *publication) failed(ctx context.Context, now time.Duration, err error) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	wait := min(time.Second<<min(p.failures, 10), backoffMax)
	p.failures++
	p.retry = now + wait
	if err.Error() != p.logged {
		p.logged = err.Error()
		p.Log.Error("slices are not published", "error", err)
	}
	if !p.state.Load().published { // what is there stays there
		p.tell(false, err.Error())
	}
	return wait
}

func (p *publication) tell(published bool, why string) {
	p.state.Store(&publishState{published: published, why: why, mode: p.mode})
}

// prepareToPublish finds out whose the slices are, and what fields the API server keeps.
// What is known stays while it is away.
func (p *publication) prepareToPublish(ctx context.Context, now time.Duration) error {
	if p.nodeUID == "" || p.nodeAsked == 0 || now-p.nodeAsked >= cmp.Or(p.NodeInterval, nodeInterval) {
		if err := p.askNode(ctx, now); err != nil {
			return err
		}
	}
	if p.mode == unknown || p.mode != arcs && now-p.probed >= probeAgain {
		if p.probed > 0 && now-p.probed >= probeAgain {
			p.ceiling = arcs
		}
		kept, err := p.probe(ctx)
		if err != nil {
			return fmt.Errorf("it is not known which fields the API server keeps: %w", err)
		}
		p.probed = now
		p.setMode(min(kept, p.ceiling))
	}
	return nil
}

// askNode sees whether the node is still the same. Slices belong to one node, and are
// collected with it.
func (p *publication) askNode(ctx context.Context, now time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	n, err := p.Client.CoreV1().Nodes().Get(ctx, p.Name, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil && !apierrors.IsNotFound(err) && p.nodeUID != "" {
		p.Log.Warn("the API server does not tell of the node", "error", err)
		p.nodeAsked = now
		return nil
	}
	if err != nil {
		if p.nodeUID != "" {
			p.Log.Warn("the node is not in the cluster any more, and its slices go with it", "node", p.Name)
		}
		p.stop()
		p.nodeUID = ""
		return fmt.Errorf("node %s: %w", p.Name, err)
	}
	if n.UID != p.nodeUID && p.nodeUID != "" {
		p.Log.Warn("the node was deleted and made anew; its slices are published anew", "node", p.Name)
		p.stop()
	}
	if n.UID != p.nodeUID {
		if err := p.removeOrphans(ctx, n.UID); err != nil {
			return err
		}
	}
	p.nodeAsked, p.nodeUID = now, n.UID
	if p.controller == nil && p.want != nil {
		return p.put(ctx, now)
	}
	return nil
}

// removeOrphans deletes the slices that belong to a node of before, of the same name. The
// garbage collector would delete them at any time, and no program can give them to
// another node.
func (p *publication) removeOrphans(ctx context.Context, node types.UID) error {
	have, err := p.list(ctx)
	for i := range have {
		of := have[i].OwnerReferences
		if len(of) == 0 || slices.ContainsFunc(of, func(o metav1.OwnerReference) bool { return o.UID == node }) {
			continue
		}
		p.Log.Warn("a slice belongs to a node of before, and is deleted", "slice", have[i].Name)
		gone := p.Client.ResourceV1().ResourceSlices().Delete(ctx, have[i].Name, metav1.DeleteOptions{})
		if gone != nil && !apierrors.IsNotFound(gone) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

// list are the slices of this node that the API server has under the driver's name.
func (p *publication) list(ctx context.Context) ([]resourceapi.ResourceSlice, error) {
	list, err := p.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{
			resourceapi.ResourceSliceSelectorDriver: dra.DriverName, resourceapi.ResourceSliceSelectorNodeName: p.Name,
		}.String(),
	})
	if err != nil {
		return nil, fmt.Errorf("the slices of this node cannot be listed: %w", err)
	}
	return list.Items, nil
}

func (p *publication) setMode(m mode) {
	if m == p.mode {
		return
	}
	p.mode = m
	p.Publisher.Singles = m == singles
	switch m {
	case withheld:
		p.Log.Error("the API server drops taints of devices, without which no LPU can be taken back; nothing is published",
			"remedy", "switch its feature gate DRADeviceTaints on")
		p.tell(false, "the API server drops taints of devices (feature gate DRADeviceTaints)")
	case singles:
		p.Log.Warn("the API server drops counters; only single LPUs are published",
			"remedy", "switch the feature gate DRAPartitionableDevices of API server and scheduler on")
	}
}

// withdraw takes all slices back, because the API server did not store them as they are:
// without counters the arcs of a ring would be given to several. What is published next
// is less.
func (p *publication) withdraw(now time.Duration) {
	if p.controller != nil {
		p.controller.Update(&resourceslice.DriverResources{})
	}
	p.ceiling = max(withheld, p.mode-1)
	p.probed, p.want, p.check, p.looked = now, nil, 0, looked{}
	p.setMode(p.ceiling)
	p.tell(false, "the API server has dropped fields of the slices, so they are withdrawn")
}

// look publishes what has changed.
func (p *publication) look(ctx context.Context, now time.Duration) {
	is := looked{p.Node.Latest(), p.Gate.Look(), p.mode, p.claimChanges.Load()}
	rests := p.want != nil && is.same(p.looked) && (p.again == 0 || now < p.again)
	// In a shortage prepared claims could not be read.
	if is.snapshot.Inventory == nil || rests || host.Spare() != nil {
		return
	}
	specs, again, err := p.Publisher.Look(is.snapshot)
	p.looked, p.again = is, 0
	if again > 0 {
		p.again = now + again
	}
	if err != nil {
		p.Log.Error("what is published cannot be kept for the next start", "error", err)
	}
	if specs == nil && p.want == nil && p.made == p.mode {
		specs = p.Publisher.Slices() // they were withdrawn for a while
	}
	if specs == nil {
		return
	}
	p.want, p.made = specs, p.mode
	p.health.devices()
	if err := p.put(ctx, now); err != nil {
		p.Log.Error("slices cannot be published", "error", err)
	}
}

// put hands the wanted slices to the controller, which writes them as soon as it can.
func (p *publication) put(ctx context.Context, now time.Duration) error {
	p.check, p.checks = now+checkFirst, 0
	if p.controller != nil {
		p.controller.Update(p.resources())
		return nil
	}
	// It outlives one question, and ends by stop.
	ctx, p.end = context.WithCancel(context.WithoutCancel(ctx))
	var err error
	p.controller, err = resourceslice.StartController(ctx, resourceslice.Options{
		DriverName: dra.DriverName, KubeClient: p.Client, Resources: p.resources(), SyncDelay: new(syncDelay), ErrorHandler: p.slicesFailed,
		Owner: &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: p.Name, UID: p.nodeUID},
	})
	return err
}

// resources are what the controller is to write.
func (p *publication) resources() *resourceslice.DriverResources {
	return &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{p.Name: {Slices: poolSlices(p.want)}}}
}

// poolSlices are the slices as the controller wants them. A pool without a device has one
// that is empty: it shows that the driver is there.
func poolSlices(specs []resourceapi.ResourceSliceSpec) []resourceslice.Slice {
	all := []resourceslice.Slice{}
	for _, spec := range specs {
		all = append(all, resourceslice.Slice{Devices: spec.Devices, SharedCounters: spec.SharedCounters})
	}
	if len(all) == 0 {
		all = append(all, resourceslice.Slice{})
	}
	return all
}

// slicesFailed handles an error that the controller reports. The controller tries again
// by itself.
func (d *Driver) slicesFailed(_ context.Context, err error, what string) {
	d.publishes.Add(1, "result", failure)
	d.Log.Error("slices could not be written", "error", err, "what", what)
	if fields, ok := errors.AsType[*resourceslice.DroppedFieldsError](err); ok {
		d.Log.Error("the API server did not store all fields; all devices are withdrawn", "features", fields.DisabledFeatures())
		d.dropped.Store(int32(modeOf(fields.DesiredSlice)))
		d.wake()
	}
}

// modeOf is in which mode a slice was made.
func modeOf(s *resourceapi.ResourceSlice) mode {
	consumes := func(d resourceapi.Device) bool { return len(d.ConsumesCounters) > 0 }
	if len(s.Spec.SharedCounters) > 0 || slices.ContainsFunc(s.Spec.Devices, consumes) {
		return arcs
	}
	return singles
}

// stop ends the controller. What it has written stays.
func (p *publication) stop() {
	if p.controller != nil {
		p.end()
		p.controller.Stop()
		p.controller = nil
	}
}

// verify sees whether the API server has what it should have.
func (p *publication) verify(ctx context.Context, now time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	have, err := p.list(ctx)
	if err != nil {
		return err
	}
	why := differs(have, p.want, p.Name)
	if why == "" {
		if !p.state.Load().published || p.checks == 0 {
			p.publishes.Add(1, "result", success)
			p.Log.Info("slices are published", "slices", len(p.want), "generation", have[0].Spec.Pool.Generation)
		}
		p.check, p.checks = now+checkAgain, 1
		if p.renewals > 0 {
			p.renewals--
			p.check = now + checkFirst
		}
		p.tell(true, "")
		return nil
	}
	// In this case another program has changed or deleted them. The controller by itself
	// would wait.
	if p.checks > 0 && p.controller != nil {
		p.controller.Update(p.resources())
	}
	p.check = now + min(500*time.Millisecond<<min(p.checks, 10), backoffMax)
	p.checks++
	// It takes a moment until they are written.
	if p.checks > checksPatience || !p.state.Load().published {
		p.tell(false, why)
	}
	if p.checks == checksPatience {
		p.Log.Warn("the API server does not have the slices that it should have", "why", why)
	}
	return nil
}

// differs says how the slices of the API server differ from those that are wanted; "":
// they do not.
func differs(have []resourceapi.ResourceSlice, want []resourceapi.ResourceSliceSpec, pool string) string {
	byName := map[string]*resourceapi.Device{}
	counters := 0
	for i := range have {
		s := &have[i].Spec
		if s.Pool.Name != pool || s.Pool.ResourceSliceCount != int64(len(have)) || s.Pool.Generation != have[0].Spec.Pool.Generation {
			return fmt.Sprintf("slice %s is another pool's or another generation's", have[i].Name)
		}
		counters += len(s.SharedCounters)
		for j := range s.Devices {
			byName[s.Devices[j].Name] = &s.Devices[j]
		}
	}
	if max(1, len(want)) != len(have) {
		return fmt.Sprintf("it has %d slices, and should have %d", len(have), max(1, len(want)))
	}
	devices := 0
	for d := range dra.Devices(want) {
		devices++
		if !sameDevice(byName[d.Name], d) {
			return fmt.Sprintf("device %s is not there as it should be", d.Name)
		}
	}
	for _, spec := range want {
		counters -= len(spec.SharedCounters)
	}
	if devices != len(byName) || counters != 0 {
		return fmt.Sprintf("it has %d devices, and should have %d", len(byName), devices)
	}
	return ""
}

// sameDevice compares devices but for the time of their taints, which the API server
// sets.
func sameDevice(have, want *resourceapi.Device) bool {
	if have == nil {
		return false
	}
	timeless := have.DeepCopy()
	for i := range timeless.Taints {
		timeless.Taints[i].TimeAdded = nil
	}
	return equality.Semantic.DeepEqual(timeless, want)
}
