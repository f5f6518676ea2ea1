package features

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Plan says what is to stand in the feature file.
type Plan struct {
	Path     string            // under the root; "": none is written
	Lifetime time.Duration     // for which it counts
	Network  map[string]string // labels of the node's place in the network
}

// fresh reports whether what counts until a time need not be written again yet, by the
// clock of the machine. What would count for much longer than it should was written
// before the clock was set back.
func (p *Plan) fresh(expiry, now time.Time) bool {
	const slack = time.Minute // by which clocks are corrected without anybody noticing
	left := expiry.Sub(now.Round(0))
	return left > p.Lifetime/2 && left <= p.Lifetime+slack
}

// The times of a feature file.
const (
	lookAfter  = time.Minute      // after which it is looked whether the file is still in place
	retryAfter = 10 * time.Second // after which it is tried again to write it
	hangAfter  = 10 * time.Second // after which it is said that its directory does not answer
)

// File keeps the feature file of this node in place. Everything that touches the file is
// done by one goroutine, which may hang with the directory: nothing waits for it. A hang
// lasts until the directory answers, or serve is started again; till then no other file
// that a reload names is written either.
//
// Other instances may write the same file. One writes only if the text has to be another
// one, or if the file in place does not count for long any more. So two that agree do not
// disturb each other, and of two that do not the later one wins until half of the time is
// over. No instance removes the file: one that ends does not know whether another one
// follows.
type File struct {
	root host.Root
	log  *slog.Logger
	end  func(error) // ends serve, so that it is started again
	// outOfReach returns an error that is a reason to end, if a directory cannot be
	// written from within this sandbox.
	outOfReach func(dir string) error
	now        func() time.Time
	sinceBoot  func() time.Duration

	dir     string // of the latest try; only the goroutine of the file has this and the next two
	inReach bool   // it was, when it was looked at first
	ending  bool   // end was called

	wake  chan struct{} // holds one
	start sync.Once

	mu        sync.Mutex // never held while the file is touched
	plan      Plan
	inventory *discovery.Inventory // the latest; nil as long as there is none
	machine   Machine              // shown each of them
	body      string               // what is to stand in the file
	placed    placement
	retry     time.Duration // since boot: not before, because it has failed; 0: it has not
	failure   string        // that was logged; "" if the latest try did not fail
	began     time.Duration // since boot: the try that goes on; 0: none does
	trying    string        // path of that try's plan
	pulse     node.Pulse    // of run
}

// placement is what this instance knows of the file in place.
type placement struct {
	path, body string
	expiry     time.Time
	refresh    time.Duration // since boot: when it is to be written again
}

// NewFile returns a file that is written only when it has a plan and an inventory. end is
// called once, with an error of outOfReach: the directory was made again outside of this
// sandbox, and only a new start sees it.
func NewFile(root host.Root, log *slog.Logger, end func(error), outOfReach func(dir string) error) *File {
	return &File{
		root: root, log: log, end: end, outOfReach: outOfReach, now: time.Now, sinceBoot: host.SinceBoot, wake: make(chan struct{}, 1),
	}
}

// Follow takes a plan in place of the one before. A file that the one before named stays
// until it expires.
func (f *File) Follow(ctx context.Context, plan Plan) {
	f.take(plan)
	if plan.Path != "" {
		f.start.Do(func() { go f.run(ctx) })
	}
	f.poke()
}

func (f *File) take(plan Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan, f.retry = plan, 0
	f.render()
}

// Look takes the latest inventory, which may be nil or the same again, and has the file
// written if it is time for that. It does not wait.
func (f *File) Look(inv *discovery.Inventory) {
	f.mu.Lock()
	if inv != f.inventory {
		f.inventory = inv
		f.render()
	}
	if f.began > 0 && f.sinceBoot()-f.began > hangAfter {
		f.fail(fmt.Errorf("%s: no answer for %v; no feature file is written before there is one, or serve is started again",
			f.root.Shown(f.trying), hangAfter))
	}
	due := f.due()
	f.mu.Unlock()
	if due {
		f.poke()
	}
}

// render makes the text of the file.
func (f *File) render() {
	if f.inventory != nil && f.plan.Path != "" {
		f.body = Body(f.machine.Labels(f.inventory), f.plan.Network)
	}
}

// due reports whether the file has to be written, as far as that can be known without
// looking at it.
func (f *File) due() bool {
	return f.plan.Path != "" && f.inventory != nil && f.sinceBoot() >= f.retry &&
		(f.failure != "" || f.outdated() || !f.plan.fresh(f.placed.expiry, f.now()))
}

// outdated reports whether the text has to be another one, or half of its time is over.
func (f *File) outdated() bool {
	return f.placed.body != f.body || f.placed.path != f.plan.Path || f.sinceBoot() >= f.placed.refresh
}

