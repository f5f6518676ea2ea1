package owner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/plant"
)

type (
	address = pci.Address
	holders = map[address]string
)

var (
	one = address{Bus: 0x43, Function: 1}
	two = address{Bus: 0x44, Function: 1}
)

// told is what the other side says. It may be changed at any time.
type told struct {
	sync.Mutex

	held  holders
	err   error
	asked int
}

func (o *told) ask(context.Context) (holders, error) {
	o.Lock()
	defer o.Unlock()
	o.asked++
	return maps.Clone(o.held), o.err
}

func (o *told) say(held holders, err error) {
	o.Lock()
	defer o.Unlock()
	o.held, o.err = held, err
}

// gate is a gate of a file, and what its other side says. That of the driver settles at once.
func gate(t *testing.T, f File, me Owner) (*Gate, *told) {
	t.Helper()
	o := &told{}
	g := &Gate{File: f, Me: me, Others: o.ask, By: "test", Log: slog.New(slog.DiscardHandler)}
	if me == DRA {
		g.Settle, g.Patience = time.Nanosecond, KubeletPatience
	}
	return g, o
}

// why wants the reason why an LPU is not offered, and not handed out, to contain a text, or to be "".
func why(t *testing.T, g *Gate, a address, want string) {
	t.Helper()
	got := g.Renew(t.Context()).Why(a)
	if !strings.Contains(got, want) || want == "" && got != "" {
		t.Errorf("%s: offered unless %q; want %q", a, got, want)
	}
	enters(t, g, a, want)
}

func enters(t *testing.T, g *Gate, a address, want string) {
	t.Helper()
	leave, err := g.Enter(t.Context(), []address{a})
	if err == nil {
		leave()
	}
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: handed out: %v; want %q", a, err, want)
	}
	if _, ok := errors.AsType[*Refusal](err); err != nil && !ok {
		t.Errorf("%v is no refusal", err)
	}
}

// TestWithoutFile: all is as it was before there was a file, and none is made.
func TestWithoutFile(t *testing.T) {
	f := file(t)
	g, _ := gate(t, f, Plugin)
	if got := g.Look().Why(one); got == "" {
		t.Error("offered before anybody has looked")
	}
	why(t, g, one, "")
	driver, _ := gate(t, f, DRA)
	why(t, driver, one, "by the device plugin")
	if _, err := os.Stat(f.Path()); err == nil {
		t.Error("there is a file")
	}
}

func TestChangeOver(t *testing.T) {
	f := file(t)
	plugin, claims := gate(t, f, Plugin)
	driver, pods := gate(t, f, DRA)
	pods.say(holders{one: "pod default/a"}, nil)
	set(t, f, DRA)
	why(t, plugin, one, "by the DRA driver")
	why(t, driver, one, "pod default/a has it")
	why(t, driver, two, "")
	claims.say(holders{two: "claim default/b"}, nil)
	set(t, f, Plugin)
	why(t, driver, two, "by the device plugin")
	why(t, plugin, two, "claim default/b has it")
	why(t, plugin, one, "")
	if held := plugin.Look().held; !maps.Equal(held, holders{two: "claim default/b"}) {
		t.Errorf("held: %v", held)
	}
	write(t, f, "{", 0o644)
	why(t, driver, two, "it is not known who")
	why(t, plugin, one, "it is not known who")
}

// TestEnterLooksAgain: what has changed since the last look is seen when LPUs are handed out.
func TestEnterLooksAgain(t *testing.T) {
	f := file(t)
	plugin, claims := gate(t, f, Plugin)
	plugin.Renew(t.Context())
	claims.say(holders{one: "claim default/b"}, nil)
	enters(t, plugin, one, "claim default/b has it")
	claims.say(nil, errors.New("cannot be read"))
	enters(t, plugin, two, "cannot be read")
	claims.say(nil, nil)
	enters(t, plugin, one, "")
	set(t, f, DRA)
	enters(t, plugin, one, "by the DRA driver")
	if v := plugin.Look(); v.Why(one) != "" {
		t.Errorf("the view was to be an old one: %q", v.Why(one))
	}
}

