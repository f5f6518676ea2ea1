// Package watch scans one machine again and again, and remembers what one scan cannot know.
package watch

import (
	"cmp"
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
	"github.com/hyperaccel/lpuctl/pkg/discovery"
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

// Patience is a good [Options.Patience]: several times as long as the reads of a card
// take, and too short to delay anybody. On a machine that is slower a watcher waits for
// four times as long as a card took before.
const Patience = 10 * time.Millisecond

// Options are the options of a watcher.
type Options struct {
	Scan discovery.Options // of each scan; the watcher has its own Memory
	// Patience is how long a watcher waits for a card that it has read before. A card
	// that takes longer stays as it was until it has answered, or until its deadline is
	// over. 0: the deadline.
	Patience time.Duration
	// Records are what serve remembered of the health of LPUs before it was started
	// again, by PCI address.
	Records map[string]health.Record
}

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
	options  discovery.Options
	cards    *cards
	judge    *health.Judge
	latest   *discovery.Inventory // of the latest scan; nil before the first
	seen     string               // the glance before it
	glanced  time.Duration        // how long the latest glance took that ended in time
	silent   bool                 // something has changed without a uevent
	complete time.Duration        // when all was read last because it was time to
	probed   time.Duration        // when the configuration spaces were read last
}

// New returns a watcher of the machine under root. sinceBoot is the clock, such as
// [host.SinceBoot].
func New(root string, options Options, sinceBoot func() time.Duration) *Watcher {
	scan := options.Scan
	scan.Complete()
	cards := &cards{
		patience: cmp.Or(options.Patience, scan.CardDeadline), deadline: scan.CardDeadline,
		all: map[pci.Address]*card{}, answered: make(chan struct{}, 1),
	}
	scan.Memory = cards
	return &Watcher{
		root: root, sinceBoot: sinceBoot, options: scan, cards: cards, judge: health.NewJudge(*scan.Policy, options.Records),
	}
}

// Scan takes one more reading of the machine. If a glance shows that nothing has changed,
// and no health is in doubt, it returns the inventory of the scan before for up to ten
// seconds. The error is that of
// [discovery.Scan]; then the watcher remembers what it knew before.
func (w *Watcher) Scan(ctx context.Context) (*discovery.Inventory, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, seen, cards := w.sinceBoot(), "", w.cards
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
	cards.now, cards.probes = now, w.prober.known(w.options.CardDeadline)
	inv, err := discovery.Scan(ctx, w.root, w.options)
	if err != nil {
		cards.want() // what was read of them is in no inventory
		return nil, err
	}
	w.judgeAll(inv, now)
	w.listen(inv)
	cards.keep(inv, w.options.Policy)
	w.options.Seen = nil
	for i := range inv.LPUs {
		w.options.Seen = append(w.options.Seen, inv.LPUs[i].Address)
	}
	if table := inv.LastRing(); table != nil {
		w.options.LastRing, _ = ring.Parse(discovery.LastRingTable, table)
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

// LeaveSensors says whether the next scans leave the sensors of the cards alone, because
// another program reads them. When they are left no longer, the next scan reads them.
func (w *Watcher) LeaveSensors(leave bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.options.Unsensed && !leave {
		w.cards.want()
	}
	w.options.Unsensed = leave
}

// judgeAll replaces the health that was read for each LPU by what this and earlier
// readings mean together.
func (w *Watcher) judgeAll(inv *discovery.Inventory, now time.Duration) {
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
func (w *Watcher) followNodes(inv *discovery.Inventory) {
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
		case <-w.cards.answered:
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