func (f *File) poke() {
	select {
	case f.wake <- struct{}{}:
	default: // it will look
	}
}

// run keeps the file in place until ctx ends.
func (f *File) run(ctx context.Context) {
	defer f.pulse.Rest()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-time.After(host.UntilBeat(lookAfter, f.sinceBoot())):
		}
		f.keep()
	}
}

// Alive returns an error if the goroutine of the file does not turn any more. A directory
// that does not answer is none: the log says so, the metric of the file grows old, and a
// new start would hang there again.
func (f *File) Alive() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.began > 0 {
		return nil
	}
	return f.pulse.Alive("keeps the feature file", time.Now(), 3*lookAfter)
}

// keep puts the file in place, if it is not.
func (f *File) keep() {
	f.mu.Lock()
	f.pulse.Beat(time.Now())
	plan, body, before, outdated := f.plan, f.body, f.placed, f.outdated()
	wanted := plan.Path != "" && f.inventory != nil && f.sinceBoot() >= f.retry
	if wanted {
		f.began, f.trying = f.sinceBoot(), plan.Path
	}
	f.mu.Unlock()
	if !wanted {
		return
	}
	placed, err := f.place(&plan, body, before, outdated)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began = 0
	f.pulse.Beat(time.Now()) // it may have hung for long
	if f.ending {
		return
	}
	if err != nil {
		f.fail(err)
		f.retry = f.sinceBoot() + retryAfter
		return
	}
	f.placed, f.retry = placed, 0
	if f.failure != "" || before.path != placed.path || before.body != placed.body {
		f.log.Info("the feature file is in place", "file", f.root.Shown(plan.Path), "until", placed.expiry, "labels", labelsOf(placed.body))
	}
	f.failure = ""
}

// fail logs why the file is not in place, if it is another reason than before.
func (f *File) fail(err error) {
	if text := err.Error(); text != f.failure {
		f.failure = text
		f.log.Warn("the feature file cannot be written; LPUs are served, and it is tried again", "error", err)
	}
}

// labelsOf are the labels of a text, for the log.
func labelsOf(body string) string {
	_, labels, _ := strings.Cut(body, "\n") // the first line is a comment
	return strings.Join(strings.Fields(labels), " ")
}

// place puts the file in place, and returns what is there then. It leaves what is there
// if that says the same or, unless ours is outdated, if another instance has put it
// there; provided that it counts long enough.
func (f *File) place(plan *Plan, body string, before placement, outdated bool) (placement, error) {
	// The file itself is not resolved: a link in its place is refused.
	dir, err := f.root.Resolve(path.Dir(plan.Path))
	if err != nil {
		return placement{}, err
	}
	if err := f.cutOff(dir); err != nil {
		f.ending = true
		f.end(err)
		return placement{}, err
	}
	file := filepath.Join(dir, path.Base(plan.Path))
	if err := wholefile.Refuse(file); err != nil {
		return placement{}, err
	}
	data, err := wholefile.Read(file, MaxSize)
	if err == nil {
		expiry, there, err := Split(data)
		if err == nil && plan.fresh(expiry, f.now()) && (there == body || !outdated) {
			if there == body {
				return f.placement(plan, body, expiry), nil
			}
			return before, nil
		}
	}
	wholefile.ClearOldLeftovers(file, 10*time.Minute) // another instance may be writing now
	// Truncate also takes its monotonic reading away.
	expiry := f.now().Add(plan.Lifetime).Truncate(time.Second)
	if err := wholefile.Replace(file, Text(expiry, body)); err != nil {
		return placement{}, err
	}
	return f.placement(plan, body, expiry), nil
}

// cutOff returns an error if a directory is out of reach and was not so when it was
// looked at first: it was made again outside of the sandbox, or only after serve had
// started. One that was out of reach from the start would be so again.
func (f *File) cutOff(dir string) error {
	err := f.outOfReach(dir)
	if f.dir != dir {
		f.dir, f.inReach = dir, err == nil
	}
	if !f.inReach {
		return nil
	}
	return err
}

func (f *File) placement(plan *Plan, body string, expiry time.Time) placement {
	left := expiry.Sub(f.now().Round(0))
	return placement{plan.Path, body, expiry, f.sinceBoot() + left - plan.Lifetime/2}
}

// Metrics are those of the file. There is no sample as long as there is no file.
func (f *File) Metrics() node.Metrics {
	var all node.Metrics
	written := all.Gauge("lpuctl_nfd_file_written_timestamp_seconds",
		"When the feature file in place was written, in Unix time, as far as this instance has written it or agrees with it.")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.plan.Path == "" {
		return nil
	}
	if f.placed.path == f.plan.Path {
		written.Set(float64(f.placed.expiry.Add(-f.plan.Lifetime).Unix()))
	}
	return all
}
