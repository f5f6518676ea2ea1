package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// MaxAge is how old a snapshot may be when LPUs are handed out by it. The machine is read
// every second.
const MaxAge = 30 * time.Second

// patience is how long the first list of LPUs is held back while the health of one is not
// known: a card that is being reset when the program starts was perhaps healthy before.
const patience = 5 * time.Second

// Scan reads the machine once, as that of a watcher (internal/watch) does.
type Scan func(context.Context) (*discovery.Inventory, error)

// Node keeps the latest snapshot of a node. Its methods may be called at the same time,
// but Update by one caller at a time.
type Node struct {
	Now       func() time.Time     // the clock; New sets time.Now
	SinceBoot func() time.Duration // the clock of what watches the machine; New sets [host.SinceBoot]
	Memory    Memory               // what outlives the process; the zero value remembers nothing
	// Recall returns which devices another program offers as healthy, by [Device.ID]. It
	// is asked once, if the node has an LPU whose health is not known at the start, and
	// Memory does not know it either. nil: there is no program to ask.
	Recall func(context.Context) map[string]bool
	// Beside returns problems of the machine that no scan sees, such as another program
	// that hands out the same LPUs. Update calls it with each scan. It may be nil.
	Beside func(*discovery.Inventory) finding.List

	// Gate says which LPUs are not to be offered because another program hands them out.
	// Who makes it calls Update when its view has changed. nil: there is no other
	// program.
	Gate *owner.Gate
	// Runtime returns what is known of the container runtime that the kubelet uses.
	// [Node.AskRuntime] asks it, and never what answers the kubelet. nil: there is none
	// to ask.
	Runtime func() Runtime
	// Early is called in Update, before the CDI spec is written, with a snapshot in which
	// no LPU is healthier than before. It may be nil.
	Early func(*Snapshot)

	log    *slog.Logger
	latest atomic.Pointer[Snapshot]
	unread atomic.Pointer[unread] // nil after an Update that could read the machine
	pulse  Pulse                  // of Update
	upkeep upkeep

	started     time.Time          // of the first snapshot
	cordons     *health.CordonFile // of Memory; nil before the first scan
	withheld    finding.List       // why the next Update offers no LPU, see AskRuntime
	view        *owner.View        // of Gate in the latest Update; nil without a gate
	read        reading            // of the latest scan
	recalled    map[string]bool    // the health of devices as it was known before that
	kept        keptHealth
	memoryError error   // of the latest remember
	runtime     Runtime // the latest answer about the runtime
	runtimeSaid string  // what was logged of the runtime last

	counted                         Metrics // from the start
	scans, scanFailures, specWrites *Metric
}

// Snapshot is what is known of a node at one moment. It does not change.
type Snapshot struct {
	ReadAt    time.Time // when the inventory was read
	Inventory *discovery.Inventory
	Fabric    *ring.Fabric   // card i is Inventory.LPUs[i]
	Cards     map[string]int // positions in Inventory.LPUs by Device.ID
	Devices   []Device       // in ring order, then the LPUs that are gone
	// Settled reports whether the health of each LPU is known, or was waited for long
	// enough.
	Settled bool

	spec     specCheck
	withheld finding.List // why no LPU is offered, whose own health is what it was
	view     *owner.View  // of [Node.Gate]
}

// Device is an LPU as pods are offered it.
type Device struct {
	// ID is its CDI name by PCI address ([cdi.AddressName]), which is the same after a
	// reboot.
	ID       string
	Name     string // "lpu0"; "" if it is gone
	NUMANode *int   // nil if it is not known
	Healthy  bool
	Reasons  finding.List // why it is not healthy, warnings, and that it is cordoned
	// Cordoned: no new pod gets it. A pod that has it keeps it. It may be healthy.
	Cordoned *health.Cordon
	// Withheld: no pod gets it, not even a pod that has it already and starts again. It may
	// be healthy; Reasons say why.
	Withheld bool
	// Elsewhere: no new pod gets it here, because another program hands it out or a pod of
	// that program has it. A pod that has it keeps it; Reasons say why.
	Elsewhere bool
}

// Offered reports whether a new pod may get the device.
func (d *Device) Offered() bool { return d.Healthy && d.Cordoned == nil && !d.Withheld && !d.Elsewhere }

