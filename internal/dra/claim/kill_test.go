package claim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/killer"
	"github.com/hyperaccel/lpuctl/test/long"
)

// The environment of a process that is to be killed: what it does, and on which node.
const (
	deedVariable = "LPUCTL_TEST_DEED"
	rootVariable = "LPUCTL_TEST_ROOT"
)

// deeds are what is killed, before each of its steps.
var deeds = map[string]func(ctx context.Context, s *claim.Store) error{
	"prepare": func(ctx context.Context, s *claim.Store) error {
		_, err := s.Prepare(ctx, wish(1, "arc0-1", "arc2"))
		return err
	},
	"unprepare": func(ctx context.Context, s *claim.Store) error { return s.Unprepare(ctx, uid(1)) },
	"restore": func(ctx context.Context, s *claim.Store) error {
		_, err := s.Restore(ctx)
		return err
	},
}

func TestMain(m *testing.M) {
	deed := deeds[os.Getenv(deedVariable)]
	if deed == nil {
		os.Exit(m.Run())
	}
	w := &world{root: os.Getenv(rootVariable), boot: "now", inv: &discovery.Inventory{}}
	data, err := os.ReadFile(filepath.Join(w.root, "inventory.json"))
	if err == nil {
		err = json.Unmarshal(data, w.inv)
	}
	if err == nil {
		err = deed(context.Background(), w.store())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestKilledAtEachStep kills an instance of the driver before each of its steps. Whatever it leaves: the kubelet's next try and the next
// instance both make it whole, a claim that was prepared before is not touched, and no LPU is lost. With the race detector it is one step
// in four.
func TestKilledAtEachStep(t *testing.T) {
	w := newWorld(t)
	data, err := json.Marshal(w.inv)
	w.must(err)
	w.must(os.WriteFile(filepath.Join(w.root, "inventory.json"), data, 0o600))
	for _, c := range []struct {
		name, deed string
		before     func(w *world, s *claim.Store) // the kill, besides that claim 9 is prepared
		found      []string                       // what kills have to leave
	}{
		{"prepare", "prepare", func(*world, *claim.Store) {}, []string{"nothing", "started", "completed", "a file half done"}},
		{"prepare where another was killed", "prepare", func(w *world, s *claim.Store) {
			w.prepare(s, wish(2, "arc2-3"))
			edit(w, s, 2, "completed", "started")
		}, []string{"nothing", "started", "completed", "a file half done"}},
		{"prepare anew", "prepare", func(w *world, s *claim.Store) { w.prepare(s, wish(1, "arc4")) }, []string{"started", "completed"}},
		{"prepare again", "prepare", func(w *world, s *claim.Store) { w.prepare(s, wish(1, "arc0-1", "arc2")) }, []string{"completed"}},
		{"unprepare", "unprepare", func(w *world, s *claim.Store) { w.prepare(s, wish(1, "arc0-1", "arc2")) }, []string{"completed", "nothing"}},
		{"restore", "restore", func(w *world, s *claim.Store) {
			w.prepare(s, wish(1, "arc0-1", "arc2"))
			w.prepare(s, wish(2, "arc3"))
			edit(w, s, 2, "completed", "started")
			w.must(os.WriteFile(recordOf(s, 1), nil, 0o644))
			w.must(os.WriteFile(filepath.Join(s.SpecDir, ".hyperaccel.ai-lpu-claim-"+uid(7)+".json12345"), nil, 0o644))
			w.must(os.WriteFile(filepath.Join(filepath.Dir(recordOf(s, 1)), "."+uid(7)+".json12345"), nil, 0o644))
		}, []string{"completed", "a file half done"}},
		{"restore what was wiped", "restore", func(w *world, s *claim.Store) {
			w.prepare(s, wish(1, "arc0-1", "arc2"))
			w.must(os.Remove(cdi.ClaimFile(s.SpecDir, uid(1))))
		}, []string{"completed", "a file half done"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := *w
			v.T = t
			k := killing{world: &v, Store: v.store(), deed: c.deed, before: c.before, kills: map[string]int{}, found: map[string]bool{}}
			k.atEachStep()
			t.Logf("%d kills: %v; found %v", k.total, k.kills, slices.Sorted(maps.Keys(k.found)))
			for _, wanted := range c.found {
				if !k.found[wanted] && long.Takes(1, 1) {
					t.Errorf("no kill left %s", wanted)
				}
			}
		})
	}
}

func recordOf(s *claim.Store, i int) string {
	return filepath.Join(s.Dir, "dra-claims", uid(i)+".json")
}

func edit(w *world, s *claim.Store, i int, from, to string) {
	w.Helper()
	text := strings.Replace(string(w.read(recordOf(s, i))), from, to, 1)
	w.must(os.WriteFile(recordOf(s, i), []byte(text), 0o644))
}

// killing is what a series of kills needs and finds.
type killing struct {
	*world
	*claim.Store
	deed   string
	before func(w *world, s *claim.Store)
	kills  map[string]int
	total  int
	found  map[string]bool
}

func (k *killing) atEachStep() {
	k.Setenv(deedVariable, k.deed)
	k.Setenv(rootVariable, k.root)
	for n := 0; ; n++ {
		if !long.Takes(n, 1) {
			continue
		}
		for i, judge := range []func(){k.tryAgain, k.startAgain} {
			if i != n/4%2 && !long.Takes(1, 1) { // with the race detector one of them for each step
				continue
			}
			step := k.killed(n + 1)
			if step == "" {
				step = k.killed(n + 1) // the tracer sometimes misses when the first call names the directory
			}
			if step == "" {
				return
			}
			k.total++
			k.kills[step]++
			k.look()
			judge()
			if k.Failed() {
				k.Fatalf("killed at step %d, %s", n+1, step)
			}
		}
	}
}

// killed kills the deed before its step n on a node made anew; it returns "" if there is no such step.
func (k *killing) killed(n int) string {
	k.must(errors.Join(os.RemoveAll(k.Dir), os.RemoveAll(k.SpecDir)))
	k.prepare(k.Store, wish(9, "arc6-7"))
	k.before(k.world, k.Store)
	step, err := (&killer.Killer{Dir: k.Dir, Left: n, Changes: true}).Run(os.Args[0])
	if errors.Is(err, os.ErrPermission) {
		k.Skip("needs ptrace(2): ", err)
	}
	k.must(err)
	return step
}

// look notes what a kill has left. Claim 9 is as it was.
func (k *killing) look() {
	k.Helper()
	data, err := os.ReadFile(recordOf(k.Store, 1))
	switch {
	case errors.Is(err, os.ErrNotExist):
		k.found["nothing"] = true
	case strings.Contains(string(data), "started"):
		k.found["started"] = true
	case strings.Contains(string(data), "completed"):
		k.found["completed"] = true
	case len(data) > 0:
		k.Errorf("the record is none:\n%s", data)
	}
	if len(k.halfDone()) > 0 {
		k.found["a file half done"] = true
	}
	k.env(k.Store, uid(9))
	if r, err := claim.RecordFile(filepath.Dir(recordOf(k.Store, 9)), uid(9)).Read(); r == nil || err != nil {
		k.Error(err)
	}
}

// halfDone are the temporary files.
func (k *killing) halfDone() (all []string) {
	for _, dir := range []string{k.SpecDir, filepath.Dir(recordOf(k.Store, 1))} {
		files, _ := filepath.Glob(filepath.Join(dir, ".*.json?*"))
		all = append(all, files...)
	}
	return all
}

// tryAgain: the kubelet asks the same instance again, and then gives the claim back.
func (k *killing) tryAgain() {
	k.Helper()
	if k.deed != "unprepare" {
		k.prepare(k.Store, wish(1, "arc0-1", "arc2"))
		k.whole(map[int]int{0: 1, 1: 1, 2: 1, 6: 9, 7: 9})
	}
	k.unprepare(k.Store, uid(1))
	k.prepare(k.Store, wish(3, "arc0-1-2-3"))
	k.whole(map[int]int{0: 3, 1: 3, 2: 3, 3: 3, 6: 9, 7: 9})
}

// startAgain: the next instance restores what was there. What it does not restore nobody has.
func (k *killing) startAgain() {
	k.Helper()
	s := k.store()
	findings, err := s.Restore(k.Context())
	k.must(err)
	if k.deed != "restore" && len(findings) > 0 { // whoever is killed loses no record
		k.Error(findings)
	}
	claims, err := s.Claims()
	k.must(err)
	for _, c := range claims {
		if want := len(c.Requests); len(k.env(s, c.UID)) != want {
			k.Errorf("the file of %s has not %d devices", c, want)
		}
	}
	if s.Missing() || len(k.halfDone()) > 0 {
		k.Errorf("something is left over, or missing: %v", k.halfDone())
	}
	if k.deed == "restore" {
		k.whole(map[int]int{0: 1, 1: 1, 2: 1, 6: 9, 7: 9})
	}
	k.unprepare(s, uid(1))
	k.prepare(s, wish(3, "arc0-1-2-3-4-5"))
	k.whole(map[int]int{0: 3, 1: 3, 2: 3, 3: 3, 4: 3, 5: 3, 6: 9, 7: 9})
}

// whole wants the checkpoint to be as holds says, and a CDI file for each claim.
func (k *killing) whole(want map[int]int) {
	k.Helper()
	k.holds(k.Store, want)
	for _, i := range want {
		if _, err := os.Stat(cdi.ClaimFile(k.SpecDir, uid(i))); err != nil {
			k.Error(err)
		}
	}
}
