package discovery

import (
	"context"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// debounce is how long a watch waits after a change of /dev, because changes seldom come alone.
const debounce = 20 * time.Millisecond

// Watcher scans one machine again and again. It remembers what one scan cannot know: the health of the LPUs over time, a
// card that an earlier scan saw stays in the inventory and keeps its index when it is gone, and the cabling stays when the ring
// table breaks. Its methods may be called at the same time.
type Watcher struct {
	root      string
	sinceBoot func() time.Duration // the clock

	mu      sync.Mutex // held by Scan
	options Options
	judge   *health.Judge
	nodes   *fsnotify.Watcher // of the directories with the LPUs' nodes; nil without inotify
}

// NewWatcher makes a watcher of the machine under root. sinceBoot is the clock, such as [host.SinceBoot].
func NewWatcher(root string, options Options, sinceBoot func() time.Duration) *Watcher {
	options.readers = &readers{}
	if options.Policy == nil {
		policy := health.DefaultPolicy()
		options.Policy = &policy
	}
	return &Watcher{root: root, sinceBoot: sinceBoot, options: options, judge: health.NewJudge(*options.Policy, options.Records)}
}

// Scan takes one more reading of the machine. The error is that of [Scan]; then the watcher remembers what it knew before.
func (w *Watcher) Scan(ctx context.Context) (*Inventory, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.options.now = w.sinceBoot()
	inv, err := Scan(ctx, w.root, w.options)
	if err != nil {
		return nil, err
	}
	w.judgeAll(inv)
	w.keepSensors(inv)
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

// judgeAll replaces the health that was read for each LPU by what this and earlier readings mean together.
func (w *Watcher) judgeAll(inv *Inventory) {
	now := w.sinceBoot()
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		l.Reading.Reasons = l.Reasons
		verdict := w.judge.See(l.Address.String(), l.Name, l.Reading, now)
		l.Reasons, l.Health, l.Usable = verdict.Reasons, verdict.State, !verdict.Reasons.HasErrors()
		l.addressRemedies()
	}
	inv.Records = w.judge.Records()
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
