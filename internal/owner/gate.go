package owner

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// What a gate that asks the kubelet takes: the kubelet names a pod that has got LPUs a
// moment after the plugin has answered, and it may be restarted.
const (
	KubeletSettle   = 5 * time.Second
	KubeletPatience = 30 * time.Second
)

// askInterval is how often the other side is asked. What two pods have is seen by it, and
// is said within five seconds.
const askInterval = 4 * time.Second

// Gate is what a program asks before it offers LPUs ([Gate.Look]) and while it hands them
// out ([Gate.Enter]). Set the fields before anything is called. All methods may be called
// at the same time.
type Gate struct {
	File File
	Me   Owner // the program that asks
	// Others returns which LPUs pods have from the other side, and by whom: "pod
	// default/a, container main". The error is that it cannot be known. It may take its
	// time, and is called by several at the same time.
	Others func(context.Context) (map[pci.Address]string, error)
	// Twice returns the LPUs that two pods have, and says of each which. It is asked
	// whichever the owner is: what another program hands out cannot always be prevented.
	// nil: it cannot be seen.
	Twice func(context.Context) (map[pci.Address]finding.Finding, error)
	// Follow is a file that changes when what Others says does; "": it is asked every
	// four seconds only.
	Follow string
	// Leased returns which LPUs a user has leased or reserved, and who: "lease l3 of
	// alice(1000)". While that cannot be known what it said before holds; if it has said
	// nothing yet, no LPU is offered. It is called by one at a time. nil: no user can.
	Leased func() (map[pci.Address]string, error)
	// LeaseFiles are files that change when what Leased says does.
	LeaseFiles []string
	// Settle is how far behind Others may be: after the owner has changed, its answers do
	// not count for so long.
	Settle time.Duration
	// Patience is how long what Others said counts while it cannot be asked. Enter does
	// not wait: it asks.
	Patience time.Duration
	// Insist: the program was started with --owner. See [Gate.Claim] and [Gate.Run].
	Insist bool
	By     string // who the program is, in the file
	Log    *slog.Logger
	// Changed is called after what Look returns has changed, perhaps by several at once.
	// It may be nil.
	Changed func()

	view atomic.Pointer[View]

	// While another program is asked no lock is held but renewing: who shows that the
	// program runs, or hands out LPUs, does not wait for a kubelet that hangs.
	renewing sync.Mutex // held for a Renew: a view is not to take the place of a later one

	looking sync.Mutex // held while the following are read or written, and for Leased
	seen    sighting
	asked   answer
	leased  map[pci.Address]string // what Leased said last; nil: nothing yet

	showing  sync.Mutex // held while the following are read or written
	presence filelock.Presence
	unshown  string // the latest error of Show that was logged
}

// sighting is when a file was seen first. A state is that of [host.State].
type sighting struct {
	state string
	at    time.Duration // since boot
}

// answer is what Others said last.
type answer struct {
	under string // state of the file
	held  map[pci.Address]string
	at    time.Duration // since boot; 0: never
}

// Look returns what was known last. It is the same pointer as long as nothing has
// changed, and never nil: before the first Renew no LPU is to be offered.
func (g *Gate) Look() *View {
	if v := g.view.Load(); v != nil {
		return v
	}
	return &View{Err: errors.New("it has not been read yet"), me: g.Me}
}

// Renew looks again, and returns what is known now.
func (g *Gate) Renew(ctx context.Context) *View {
	v, changed := g.renew(ctx)
	if changed && g.Changed != nil {
		g.Changed()
	}
	return v
}

func (g *Gate) renew(ctx context.Context) (now *View, changed bool) {
	g.renewing.Lock()
	defer g.renewing.Unlock()
	before := g.view.Load()
	if before != nil && host.Spare() != nil { // what could be read now says nothing
		return before, false
	}
	now = g.look(ctx, g.Patience)
	now.twice = g.givenTwice(ctx, before)
	if before != nil && host.IsShortage(now.Err) || now.same(before) {
		return before, false
	}
	g.view.Store(now)
	g.log(before, now)
	return now, true
}

// look is what is known now. Patience is how old an answer of Others may be if there is
// none.
func (g *Gate) look(ctx context.Context, patience time.Duration) *View {
	v, state, now := g.sight()
	if v.Mine {
		held, err := g.Others(ctx)
		v.held, v.untold = g.hear(answer{state, held, now}, err, patience)
	}
	return v
}

