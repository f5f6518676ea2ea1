package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/launch"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/person"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/long"
)

// TestOneJudgement: of LPUs with one fault, and with two, all who show LPUs or hand them out say the same of each. First serve does not
// run; then it does, and has come to rest. The faults by themselves make the table of docs/health.md. Of the pairs one in 36 is
// tried, and all where LPUCTL_LONG is set. With the race detector it is a quarter, and no table.
func TestOneJudgement(t *testing.T) {
	rows := map[string]*string{}
	var blind atomic.Bool // no nodes are in /dev
	t.Run("faults", func(t *testing.T) {
		for i, kind := range simulate.FaultKinds() {
			if !long.Takes(i, 1) {
				continue
			}
			row := new(string)
			rows[kind.Name] = row
			t.Run(kind.Name, func(t *testing.T) {
				t.Parallel()
				j, _ := newJudges(t, 2, kind.Name+"@0")
				if !j.nodes {
					blind.Store(true)
				}
				alone := j.agree()
				j.serve()
				*row = fmt.Sprintf("| %#q | %s | %s |\n", kind.Name, alone, j.agree())
			})
		}
		for i, pairs := range slices.Collect(slices.Chunk(pairs(t), 16)) {
			t.Run(fmt.Sprint("pairs/", i), func(t *testing.T) {
				t.Parallel()
				var faults []string
				for lpu, pair := range pairs {
					faults = append(faults, fmt.Sprint(pair[0], "@", lpu), fmt.Sprint(pair[1], "@", lpu))
				}
				j, _ := newJudges(t, len(pairs), faults...)
				j.agree()
				j.serve()
				j.agree()
			})
		}
	})
	if !blind.Load() && !t.Failed() && len(rows) == len(simulate.FaultKinds()) {
		table := "| fault | a command alone | when serve is at rest |\n|---|---|---|\n"
		for _, kind := range simulate.FaultKinds() {
			table += *rows[kind.Name]
		}
		page(t, "../../docs/health.md", "TestOneJudgement ./cmd/lpuctl writes this table -->\n", "<!-- end of faults -->", table)
	}
}

// page holds a part of a page against what it should be.
func page(t *testing.T, path, begin, end, want string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), begin)
	_, after, foundEnd := strings.Cut(rest, end)
	if !found || !foundEnd {
		t.Fatalf("%s has no place for it", path)
	}
	pageIs(t, path, before+begin+want+end+after)
}

// judges are all who say something of the LPUs of one node.
type judges struct {
	t     *testing.T
	root  string
	nodes bool           // the node has a dev
	snap  *node.Snapshot // of serve; nil: it does not run
}

// pairs are the names of two faults that one LPU can have: of one pair in 36, or of all.
func pairs(t *testing.T) (all [][2]string) {
	kinds := simulate.FaultKinds()
	for i, a := range kinds {
		for k, b := range kinds[i+1:] {
			if !long.Takes(i+k, 36) {
				continue
			}
			if _, ok := newJudges(t, 1, a.Name+"@0", b.Name+"@0"); ok {
				all = append(all, [2]string{a.Name, b.Name})
			}
		}
	}
	return all
}

// newJudges makes a node with faults. It is not ok if there can be no such node.
func newJudges(t *testing.T, lpus int, faults ...string) (*judges, bool) {
	t.Helper()
	n := simulate.Node{Profile: "orion", LPUs: lpus}
	for _, text := range faults {
		fault, err := simulate.ParseFault(text)
		if err != nil {
			t.Fatal(err)
		}
		n.Faults = append(n.Faults, fault)
	}
	j := &judges{t: t, root: filepath.Join(t.TempDir(), "node")}
	made, err := n.Write(j.root)
	if err == nil {
		j.nodes = made.DeviceNodes
	}
	return j, err == nil
}

// serve watches the node as serve does until it is at rest and agrees with a command.
func (j *judges) serve() {
	j.t.Helper()
	a := &app{App: cli.App{
		Terminal: cli.Terminal{Err: new(bytes.Buffer)}, Env: noEnvironment, Root: host.Root(j.root), Log: slog.New(slog.DiscardHandler),
	}}
	options, memory, _, err := a.Following()
	if err != nil {
		j.t.Fatal(err)
	}
	now := host.SinceBoot() - time.Minute
	watcher := watch.New(j.root, watch.Options{Scan: options, Patience: watch.Patience}, func() time.Duration { return now })
	n := node.New(slog.New(slog.DiscardHandler))
	n.Memory = memory
	look := func() {
		if j.snap = n.Update(j.t.Context(), node.Spec{ReadOnly: true}, watcher.Scan); j.snap == nil {
			j.t.Fatal("serve cannot read the node")
		}
	}
	for range 12 { // longer than every grace
		look()
		now += 3 * time.Second
	}
	// What it reads beside its scans comes when it comes.
	for end := time.Now().Add(time.Minute); time.Now().Before(end); now += time.Second {
		if _, differ := j.judge(); differ == "" {
			return
		}
		look()
	}
}

