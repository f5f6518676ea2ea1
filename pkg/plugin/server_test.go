package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/long"
)

func holdLock(t *testing.T, dir, name string) (unlock func()) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { _ = f.Close() }
}

// instance is one running plugin server.
type instance struct {
	t      testing.TB
	server *Server
	cancel context.CancelFunc
	done   chan struct{}
}

func (r *rig) serve(k *kubelet, overlap bool) *instance {
	ctx, cancel := context.WithCancel(context.Background())
	i := &instance{
		t: r.t,
		server: &Server{
			Plugin: r.plugin, Dir: k.dir, Resource: DefaultResource, Overlap: overlap, Log: slog.New(slog.NewJSONHandler(r.log, nil)),
		},
		cancel: cancel, done: make(chan struct{}),
	}
	go func() {
		i.server.Run(ctx)
		close(i.done)
	}()
	r.t.Cleanup(i.end)
	return i
}

func (i *instance) ready() error {
	_, err := i.server.Ready()
	return err
}

// turns waits until the loop has looked at everything once more.
func (i *instance) turns() {
	i.t.Helper()
	for range 2 { // it beats before it waits, and looks after that
		i.server.pulse.Beat(time.Now().Add(-time.Hour))
		await.Until(i.t, "the loop turns", func() error { return i.server.pulse.Alive("turns", time.Now(), turnLimit) })
	}
}

func (i *instance) end() {
	i.cancel()
	<-i.done
}

// served is a simulated server whose plugin is registered with a kubelet.
func served(t *testing.T, rules rules) (*rig, *kubelet, *instance) {
	t.Helper()
	r, k := orion(t), newKubelet(t, rules)
	k.start()
	r.scan()
	i := r.serve(k, false)
	k.wait(8)
	return r, k, i
}

func bothRules(t *testing.T, test func(t *testing.T, rules rules)) {
	t.Run("1.36", func(t *testing.T) { test(t, rules136) })
	t.Run("1.37", func(t *testing.T) { test(t, rules137) })
}

func (k *kubelet) sockets() []string {
	sockets, _ := filepath.Glob(filepath.Join(k.dir, socketPrefix+"*"))
	return sockets
}

func TestInvariant1OptionsComeFromThePlugin(t *testing.T) {
	bothRules(t, func(t *testing.T, rules rules) {
		_, k, _ := served(t, rules)
		if e := k.primary(); !e.options.GetPreferredAllocationAvailable || e.options.PreStartRequired {
			t.Errorf("options %v", e.options)
		}
	})
}