// New makes a node of which nothing is known yet.
func New(log *slog.Logger) *Node {
	n := &Node{
		Now: time.Now, SinceBoot: host.SinceBoot, log: log, upkeep: upkeep{renew: true, writes: map[string][]time.Time{}},
	}
	n.latest.Store(&Snapshot{})
	n.scans = n.counted.add("summary", "lpuctl_scan_duration_seconds", "How long it took to read the machine.")
	n.scanFailures = n.counted.Counter("lpuctl_scan_failures_total", "How often the machine could not be read.")
	n.specWrites = n.counted.Counter("lpuctl_spec_writes_total", "How often this instance wrote the CDI spec.")
	n.scanFailures.Add(0)
	n.specWrites.Add(0)
	return n
}

// Update scans the machine and makes the next snapshot of it. It writes the CDI spec if
// that is needed, and so may wait for a lock; then it scans again under the lock. It
// returns nil, keeps the latest snapshot and writes nothing, if the machine cannot be
// read or ctx ends before it is done.
//
// An LPU that was in an earlier snapshot stays as an unhealthy device when it is gone.
// One whose health is unknown stays as healthy as it was, and is unhealthy if it is new.
func (n *Node) Update(ctx context.Context, spec Spec, scan Scan) *Snapshot {
	n.pulse.Beat(n.Now())
	s, err := n.update(ctx, spec, scan)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		n.fail(err)
		return nil
	}
	n.unread.Store(nil)
	return s
}

// update is Update. The error is that the machine cannot be read.
func (n *Node) update(ctx context.Context, spec Spec, scan Scan) (*Snapshot, error) {
	inv, err := n.scan(ctx, scan)
	if err != nil {
		return nil, err
	}
	before := n.latest.Load()
	check := n.checkSpec(spec, inv, before.spec)
	if host.IsShortage(check.err) {
		return nil, check.err
	}
	if n.rests(inv, &check, before) {
		s := *before
		s.ReadAt = n.Now()
		n.latest.Store(&s)
		return &s, nil
	}
	if !spec.ReadOnly && n.due(check) {
		if inv, check = n.correct(ctx, spec, scan, inv, check, before); host.IsShortage(check.err) {
			return nil, check.err
		}
	}
	if before.Inventory == nil {
		clear(n.upkeep.writes) // what is written at the start does not keep a change after it waiting
	}
	if ctx.Err() != nil { // the spec may be half-way, which says nothing about it
		return nil, ctx.Err()
	}
	n.upkeep.renew = n.upkeep.renew && (check.err != nil || check.drift.Any())
	n.logSpec(check, before.spec)
	n.logProblems(inv, before.Inventory)
	s := n.snapshot(inv, check)
	was := n.healthBefore(ctx, inv, before)
	s.addDevices(was, before)
	s.Settled = before.Settled || !n.doubtful(inv) || n.Now().Sub(n.started) >= patience
	n.logHealth(s, was)
	n.logCordons(s.Devices, before.Devices)
	n.remember(s)
	n.latest.Store(s)
	return s, nil
}

// snapshot is one of an inventory and of a look at the CDI spec, without devices yet.
func (n *Node) snapshot(inv *discovery.Inventory, check specCheck) *Snapshot {
	return &Snapshot{
		ReadAt: n.Now(), Inventory: inv, Fabric: inv.Fabric(), Cards: map[string]int{}, spec: check, withheld: n.withheld, view: n.view,
	}
}

// unread is why the machine cannot be read, and in how many Updates in a row.
type unread struct {
	err   error
	times int
}

// fail notes that the machine cannot be read, and logs that when the error changes.
func (n *Node) fail(err error) {
	next := &unread{err, 1}
	before := n.unread.Load()
	if before != nil {
		next.times += before.times
	}
	if before == nil || err.Error() != before.err.Error() {
		n.log.Error("the machine cannot be read; what was known before holds", "error", err, "remedy", discovery.Remedy(err))
	}
	n.unread.Store(next)
	n.scanFailures.Add(1)
}

// unreadLimit is in how many Updates in a row the machine may be unreadable before that
// counts: once may be by chance.
const unreadLimit = 3

// Unread returns an error, with a remedy, if the machine could not be read in the latest
// three Updates. What was known before holds meanwhile.
func (n *Node) Unread() error {
	u := n.unread.Load()
	if u == nil || u.times < unreadLimit {
		return nil
	}
	text := "what was known before holds"
	if remedy := discovery.Remedy(u.err); remedy != "" {
		text += "; remedy: " + remedy
	}
	return fmt.Errorf("%w; %s", u.err, text)
}

// tellWorse hands on what an inventory says of the LPUs' health, before the CDI spec is
// written, which may take a while: who offers the LPUs is to know at once that one is
// gone. Whether the spec defines an LPU is taken from before.
func (n *Node) tellWorse(inv *discovery.Inventory, before *Snapshot) {
	if before.Inventory == nil || n.Early == nil {
		return
	}
	s := n.snapshot(inv, before.spec)
	s.Settled = before.Settled
	was := before.healthy()
	s.addDevices(was, before)
	for i := range s.Devices {
		d := &s.Devices[i]
		d.Healthy = d.Healthy && was[d.ID] // an LPU is offered when the spec has it
	}
	n.Early(s)
}