// agree fails unless all say the same of each LPU, and returns what they say of the first one with a fault.
func (j *judges) agree() string {
	j.t.Helper()
	state, differ := j.judge()
	if differ != "" {
		j.t.Error(differ)
	}
	return string(state)
}

// judge returns the state of the first LPU with a fault, and who says what of which LPU if they do not say the same.
func (j *judges) judge() (state discovery.Health, differ string) {
	var list, shown discovery.Inventory // health has the part that is asked for here
	var given, run, leased []string
	var asked sync.WaitGroup
	asked.Go(func() { j.document(&list, "list", "-o", "json") })
	asked.Go(func() { j.document(&shown, "health", "-o", "json") })
	asked.Go(func() { given = j.given() })
	asked.Go(func() { run = j.run() })
	asked.Go(func() { leased = j.leased() })
	asked.Wait()
	tainted := j.tainted()
	state = discovery.Healthy
	for i, l := range list.LPUs {
		if state == discovery.Healthy {
			state = l.Health
		}
		says, wrong := fmt.Sprintf("list %s, health %s", l.Health, shown.LPUs[i].Health), shown.LPUs[i].Health != l.Health
		add := func(who string, yes bool) {
			says, wrong = fmt.Sprint(says, ", ", who, " ", yes), wrong || yes != (l.Health == discovery.Healthy)
		}
		add("allocate", slices.Contains(given, l.Name))
		add("lease", slices.Contains(leased, l.Name))
		if slices.Contains(run, l.Name) {
			add("run", true)
		}
		if j.snap != nil {
			d := slices.IndexFunc(j.snap.Devices, func(d node.Device) bool { return d.ID == cdi.AddressName(l.Address) })
			add("serve", j.snap.Devices[d].Healthy)
			add("DRA", !slices.Contains(tainted, l.Address))
		}
		if wrong {
			differ += fmt.Sprintf("%s: %s\n  list: %v\n  health: %v\n", l.Name, says, l.Reasons, shown.LPUs[i].Reasons)
		}
	}
	if len(given) > 0 != (len(run) > 0) {
		differ += fmt.Sprintf("allocate gives of %v, run %v\n", given, run)
	}
	return state, differ
}

// document reads what a command prints, whatever it finds.
func (j *judges) document(into any, args ...string) {
	j.t.Helper()
	var out, said bytes.Buffer
	code := run(j.t.Context(), append([]string{"--root", j.root}, args...), &out, &said, noEnvironment)
	if out.Len() == 0 && (code == cli.ExitFound || code == launch.Code(errors.ErrUnsupported)) {
		return
	}
	if err := json.Unmarshal(out.Bytes(), into); err != nil {
		j.t.Errorf("%v: exit code %d, %v: %s", args, code, err, &said)
	}
}

// given are the LPUs of which allocate chooses.
func (j *judges) given() []string {
	var d struct{ Explanation struct{ Free []string } }
	j.document(&d, "allocate", "-n", "1", "-o", "json")
	return d.Explanation.Free
}

// run are the LPUs that run starts a command with.
func (j *judges) run() []string {
	var d struct{ LPUs []string }
	j.document(&d, "run", "-n", "1", "--no-lease", "--no-isolation", "--dry-run", "-o", "json", "--", "true")
	return d.LPUs
}

// leased are the LPUs that the arbiter gives.
func (j *judges) leased() (names []string) {
	a := &app{App: cli.App{
		Terminal: cli.Terminal{Err: new(bytes.Buffer)}, Env: noEnvironment, Root: host.Root(j.root), Log: slog.New(slog.DiscardHandler),
	}}
	view, err := a.lookForLeases(person.In(a.Root, leaseGroup))(context.Background(), lease.Seek{})
	if err != nil {
		j.t.Error(err)
		return nil
	}
	for i := range view.Inventory.LPUs {
		if l := &view.Inventory.LPUs[i]; l.Fit() {
			names = append(names, l.Name)
		}
	}
	return names
}

// tainted are the LPUs that the DRA driver taints as unhealthy.
func (j *judges) tainted() (all []pci.Address) {
	if j.snap == nil {
		return nil
	}
	publisher := dra.Publisher{Options: dra.Options{Node: "n1"}, Path: filepath.Join(j.t.TempDir(), "slices.json")}
	specs, _, err := publisher.Look(j.snap)
	if err != nil {
		j.t.Fatal(err)
	}
	for _, spec := range specs {
		for i := range spec.Devices {
			d := &spec.Devices[i]
			for _, taint := range d.Taints {
				if members := dra.MembersOf(d); len(members) == 1 && taint.Key == dra.TaintUnhealthy {
					all = append(all, members[0])
				}
			}
		}
	}
	return all
}
