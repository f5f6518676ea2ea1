package discovery

import (
	"context"
	"path"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// debounce is how long a watch waits after a change of /dev, because changes seldom come alone.
const debounce = 20 * time.Millisecond

// Watch scans the machine under root every interval, and soon after its device nodes change, until ctx ends. It hands
// each scan to deliver with how long it took: the whole inventory, whether or not it changed, or the error. The health of
// the LPUs has hysteresis. A card that an earlier scan saw stays in the inventory and keeps its index when it is gone.
func Watch(
	ctx context.Context, root string, options Options, interval time.Duration, deliver func(*Inventory, time.Duration, error),
) {
	options.readers = &readers{}
	health := hysteresis{}
	var changes <-chan fsnotify.Event // nil without inotify: then the next interval shows a change
	var missed <-chan error           // changes that inotify could not tell, such as an overflow of its queue
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer func() { _ = watcher.Close() }()
		changes, missed = watcher.Events, watcher.Errors
	}
	for {
		started := time.Now()
		inv, err := Scan(ctx, root, options)
		took := time.Since(started)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			health.apply(inv, time.Now())
			options.known = make(map[Address]string, len(inv.LPUs))
			for _, l := range inv.LPUs {
				options.known[l.Address] = l.Serial // "" if it is gone, because another card may come in its place
			}
			if changes != nil {
				followNodes(watcher, root, inv)
			}
		}
		deliver(inv, took, err)
		if !wait(ctx, changes, missed, interval) {
			return
		}
	}
}

// followNodes watches the directories that hold the nodes of an inventory.
func followNodes(watcher *fsnotify.Watcher, root string, inv *Inventory) {
	for _, l := range inv.LPUs {
		for _, n := range l.Nodes {
			_ = watcher.Add(filepath.Join(root, path.Dir(n.Path))) // again at each scan, in case the directory was made anew
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
	health   Health // the result so far
	good     bool   // whether the latest readings are healthy
	readings int    // how many in a row are, or are not
	since    time.Time
}

// apply replaces the health that was read for each LPU by the result of this and earlier readings. Usable stays as it was read.
func (h hysteresis) apply(inv *Inventory, now time.Time) {
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		if c, known := h[l.Address]; known {
			c.add(l, now)
			l.Health = c.health
		} else {
			h[l.Address] = &condition{health: l.Health}
		}
	}
}

// add takes one more reading into account.
func (c *condition) add(l *LPU, now time.Time) {
	if good := l.Health == Healthy; good != c.good || c.readings == 0 {
		c.good, c.readings, c.since = good, 0, now
	}
	c.readings++
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
