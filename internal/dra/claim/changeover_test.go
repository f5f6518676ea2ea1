package claim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/long"
)

// changeovers is a node that plugin and driver hand out by turns. Its pods are what the kubelet names, and so who has which LPU.
type changeovers struct {
	*world
	*rand.Rand

	pods    map[int]string    // of the device plugin, by LPU
	claims  map[int]cdi.Claim // by number
	since   map[int]time.Time // by LPU: since when two pods have it
	older   bool              // there is a plugin that knows no owner
	old     bool              // it is registered
	owner   owner.Owner       // as the file says; "": it is cut off
	silent  bool              // the kubelet does not say what pods have
	file    owner.File        // who the owner is
	leases  *leases
	stopped bool                // neither plugin nor driver runs
	plugin  *owner.Gate         // of this release
	driver  *owner.Gate         // likewise
	store   *claim.Store        // the driver's
	given   map[string]int      // how often, by whom
	last    int                 // number of the claim that was made last
	at      map[pci.Address]int // the LPU at an address
}

func newChangeovers(t *testing.T, w *world, r *rand.Rand) *changeovers {
	c := &changeovers{
		world: w, Rand: r, pods: map[int]string{}, claims: map[int]cdi.Claim{}, since: map[int]time.Time{}, given: map[string]int{},
		at: map[pci.Address]int{}, file: owner.File{Dir: w.store().Dir}, leases: newLeases(w),
	}
	for i := range w.inv.LPUs {
		c.at[w.lpu(i)] = i
	}
	c.gates()
	c.start(t)
	c.arbitrate(t)
	return c
}

// gates are those of plugin and driver that have just started.
func (c *changeovers) gates() {
	reader := c.world.store()
	log := slog.New(slog.DiscardHandler)
	c.plugin = &owner.Gate{
		File: c.file, Me: owner.Plugin, Log: log, Leased: c.held, Others: func(context.Context) (map[pci.Address]string, error) {
			c.hear(reader)
			return reader.Holders()
		},
	}
	c.driver = &owner.Gate{
		File: c.file, Me: owner.DRA, Log: log, Leased: c.held, Settle: time.Nanosecond,
		Others: func(context.Context) (map[pci.Address]string, error) {
			c.hear(c.store)
			return c.holders(), c.untold()
		},
		Twice: func(context.Context) (map[pci.Address]finding.Finding, error) {
			c.hear(c.store)
			return c.twice(), c.untold()
		},
	}
}

