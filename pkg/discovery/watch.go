package discovery

import (
	"context"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/uevent"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// debounce is how long a watch waits after a change of /dev, because changes seldom come
// alone.
const debounce = 20 * time.Millisecond

// fullPeriod is how often a watcher reads all of the machine, though a glance shows no
// change: counters, sensors, the whole of a link.
const fullPeriod = 10 * time.Second

// Watcher scans one machine again and again. It remembers what one scan cannot know: the
// health of the LPUs over time, a card that an earlier scan saw stays in the inventory
// and keeps its index when it is gone, and the cabling stays when the ring table breaks.
// Its methods may be called at the same time.
type Watcher struct {
	root      string
	sinceBoot func() time.Duration // the clock
	prober    prober
	nodes     *fsnotify.Watcher // of the directories with the LPUs' nodes; nil without inotify

	ours     atomic.Pointer[map[pci.Address]bool] // the LPUs, for the listener
	listener atomic.Pointer[uevent.Listener]      // nil where uevents cannot be had

	mu       sync.Mutex // held by Scan
	options  Options
	judge    *health.Judge
	latest   *Inventory    // of the latest scan; nil before the first
	seen     string        // the glance before it
	glanced  time.Duration // how long the latest glance took that ended in time
	silent   bool          // something has changed without a uevent
	complete time.Duration // when all was read last because it was time to
	probed   time.Duration // when the configuration spaces were read last
}

// NewWatcher makes a watcher of the machine under root. sinceBoot is the clock, such as
// [host.SinceBoot].
func NewWatcher(root string, options Options, sinceBoot func() time.Duration) *Watcher {
	options.complete()
	options.cards = &cards{all: map[pci.Address]*card{}, answered: make(chan struct{}, 1)}
	return &Watcher{root: root, sinceBoot: sinceBoot, options: options, judge: health.NewJudge(*options.Policy, options.Records)}
}

// Scan takes one more reading of the machine. If a glance shows that nothing has changed,
// and no health is in doubt, it returns the inventory of the scan before for up to ten
// seconds. The error is that of [Scan]; then the watcher remembers what it knew before.
func (w *Watcher) Scan(ctx context.Context) (*Inventory, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, seen, cards := w.sinceBoot(), "", w.options.cards
	if w.latest != nil {
		var err error
		if seen, err = w.glance(ctx); err != nil {
			cards.want()
			return nil, err
		}
	}
	changed := seen == "" || seen != w.seen || cards.wanted()
	if _, unsettled := w.judge.Next(now); unsettled || now-w.complete >= fullPeriod || w.prober.news() {
		cards.want()
	} else if !changed {
		return w.latest, nil
	}
	w.options.now, w.options.probes = now, w.prober.known(w.options.CardDeadline)
	inv, err := Scan(ctx, w.root, w.options)
	if err != nil {
		cards.want() // what was read of them is in no inventory
		return nil, err
	}
	w.judgeAll(inv, now)
	w.listen(inv)
	w.keepSensors(inv)
	w.options.known = make(map[pci.Address]string, len(inv.LPUs))
	for _, l := range inv.LPUs {
		// It is "" if the card is gone, because another card may come in its place.
		w.options.known[l.Address] = l.Serial
	}
	if table := inv.LastRing(); table != nil {
		w.options.LastRing, _ = ring.Parse(LastRingTable, table)
	}
	w.followNodes(inv)
	if changed || now-w.probed >= fullPeriod {
		w.probed = now
		w.prober.start(w.root, inv)
	}
	if now-w.complete >= fullPeriod {
		w.complete = now
		w.release(ctx, inv, now)
	}
	w.latest, w.seen = inv, seen
	return inv, nil
}

// judgeAll replaces the health that was read for each LPU by what this and earlier
// readings mean together.
func (w *Watcher) judgeAll(inv *Inventory, now time.Duration) {
	inv.Judge(w.judge, now)
	for _, a := range slices.SortedFunc(maps.Keys(inv.Ports), pci.Address.Compare) {
		port := a.String()
		for _, f := range w.judge.See("port "+port, port, inv.Ports[a], now).Reasons {
			if f.ID == finding.AERFatal || f.ID == finding.AERNonFatal || f.ID == finding.AERCorrectable {
				inv.Problems.Add(finding.PortErrors, port, f.Message, "")
			}
		}
	}
	inv.Records = w.judge.Records()
}

// Judge replaces the health that was read for each LPU by what a judge makes of it, who
// remembers earlier readings. now is the time since boot.
func (inv *Inventory) Judge(judge *health.Judge, now time.Duration) {
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		l.Reading.Reasons, l.Reading.Nodes = l.Reasons, nil
		for _, n := range l.Nodes {
			l.Reading.Nodes = append(l.Reading.Nodes, n.Path)
		}
		verdict := judge.See(l.Address.String(), l.Name, l.Reading, now)
		l.Reasons, l.Health, l.Usable = verdict.Reasons, verdict.State, !verdict.Reasons.HasErrors()
		l.addressRemedies()
	}
	inv.markDeadLinks()
}

// Run calls look at once, then every interval, and soon after the device nodes change or
// the kernel tells of an LPU, until ctx ends. look is to call Scan, which says where the
// nodes are.
func (w *Watcher) Run(ctx context.Context, interval time.Duration, look func()) {
	var changes <-chan fsnotify.Event // nil without inotify: then the next interval shows a change
	// Changes that inotify could not tell, such as an overflow of its queue.
	var missed <-chan error
	if nodes, err := fsnotify.NewWatcher(); err == nil {
		defer func() { _ = nodes.Close() }()
		changes, missed = nodes.Events, nodes.Errors
		w.mu.Lock()
		w.nodes = nodes
		w.mu.Unlock()
	}
	events := w.startListening(ctx)
	for ctx.Err() == nil {
		began := w.sinceBoot()
		look()
		if !w.wait(ctx, changes, missed, events, w.pause(interval, began)) {
			return
		}
	}
}

// pause is until the next beat of the interval or, if the grace of an LPU ends before
// that, until then. began is when the latest look did: it has not seen the end of a grace
// that ended while it went on.
func (w *Watcher) pause(interval, began time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.sinceBoot()
	pause := host.UntilBeat(interval, now)
	// In this case an event has had the machine looked at just now, and more events may
	// follow.
	if now+pause-began < interval/5 {
		pause += interval
	}
	if at, _ := w.judge.Next(began); at > 0 {
		return min(pause, max(0, at-now))
	}
	return pause
}

// followNodes watches the directories that hold the nodes of an inventory.
func (w *Watcher) followNodes(inv *Inventory) {
	if w.nodes == nil {
		return
	}
	for _, l := range inv.LPUs {
		for _, n := range l.Nodes {
			// Again at each scan, in case the directory was made again.
			_ = w.nodes.Add(filepath.Join(w.root, path.Dir(n.Path)))
		}
	}
}

// wait returns after the interval or soon after a change; false if ctx ended. Errors are
// received too, because the watcher tells nothing more until they are.
func (w *Watcher) wait(
	ctx context.Context, changes <-chan fsnotify.Event, missed <-chan error, events <-chan uevent.Event, interval time.Duration,
) bool {
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
		case <-w.options.cards.answered:
			hasChanged = true
		case e, ok := <-events:
			if !ok { // ctx ends
				events = nil
			}
			hasChanged = ok
			w.take(e)
		}
		if hasChanged && !changed {
			changed = true
			expired = time.After(min(debounce, interval))
		}
	}
}