// TestInvariant3RestartsOfTheKubelet: hundreds, each with a new socket, none of which is stuck.
func TestInvariant3RestartsOfTheKubelet(t *testing.T) {
	restarts := long.Rounds(t, 100)
	bothRules(t, func(t *testing.T, rules rules) {
		t.Parallel()
		r, k := orion(t), newKubelet(t, rules)
		k.start()
		r.scan()
		i := r.serve(k, false)
		var took []time.Duration
		for range restarts {
			k.wait(8)
			k.restart()
			start := time.Now()
			k.wait(8)
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		t.Logf("from kubelet.sock to a list of 8: median %v, 99th of 100 %v, longest %v",
			took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
		if len(k.refused) > 0 && rules == rules137 {
			for _, why := range k.refused {
				if strings.Contains(why, "already connected") {
					t.Fatalf("a socket was registered twice: %s", why)
				}
			}
		}
		i.end()
		if left := k.sockets(); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

func TestInvariant4OneRegistrationAtATime(t *testing.T) {
	_, k, _ := served(t, rules137)
	time.Sleep(3 * pollInterval / 2)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.registers != 1 || len(k.endpoints) != 1 {
		t.Errorf("registered %d times, %d plugins", k.registers, len(k.endpoints))
	}
}

// TestInvariant5SignsOfARestart: each by itself brings the plugin back.
func TestInvariant5SignsOfARestart(t *testing.T) {
	for name, sign := range map[string]func(k *kubelet){
		"own socket gone": func(k *kubelet) { _ = os.Remove(k.sockets()[0]) },
		"stream ended":    func(k *kubelet) { _ = k.primary().conn.Close() },
		"directory made anew": func(k *kubelet) {
			k.stop()
			// The plugin makes sockets there meanwhile, until there is no directory.
			await.Until(k.t, "the directory is away", func() error { return os.RemoveAll(k.dir) })
			if err := os.Mkdir(k.dir, 0o750); err != nil {
				k.t.Fatal(err)
			}
			k.start()
		},
		"new kubelet.sock": func(k *kubelet) {
			listener, err := net.Listen("unix", filepath.Join(k.dir, "next.sock"))
			if err != nil {
				k.t.Fatal(err)
			}
			listener.(*net.UnixListener).SetUnlinkOnClose(false)
			go func() { _ = k.server.Serve(listener) }()
			if err := os.Rename(filepath.Join(k.dir, "next.sock"), filepath.Join(k.dir, "kubelet.sock")); err != nil {
				k.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, k, _ := served(t, rules137)
			sign(k)
			await.For(t, "it registers again", func() bool {
				k.mu.Lock()
				defer k.mu.Unlock()
				return k.registers == 2
			})
			k.wait(8)
		})
	}
}

// triesAgain waits for registrations with a result, which must not be more than the backoff allows.
func (i *instance) triesAgain(result string) {
	i.t.Helper()
	began, n := time.Now(), 0.0
	await.For(i.t, "it tries again", func() bool {
		n = i.value("lpuctl_registrations_total", "result", result)
		return n >= 2 && time.Since(began) > time.Second
	})
	if n > 10*math.Ceil(time.Since(began).Seconds()) {
		i.t.Errorf("%v times in %v", n, time.Since(began))
	}
}

func TestInvariant6KubeletIsNotThere(t *testing.T) {
	t.Run("no directory", func(t *testing.T) {
		r, k := orion(t), newKubelet(t, rules137)
		if err := os.Remove(k.dir); err != nil {
			t.Fatal(err)
		}
		r.scan()
		i := r.serve(k, false)
		time.Sleep(300 * time.Millisecond)
		if err := i.ready(); err == nil {
			t.Error("ready without a kubelet")
		}
		if err := os.Mkdir(k.dir, 0o750); err != nil {
			t.Fatal(err)
		}
		k.start()
		k.wait(8)
		await.For(t, "ready", func() bool { return i.ready() == nil })
	})
	t.Run("refuses", func(t *testing.T) {
		r, k := orion(t), newKubelet(t, rules137)
		k.start()
		k.stop() // its socket stays, and nobody listens
		r.scan()
		i := r.serve(k, false)
		i.triesAgain("failure")
		if logged := strings.Count(r.log.String(), "not registered"); logged != 1 {
			t.Errorf("it is logged %d times that it is not registered", logged)
		}
		if err := os.Remove(filepath.Join(k.dir, "kubelet.sock")); err != nil {
			t.Fatal(err)
		}
		await.For(t, "it says the new reason", func() bool { return strings.Count(r.log.String(), "not registered") == 2 })
		k.start()
		k.wait(8)
		k.stop()
		await.For(t, "it says an old reason again after it was registered", func() bool {
			return strings.Count(r.log.String(), "not registered") == 3
		})
	})
	t.Run("ends each stream", func(t *testing.T) {
		r, k := orion(t), newKubelet(t, rules137)
		k.fickle = true
		k.start()
		r.scan()
		i := r.serve(k, false)
		i.triesAgain("success")
	})
	t.Run("names the socket", func(t *testing.T) {
		r, k := orion(t), newKubelet(t, rules137)
		k.deaf = true
		k.start()
		r.scan()
		i := r.serve(k, false)
		await.For(t, "it tries again", func() bool { return i.value("lpuctl_registrations_total", "result", "failure") > 2 })
		if logged := strings.Count(r.log.String(), "not registered"); logged != 1 {
			t.Errorf("it is logged %d times that it is not registered: %s", logged, r.log)
		}
	})
	t.Run("hangs", func(t *testing.T) {
		r, k := orion(t), newKubelet(t, rules137)
		listener, err := net.Listen("unix", filepath.Join(k.dir, "kubelet.sock"))
		if err != nil {
			t.Fatal(err)
		}
		r.scan()
		start := time.Now()
		i := r.serve(k, false)
		time.Sleep(100 * time.Millisecond)
		i.end()
		if took := time.Since(start); took > registerTimeout {
			t.Errorf("a kubelet that hangs is waited for: it ended after %v", took)
		}
		_ = listener.Close()
	})
	t.Run("read-only, a file", func(t *testing.T) {
		r, k := orion(t), newKubelet(t, rules137)
		k.dir = filepath.Join(k.dir, "file")
		if err := os.WriteFile(k.dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r.scan()
		i := r.serve(k, false)
		await.For(t, "it says why", func() bool { return strings.Contains(r.log.String(), "not a directory") })
		i.end()
	})
	t.Run("path too long", func(t *testing.T) {
		r := orion(t)
		dir := filepath.Join(t.TempDir(), strings.Repeat("d", 100))
		if err := write(dir, "kubelet.sock", ""); err != nil {
			t.Fatal(err)
		}
		r.scan()
		i := r.serve(&kubelet{dir: dir}, false)
		await.For(t, "it says why", func() bool { return strings.Contains(r.log.String(), "too long for the path of a socket") })
		i.end()
	})
}

func TestInvariant7EndLeavesTheSpec(t *testing.T) {
	r, k, i := served(t, rules137)
	i.end()
	k.wait(0)
	options := r.plugin.state.Load().options
	if _, err := os.Stat(options.Spec.File.Path); err != nil {
		t.Error(err)
	}
	if left := k.sockets(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestInvariant7EndAtAnyMoment: before it is registered, while it is, after, and while the kubelet is restarted.
func TestInvariant7EndAtAnyMoment(t *testing.T) {
	r, k := orion(t), newKubelet(t, rules137)
	k.start()
	r.scan()
	for n := range 50 {
		i := r.serve(k, false)
		if n%5 == 0 {
			k.restart()
		}
		time.Sleep(time.Duration(n) * 200 * time.Microsecond)
		i.end()
		if left := k.sockets(); len(left) > 0 {
			t.Fatalf("left behind: %v", left)
		}
	}
}

func TestInvariant7ReloadKeepsTheStream(t *testing.T) {
	r, k, _ := served(t, rules137)
	for i := range 50 {
		options := r.plugin.state.Load().options
		options.RequireConnected, options.NUMA = i%2 == 0, []NUMA{NUMAOff, NUMAOn}[i%2]
		r.plugin.Reload(t.Context(), options)
		r.scan()
		if n := k.allocatable(); n != 8 {
			t.Fatalf("%d allocatable after a reload", n)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.registers != 1 {
		t.Errorf("registered %d times", k.registers)
	}
}

// TestInvariant8Upgrade: on 1.37 nothing is missing while two instances overlap; before, the new one waits for the end of
// the old one.
func TestInvariant8Upgrade(t *testing.T) {
	t.Run("1.37", func(t *testing.T) {
		r, k := orion(t), newKubelet(t, rules137)
		k.start()
		r.scan()
		old := r.serve(k, true)
		k.wait(8)
		for upgrades := range 5 {
			was, next := k.primary(), r.serve(k, true)
			await.For(t, "the new instance is registered, and the kubelet has read its list", func() bool {
				if n := k.allocatable(); n != 8 {
					t.Fatalf("%d allocatable", n)
				}
				return next.ready() == nil && k.primary() != was
			})
			old.end()
			for range 100 {
				if n := k.allocatable(); n != 8 {
					t.Fatalf("upgrade %d: %d allocatable", upgrades, n)
				}
				time.Sleep(time.Millisecond)
			}
			old = next
		}
	})
	bothRules(t, func(t *testing.T, rules rules) {
		r, k := orion(t), newKubelet(t, rules)
		k.start()
		r.scan()
		old := r.serve(k, false)
		k.wait(8)
		next := r.serve(k, false)
		await.For(t, "the new instance stands by", func() bool { return strings.Contains(r.log.String(), "another instance serves") })
		if err := next.ready(); err != nil {
			t.Errorf("an upgrade would wait for ever: %v", err)
		}
		if n := k.allocatable(); n != 8 || k.registers != 1 {
			t.Errorf("%d allocatable, registered %d times", n, k.registers)
		}
		old.end()
		await.For(t, "the new instance registers", func() bool {
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.registers == 2
		})
		k.wait(8)
	})
	t.Run("an overlap on an old kubelet", func(t *testing.T) {
		r, k := orion(t), newKubelet(t, rules136)
		k.start()
		r.scan()
		old := r.serve(k, true)
		k.wait(8)
		next := r.serve(k, true)
		await.For(t, "the new instance is registered", func() bool { return next.ready() == nil })
		old.end()
		k.wait(8) // a moment of nothing, and it heals
	})
}

func TestInvariant3DeadSocketsAreRemoved(t *testing.T) {
	r, k := orion(t), newKubelet(t, rules137)
	k.start()
	for i := range 3 { // as kill -9 leaves them
		listener, err := net.Listen("unix", filepath.Join(k.dir, fmt.Sprintf("lpuctl-dead%d.sock", i)))
		if err != nil {
			t.Fatal(err)
		}
		listener.(*net.UnixListener).SetUnlinkOnClose(false)
		_ = listener.Close()
	}
	r.scan()
	r.serve(k, false)
	k.wait(8)
	if left := k.sockets(); len(left) != 1 {
		t.Errorf("sockets %v", left)
	}
}

// TestInvariant3NewSocketsAreNotTakenForDead: another instance, which looks at all sockets all the time, finds none that does not
// accept connections yet.
func TestInvariant3NewSocketsAreNotTakenForDead(t *testing.T) {
	s := &Server{Plugin: orion(t).plugin, Dir: t.TempDir()}
	ctx, cancel := context.WithCancel(t.Context())
	var other sync.WaitGroup
	other.Go(func() {
		for ctx.Err() == nil {
			s.siblings("")
		}
	})
	for range 1000 {
		sock, err := s.listen()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(sock.path); err != nil {
			t.Error(err)
		}
		sock.stop()
	}
	cancel()
	other.Wait()
	if left, _ := os.ReadDir(s.Dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

func TestInvariant10SendsOnlyWhatChanged(t *testing.T) {
	r, k := orion(t), newKubelet(t, rules137)
	k.start()
	inv := r.scan()
	r.serve(k, false)
	k.wait(8)
	for range 20 {
		r.scan()
	}
	time.Sleep(50 * time.Millisecond)
	k.mu.Lock()
	lists := k.lists
	k.mu.Unlock()
	if lists != 1 {
		t.Errorf("%d lists for one state", lists)
	}
	sick := *inv
	sick.LPUs = slices.Clone(inv.LPUs)
	sick.LPUs[1].Health = "unhealthy"
	start := time.Now()
	r.plugin.Update(t.Context(), found(&sick))
	k.wait(7)
	t.Logf("from a change to the kubelet: %v", time.Since(start))
}

func TestInvariant12NoLPUs(t *testing.T) {
	r, k := orion(t), newKubelet(t, rules137)
	if err := os.RemoveAll(filepath.Join(r.root, "sys/bus/pci/devices")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(r.root, "sys/bus/pci/devices"), 0o755); err != nil {
		t.Fatal(err)
	}
	k.start()
	r.scan()
	i := r.serve(k, false)
	await.For(t, "registered with nothing", func() bool { return i.ready() == nil })
	options := r.plugin.state.Load().options
	if _, err := os.Stat(options.Spec.File.Path); !os.IsNotExist(err) {
		t.Errorf("a spec for nothing: %v", err)
	}
}

// TestAdmission goes the kubelet's way with pods: init containers, fragmentation, what is left.
func TestAdmission(t *testing.T) {
	_, k, _ := served(t, rules137)
	_, first, err := k.admit(1) // an init container
	if err != nil {
		t.Fatal(err)
	}
	main, got, err := k.admit(2, first...)
	if err != nil || !slices.Contains(got, first[0]) || main.Envs["LPU_CONNECTED"] != "true" {
		t.Errorf("after an init container with %v: %v %v %v", first, got, main, err)
	}
	four, gotFour, err := k.admit(4)
	if err != nil || four.Envs["LPU_CONNECTED"] != "true" {
		t.Errorf("four: %v %v", four, err)
	}
	if _, _, err := k.admit(3); err == nil {
		t.Error("more than there are were handed out")
	}
	k.release(gotFour)
	if again, _, err := k.admit(4); err != nil || again.Envs["LPU_VISIBLE_DEVICES"] != four.Envs["LPU_VISIBLE_DEVICES"] {
		t.Errorf("the same state gives another answer: %v %v", again, err)
	}
}

// TestManyClients: calls from all sides at once, while the machine changes.
func TestManyClients(t *testing.T) {
	calls := long.Steps(t, 10_000)
	r, k := newRig(t, simulate.Node{Profile: "orion"}, nil), newKubelet(t, rules137)
	r.plugin.log = slog.New(slog.DiscardHandler)
	k.start()
	inv := r.scan()
	r.serve(k, false)
	k.wait(8)
	e := k.primary()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	ctx, cancel := context.WithCancel(context.Background())
	var wg, updates sync.WaitGroup
	updates.Go(func() {
		for ctx.Err() == nil {
			r.plugin.Update(ctx, found(inv))
			time.Sleep(time.Millisecond)
		}
	})
	took := make([]time.Duration, calls)
	for client := range 32 {
		wg.Go(func() {
			for i := client; i < calls; i += 32 {
				start := time.Now()
				var err error
				if i%2 == 0 {
					_, err = e.client.Allocate(ctx, request(ids(i%8, (i+1)%8)...))
				} else {
					_, err = e.client.GetPreferredAllocation(ctx, preference(int32(1+i%8), nil, orionIDs...))
				}
				if err != nil {
					t.Error(err)
					return
				}
				took[i] = time.Since(start)
			}
		})
	}
	wg.Wait()
	cancel()
	updates.Wait()
	runtime.GC()
	runtime.ReadMemStats(&after)
	slices.Sort(took)
	t.Logf("%d calls by 32 clients: median %v, 99th of 100 %v; heap %d KiB before, %d after",
		calls, took[calls/2], took[calls*99/100], before.HeapAlloc>>10, after.HeapAlloc>>10)
	if limit := before.HeapAlloc + 1<<20 + 80*uint64(max(calls, 10_000)); after.HeapAlloc > limit {
		t.Errorf("memory grew from %d to %d bytes", before.HeapAlloc, after.HeapAlloc)
	}
}

// BenchmarkPreferred is one call at a time, through gRPC.
func BenchmarkPreferred(b *testing.B) {
	root := filepath.Join(b.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion"}).Write(root); err != nil {
		b.Fatal(err)
	}
	inv, err := discovery.Scan(b.Context(), root, discovery.Options{})
	if err != nil {
		b.Fatal(err)
	}
	p := New(Options{Strategy: DeviceSpecs}, slog.New(slog.NewJSONHandler(&lockedBuffer{}, nil)))
	p.Update(b.Context(), found(inv))
	s := &Server{Plugin: p, Dir: b.TempDir()}
	sock, err := s.listen()
	if err != nil {
		b.Fatal(err)
	}
	defer sock.stop()
	conn, err := grpc.NewClient("unix:"+sock.path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := api.NewDevicePluginClient(conn)
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		_, err := client.GetPreferredAllocation(b.Context(), preference(4, nil, orionIDs...))
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}

// TestOverflowOfTheWatch: an error of the watch counts as a change, and is received wherever the server waits: nothing more is
// told until it is.
func TestOverflowOfTheWatch(t *testing.T) {
	missed := make(chan error, 1)
	changes := &fsnotify.Watcher{Errors: missed}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	missed <- fsnotify.ErrEventOverflow
	if !waitForChange(ctx, changes, 20*time.Second) {
		t.Error("waitForChange sees no change")
	}
	dir := t.TempDir()
	kubelet := filepath.Join(dir, "kubelet.sock")
	if err := os.WriteFile(kubelet, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(kubelet)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Dir: dir, Log: slog.New(slog.DiscardHandler)}
	ended := make(chan error, 1)
	go func() { ended <- s.waitForRestart(ctx, changes, &socket{path: kubelet}, info) }()
	for range 3 {
		select {
		case missed <- fsnotify.ErrEventOverflow:
		case <-time.After(await.Limit):
			t.Fatal("waitForRestart does not receive errors")
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestAlive: a loop that turns is alive, whatever the kubelet does; one that hangs is named.
func TestAlive(t *testing.T) {
	t.Parallel()
	r, k, i := served(t, rules137)
	lister := &podLister{ids: orionIDs}
	lister.serve(t, k.dir)
	ctx, cancel := context.WithCancel(t.Context())
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		i.server.FollowPods(ctx, filepath.Join(k.dir, "pods"), true)
	}()
	alive := func() string {
		if err := i.server.Alive(); err != nil {
			return err.Error()
		}
		return ""
	}
	const registering = "the loop that keeps the plugin registered has not turned for 1h"
	anHour := func() { // passes
		i.server.pulse.Beat(time.Now().Add(-time.Hour))
		i.server.pods.pulse.Beat(time.Now().Add(-time.Hour))
	}
	await.For(t, "the kubelet was asked", func() bool { return i.value("lpuctl_free_lpus") == 8 })
	anHour()
	if got := alive(); !strings.Contains(got, "the loop that asks the kubelet for pods has not turned for 1h") {
		t.Errorf("it has not asked for an hour: %q", got)
	}
	await.For(t, "both turn", func() bool { return alive() == "" })
	k.stop()
	anHour()
	await.For(t, "the kubelet is away", func() bool { return !strings.Contains(alive(), registering) })

	r.log.mu.Lock() // whoever logs hangs
	k.start()
	await.For(t, "it hangs", func() bool {
		anHour()
		time.Sleep(2 * pollInterval)
		return strings.Contains(alive(), registering)
	})
	r.log.mu.Unlock()
	await.For(t, "it turns again", func() bool { return !strings.Contains(alive(), registering) })
	cancel()
	<-followed
	i.end()
	for what, pulse := range map[string]*node.Pulse{"Run": &i.server.pulse, "FollowPods": &i.server.pods.pulse} {
		if err := pulse.Alive(what, time.Now().Add(time.Hour), turnLimit); err != nil {
			t.Errorf("it has ended: %v", err)
		}
	}
}

// TestOpenedByTheFirstList: that the kubelet has called is not enough, or an instance would say that it is registered while the kubelet
// has no LPUs of it.
func TestOpenedByTheFirstList(t *testing.T) {
	sock := &socket{opened: make(chan struct{}), ended: make(chan struct{})}
	closed := func(c chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	wire := &brokenStream{err: io.ErrClosedPipe}
	_ = sock.countStreams(nil, wire, nil, func(_ any, stream grpc.ServerStream) error {
		if _ = stream.SendMsg(nil); closed(sock.opened) {
			t.Error("it is open though nothing could be sent")
		}
		wire.err = nil
		if _ = stream.SendMsg(nil); !closed(sock.opened) {
			t.Error("it is not open after a list was sent")
		}
		return stream.SendMsg(nil)
	})
	if !closed(sock.ended) {
		t.Error("it has not ended with its only stream")
	}
}

type brokenStream struct {
	grpc.ServerStream
	err error
}

func (s *brokenStream) SendMsg(any) error { return s.err }
