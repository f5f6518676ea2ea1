// Package launch starts a program, or a container by the program of its runtime, with LPUs
// of its own.
package launch

import (
	"cmp"
	"context"
	"errors"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/isolate"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Options are how a command is launched.
type Options struct {
	Wait         time.Duration // how long to wait for LPUs; 0: not at all
	Limit        time.Duration // how long the command may run; 0: for ever
	Memlock      uint64        // bytes that the command should be able to lock
	MemlockGiven bool          // Memlock is what the user wants
	NoLease      bool          // do not ask the arbiter
	NoIsolation  bool          // a plain program can open the nodes of all LPUs
	DryRun       bool          // start nothing
}

// Job is a command that is launched with LPUs.
type Job struct {
	Site
	Options

	Args    []string // the command
	Environ []string // as NAME=VALUE, of this process

	// Scan reads the machine.
	Scan func(context.Context) (*discovery.Inventory, error)
	// Select returns what is wished as the arbiter reads it.
	Select func(*discovery.Inventory) (lease.Selection, error)
	// Look reads the machine for a launch without a lease, and returns what is wished.
	Look func(context.Context) (*discovery.Inventory, allocate.Wish, error)
	// Decide chooses LPUs.
	Decide func(*discovery.Inventory, allocate.Wish) (*allocate.Decision, error)
	// Show shows what would be done, for DryRun.
	Show func(*Plan) error
}

// Run launches the command with LPUs. It returns only when nothing runs any more: with
// [Ended], or why the command was not started.
func (j *Job) Run(ctx context.Context) error {
	err := j.run(ctx)
	if ctx.Err() != nil && !errors.As(err, new(Ended)) {
		return interrupted(ctx)
	}
	return err
}

func (j *Job) run(ctx context.Context) error {
	image := askImage(j.Args) // before there is a lease that the runtime could inherit
	held, err := j.hold()
	if err != nil {
		return err
	}
	defer held.end()
	start, err := j.starter()
	if err != nil {
		return err
	}
	g, err := j.grant(ctx, held)
	if err != nil {
		return err
	}
	if err := j.bindLimited(held, g.until); err != nil {
		return err
	}
	plan, err := j.plan(g, held, image)
	if err != nil {
		return err
	}
	if j.DryRun {
		return j.Show(plan)
	}
	path, err := j.find(j.Args[0])
	if err != nil {
		return err
	}
	p := &isolate.Program{
		Path: path, Args: plan.Command, Env: withVariables(j.Environ, plan.Env), Isolated: plan.Isolated, Dev: plan.dev, Hidden: plan.Hidden,
		Covers: plan.covers, Name: discovery.HiddenBy,
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	j.warnOfMemlock()
	limit := j.Limit
	if g.until > 0 { // perhaps earlier than was asked for: what a user may have is limited
		limit = max(g.until-host.SinceBoot(), time.Nanosecond)
	}
	if limit == 0 && !held.byID() && !p.NeedsChild() {
		signal.Reset() // what was ignored before is ignored by the command too
		return p.Exec()
	}
	return held.bound(func(ended <-chan string) error {
		return j.supervise(func() (int, error) { return start(p) }, limit, ended)
	})
}

// interrupted is the end by a signal before anything was started.
func interrupted(ctx context.Context) error {
	if strings.HasPrefix(context.Cause(ctx).Error(), unix.SIGTERM.String()) {
		return Ended(exitSignal + unix.SIGTERM)
	}
	return Ended(exitSignal + unix.SIGINT)
}

// grant is the LPUs that a command gets.
type grant struct {
	inv       *discovery.Inventory
	lpus      []string      // names in ring order
	connected *bool         // as in allocate.Decision
	until     time.Duration // when the time of the lease is over, since boot; 0: never
}

// starter settles what the command inherits, and returns how it is started as a child. An
// isolated one is prepared while LPUs are chosen, unless it has to wait for them.
func (j *Job) starter() (func(*isolate.Program) (pid int, err error), error) {
	if j.DryRun {
		return nil, nil
	}
	if err := j.raiseMemlock(); err != nil {
		return nil, err
	}
	if p := (isolate.Program{Isolated: j.isolates()}); j.Wait > 0 || !p.NeedsChild() {
		return (*isolate.Program).Start, nil
	}
	child, err := isolate.Prepare()
	if err != nil {
		return nil, err
	}
	return child.Start, nil
}

// pollEvery is how often run looks for free LPUs that it waits for without a lease.
const pollEvery = 2 * time.Second

// grant gets LPUs from the arbiter or, without one, chooses them as allocate does. Then,
// if it is to wait, it looks again and again, until there are some.
func (j *Job) grant(ctx context.Context, held *heldLease) (*grant, error) {
	if held != nil {
		return j.lease(ctx, held.client)
	}
	var end time.Time
	for told := ""; ; {
		inv, wish, err := j.Look(ctx)
		if err := cmp.Or(err, nested(inv)); err != nil {
			return nil, err
		}
		decision, refused := j.Decide(inv, wish)
		if refused == nil {
			j.Report(inv.Problems)
			return &grant{inv: inv, lpus: decision.LPUs, connected: decision.Connected}, nil
		}
		if end.IsZero() {
			end = time.Now().Add(j.Wait)
		}
		if j.Wait == 0 || time.Now().After(end) || !possible(inv, wish) {
			j.Report(inv.Problems)
			return nil, refused
		}
		if why := refused.Error(); why != told {
			j.Say("waiting: %s", why)
			told = why
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(min(pollEvery, time.Until(end))):
		}
	}
}

// nested returns an error if this process was started by lpuctl run, which hides LPUs from
// it: a command could not open others than those that it has already.
func nested(inv *discovery.Inventory) error {
	if inv == nil || !slices.ContainsFunc(inv.LPUs, func(l discovery.LPU) bool { return l.IsHidden() }) {
		return nil
	}
	return refuse("start the command without lpuctl run, or from another shell",
		"lpuctl run started this shell or program, and hides LPUs from it")
}

// possible reports whether a wish could be fulfilled if all LPUs were free and healthy.
func possible(inv *discovery.Inventory, w allocate.Wish) bool {
	w.Free = nil
	for card := range inv.LPUs {
		w.Free = append(w.Free, card)
	}
	_, err := allocate.Decide(inv, inv.Cabled(), w)
	return err == nil && len(inv.LPUs) > 0
}
