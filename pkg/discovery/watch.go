package discovery

import (
	"context"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// debounce is how long a watch waits after a change of /dev, because changes seldom come alone.
const debounce = 20 * time.Millisecond

// Watcher scans one machine again and again. It remembers what one scan cannot know: the health of the LPUs has hysteresis, a
// card that an earlier scan saw stays in the inventory and keeps its index when it is gone, and the cabling stays when the ring
// table breaks. Its methods may be called at the same time.
type Watcher struct {
	root string
	now  func() time.Time // the clock of the hysteresis

	mu      sync.Mutex // held by Scan
	options Options
	health  hysteresis
	nodes   *fsnotify.Watcher // of the directories with the LPUs' nodes; nil without inotify
}

// NewWatcher makes a watcher of the machine under root. now is the clock.
func NewWatcher(root string, options Options, now func() time.Time) *Watcher {
	options.readers = &readers{}
	return &Watcher{root: root, now: now, options: options, health: hysteresis{}}
}

// Scan takes one more reading of the machine. The error is that of [Scan]; then the watcher remembers what it knew before.
func (w *Watcher) Scan(ctx context.Context) (*Inventory, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	inv, err := Scan(ctx, w.root, w.options)
	if err != nil {
		return nil, err
	}
	w.health.apply(inv, w.now())
	w.options.known = make(map[Address]string, len(inv.LPUs))
	for _, l := range inv.LPUs {
		w.options.known[l.Address] = l.Serial // "" if it is gone, because another card may come in its place
	}
	if table := inv.LastRing(); table != nil {
		w.options.LastRing, _ = ring.Parse(LastRingTable, table)
	}
	w.followNodes(inv)
	return inv, nil
}

// Run calls look at once, then every interval, and soon after the device nodes change, until ctx ends. look is to call Scan, which
// says where the nodes are.
func (w *Watcher) Run(ctx context.Context, interval time.Duration, look func()) {
	var changes <-chan fsnotify.Event // nil without inotify: then the next interval shows a change
	var missed <-chan error           // changes that inotify could not tell, such as an overflow of its queue
	if nodes, err := fsnotify.NewWatcher(); err == nil {
		defer func() { _ = nodes.Close() }()
		changes, missed = nodes.Events, nodes.Errors
		w.mu.Lock()
		w.nodes = nodes
		w.mu.Unlock()
	}
	for ctx.Err() == nil {
		look()
		if !wait(ctx, changes, missed, interval) {
			return
		}
	}
}

// followNodes watches the directories that hold the nodes of an inventory.
func (w *Watcher) followNodes(inv *Inventory) {
	if w.nodes == nil {
		return
	}
	for _, l := range inv.LPUs {
		for _, n := range l.Nodes {
			_ = w.nodes.Add(filepath.Join(w.root, path.Dir(n.Path))) // again at each scan, in case the directory was made anew
		}
	}
}

// wait returns after the interval or soon after a change; false if ctx ended. Errors are received too, because the watcher
// tells nothing more until they are.
func wait(ctx context.Context, changes <-chan fsnotify.Event, missed <-chan error, interval time.Duration) bool {
	expired, changed := time.After(interval), false
	for {
		var hasChanged bool
		select {
		case <-ctx.Done():
			return false
		case <-expired:
			return true
		case err := <-missed:
			hasChanged = err != nil
		case e := <-changes:
			hasChanged = e.Op&(fsnotify.Create|fsnotify.Remove|fsnotify.Rename) != 0
		}
		if hasChanged && !changed {
			changed = true
			expired = time.After(min(debounce, interval))
		}
	}
}

// Thresholds of the hysteresis. A card that is being reset answers nothing for up to half a minute and is not broken.
const (
	badReadings  = 2                // in a row make an LPU unhealthy, unless a reason leaves no doubt
	goodReadings = 3                // in a row, over at least goodFor, make it healthy again
	goodFor      = 3 * time.Second  // see goodReadings
	grace        = 30 * time.Second // for a card that is offline, not ready or does not answer: its health is unknown until then
)

// hysteresis keeps one odd reading from changing the health of an LPU.
type hysteresis map[Address]*condition

// condition is what is remembered of one LPU.
type condition struct {
	health   Health    // the result so far
	good     bool      // whether the latest readings are healthy
	readings int       // how many in a row are, or are not
	since    time.Time // of the first of these
	latest   time.Time // of the last of these
}

// apart is the least time between two readings that both count. A scan that is repeated at once, to write the CDI spec of it, says
// nothing new about health.
const apart = 50 * time.Millisecond

// apply replaces the health that was read for each LPU by the result of this and earlier readings. Usable stays as it was read. The
// first reading of an LPU counts as it is, but a fault that may pass by itself leaves its health unknown.
func (h hysteresis) apply(inv *Inventory, now time.Time) {
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		c, known := h[l.Address]
		if !known {
			c = &condition{health: l.Health}
			if transient, _ := l.faults(); transient && l.Health == Unhealthy {
				c.health = HealthUnknown
			}
			h[l.Address] = c
		}
		c.add(l, now)
		l.Health = c.health
	}
}

// add takes one more reading into account.
func (c *condition) add(l *LPU, now time.Time) {
	if good := l.Health == Healthy; good != c.good || c.readings == 0 {
		c.good, c.readings, c.since = good, 0, now
	}
	if c.readings == 0 || now.Sub(c.latest) >= apart {
		c.readings, c.latest = c.readings+1, now
	}
	lasted := now.Sub(c.since)
	transient, certain := l.faults()
	switch {
	case c.good && (c.health == Healthy || c.readings >= goodReadings && lasted >= goodFor):
		c.health = Healthy
	case c.good:
		l.reason(finding.Recovering, "it was unhealthy, and counts as healthy again when it has stayed healthy for a moment", "")
	case certain:
		c.health = Unhealthy
	case c.health == Unhealthy || c.readings < badReadings: // stays as it is
	case transient && lasted < grace:
		c.health = HealthUnknown
	default:
		c.health = Unhealthy
	}
}

// faults tells whether everything that is wrong may pass by itself, and whether something leaves no doubt that the LPU is
// broken.
func (l *LPU) faults() (transient, certain bool) {
	transient = true
	for _, r := range l.Reasons {
		switch r.ID {
		case finding.Offline, finding.NotReady, finding.ReadStalled:
		case finding.RecoveryShell:
			transient = false
		default: // gone, a dead bus, no driver, no node; but warnings do not count
			if r.Severity == finding.Error {
				transient, certain = false, true
			}
		}
	}
	return transient, certain
}