// rests reports whether nothing has changed since a snapshot, and nothing is left to be
// done.
func (n *Node) rests(inv *discovery.Inventory, check *specCheck, before *Snapshot) bool {
	return inv == before.Inventory && before.Settled && check.right() && before.spec.right() && !n.upkeep.renew && n.memoryError == nil &&
		slices.Equal(n.withheld, before.withheld) && n.view == before.view
}

// Renew makes the next Update correct what is otherwise only reported: mounts and
// variables of the CDI spec.
func (n *Node) Renew() { n.upkeep.renew = true }

// scan reads the machine and counts that.
func (n *Node) scan(ctx context.Context, scan Scan) (*discovery.Inventory, error) {
	started := time.Now()
	if n.Gate != nil {
		n.view = n.Gate.Look() // before the machine is read: what changes after it makes another Update
	}
	err := host.Spare()
	var inv *discovery.Inventory
	if err == nil {
		inv, err = scan(ctx)
	}
	if err == nil {
		err = inv.Undecided() // what it says of the LPUs that it has may be wrong: their indices
	}
	if err == nil {
		inv = n.withCordons(inv)
	}
	if ctx.Err() == nil {
		n.scans.add(1, "_count")
		n.scans.add(time.Since(started).Seconds(), "_sum")
	}
	return inv, err
}

// reading is an inventory as it was scanned, and with the cordons. It is kept so that
// what has not changed is the same.
type reading struct {
	scanned, marked *discovery.Inventory
	cordons         health.Cordons
	problems        finding.List
}

// withCordons adds the cordons, and the problems of Beside, to an inventory. It returns
// the same as before if nothing has changed.
func (n *Node) withCordons(inv *discovery.Inventory) *discovery.Inventory {
	if n.cordons == nil {
		n.cordons = n.Memory.Cordons()
	}
	cordons, problems := n.cordons.Read()
	if n.Beside != nil {
		problems = slices.Concat(problems, n.Beside(inv))
	}
	same := func(a, b health.Cordon) bool { return a.Reason == b.Reason && a.By == b.By && a.Since.Equal(b.Since) }
	r := &n.read
	if inv != r.scanned || !maps.EqualFunc(cordons, r.cordons, same) || !slices.Equal(problems, r.problems) {
		*r = reading{inv, inv.WithCordons(cordons, problems), cordons, problems}
	}
	return r.marked
}

// addDevices adds the LPUs of the inventory, and then the devices of the snapshot before
// that are not in it any more; was is the health of the devices before. The order is that
// of the ring, because a kubelet that chooses by itself often takes devices that follow
// each other in the list.
func (s *Snapshot) addDevices(was map[string]bool, before *Snapshot) {
	var all []int
	for i := range s.Inventory.LPUs {
		all = append(all, i)
	}
	ordered, _ := s.Inventory.Cabled().Order(all)
	for _, i := range ordered {
		l := &s.Inventory.LPUs[i]
		d := Device{ID: cdi.AddressName(l.Address), Name: l.Name, NUMANode: l.NUMANode, Reasons: slices.Clip(l.Reasons), Cordoned: l.Cordoned}
		d.Healthy = l.Health == discovery.Healthy || l.Health == discovery.HealthUnknown && was[d.ID]
		if slices.Contains(s.spec.unresolved, d.ID) {
			d.Healthy = false
			d.Reasons.Add(finding.NotInSpec, "", "the CDI spec does not define it", "")
		}
		if why := s.spec.fault(d.ID, d.Name); why != nil {
			d.Healthy, d.Reasons = false, append(d.Reasons, *why)
		}
		if len(s.withheld) > 0 {
			d.Withheld, d.Reasons = true, append(d.Reasons, s.withheld...)
		}
		if s.view != nil {
			if why := s.view.Finding(l.Address); why != nil {
				d.Elsewhere, d.Reasons = true, append(d.Reasons, *why)
			}
		}
		s.Cards[d.ID] = i
		s.Devices = append(s.Devices, d)
	}
	for _, d := range before.Devices {
		if _, present := s.Cards[d.ID]; !present {
			gone := finding.New(finding.Gone, "", "it is not in the machine any more", "")
			s.Devices = append(s.Devices, Device{ID: d.ID, NUMANode: d.NUMANode, Reasons: finding.List{gone}, Cordoned: d.Cordoned})
		}
	}
}