// TestLeased: an LPU that a user has leased is neither offered nor handed out, also if it was
// before.
func TestLeased(t *testing.T) {
	f := file(t)
	set(t, f, DRA)
	driver, _ := gate(t, f, DRA)
	leased := holders{}
	unreadable := errors.New("leases.json: unexpected end")
	fault := unreadable
	driver.Leased = func() (holders, error) { return maps.Clone(leased), fault }
	why(t, driver, one, "it is not known which LPUs users have leased: leases.json")
	enters(t, driver, one, "it is not known which LPUs users have leased")
	fault = nil
	why(t, driver, one, "")
	leased[one] = "lease l3 of alice(1000)"
	enters(t, driver, one, "lease l3 of alice(1000) has it; wait until it is given back")
	why(t, driver, one, "lease l3 of alice(1000) has it")
	why(t, driver, two, "")
	if v := driver.Look(); !v.Leased(one) || v.Leased(two) {
		t.Error("it is not known which LPU is leased")
	}
	fault = unreadable // what was known holds
	why(t, driver, one, "lease l3 of alice(1000) has it")
	why(t, driver, two, "")
	fault = nil
	delete(leased, one)
	why(t, driver, one, "")
}

// TestAskedEachTime: the kubelet is asked each time that LPUs are handed out, and once more by who has entered. A plugin of a release that
// knows no owner may have started in between.
func TestAskedEachTime(t *testing.T) {
	f := file(t)
	driver, pods := gate(t, f, DRA)
	set(t, f, DRA)
	enters(t, driver, one, "")
	enters(t, driver, one, "")
	pods.say(holders{one: "pod default/a"}, nil)
	enters(t, driver, one, "pod default/a has it")
	leave, err := driver.Enter(t.Context(), []address{two})
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	if err := driver.Ask(t.Context(), []address{two}); err != nil {
		t.Error(err)
	}
	pods.say(holders{two: "pod default/b"}, nil)
	if err := driver.Ask(t.Context(), []address{two}); err == nil || !strings.Contains(err.Error(), "pod default/b has it") {
		t.Errorf("a pod has got it since: %v", err)
	}
	pods.say(nil, errors.New("away"))
	if err := driver.Ask(t.Context(), []address{two}); err == nil {
		t.Error("it cannot be known, and is handed out")
	}
}

// remedied is an error that knows what to do.
type remedied struct{ error }

func (remedied) Remedy() string { return "rm it" }

// TestRemedyOfWhatIsNotKnown: it is that of the error, where there is one.
func TestRemedyOfWhatIsNotKnown(t *testing.T) {
	plugin, claims := gate(t, file(t), Plugin)
	claims.say(nil, errors.Join(errors.New("a"), remedied{errors.New("b")}))
	if why := plugin.Renew(t.Context()).All(); why == nil || why.ID != finding.OwnerUnsettled || why.Remedy != "rm it" {
		t.Errorf("%v", why)
	}
}

