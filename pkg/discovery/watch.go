package discovery

import (
	"context"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// settle is how long a watch waits after a change of /dev, which seldom comes alone.
const settle = 20 * time.Millisecond

// Watch scans the machine under root every interval, and soon after its device nodes change, until ctx ends. Each
// scan is handed to deliver, with how long it took: its inventory, with the health of each LPU smoothed (see steady), or
// the error. A card that an earlier scan saw stays in the inventory and keeps its index when it is gone.
func Watch(ctx context.Context, root string, options Options, interval time.Duration, deliver func(*Inventory, time.Duration, error)) {
	options.readers = &readers{}
	health := steady{}
	var changes <-chan fsnotify.Event // a convenience: without it a change is seen at the next interval
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer func() { _ = watcher.Close() }()
		changes = watcher.Events
	}
	for {
		started := time.Now()
		inv, err := Scan(ctx, root, options)
		took := time.Since(started)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			health.smooth(inv, time.Now())
			options.known = make(map[Address]string, len(inv.LPUs))
			for i := range inv.LPUs {
				options.known[inv.LPUs[i].Address] = inv.LPUs[i].Serial // "" of one that is gone: another may come
			}
			if changes != nil {
				followNodes(watcher, root, inv)
			}
		}
		deliver(inv, took, err)
		if !wait(ctx, changes, interval) {
			return
		}
	}
}

// followNodes watches the directories that the nodes of an inventory lie in.
func followNodes(watcher *fsnotify.Watcher, root string, inv *Inventory) {
	for _, l := range inv.LPUs {
		for _, n := range l.Nodes {
			_ = watcher.Add(filepath.Join(root, path.Dir(n.Path))) // again is nothing; a directory that is gone comes back
		}
	}
}

// wait returns after the interval or soon after a change; false if ctx ended.
func wait(ctx context.Context, changes <-chan fsnotify.Event, interval time.Duration) bool {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	changed := false
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case e := <-changes:
			if !changed && e.Op&(fsnotify.Create|fsnotify.Remove|fsnotify.Rename) != 0 {
				changed = true
				timer.Reset(min(settle, interval))
			}
		}
	}
}

// How readings become a state. A card that is reset answers nothing for half a minute, which is not the end of it.
const (
	badReadings  = 2                // in a row make an LPU unhealthy, unless the reason speaks for itself
	goodReadings = 3                // in a row, over at least goodFor, make it healthy again
	goodFor      = 3 * time.Second  // see goodReadings
	grace        = 30 * time.Second // that a card may be offline, not ready or mute; its state is not known then
)

// steady smooths the health of LPUs from one inventory to the next.
type steady map[Address]*condition

// condition is what is remembered of one LPU.
type condition struct {
	health    Health // as it was told last
	bad, good int    // readings in a row
	since     time.Time
}

// smooth sets Health in an inventory. What is Usable stays as it was read.
func (s steady) smooth(inv *Inventory, now time.Time) {
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		c := s[l.Address]
		if c == nil {
			s[l.Address] = &condition{health: l.Health, since: now}
			continue
		}
		c.read(l, now)
		l.Health = c.health
	}
}

// read takes one more reading in.
func (c *condition) read(l *LPU, now time.Time) {
	if l.Health == Healthy {
		if c.good == 0 {
			c.since = now
		}
		c.good, c.bad = c.good+1, 0
		if c.health == Healthy || c.good >= goodReadings && now.Sub(c.since) >= goodFor {
			c.health = Healthy
		} else {
			l.reason(finding.Recovering, "it was not well and must stay well for a moment before it counts", "")
		}
		return
	}
	if c.bad == 0 {
		c.since = now
	}
	c.bad, c.good = c.bad+1, 0
	switch passing, atOnce := l.faults(); {
	case atOnce:
		c.health = Unhealthy
	case c.health == Unhealthy || c.bad < badReadings:
	case passing && now.Sub(c.since) < grace:
		c.health = HealthUnknown
	default:
		c.health = Unhealthy
	}
}

// faults tells whether all that is wrong may pass by itself, and whether something is that leaves no doubt.
func (l *LPU) faults() (passing, atOnce bool) {
	passing = true
	for _, r := range l.Reasons {
		switch {
		case r.Severity != finding.Error:
		case slices.Contains([]finding.ID{finding.Offline, finding.NotReady, finding.ReadStalled}, r.ID):
		case r.ID == finding.RecoveryShell:
			passing = false
		default: // gone, a dead bus, no driver, no node
			passing, atOnce = false, true
		}
	}
	return passing, atOnce
}