// start starts the driver, perhaps again.
func (c *changeovers) start(t *testing.T) {
	t.Helper()
	c.store = c.world.store()
	c.store.Confirm = c.driver.Ask
	c.hear(c.store)
	if _, err := c.store.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// named are the claims that the kubelet names.
func (c *changeovers) named() []cdi.Claim { return slices.Collect(maps.Values(c.claims)) }

// hear lets a store know them, unless the kubelet is silent.
func (c *changeovers) hear(s *claim.Store) {
	if !c.silent {
		s.Hear(c.named())
	}
}

// untold is the error of who asks the kubelet.
func (c *changeovers) untold() error {
	if c.silent {
		return errors.New("the kubelet does not answer")
	}
	return nil
}

// hush lets the kubelet be silent while everything has its files, or speak again.
func (c *changeovers) hush(t *testing.T) {
	if !c.silent {
		c.pass(t, 5)
		c.silent = true
		return
	}
	c.silent = false
	for lpu := range c.since { // until now it could not be seen
		c.since[lpu] = time.Now()
	}
}

// owns wants a program that gives an LPU to be the owner.
func (c *changeovers) owns(t *testing.T, who owner.Owner) {
	t.Helper()
	if c.owner != who {
		t.Errorf("%s gives an LPU, and the owner is %q", who.Program(), c.owner)
	}
}

// spoil removes the file that says who the owner is, and so it is the plugin, or cuts it off.
func (c *changeovers) spoil(*testing.T) {
	if c.IntN(2) == 0 {
		c.must(ignoreAbsent(os.Remove(c.file.Path())))
		c.owner = owner.Plugin
	} else if os.Truncate(c.file.Path(), int64(c.IntN(100))) == nil {
		c.owner = ""
	}
}

// holders is what the kubelet says of the device plugin.
func (c *changeovers) holders() map[pci.Address]string {
	all := map[pci.Address]string{}
	for a, i := range c.at {
		if pod, held := c.pods[i]; held {
			all[a] = pod
		} else if c.old {
			all[a] = "the kubelet"
		}
	}
	return all
}

// claimed is the claim that has an LPU.
func (c *changeovers) claimed(lpu int) (number int, ok bool) {
	for number, claim := range c.claims {
		if slices.Contains(claim.LPUs(), c.lpu(lpu)) {
			return number, true
		}
	}
	return 0, false
}

// twice is what the kubelet says.
func (c *changeovers) twice() map[pci.Address]finding.Finding {
	all := map[pci.Address]finding.Finding{}
	for lpu, pod := range c.pods {
		if number, ok := c.claimed(lpu); ok {
			all[c.lpu(lpu)] = finding.New(finding.GivenTwice, "", fmt.Sprintf("%s and claim %d", pod, number), "delete one")
		}
	}
	return all
}

// pod starts a pod of the device plugin with an LPU that the kubelet takes for free.
func (c *changeovers) pod(t *testing.T) {
	lpu := c.IntN(8)
	if _, taken := c.pods[lpu]; taken || c.stopped || c.setApart(lpu) {
		return
	}
	by := "plugin"
	if c.old {
		by = "old plugin"
	} else if leave, err := c.plugin.Enter(t.Context(), []pci.Address{c.lpu(lpu)}); err == nil {
		defer leave()
		c.owns(t, owner.Plugin)
	} else {
		return
	}
	c.pods[lpu] = fmt.Sprintf("pod %d", c.given[by])
	c.given[by]++
	c.unleased(t, lpu, c.pods[lpu])
	if number, ok := c.claimed(lpu); ok {
		c.since[lpu] = time.Now()
		c.given["twice"]++
		if by == "plugin" {
			t.Errorf("lpu%d was given to a pod, and claim %d has it", lpu, number)
		}
	}
}

// claim prepares a claim with two LPUs that the scheduler takes for free.
func (c *changeovers) claim(t *testing.T) {
	first := c.IntN(8)
	for _, lpu := range []int{first, (first + 1) % 8} {
		if _, taken := c.claimed(lpu); taken || c.stopped || c.setApart(lpu) {
			return
		}
	}
	c.last++
	device := fmt.Sprintf("arc%d-%d", first, (first+1)%8)
	members, err := c.Members(device)
	c.must(err)
	leave, err := c.driver.Enter(t.Context(), members)
	if err != nil {
		return
	}
	defer leave()
	if c.older && c.IntN(4) == 0 { // it knows no lock
		c.old = true
		c.pod(t)
	}
	prepared, err := c.store.Prepare(t.Context(), wish(c.last, device))
	if err != nil {
		if !errors.As(err, new(*owner.Refusal)) {
			t.Error(err)
		}
		return
	}
	c.owns(t, owner.DRA)
	if c.silent {
		t.Errorf("claim %d was prepared, and the kubelet does not say what pods have", c.last)
	}
	c.given["driver"]++
	c.claims[c.last] = c.heard(c.last, device)
	for _, a := range prepared[0].Members {
		c.unleased(t, c.at[a], fmt.Sprint("claim ", c.last))
		if pod, held := c.pods[c.at[a]]; held {
			t.Errorf("lpu%d was given to claim %d, and %s has it", c.at[a], c.last, pod)
		}
	}
}

// end ends a pod, of one or the other kind.
func (c *changeovers) end(t *testing.T) {
	for _, lpu := range slices.Sorted(maps.Keys(c.pods)) {
		if c.IntN(3) == 0 {
			delete(c.pods, lpu)
			delete(c.since, lpu)
		}
	}
	for _, number := range slices.Sorted(maps.Keys(c.claims)) {
		if c.IntN(3) == 0 {
			one := c.claims[number]
			c.must(c.store.Unprepare(t.Context(), uid(number))) // before the kubelet forgets it
			delete(c.claims, number)
			for _, a := range one.LPUs() {
				delete(c.since, c.at[a])
			}
		}
	}
}

// lose removes or spoils some of the files of claims; while the kubelet is silent, one of the two
// that each claim has.
func (c *changeovers) lose(*testing.T) {
	for _, number := range slices.Sorted(maps.Keys(c.claims)) {
		for i, path := range []string{recordOf(c.store, number), cdi.ClaimFile(c.store.SpecDir, uid(number))} {
			if c.silent && i != number%2 {
				continue
			}
			switch c.IntN(3) {
			case 0:
				c.must(ignoreAbsent(os.Remove(path)))
			case 1:
				c.must(ignoreAbsent(os.Truncate(path, int64(c.IntN(200)))))
			}
		}
	}
}

func ignoreAbsent(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// pass lets seconds pass, in which the driver looks after files and both gates look, and wants it said of each LPU that is given twice.
func (c *changeovers) pass(t *testing.T, seconds int) {
	for range seconds {
		time.Sleep(time.Second)
		if c.leases.lost {
			c.record()
		}
		if c.stopped {
			continue
		}
		if c.hear(c.store); c.store.Missing() {
			_, err := c.store.Restore(t.Context())
			c.must(err)
		}
		if time.Now().Unix()%4 == 0 {
			c.driver.Renew(t.Context())
			c.plugin.Renew(t.Context())
		}
		said := c.driver.Look().Twice()
		for lpu, since := range c.since {
			if !c.silent && time.Since(since) >= 5*time.Second && !slices.Contains(said, c.lpu(lpu)) {
				t.Errorf("lpu%d is given twice for %v, and that is not said", lpu, time.Since(since))
			}
		}
	}
}

// over takes the node over, and wants after a while the files of all claims to be there, and nothing said that is not so.
func (c *changeovers) over(t *testing.T, to owner.Owner) {
	_, err := c.file.Set(t.Context(), to, "test", false)
	c.must(err)
	c.owner = to
	acts := []func(*testing.T){
		c.pod, c.pod, c.pod, c.claim, c.claim, c.claim, c.claim, c.claim, c.end, c.end, c.lose, c.start, c.hush, c.spoil,
		func(t *testing.T) { c.pass(t, c.IntN(8)) },
	}
	if !c.older { // which knows nothing of leases
		acts = append(acts, []func(*testing.T){
			c.user, c.user, c.user, c.user, c.leave, c.loseLeases, c.arbitrate, c.configure, c.stop, c.programs,
		}...)
	}
	for range 20 {
		acts[c.IntN(len(acts))](t)
	}
	if c.stopped {
		c.programs(t)
	}
	if c.silent {
		c.hush(t)
	}
	c.pass(t, 5)
	for number := range c.claims {
		for _, path := range []string{recordOf(c.store, number), cdi.ClaimFile(c.store.SpecDir, uid(number))} {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("five seconds later: %v", err)
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(c.store.Dir, claim.DirName, "*.json")); len(left) != len(c.claims) {
		t.Errorf("%d claims, and the records %v", len(c.claims), left)
	}
	for _, a := range c.driver.Look().Twice() {
		if _, so := c.since[c.at[a]]; !so && time.Now().Unix()%4 == 0 {
			t.Errorf("lpu%d is said to be given twice, and is not", c.at[a])
		}
	}
}

// TestChangeovers: while plugin and driver take the node over from each other, end and start, and the
// arbiter leases what they leave, the files of claims, leases and the owner are lost and broken, and
// the kubelet is silent at times, no LPU is given twice by any, and none by one that is not the owner.
// What a plugin of the release before gives, which knows neither owner nor claims, is said within five
// seconds.
func TestChangeovers(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(map[bool]string{false: "this release", true: "with a plugin of the release before"}[old], func(t *testing.T) {
			w, r := newWorld(t), long.Rand(t)
			synctest.Test(t, func(t *testing.T) {
				c := newChangeovers(t, w, r)
				c.older = old
				for i := range long.Rounds(t, 200) {
					c.old = old && c.IntN(3) == 0
					if c.over(t, []owner.Owner{owner.DRA, owner.Plugin}[i%2]); t.Failed() {
						t.Fatalf("in changeover %d", i)
					}
				}
				t.Logf("given: %v", c.given)
				if c.given["plugin"] < 20 || c.given["driver"] < 20 || old != (c.given["old plugin"] > 0) || old == (c.given["arbiter"] > 20) {
					t.Errorf("too little was given: %v", c.given)
				}
			})
		})
	}
}