// TestGivenTwice: what two pods have is said within five seconds, whoever the owner is, and not offered. It is not said of one pod that has
// given it to the other between two answers of the kubelet.
func TestGivenTwice(t *testing.T) {
	for _, me := range []Owner{Plugin, DRA} {
		f := file(t)
		synctest.Test(t, func(t *testing.T) {
			g, _ := gate(t, f, me)
			var log strings.Builder
			g.Log = slog.New(slog.NewTextHandler(&log, nil))
			double := map[address]finding.Finding{one: finding.New(finding.GivenTwice, "", "pods a and b have it", "delete one")}
			var mu sync.Mutex
			var said []map[address]finding.Finding
			var failure error
			say := func(err error, all ...map[address]finding.Finding) {
				mu.Lock()
				defer mu.Unlock()
				said, failure = all, err
			}
			g.Twice = func(context.Context) (now map[address]finding.Finding, _ error) {
				mu.Lock()
				defer mu.Unlock()
				if len(said) > 0 {
					now, said = maps.Clone(said[0]), said[1:]
				}
				return now, failure
			}
			for range 2 { // with me as the owner, and not
				say(nil, double, nil)
				if v := g.Renew(t.Context()); len(v.Twice()) != 0 {
					t.Errorf("given away between two answers: %v", v.Twice())
				}
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() {
					for ctx.Err() == nil { // Run is this, with inotify
						g.Renew(ctx)
						time.Sleep(askInterval)
					}
				})
				time.Sleep(time.Second)
				say(nil, slices.Repeat([]map[address]finding.Finding{double}, 100)...)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				v := g.Look()
				if got := v.Finding(one); got == nil || *got != double[one] || !slices.Equal(v.Twice(), []address{one}) {
					t.Errorf("%s: %v, %v", me, got, v.Twice())
				}
				if v.Finding(two) != nil && v.Finding(two).ID == finding.GivenTwice || !strings.Contains(log.String(), "remedy=\"delete one\"") {
					t.Errorf("%v, %s", v.Finding(two), log.String())
				}
				say(errors.New("away"))
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if len(g.Look().Twice()) != 1 {
					t.Error("it is forgotten while the kubelet is away")
				}
				say(nil)
				cancel()
				running.Wait()
				if g.Renew(t.Context()); len(g.Look().Twice()) != 0 || !strings.Contains(log.String(), "not given twice any more") {
					t.Error("it is over, and not said")
				}
				log.Reset()
				set(t, f, me.Other())
			}
		})
	}
}

// TestKubeletAway: what the kubelet said counts for a while, and never what it said before the change.
func TestKubeletAway(t *testing.T) {
	f := file(t)
	driver, pods := gate(t, f, DRA)
	set(t, f, DRA)
	pods.say(nil, errors.New("away"))
	if v := driver.Renew(t.Context()); v.Why(one) == "" || v.Finding(one).ID != finding.OwnerUnsettled {
		t.Errorf("never asked, and offered: %q", v.Why(one))
	}
	pods.say(holders{one: "pod default/a"}, nil)
	driver.Renew(t.Context())
	pods.say(nil, errors.New("away"))
	if v := driver.Renew(t.Context()); v.Why(two) != "" || v.Why(one) == "" {
		t.Errorf("just away: %q, %q", v.Why(two), v.Why(one))
	}
	driver.asked.at -= KubeletPatience + time.Second
	if v := driver.Renew(t.Context()); v.Why(two) == "" {
		t.Error("away for long, and offered")
	}
	pods.say(nil, nil)
	driver.Renew(t.Context())
	pods.say(nil, errors.New("away"))
	set(t, f, Plugin)
	set(t, f, DRA)
	if v := driver.Renew(t.Context()); v.Why(two) == "" {
		t.Error("offered by what was said before the plugin was the owner in between")
	}
}

// TestAKubeletThatHangs stalls neither who shows that the program runs nor who hands out LPUs.
func TestAKubeletThatHangs(t *testing.T) {
	g, _ := gate(t, file(t), Plugin)
	hangs, answers := context.WithTimeout(t.Context(), await.Limit)
	asked := make(chan struct{})
	var before atomic.Bool
	g.Others = func(context.Context) (holders, error) {
		if !before.Swap(true) {
			close(asked)
			<-hangs.Done()
		}
		return nil, nil
	}
	var renewing sync.WaitGroup
	renewing.Go(func() { g.Renew(t.Context()) })
	<-asked
	g.Show()
	enters(t, g, one, "")
	if hangs.Err() != nil {
		t.Error("it waited for the kubelet")
	}
	answers()
	renewing.Wait()
}