// sight is what the file and Leased say, in which state the file was, and when.
func (g *Gate) sight() (v *View, state string, now time.Duration) {
	g.looking.Lock()
	defer g.looking.Unlock()
	// This comes before the file is read: if it changes meanwhile, the next look sees
	// another state.
	state = host.State(g.File.Path())
	v = &View{me: g.Me}
	v.Record, v.Err = g.File.Read()
	v.Mine = v.Err == nil && v.Record.Owner == g.Me
	if g.Leased != nil {
		leased, err := g.Leased()
		if err == nil {
			g.leased = leased
		} else if g.leased == nil {
			v.unread = err
		}
		v.leased = g.leased
	}
	now = host.SinceBoot()
	if !v.Mine {
		return v, state, now
	}
	if g.seen.state != state || g.seen.at == 0 {
		g.seen = sighting{state, now}
	}
	v.unsettled = g.unsettled(v.Record, now)
	return v, state, now
}

// hear takes an answer of Others, and returns what pods have. If there is none, that is
// what it said last, where that is not older than patience.
func (g *Gate) hear(said answer, err error, patience time.Duration) (map[pci.Address]string, error) {
	g.looking.Lock()
	defer g.looking.Unlock()
	switch {
	case err == nil:
		if said.at >= g.asked.at { // another one may have asked since
			g.asked = said
		}
		return said.held, nil
	case g.asked.at > 0 && g.asked.under == said.under && said.at-g.asked.at <= patience:
		return g.asked.held, nil
	}
	return said.held, err
}

// givenTwice are the LPUs that two pods have. The kubelet does not name all pods at one
// moment, so they are those of two answers. What was so before stays so while there is
// none.
func (g *Gate) givenTwice(ctx context.Context, before *View) map[pci.Address]finding.Finding {
	if g.Twice == nil {
		return nil
	}
	twice, err := g.Twice(ctx)
	if err == nil && len(twice) > 0 {
		var again map[pci.Address]finding.Finding
		again, err = g.Twice(ctx)
		maps.DeleteFunc(twice, func(a pci.Address, _ finding.Finding) bool { return again[a].ID == "" })
	}
	if err != nil && before != nil {
		return before.twice
	}
	return twice
}

// unsettled is how long answers of the other side do not count yet. A record that does
// not say when it was written, or says nonsense, is as old as it has been seen.
func (g *Gate) unsettled(r Record, now time.Duration) time.Duration {
	if r.Since.IsZero() && r.Owner == Plugin { // there is no file, so nothing has changed
		return 0
	}
	age := now - g.seen.at
	if boot := host.Now().Boot; r.Moment.Boot != "" && boot != "" && r.Moment.SinceBoot <= now {
		if r.Moment.Boot != boot {
			return 0
		}
		age = now - r.Moment.SinceBoot
	}
	return max(0, g.Settle-age)
}

// log says what has changed.
func (g *Gate) log(before, now *View) {
	g.logTwice(before, now)
	switch why := now.All(); {
	case why != nil && (before == nil || before.All() == nil || before.All().Message != why.Message):
		g.Log.Warn("no LPU is offered", "id", why.ID, "reason", why.Message, "remedy", why.Remedy)
	case why == nil && before != nil && before.All() != nil:
		g.Log.Info("LPUs are offered", "owner", string(now.Record.Owner), "heldByOther", len(now.held))
	}
}

func (g *Gate) logTwice(before, now *View) {
	if before == nil {
		before = &View{}
	}
	for a, f := range now.twice {
		if before.twice[a] != f {
			g.Log.Error("an LPU is given twice", "id", f.ID, "lpu", a.String(), "reason", f.Message, "remedy", f.Remedy)
		}
	}
	for a := range before.twice {
		if now.twice[a].ID == "" {
			g.Log.Info("an LPU is not given twice any more", "lpu", a.String())
		}
	}
}

// Claim writes the owner, for a program that was started with --owner. The error is that
// it cannot be written, and is not so already.
func (g *Gate) Claim(ctx context.Context) error {
	_ = g.show() // before: the other one is not to take us for ended
	before, err := g.File.Set(ctx, g.Me, g.By, true)
	if now, readErr := g.File.Read(); err != nil && readErr == nil && now.Owner == g.Me {
		return nil // there is no file, and none can be written: it is the plugin all the same
	}
	if err == nil && before.Owner != g.Me {
		g.Log.Info("took over the LPUs of this node", "owner", string(g.Me), "before", string(before.Owner))
	}
	return err
}

