package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// MaxAge is how old a snapshot may be when LPUs are handed out by it. The machine is read every second.
const MaxAge = 30 * time.Second

// Node keeps the latest snapshot of a node. Its methods may be called at the same time, but Update by one caller at a time.
type Node struct {
	log    *slog.Logger
	latest atomic.Pointer[Snapshot]

	scans, scanFailures *Metric
	scanError           string // the one that was logged last; "" after a scan that succeeded
}

// Snapshot is what is known of a node at one moment. It does not change.
type Snapshot struct {
	ReadAt    time.Time // when the inventory was read
	Inventory *discovery.Inventory
	Fabric    *ring.Fabric   // card i is Inventory.LPUs[i]
	Cards     map[string]int // positions in Inventory.LPUs by Device.ID
	Devices   []Device       // in ring order, then the LPUs that are gone

	spec specCheck
}

// Device is an LPU as pods are offered it.
type Device struct {
	ID       string // its CDI name by PCI address ([cdi.AddressName]), which is the same after a reboot
	Name     string // "lpu0"; "" if it is gone
	NUMANode *int   // nil if it is not known
	Healthy  bool
	Reasons  finding.List // why it is not healthy, and warnings
}

// New makes a node of which nothing is known yet.
func New(log *slog.Logger) *Node {
	n := &Node{
		log:          log,
		scans:        NewMetric("summary", "lpuctl_scan_duration_seconds", "How long it took to read the machine."),
		scanFailures: NewMetric("counter", "lpuctl_scan_failures_total", "How often the machine could not be read."),
	}
	n.latest.Store(&Snapshot{})
	n.scanFailures.Add(0)
	return n
}

// Update makes the next snapshot, of an inventory that was read at readAt. It writes the CDI spec if that is needed, and so
// may wait for a lock. It returns nil, and keeps the latest snapshot, if ctx ends before it is done.
//
// An LPU that was in an earlier snapshot stays as an unhealthy device when it is gone. One whose health is unknown stays
// as healthy as it was, and is unhealthy if it is new.
func (n *Node) Update(ctx context.Context, spec Spec, inv *discovery.Inventory, readAt time.Time) *Snapshot {
	before := n.latest.Load()
	s := &Snapshot{ReadAt: readAt, Inventory: inv, Fabric: inv.Fabric(), Cards: map[string]int{}}
	s.spec = n.ensureSpec(ctx, spec, inv, before)
	if ctx.Err() != nil { // the spec may be half-way, which says nothing about it
		return nil
	}
	was := map[string]bool{}
	for _, d := range before.Devices {
		was[d.ID] = d.Healthy
	}
	s.addPresent(was)
	s.addGone(before)
	n.logHealth(s, was)
	n.latest.Store(s)
	return s
}

// addPresent adds the LPUs of the inventory; was is the health of the devices before. The order is that of the ring, because
// a kubelet that chooses by itself often takes devices that follow each other in the list.
func (s *Snapshot) addPresent(was map[string]bool) {
	var all []int
	for i := range s.Inventory.LPUs {
		all = append(all, i)
	}
	ordered, _ := s.Fabric.Order(all)
	for _, i := range ordered {
		l := &s.Inventory.LPUs[i]
		d := Device{ID: cdi.AddressName(l.Address), Name: l.Name, NUMANode: l.NUMANode, Reasons: l.Reasons}
		d.Healthy = l.Health == discovery.Healthy || l.Health == discovery.HealthUnknown && was[d.ID]
		if slices.Contains(s.spec.unresolved, d.ID) {
			d.Healthy = false
			d.Reasons.Add(finding.NotInSpec, "", "the CDI spec does not define it", "")
		}
		s.Cards[d.ID] = i
		s.Devices = append(s.Devices, d)
	}
}

// addGone adds the devices of the snapshot before that are not in the inventory any more.
func (s *Snapshot) addGone(before *Snapshot) {
	for _, d := range before.Devices {
		if _, present := s.Cards[d.ID]; !present {
			gone := finding.New(finding.Gone, "", "it is not in the machine any more", "")
			s.Devices = append(s.Devices, Device{ID: d.ID, NUMANode: d.NUMANode, Reasons: finding.List{gone}})
		}
	}
}

// logHealth logs what has become healthy or unhealthy, and what is unhealthy from the start.
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

// Reason says why the device is not healthy, or what its first warning is; "" if there is neither.
func (d *Device) Reason() string {
	if err := d.Reasons.FirstError(); err != nil {
		return err.Message
	}
	if len(d.Reasons) > 0 {
		return d.Reasons[0].Message
	}
	return ""
}

// Fresh returns an error if the snapshot is older than limit.
func (s *Snapshot) Fresh(limit time.Duration) error {
	if age := time.Since(s.ReadAt); age > limit {
		return fmt.Errorf("the machine was read %v ago for the last time", age.Round(time.Second))
	}
	return nil
}

// Ready returns nil if LPUs can be handed out by the latest snapshot, or else why not.
func (n *Node) Ready() error {
	s := n.latest.Load()
	if s.Inventory == nil {
		return errors.New("the machine has not been read yet")
	}
	if err := s.Fresh(MaxAge); err != nil {
		return err
	}
	return s.spec.err
}

// Alive returns an error if the machine was read once and is not read any more. The first time may take any time.
func (n *Node) Alive() error {
	s := n.latest.Load()
	if s.Inventory == nil {
		return nil
	}
	return s.Fresh(2 * MaxAge)
}