// TestSettle: what the kubelet says just after the change may be behind what the plugin has handed out just before.
func TestSettle(t *testing.T) {
	f := file(t)
	set(t, f, DRA)
	now := host.Now()
	for name, c := range map[string]struct {
		moment  host.Moment
		settled bool
	}{
		"just now":        {now, false},
		"a while ago":     {host.Moment{Boot: now.Boot, SinceBoot: now.SinceBoot - 2*KubeletSettle}, true},
		"before the boot": {host.Moment{Boot: "another", SinceBoot: 1}, true},
		"in the future":   {host.Moment{Boot: now.Boot, SinceBoot: now.SinceBoot + time.Hour}, false},
		"by hand":         {host.Moment{}, false},
	} {
		r, err := f.Read()
		if err != nil {
			t.Fatal(err)
		}
		r.Moment = c.moment
		if err := f.state().Write(&r); err != nil {
			t.Fatal(err)
		}
		driver, _ := gate(t, f, DRA)
		driver.Settle = KubeletSettle
		if got := driver.Renew(t.Context()).Why(one) == ""; got != c.settled {
			t.Errorf("%s: offered: %t", name, got)
		}
		if leave, err := driver.Enter(t.Context(), []address{one}); (err == nil) != c.settled {
			t.Errorf("%s: handed out: %v", name, err)
		} else if err == nil {
			leave()
		}
	}
}

