package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/features"
	"github.com/hyperaccel/lpuctl/pkg/node"
)

// node is the name of this node in the cluster, and where it is from. Without --node-name it is what a kubelet without
// --hostname-override takes: the host name in lower case. In a pod that is the name of the pod.
func (a *app) node() (name, from string) {
	if a.NodeName != "" {
		return a.NodeName, "--node-name"
	}
	name, _ = os.Hostname() // "" matches no entry
	return strings.ToLower(strings.TrimSpace(name)), "the host name"
}

// network returns the labels that the config file has for this node, and which entry has them: "config.yaml:7"; "" if none has. The error
// is that several do.
func (a *app) network() (labels map[string]string, entry string, err error) {
	name, from := a.node()
	place := func(i int) string { return a.Config.Origin(fmt.Sprint("topology.", i)) }
	labels, i, err := a.Config.Topology.Labels(name)
	if both, ok := errors.AsType[*features.AmbiguousError](err); ok {
		return nil, "", cli.Fail(cli.ExitFailed, "change nodes of one of them, so that it does not match "+name,
			"topology: two entries match node %s (by %s): those of %s and %s", name, from, place(both.First), place(both.Second))
	}
	if i >= 0 {
		entry = place(i)
	}
	return labels, entry, err
}

// featurePlan says what is to stand in which feature file.
type featurePlan struct {
	path     string // under the root; "": none is written
	lifetime time.Duration
	network  map[string]string // labels of the node's place in the network
}

// checkNetwork returns an error if it cannot be told which labels of the network the feature file of a configuration has.
func (a *app) checkNetwork(c cli.ServeConfig) (err error) {
	if c.NFD != "" {
		_, _, err = a.network()
	}
	return err
}

// featurePlan is the plan of a configuration. If two entries of topology match this node the file in place is left as it is, so that a
// start does not take the node out of its topology at once, and the log says so: no LPU is withheld for that.
func (a *app) featurePlan(c cli.ServeConfig) featurePlan {
	lifetime, _ := time.ParseDuration(c.NFDExpiry) // check has seen that it is one
	if c.NFD == "" {
		return featurePlan{}
	}
	network, entry, err := a.network()
	name, from := a.node()
	switch {
	case err != nil:
		a.Log.Error("it is not known where in the network the node is: the feature file stays as it is, and its LPUs are served", "error", err)
		return featurePlan{}
	case len(a.Config.Topology) == 0:
	case entry == "":
		a.Log.Warn("no entry of topology in the config file matches this node", "node", name, "name is from", from)
	default:
		a.Log.Info("the place in the network", "node", name, "name is from", from, "entry", entry)
	}
	return featurePlan{c.NFD, lifetime, network}
}

// fresh tells whether what counts until a time need not be written again yet, by the clock of the machine. What would count for much
// longer than it should was written before the clock was set back.
func (p *featurePlan) fresh(expiry, now time.Time) bool {
	const slack = time.Minute // by which clocks are corrected without anybody noticing
	left := expiry.Sub(now.Round(0))
	return left > p.lifetime/2 && left <= p.lifetime+slack
}

// The times of a feature file.
const (
	featureLook  = time.Minute      // after which it is looked whether the file is still in place
	featureRetry = 10 * time.Second // after which it is tried again to write it
	featureHang  = 10 * time.Second // after which it is said that its directory does not answer
)

// featureFile keeps the feature file of this node in place. Everything that touches the file is done by one goroutine, which may hang with
// the directory: nothing waits for it. A hang lasts until the directory answers, or serve is started again; till then no other file that a
// reload names is written either.
//
// Other instances may write the same file. One writes only if the text has to be another one, or if the file in place does not count for
// long any more. So two that agree do not disturb each other, and of two that do not the later one wins until half of the time is over.
// Nobody removes the file: an instance that ends cannot tell whether another one follows.
type featureFile struct {
	root      host.Root
	log       *slog.Logger
	end       func(error) // ends serve, so that it is started again
	now       func() time.Time
	sinceBoot func() time.Duration

	dir     string // of the latest try; only the goroutine of the file has this and the next two
	inReach bool   // it was, when it was looked at first
	ending  bool   // end was called

	wake  chan struct{} // holds one
	start sync.Once

	mu        sync.Mutex // never held while the file is touched
	plan      featurePlan
	inventory *discovery.Inventory // the latest; nil as long as there is none
	machine   features.Machine     // shown each of them
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

func newFeatureFile(root host.Root, log *slog.Logger, end func(error)) *featureFile {
	return &featureFile{root: root, log: log, end: end, now: time.Now, sinceBoot: host.SinceBoot, wake: make(chan struct{}, 1)}
}

// follow takes a plan in place of the one before. A file that the one before named stays until it expires.
func (f *featureFile) follow(ctx context.Context, plan featurePlan) {
	f.take(plan)
	if plan.path != "" {
		f.start.Do(func() { go f.run(ctx) })
	}
	f.poke()
}

func (f *featureFile) take(plan featurePlan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan, f.retry = plan, 0
	f.render()
}

// look takes the latest inventory, which may be nil or the same again, and has the file written if it is time for that. It does not wait.
func (f *featureFile) look(inv *discovery.Inventory) {
	f.mu.Lock()
	if inv != f.inventory {
		f.inventory = inv
		f.render()
	}
	if f.began > 0 && f.sinceBoot()-f.began > featureHang {
		f.fail(fmt.Errorf("%s: no answer for %v; no feature file is written before there is one, or serve is started again",
			f.root.Shown(f.trying), featureHang))
	}
	due := f.due()
	f.mu.Unlock()
	if due {
		f.poke()
	}
}

// render makes the text of the file.
func (f *featureFile) render() {
	if f.inventory != nil && f.plan.path != "" {
		f.body = features.Body(f.machine.Labels(f.inventory), f.plan.network)
	}
}

// due tells whether the file has to be written, as far as that can be told without looking at it.
func (f *featureFile) due() bool {
	return f.plan.path != "" && f.inventory != nil && f.sinceBoot() >= f.retry &&
		(f.failure != "" || f.outdated() || !f.plan.fresh(f.placed.expiry, f.now()))
}

// outdated tells whether the text has to be another one, or half of its time is over.
func (f *featureFile) outdated() bool {
	return f.placed.body != f.body || f.placed.path != f.plan.path || f.sinceBoot() >= f.placed.refresh
}

func (f *featureFile) poke() {
	select {
	case f.wake <- struct{}{}:
	default: // it will look
	}
}

// run keeps the file in place until ctx ends.
func (f *featureFile) run(ctx context.Context) {
	defer f.pulse.Rest()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-time.After(host.UntilBeat(featureLook, f.sinceBoot())):
		}
		f.keep()
	}
}