// Show shows others that the program runs and has seen the LPUs of this node. It is
// called again and again: another program may have removed the file. Where it cannot be
// shown pods are served all the same, and the log says so once.
func (g *Gate) Show() {
	err := g.show()
	g.showing.Lock()
	defer g.showing.Unlock()
	if said := text(err); said != g.unshown {
		g.unshown = said
		if err != nil {
			g.Log.Warn("others cannot see that "+g.Me.Program()+" runs: leases, allocate, exporter and owner show", "error", err)
		}
	}
}

// show shows others that the program runs. Where it cannot, the other one takes us for
// ended, and still nothing is given twice.
func (g *Gate) show() error {
	g.showing.Lock()
	defer g.showing.Unlock()
	if g.presence.Path == "" {
		g.presence = g.File.presence(g.Me)
	}
	return g.presence.Show()
}

// note notes when the program handed out LPUs last: the kubelet names the pod a moment
// after, and the program may have ended by then.
func (g *Gate) note() {
	g.showing.Lock()
	defer g.showing.Unlock()
	_ = g.presence.Note(noteOf(host.Now())) // as show
}

// Run keeps the view up to date until ctx ends; then the program is not shown any more. A
// program that insists writes itself in again if the other one did so at its start, and
// has ended since: a pod that is about to be removed may start once more before it goes.
// What a user has written by command stays.
func (g *Gate) Run(ctx context.Context) {
	changes := make(chan struct{}, 1)
	var following sync.WaitGroup
	following.Go(func() {
		host.Follow(ctx, func() {
			select {
			case changes <- struct{}{}:
			default: // one look sees all changes
			}
		}, append([]string{g.File.Path(), g.Follow}, g.LeaseFiles...)...)
	})
	defer following.Wait()
	logged := ""
	for ctx.Err() == nil {
		v := g.Renew(ctx)
		if g.Insist && g.show() == nil {
			said := text(g.reclaim(ctx, v))
			if said != logged && said != "" {
				g.Log.Error("the owner of the LPUs cannot be written", "error", said)
			}
			logged = said
		}
		wait := host.UntilBeat(askInterval, host.SinceBoot())
		if v.unsettled > 0 {
			wait = min(wait, v.unsettled)
		}
		select {
		case <-ctx.Done():
		case <-changes:
		case <-time.After(wait):
		}
	}
	g.showing.Lock()
	defer g.showing.Unlock()
	g.presence.Hide()
}

func (g *Gate) reclaim(ctx context.Context, v *View) error {
	if v.Mine || v.Err != nil || !v.Record.AtStart {
		return nil
	}
	if runs, err := g.File.Runs(g.Me.Other()); runs || err != nil {
		return nil //nolint:nilerr // where it cannot be seen it may run
	}
	return g.Claim(ctx)
}

// Refusal is why LPUs are not handed out.
type Refusal struct{ finding.Finding }

func (r *Refusal) Error() string {
	said := r.Message
	if r.Subject != "" {
		said = r.Subject + ": " + said
	}
	return said + "; " + r.Remedy
}

// Enter is called before LPUs are handed out, and leave after. In between the owner does
// not change, and no program on the other side hands out LPUs. The error is a *Refusal,
// or that the lock cannot be had.
func (g *Gate) Enter(ctx context.Context, lpus []pci.Address) (leave func(), err error) {
	lock, err := g.hold(ctx)
	if err != nil {
		return nil, err
	}
	_ = g.show() // before: who looks whether a program hands out LPUs is not to miss it
	leave = func() {
		g.note()
		_ = lock.Close() // of none it is an error, which does not matter
	}
	if err := g.Ask(ctx, lpus); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return leave, nil
}

// hold takes the lock. The plugin goes on without it where there can be none, as on a
// file system that is read-only: it writes nothing, and the driver counts nothing of what
// it sees until [KubeletSettle] has passed. The driver cannot go on: it has to write.
func (g *Gate) hold(ctx context.Context) (*os.File, error) {
	lock, err := filelock.Hold(ctx, g.File.Path())
	if err != nil && g.Me == Plugin && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return nil, nil //nolint:nilnil // no lock, and no reason not to go on
	}
	return lock, err
}

// Ask returns an error as Enter does, by what is so now. It is for who has entered,
// immediately before the LPUs are handed out: what a program gives away that does not
// know the lock is seen up to this moment.
func (g *Gate) Ask(ctx context.Context, lpus []pci.Address) error {
	v := g.look(ctx, -1)
	if why := v.All(); why != nil {
		return &Refusal{*why}
	}
	for _, a := range lpus {
		if why := v.Finding(a); why != nil {
			why.Subject = a.String()
			return &Refusal{*why}
		}
	}
	return nil
}