// logHealth logs what has become healthy or unhealthy, and what is unhealthy from the
// start.
func (n *Node) logHealth(s *Snapshot, was map[string]bool) {
	for _, d := range s.Devices {
		before, known := was[d.ID]
		if d.Healthy == (before || !known) {
			continue
		}
		health := "Unhealthy"
		if d.Healthy {
			health = "Healthy"
		}
		n.log.Warn("health", "device", d.ID, "lpu", d.Name, "health", health, "reason", d.Reason())
	}
}

// logCordons logs which devices have been cordoned since before, and which are not any
// more.
func (n *Node) logCordons(now, before []Device) {
	cordoned := map[string]*health.Cordon{}
	for _, d := range before {
		cordoned[d.ID] = d.Cordoned
	}
	for _, d := range now {
		switch was := cordoned[d.ID]; {
		case d.Cordoned == nil && was != nil:
			n.log.Info("uncordoned", "device", d.ID, "lpu", d.Name)
		case d.Cordoned != nil && (was == nil || *was != *d.Cordoned):
			n.log.Warn("cordoned", "device", d.ID, "lpu", d.Name, "since", d.Cordoned.Since, "by", d.Cordoned.By, "reason", d.Cordoned.Reason)
		}
	}
}

// logSpec logs what has changed about the CDI spec since before.
func (n *Node) logSpec(now, before specCheck) {
	if now.tables != nil && fmt.Sprint(now.tables) != fmt.Sprint(before.tables) {
		n.log.Warn("containers get no ring tables of their own", "error", now.tables)
	}
	switch {
	case now.err != nil && fmt.Sprint(now.err) != fmt.Sprint(before.err):
		n.log.Error("the CDI spec is not as it should be; no container gets an LPU that it does not define", "error", now.err)
	case now.drift.String() == before.drift.String():
	case now.drift.Any():
		n.log.Warn("the CDI spec in place is not the one that would be made now; lpuctl cdi diff shows how", "drift", now.drift.String())
	default:
		n.log.Info("the CDI spec in place is the one that would be made now")
	}
}

// logProblems logs the problems of the machine that are new since before, and those that
// have gone.
func (n *Node) logProblems(now, before *discovery.Inventory) {
	var had finding.List
	if before != nil {
		had = before.Problems
	}
	for _, f := range now.Problems {
		if !slices.Contains(had, f) {
			n.log.Warn("problem", "severity", f.Severity, "id", f.ID, "problem", f.String(), "remedy", f.Remedy)
		}
	}
	for _, f := range had {
		if !slices.Contains(now.Problems, f) {
			n.log.Info("solved", "id", f.ID, "problem", f.String())
		}
	}
	if before != nil && before.RingTable != nil && now.RingTable == nil {
		n.log.Warn("there is no ring table any more: it is not known which LPUs are connected", "was", before.RingTable.Path)
	}
}

// Reason says why the device is not offered, or what its first warning is; "" if there is
// neither.
func (d *Device) Reason() string {
	if err := d.Reasons.FirstError(); err != nil {
		return err.Message
	}
	if d.Cordoned != nil {
		return "it is cordoned " + d.Cordoned.String()
	}
	for _, r := range d.Reasons {
		if d.Healthy || r.ID == finding.Recovering { // a warning makes no device unhealthy
			return r.Message
		}
	}
	return ""
}

// Fresh returns an error if the snapshot is older than limit at a time.
func (s *Snapshot) Fresh(now time.Time, limit time.Duration) error {
	if age := now.Sub(s.ReadAt); age > limit {
		return fmt.Errorf("the machine was read %v ago for the last time", age.Round(time.Second))
	}
	return nil
}

// Latest returns the latest snapshot. Its Inventory is nil as long as the machine has not
// been read.
func (n *Node) Latest() *Snapshot { return n.latest.Load() }

// Ready returns nil if LPUs can be handed out by the latest snapshot, or else why not.
func (n *Node) Ready() error {
	if err := n.Unread(); err != nil {
		return err
	}
	s := n.latest.Load()
	if s.Inventory == nil {
		return errors.New("the machine has not been read yet")
	}
	if err := s.Fresh(n.Now(), MaxAge); err != nil {
		return err
	}
	return s.spec.err
}

// Alive returns an error if the machine was looked at once and is not any more. The first
// time may take any time. A machine that cannot be read is none: a new start would not
// mend it, and would forget what holds meanwhile.
func (n *Node) Alive() error {
	if n.latest.Load().Inventory == nil {
		return nil
	}
	return n.pulse.Alive("reads the machine", n.Now(), 2*MaxAge)
}
