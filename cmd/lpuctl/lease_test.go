package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/long"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// leaseNode is a simulated node with a short path: that of a socket has at most 107 bytes.
func leaseNode(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lpu") //nolint:usetesting // its paths are longer
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if _, err := (&simulate.Node{Profile: "orion", LPUs: 8}).Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// leasing is an arbiter of a node, with the config file of that node. A change is one of the
// arbiter before it serves.
func leasing(t *testing.T, dir, config string, change func(*lease.Arbiter)) (a *app, dial func() *lease.Client, stop func()) {
	t.Helper()
	file := filepath.Join(dir, "etc/lpuctl/config.yaml")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(config), 0o600)); err != nil {
		t.Fatal(err)
	}
	a = &app{App: cli.App{Root: host.Root(dir), Env: func(string) (string, bool) { return "", false }, Log: slog.New(slog.DiscardHandler)}}
	arbiter, err := a.newArbiter()
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "socket")
	if arbiter.Listener, err = listenForLeases(socket); err != nil {
		t.Fatal(err)
	}
	arbiter.Describe = func(_ context.Context, p lease.Peer) (lease.Peer, *lease.Refusal) {
		return lease.Peer{UID: 1000, PID: p.PID}, nil // root has no limits
	}
	change(arbiter)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- arbiter.Serve(ctx) }()
	dial = func() *lease.Client {
		t.Helper()
		c, err := lease.Dial(socket)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	return a, dial, func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// askArbiter asks the arbiter of a node, with the config file of that node, for LPUs.
func askArbiter(t *testing.T, dir, config string, w lease.Wish) (*lease.Grant, error) {
	t.Helper()
	_, dial, stop := leasing(t, dir, config, func(*lease.Arbiter) {})
	defer stop()
	c := dial()
	defer func() { _ = c.Close() }()
	return c.Wish(t.Context(), w, nil)
}

func refusedFor(err error, id finding.ID) bool {
	r, ok := errors.AsType[*lease.Refusal](err)
	return ok && r.ID == id
}

// TestKubernetesNeedsAPool: where a program hands out the LPUs of a node to pods, whichever it is,
// only those that the config sets apart are leased.
func TestKubernetesNeedsAPool(t *testing.T) {
	t.Parallel()
	one := lease.Wish{Selection: lease.Selection{Count: 1}}
	for _, program := range []struct {
		says string
		runs func(t *testing.T, dir string) (kill func())
	}{
		{"by the device plugin (lpuctl serve)", func(t *testing.T, dir string) func() { return shown(t, dir, owner.Plugin) }},
		{"by the DRA driver (lpuctl-dra)", func(t *testing.T, dir string) func() { return shown(t, dir, owner.DRA) }},
		{"by the device plugin (lpuctl serve)", pluginOfBefore},
	} {
		dir := leaseNode(t)
		kill := program.runs(t, dir)
		_, err := askArbiter(t, dir, "", one)
		if !refusedFor(err, finding.LeaseClosed) || !strings.Contains(err.Error(), "Kubernetes hands out the LPUs of this node, "+program.says) {
			t.Fatal(err)
		}
		inv, err := discovery.Scan(t.Context(), dir, discovery.Options{Models: discovery.BuiltinModels()})
		if err != nil {
			t.Fatal(err)
		}
		pool := "leases: {pool: [\"" + inv.LPUs[5].Address.String() + "\"]}\n"
		if g, err := askArbiter(t, dir, pool, one); err != nil || len(g.LPUs) != 1 || g.LPUs[0].Name != "lpu5" {
			t.Fatalf("%+v, %v", g, err)
		}
		kill()
		if _, err := askArbiter(t, dir, "", one); err != nil {
			t.Fatal(err)
		}
	}
	dir := leaseNode(t)
	lock := filepath.Join(dir, node.StateDir, ".owner-dra.lock")
	if err := errors.Join(os.MkdirAll(filepath.Dir(lock), 0o755), os.Symlink("elsewhere", lock)); err != nil {
		t.Fatal(err)
	}
	if _, err := askArbiter(t, dir, "", one); !refusedFor(err, finding.LeaseClosed) ||
		!strings.Contains(err.Error(), "it cannot be known whether") {
		t.Error(err) // what cannot be seen is no no
	}
}

// TestAllocateBesideKubernetes: the answer stays, and what it is worth is said. That it cannot be
// seen is said too.
func TestAllocateBesideKubernetes(t *testing.T) {
	t.Parallel()
	n := newObservedNode(t)
	allocates := func(what, severity, says string) {
		t.Helper()
		var out, said bytes.Buffer
		command := n.lpuctl("allocate", "-n", "2", "-o", "json")
		command.Stdout, command.Stderr = &out, &said
		var answer allocation
		if err := errors.Join(command.Run(), json.Unmarshal(out.Bytes(), &answer)); err != nil || len(answer.LPUs) != 2 {
			t.Errorf("%s: %v\n%s%s", what, err, &out, &said)
		}
		if got := answer.Explanation.Kubernetes; !strings.Contains(got, says) || says == "" && got != "" {
			t.Errorf("%s: the explanation has %q", what, got)
		}
		is := strings.Contains(said.String(), severity+": free LPUs: "+says) && strings.Contains(said.String(), "beside-kubernetes")
		if is != (says != "") {
			t.Errorf("%s: it says %s", what, &said)
		}
	}
	allocates("alone", "", "")
	kill := shown(t, n.root, owner.DRA)
	allocates("beside the driver", "warning", "Kubernetes hands out the LPUs of this node, by the DRA driver (lpuctl-dra): a pod may have")
	kill()
	allocates("alone again", "", "")
	if err := os.Remove(filepath.Join(n.root, node.StateDir, ".owner-dra.lock")); err != nil {
		t.Fatal(err)
	}
	n.plant(node.StateDir+"/.owner-dra.lock", "-> elsewhere")
	allocates("it cannot be seen", "note", "it cannot be known whether Kubernetes hands out the LPUs of this node")
}

// shown shows that the program of an owner runs on a node.
func shown(t *testing.T, dir string, o owner.Owner) (kill func()) {
	t.Helper()
	g := &owner.Gate{File: owner.File{Dir: filepath.Join(dir, node.StateDir)}, Me: o, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	g.Others = func(context.Context) (map[pci.Address]string, error) { return nil, nil }
	g.Show()
	ended := make(chan struct{})
	go func() { g.Run(ctx); close(ended) }()
	return func() { cancel(); <-ended }
}

// pluginOfBefore is a device plugin of a release before: it has a socket, which stays when it is
// killed, and shows nothing else.
func pluginOfBefore(t *testing.T, dir string) (kill func()) {
	t.Helper()
	plugins := filepath.Join(dir, "var/lib/kubelet/device-plugins")
	if err := os.MkdirAll(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(plugins, "lpuctl-1.sock"))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return func() { _ = l.Close() }
}

// TestLeasedBeforeAProgramStarts: plugin and driver leave an LPU alone that was leased before they
// started, and hand it out when it was given back.
func TestLeasedBeforeAProgramStarts(t *testing.T) {
	for _, me := range []owner.Owner{owner.Plugin, owner.DRA} {
		dir := leaseNode(t)
		a, dial, stop := leasing(t, dir, "", func(*lease.Arbiter) {})
		user := dial()
		granted, err := user.Wish(t.Context(), lease.Wish{Selection: lease.Selection{Count: 7}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		memory, err := node.RememberIn(a.Root)
		if err != nil {
			t.Fatal(err)
		}
		file := owner.File{Dir: memory.Dir}
		if _, err := file.Set(t.Context(), me, "test", false); err != nil {
			t.Fatal(err)
		}
		g := &owner.Gate{File: file, Me: me, Log: a.Log}
		g.Others = func(context.Context) (map[pci.Address]string, error) { return nil, nil }
		of, err := a.Pods(memory)
		if err := errors.Join(err, of.RespectLeases(g)); err != nil {
			t.Fatal(err)
		}
		enter := func(address pci.Address) error {
			leave, err := g.Enter(t.Context(), []pci.Address{address})
			if err == nil {
				leave()
			}
			return err
		}
		leased := granted.LPUs[0].Address
		if err := enter(leased); err == nil || !strings.Contains(err.Error(), "lease l1 of uid(1000) has it") {
			t.Errorf("%s hands out what is leased: %v", me, err)
		}
		if v := g.Renew(t.Context()); !v.Leased(leased) || !strings.Contains(v.Why(leased), "lease l1") {
			t.Errorf("%s offers what is leased: %q", me, v.Why(leased))
		}
		inv, err := discovery.Scan(t.Context(), dir, discovery.Options{Models: discovery.BuiltinModels()})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range inv.LPUs {
			free := !slices.ContainsFunc(granted.LPUs, func(of lease.LPU) bool { return of.Address == l.Address })
			if err := enter(l.Address); free != (err == nil) {
				t.Errorf("%s, %s: %v", me, l.Name, err)
			}
		}
		if err := user.Close(); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "it was given back, and is handed out", func() error { return enter(leased) })
		stop()
	}
}

// TestAProgramStartsMeanwhile: after the look of the arbiter, and before the lease is written down.
// No user is answered that it has the LPU.
func TestAProgramStartsMeanwhile(t *testing.T) {
	dir := leaseNode(t)
	kill := func() {}
	starts := sync.OnceFunc(func() { kill = shown(t, dir, owner.DRA) })
	_, dial, stop := leasing(t, dir, "", func(a *lease.Arbiter) {
		look := a.Look
		a.Look = func(ctx context.Context, seek lease.Seek) (lease.View, error) {
			v, err := look(ctx, seek)
			starts()
			return v, err
		}
	})
	defer func() { stop(); kill() }()
	c := dial()
	_, err := c.Wish(t.Context(), lease.Wish{Selection: lease.Selection{Count: 1}}, nil)
	if !refusedFor(err, finding.LeaseClosed) || !strings.Contains(err.Error(), "by the DRA driver") {
		t.Error(err)
	}
	run := filepath.Join(dir, filepath.Dir(lease.Socket))
	if r, err := lease.LeasesIn(run).Peek(); err != nil || r == nil || len(r.Leases) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestNoLPUForAPodAndAUser while the driver starts and ends at any moment, and its pods outlive it.
// Who gets one never finds it with another.
func TestNoLPUForAPodAndAUser(t *testing.T) {
	t.Parallel()
	const users, given = 3, 4
	rounds := long.Steps(t, 20)
	dir := leaseNode(t)
	a, _, stop := leasing(t, dir, "", func(*lease.Arbiter) {})
	defer stop()
	memory, err := node.RememberIn(a.Root)
	if err != nil {
		t.Fatal(err)
	}
	inv, err := discovery.Scan(t.Context(), dir, discovery.Options{Models: discovery.BuiltinModels()})
	if err != nil {
		t.Fatal(err)
	}
	file := owner.File{Dir: memory.Dir}
	if _, err := file.Set(t.Context(), owner.DRA, "test", false); err != nil {
		t.Fatal(err)
	}
	var holders sync.Map // address: who has it
	take := func(address pci.Address, who string) {
		if other, twice := holders.LoadOrStore(address, who); twice {
			t.Errorf("%s: %s has it, and so has %s", address, other, who)
		}
	}
	ctx, end := context.WithCancel(t.Context())
	var leases, pods atomic.Int64
	var all sync.WaitGroup
	for range users {
		all.Go(func() {
			for ctx.Err() == nil {
				c, err := lease.Dial(filepath.Join(dir, "socket"))
				if err != nil {
					t.Error(err)
					return
				}
				if g, err := c.Wish(ctx, lease.Wish{Selection: lease.Selection{Count: 2}}, nil); err == nil {
					for _, l := range g.LPUs {
						take(l.Address, "a user")
					}
					leases.Add(1)
					for _, l := range g.LPUs {
						holders.Delete(l.Address)
					}
				}
				_ = c.Close()
			}
		})
	}
	record := func(i int) string {
		return filepath.Join(memory.Dir, claim.DirName, fmt.Sprintf("0d8ef4a5-1f0c-4f62-9f6d-%012d.json", i))
	}
	for round := 0; round < rounds || pods.Load() == 0; round++ { // each LPU may have been leased just then
		before := leases.Load()
		await.For(t, "a user leases an LPU while no program runs", func() bool { return leases.Load() != before })
		g := &owner.Gate{File: file, Me: owner.DRA, Log: a.Log}
		g.Others = func(context.Context) (map[pci.Address]string, error) { return nil, nil }
		of, err := a.Pods(memory)
		if err := errors.Join(err, of.RespectLeases(g)); err != nil {
			t.Fatal(err)
		}
		had := map[int]pci.Address{}
		for i := range given {
			address := inv.LPUs[(round+i)%len(inv.LPUs)].Address
			leave, err := g.Enter(ctx, []pci.Address{address})
			if err != nil {
				continue
			}
			plant.File(t, record(i), fmt.Sprintf(`{"apiVersion": %q, "kind": "DRAClaim", "version": 1, "boot": "", "state": "completed",
				"since": "2026-11-23T05:00:00Z", "namespace": "team", "name": "job", "uid": %q,
				"requests": [{"name": "lpus", "devices": [{"name": "d", "members": [%q]}]}]}`,
				statefile.APIVersion, strings.TrimSuffix(filepath.Base(record(i)), ".json"), address))
			take(address, "a pod")
			had[i] = address
			pods.Add(1)
			leave()
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		g.Run(ended) // which has it seen no more
		before = leases.Load()
		await.For(t, "each user leases LPUs", func() bool { return leases.Load() >= before+users })
		for i, address := range had {
			holders.Delete(address)
			if err := os.Remove(record(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	end()
	all.Wait()
	t.Logf("%d leases, %d pods", leases.Load(), pods.Load())
}

// TestPodsOutliveTheProgram: what pods have from plugin or driver is not leased while neither runs.
// Where that cannot be known nothing is.
func TestPodsOutliveTheProgram(t *testing.T) {
	dir := leaseNode(t)
	plant.File(t, filepath.Join(dir, node.StateDir, claim.DirName, "0d8ef4a5-1f0c-4f62-9f6d-0b1a3a6a8b01.json"), `{
		"apiVersion": "lpuctl.hyperaccel.ai/v1alpha1", "kind": "DRAClaim", "version": 1, "boot": "", "state": "completed",
		"since": "2026-11-23T05:00:00Z", "namespace": "team", "name": "job", "uid": "0d8ef4a5-1f0c-4f62-9f6d-0b1a3a6a8b01",
		"requests": [{"name": "lpus", "devices": [{"name": "lpu1-0000-44-00-1-681c5c16", "members": ["0000:44:00.1"]}]}]}`)
	if _, err := askArbiter(t, dir, "", lease.Wish{Selection: lease.Selection{Count: 8}}); !refusedFor(err, finding.LeaseNoneFree) ||
		!strings.Contains(err.Error(), "lpu1 in use by claim team/job") {
		t.Error(err)
	}
	if _, err := askArbiter(t, dir, "", lease.Wish{Selection: lease.Selection{Count: 7}}); err != nil {
		t.Error(err)
	}
	g := &owner.Gate{File: owner.File{Dir: filepath.Join(dir, node.StateDir)}, Me: owner.Plugin, Log: slog.New(slog.DiscardHandler)}
	g.Others = func(context.Context) (map[pci.Address]string, error) { return nil, nil }
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for lately := false; !lately; { // the moment may be over before the arbiter has looked
		began := host.SinceBoot()
		leave, err := g.Enter(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		leave()
		g.Run(ended)
		_, err = askArbiter(t, dir, "", lease.Wish{Selection: lease.Selection{Count: 1}})
		lately = host.SinceBoot()-began < owner.KubeletSettle
		if lately && (!refusedFor(err, finding.LeaseNoneFree) || !strings.Contains(err.Error(), "that was given an LPU a moment ago")) {
			t.Error(err)
		}
	}
}

// TestPodsAreNotKnown: where that keeps LPUs from being leased, the remedy lets them be.
func TestPodsAreNotKnown(t *testing.T) {
	dir := leaseNode(t)
	one := lease.Wish{Selection: lease.Selection{Count: 1}}
	closed := func(want string) {
		t.Helper()
		_, err := askArbiter(t, dir, "", one)
		refused, _ := errors.AsType[*lease.Refusal](err)
		if refused == nil || refused.ID != finding.LeaseClosed || !strings.HasSuffix(refused.Remedy, want) {
			t.Errorf("%+v; want the remedy %q", err, want)
		}
	}
	socket := filepath.Join(dir, plugin.DefaultPodResources)
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	closed("rm " + socket)
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	const uid = "0d8ef4a5-1f0c-4f62-9f6d-0b1a3a6a8b01"
	record := filepath.Join(dir, node.StateDir, claim.DirName, uid+".json")
	plant.File(t, record, "{")
	closed("lpuctl cdi remove --claim " + uid)
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	if _, err := askArbiter(t, dir, "", one); err != nil {
		t.Error(err)
	}
}

// TestAKubeletIsNotAskedInVain: one that hangs does not delay a refusal that has another reason.
func TestAKubeletIsNotAskedInVain(t *testing.T) {
	dir := leaseNode(t)
	defer shown(t, dir, owner.DRA)()
	socket := filepath.Join(dir, plugin.DefaultPodResources)
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if _, err := askArbiter(t, dir, "", lease.Wish{Selection: lease.Selection{Count: 1}}); !refusedFor(err, finding.LeaseClosed) {
		t.Error(err)
	}
	ours, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	_, err = ours.Write([]byte("ours"))
	first, accepted := l.Accept()
	if err := errors.Join(err, ours.Close(), accepted); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	if said, err := io.ReadAll(first); err != nil || string(said) != "ours" {
		t.Errorf("the kubelet was asked: %q, %v", said, err)
	}
}

// TestWhereAKubeletIs: where it is there and does not answer nothing is leased, whichever directory
// it has.
func TestWhereAKubeletIs(t *testing.T) {
	t.Parallel()
	const named = "/named/kubelet.sock"
	dir := leaseNode(t)
	config := "serve: {podResources: " + named + "}\n"
	for _, socket := range append(plugin.PodResources(), named) {
		plant.File(t, filepath.Join(dir, socket), "") // as if the kubelet did not run
		if _, err := askArbiter(t, dir, config, lease.Wish{Selection: lease.Selection{Count: 1}}); !refusedFor(err, finding.LeaseClosed) ||
			!strings.Contains(err.Error(), "it cannot be known which LPUs pods have") {
			t.Errorf("%s: %v", socket, err)
		}
		if err := os.Remove(filepath.Join(dir, socket)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := askArbiter(t, dir, config, lease.Wish{Selection: lease.Selection{Count: 1}}); err != nil {
		t.Errorf("there is no kubelet: %v", err)
	}
}

// TestEndedLeasesAreNotRecorded: the record names neither the lease of a container that has ended,
// though nobody asks the arbiter, nor those that ended with an arbiter whose connections nothing
// keeps.
func TestEndedLeasesAreNotRecorded(t *testing.T) {
	t.Parallel()
	dir := leaseNode(t)
	_, dial, stop := leasing(t, dir, "", func(*lease.Arbiter) {})
	recorded := func() int {
		r, err := lease.LeasesIn(filepath.Join(dir, filepath.Dir(lease.Socket))).Peek()
		if err != nil || r == nil {
			t.Fatal(r, err)
		}
		return len(r.Leases)
	}
	bound, held := dial(), dial()
	for _, c := range []*lease.Client{bound, held} {
		if _, err := c.Wish(t.Context(), lease.Wish{Selection: lease.Selection{Count: 1}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	container := strings.Repeat("0123456789abcdef", 4)
	process := filepath.Join(dir, "proc/4711")
	plant.File(t, filepath.Join(process, "cgroup"), "0::/docker/"+container+"\n")
	if err := errors.Join(bound.Bind(t.Context(), container), bound.Close()); err != nil {
		t.Fatal(err)
	}
	if n := recorded(); n != 2 {
		t.Errorf("%d leases are recorded", n)
	}
	if err := os.RemoveAll(process); err != nil {
		t.Fatal(err)
	}
	await.For(t, "the record does not name the lease of the container that has ended", func() bool { return recorded() == 1 })
	stop()
	if n := recorded(); n != 0 {
		t.Errorf("the arbiter has ended, and %d leases are recorded", n)
	}
	_ = held.Close()
}

// TestLimits: the config says how much one user may have, and for how long.
func TestLimits(t *testing.T) {
	dir := leaseNode(t)
	three, day := lease.Wish{Selection: lease.Selection{Count: 3}}, lease.Wish{Selection: lease.Selection{Count: 1}, For: 24 * time.Hour}
	for _, w := range []lease.Wish{three, day} {
		if _, err := askArbiter(t, dir, "leases: {maxLPUs: 2, maxHours: 8}\n", w); !refusedFor(err, finding.LeaseLimit) {
			t.Errorf("%+v: %v", w, err)
		}
		if _, err := askArbiter(t, dir, "leases: {maxLPUs: 3, maxHours: 24}\n", w); err != nil {
			t.Errorf("%+v: %v", w, err)
		}
	}
	g, err := askArbiter(t, dir, "leases: {maxHours: 8}\n", three)
	if left := g.Until - host.SinceBoot(); err != nil || left > 8*time.Hour || left < 7*time.Hour {
		t.Errorf("%+v, %v", g, err)
	}
}

// TestABadConfigIsToldToWhoAsks: the arbiter starts all the same, because systemd would start it again and again.
func TestABadConfigIsToldToWhoAsks(t *testing.T) {
	_, err := askArbiter(t, leaseNode(t), "leases: {pool: [lpu3]}\n", lease.Wish{Selection: lease.Selection{Count: 1}})
	if !refusedFor(err, finding.LeaseRequest) || !strings.Contains(err.Error(), `"lpu3" is not a PCI address`) {
		t.Error(err)
	}
}