// Alive returns an error if the goroutine of the file does not turn any more. A directory that does not answer is none: the log says so,
// the metric of the file grows old, and a new start would hang there again.
func (f *featureFile) Alive() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.began > 0 {
		return nil
	}
	return f.pulse.Alive("keeps the feature file", time.Now(), 3*featureLook)
}

// keep puts the file in place, if it is not.
func (f *featureFile) keep() {
	f.mu.Lock()
	f.pulse.Beat(time.Now())
	plan, body, before, outdated := f.plan, f.body, f.placed, f.outdated()
	wanted := plan.path != "" && f.inventory != nil && f.sinceBoot() >= f.retry
	if wanted {
		f.began, f.trying = f.sinceBoot(), plan.path
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
		f.retry = f.sinceBoot() + featureRetry
		return
	}
	f.placed, f.retry = placed, 0
	if f.failure != "" || before.path != placed.path || before.body != placed.body {
		f.log.Info("the feature file is in place", "file", f.root.Shown(plan.path), "until", placed.expiry, "labels", labelsOf(placed.body))
	}
	f.failure = ""
}

// fail logs why the file is not in place, if it is another reason than before.
func (f *featureFile) fail(err error) {
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

// place puts the file in place, and returns what is there then. It leaves what is there if that says the same or, unless ours is outdated,
// if another instance has put it there; provided that it counts long enough.
func (f *featureFile) place(plan *featurePlan, body string, before placement, outdated bool) (placement, error) {
	// The file itself is not resolved: a link in its place is refused.
	dir, err := f.root.Resolve(path.Dir(plan.path))
	if err != nil {
		return placement{}, err
	}
	if err := f.cutOff(dir); err != nil {
		f.ending = true
		f.end(err)
		return placement{}, err
	}
	file := filepath.Join(dir, path.Base(plan.path))
	if err := wholefile.Refuse(file); err != nil {
		return placement{}, err
	}
	data, err := wholefile.Read(file, features.MaxSize)
	if err == nil {
		expiry, there, err := features.Split(data)
		if err == nil && plan.fresh(expiry, f.now()) && (there == body || !outdated) {
			if there == body {
				return f.placement(plan, body, expiry), nil
			}
			return before, nil
		}
	}
	wholefile.ClearOldLeftovers(file, 10*time.Minute)          // another instance may be writing now
	expiry := f.now().Add(plan.lifetime).Truncate(time.Second) // which also takes its monotonic reading away
	if err := wholefile.Replace(file, features.File(expiry, body)); err != nil {
		return placement{}, err
	}
	return f.placement(plan, body, expiry), nil
}

// cutOff returns an error if a directory is out of reach and was not so when it was looked at first: it was made anew outside of the
// sandbox, or only after serve had started. One that was out of reach from the start would be so again.
func (f *featureFile) cutOff(dir string) error {
	err := cli.OutOfReach(dir)
	if f.dir != dir {
		f.dir, f.inReach = dir, err == nil
	}
	if !f.inReach {
		return nil
	}
	return err
}

func (f *featureFile) placement(plan *featurePlan, body string, expiry time.Time) placement {
	left := expiry.Sub(f.now().Round(0))
	return placement{plan.path, body, expiry, f.sinceBoot() + left - plan.lifetime/2}
}

// metrics are those of the file. There is no sample as long as there is no file.
func (f *featureFile) metrics() []*node.Metric {
	written := node.NewMetric("gauge", "lpuctl_nfd_file_written_timestamp_seconds",
		"When the feature file in place was written, in Unix time, as far as this instance has written it or agrees with it.")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.plan.path == "" {
		return nil
	}
	if f.placed.path == f.plan.path {
		written.Set(float64(f.placed.expiry.Add(-f.plan.lifetime).Unix()))
	}
	return []*node.Metric{written}
}