// TestWithoutLock: the plugin goes on where nothing can be written, and waits where somebody has the lock. The driver does neither.
func TestWithoutLock(t *testing.T) {
	f := File{Dir: "/proc/self/lpuctl"} // nobody can make it, not even root
	plugin, _ := gate(t, f, Plugin)
	enters(t, plugin, one, "")
	if err := plugin.Claim(t.Context()); err != nil {
		t.Errorf("it is the owner already: %v", err)
	}
	driver, _ := gate(t, f, DRA)
	if err := driver.Claim(t.Context()); err == nil {
		t.Error("claimed, and not written")
	}
	if _, err := driver.Enter(t.Context(), nil); err == nil {
		t.Error("the driver went on")
	}

	f = file(t)
	plugin, _ = gate(t, f, Plugin)
	lock, err := filelock.Hold(t.Context(), f.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := plugin.Enter(ctx, []address{one}); err == nil {
		t.Error("it did not wait for the lock")
	}
}

// TestNobodyIsGivenOneTwice while the owner changes at any moment. The kubelet names what the plugin has handed out a moment later.
func TestNobodyIsGivenOneTwice(t *testing.T) {
	const behind = 5 * time.Millisecond
	f := file(t)
	var mu sync.Mutex
	has := map[Owner]map[address]time.Time{Plugin: {}, DRA: {}} // when it was handed out
	others := func(o Owner, late time.Duration) func(context.Context) (holders, error) {
		return func(context.Context) (holders, error) {
			mu.Lock()
			defer mu.Unlock()
			held := holders{}
			for a, at := range has[o] {
				if time.Since(at) >= late {
					held[a] = "somebody"
				}
			}
			return held, nil
		}
	}
	plugin, driver := &Gate{Me: Plugin, Others: others(DRA, 0)}, &Gate{Me: DRA, Others: others(Plugin, behind), Settle: 4 * behind}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var given [2]atomic.Int64
	var all sync.WaitGroup
	for i, g := range []*Gate{plugin, driver} {
		g.File, g.Log = f, slog.New(slog.DiscardHandler)
		all.Go(func() { g.Run(ctx) })
		for _, a := range []address{one, two} {
			all.Go(func() {
				for ctx.Err() == nil {
					if leave, err := g.Enter(ctx, []address{a}); err == nil {
						time.Sleep(behind) // as long as it takes to answer
						mu.Lock()
						if _, twice := has[g.Me.Other()][a]; twice {
							t.Errorf("%s was given twice", a)
						}
						has[g.Me][a] = time.Now()
						mu.Unlock()
						leave()
						given[i].Add(1)
						time.Sleep(8 * behind)
						mu.Lock()
						delete(has[g.Me], a)
						mu.Unlock()
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
	}
	began, changes := time.Now(), 0
	await.Until(t, "both give, for two seconds at least", func() error {
		_, _ = f.Set(ctx, []Owner{DRA, Plugin}[changes%2], "test", false)
		changes++
		time.Sleep(30*time.Millisecond + time.Duration(changes%7)*3*time.Millisecond)
		if given[0].Load() == 0 || given[1].Load() == 0 || time.Since(began) < 2*time.Second {
			return fmt.Errorf("the plugin gave %d times, the driver %d", given[0].Load(), given[1].Load())
		}
		return nil
	})
	cancel()
	all.Wait()
}

// run runs a gate until the function that it returns is called.
func run(t *testing.T, g *Gate) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { g.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return stop
}

// TestRun follows the file and what the other side has, and tells.
func TestRun(t *testing.T) {
	f := file(t)
	g, claims := gate(t, f, Plugin)
	g.Follow = f.Dir + "/claims.json"
	var changes atomic.Int64
	g.Changed = func() { changes.Add(1) }
	run(t, g)
	await.For(t, "offered", func() bool { return g.Look().Why(one) == "" })
	if runs, err := f.Runs(Plugin); err != nil || runs {
		t.Errorf("it has not seen the LPUs yet, and runs: %t, %v", runs, err)
	}
	g.Show()
	before := g.Look()
	g.Renew(t.Context())
	if g.Look() != before {
		t.Error("nothing has changed, and there is another view")
	}
	said := changes.Load()
	claims.say(holders{one: "claim default/b"}, nil)
	if err := os.WriteFile(g.Follow, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	await.For(t, "held", func() bool { return g.Look().Why(one) != "" && g.Look().Why(two) == "" })
	set(t, f, DRA)
	await.For(t, "withheld", func() bool { return g.Look().Why(two) != "" && changes.Load() >= said+2 })
	if runs, err := f.Runs(Plugin); err != nil || !runs {
		t.Errorf("it runs: %t, %v", runs, err)
	}
	if runs, err := f.Runs(DRA); err != nil || runs {
		t.Errorf("the other one runs: %t, %v", runs, err)
	}
}

// TestInsist: who was told to be the owner is, once the other one that was told so has ended; and not against the word of a command.
func TestInsist(t *testing.T) {
	f := file(t)
	owns := func(o Owner) func() bool {
		return func() bool { r, err := f.Read(); return err == nil && r.Owner == o }
	}
	driver, _ := gate(t, f, DRA)
	driver.Insist = true
	if err := driver.Claim(t.Context()); err != nil || !owns(DRA)() {
		t.Fatalf("%v", err)
	}
	run(t, driver)
	plugin, _ := gate(t, f, Plugin) // it is about to be removed, and starts once more
	plugin.Insist = true
	if err := plugin.Claim(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := run(t, plugin)
	await.For(t, "the plugin knows", func() bool { return plugin.Look().Mine })
	driver.reclaimNow(t)
	if !owns(Plugin)() {
		t.Error("the driver took over from a plugin that runs")
	}
	stop()
	now := time.Now()
	if err := os.Chtimes(f.Path(), now, now); err != nil { // so that it looks at once
		t.Fatal(err)
	}
	await.For(t, "the driver takes over from a plugin that has ended", owns(DRA))
	set(t, f, Plugin)
	driver.reclaimNow(t)
	if !owns(Plugin)() {
		t.Error("the driver took over from a command")
	}
}

func (g *Gate) reclaimNow(t *testing.T) {
	t.Helper()
	if err := g.reclaim(t.Context(), g.Renew(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// TestAShortageChangesNoOwner: where neither the file nor the other side can be asked for want of descriptors, the LPUs stay offered.
func TestAShortageChangesNoOwner(t *testing.T) {
	g, others := gate(t, File{Dir: t.TempDir()}, Plugin)
	why(t, g, one, "")
	others.say(nil, errors.New("dial: too many open files"))
	for _, left := range []int{0, 3} {
		restore := plant.LeaveDescriptors(t, left)
		v := g.Renew(t.Context())
		restore()
		if said := v.Why(one); said != "" {
			t.Errorf("with %d descriptors: %s", left, said)
		}
	}
	if g.Renew(t.Context()).Why(one) == "" {
		t.Error("the other side does not answer, and the LPUs are offered")
	}
}
