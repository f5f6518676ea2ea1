package lease_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/person"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestMain lets this program be the arbiter, and one of those who ask it, in processes of their own.
func TestMain(m *testing.M) {
	switch os.Getenv("LEASE_TEST") {
	case "arbiter":
		dir := os.Getenv("LEASE_DIR")
		if err := arbiter(context.Background(), dir, nil, activation.Files(true), recording(dir, time.Hour)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "peer":
		if err := peer(os.Getenv("LEASE_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "user", "waiters", "attacker":
		go func() { // who has started this one has ended
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		does := map[string]func(seed string) error{"user": user, "waiters": waiters, "attacker": attacks}
		if err := does[os.Getenv("LEASE_TEST")](os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// arbiter serves the node in dir/node. Without a listener it takes the one that systemd has passed, and the connections beside it.
func arbiter(ctx context.Context, dir string, listener *net.UnixListener, passed []*os.File, changes ...func(*lease.Arbiter)) error {
	looker := lease.Looker{Root: host.Root(filepath.Join(dir, "node")), People: person.In(host.Root(dir), "lpu")}
	a := &lease.Arbiter{
		Listener: listener,
		Leases:   lease.LeasesIn(filepath.Join(dir, "run")), Reservations: lease.ReservationsIn(filepath.Join(dir, "var")),
		Describe: func(_ context.Context, p lease.Peer) (lease.Peer, *lease.Refusal) { return p, nil },
		Look: func(ctx context.Context, seek lease.Seek) (lease.View, error) {
			inv, err := discovery.Scan(ctx, filepath.Join(dir, "node"), discovery.Options{Models: discovery.BuiltinModels()})
			if err != nil {
				return lease.View{}, err
			}
			return looker.Look(ctx, inv, seek)
		},
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if socket := os.Getenv("NOTIFY_SOCKET"); socket != "" {
		a.Store = &lease.Store{Socket: socket}
	}
	for _, f := range passed {
		if f.Name() != "listener" {
			a.Kept = append(a.Kept, f)
			continue
		}
		l, err := net.FileListener(f)
		if err != nil {
			return err
		}
		a.Listener = l.(*net.UnixListener)
	}
	for _, change := range changes {
		change(a)
	}
	return a.Serve(ctx)
}

// TestLeftoversAreSwept: what an arbiter was writing when it was killed is not left beside its files.
func TestLeftoversAreSwept(t *testing.T) {
	dir := aNode(t)
	var left []string
	for _, name := range []string{"run/.leases.json123", "run/.queue.jsonl4", "var/.leases.json56"} {
		plant.File(t, filepath.Join(dir, name), "{")
		left = append(left, filepath.Join(dir, name))
	}
	plant.File(t, filepath.Join(dir, "run/.leases.json.swp"), "of an editor")
	defer serve(t, dir)()
	if _, err := dial(t, dir).List(t.Context()); err != nil { // it serves
		t.Fatal(err)
	}
	for _, file := range left {
		if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", file, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "run/.leases.json.swp")); err != nil {
		t.Error(err)
	}
}

// aNode is a directory with a simulated node of eight LPUs in one ring.
func aNode(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lease") //nolint:usetesting // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := (&simulate.Node{Profile: "orion", LPUs: 8}).Write(filepath.Join(dir, "node")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// serving is a node with an arbiter in this process.
func serving(t testing.TB, changes ...func(*lease.Arbiter)) (dir string) {
	t.Helper()
	dir = aNode(t)
	t.Cleanup(serve(t, dir, changes...))
	return dir
}

// serve starts an arbiter of a node in this process.
func serve(t testing.TB, dir string, changes ...func(*lease.Arbiter)) (stop func()) {
	t.Helper()
	return listening(t, dir)(changes...)
}

// listening is a socket at which an arbiter listens as soon as it serves.
func listening(t testing.TB, dir string) (serve func(changes ...func(*lease.Arbiter)) (stop func())) {
	t.Helper()
	l, err := lease.Listen(filepath.Join(dir, "socket"), -1)
	if err == nil {
		err = os.Chmod(filepath.Join(dir, "socket"), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func(changes ...func(*lease.Arbiter)) func() {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- arbiter(ctx, dir, l, nil, changes...) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}

func dial(t testing.TB, dir string) *lease.Client {
	t.Helper()
	c, err := lease.Dial(filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func wish(count int) lease.Wish { return lease.Wish{Selection: lease.Selection{Count: count}} }

func refusedWith(err error, id finding.ID) bool {
	r, ok := errors.AsType[*lease.Refusal](err)
	return ok && r.ID == id
}

// TestALeaseIsTheConnection: it ends when the last descriptor of the connection is closed, and who waits gets its LPUs.
func TestALeaseIsTheConnection(t *testing.T) {
	dir := serving(t)
	first := dial(t, dir)
	g, err := first.Wish(t.Context(), wish(6), nil)
	if err != nil || len(g.LPUs) != 6 || g.Connected == nil || !*g.Connected {
		t.Fatalf("%+v, %v", g, err)
	}
	inherited, err := first.File()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := dial(t, dir)
	if _, err := second.Wish(t.Context(), wish(3), nil); !refusedWith(err, finding.LeaseNoneFree) {
		t.Fatalf("%v", err)
	}
	l, err := second.List(t.Context())
	if err != nil || len(l.Leases) != 1 || l.Leases[0].UID != os.Getuid() || l.Leases[0].PID != os.Getpid() {
		t.Fatalf("%+v, %v", l, err)
	}
	w := wish(3)
	w.Wait = true
	g, err = second.Wish(t.Context(), w, func(p lease.Place) {
		if p.Place != 1 || p.Of != 1 || !strings.Contains(p.Why, "leased yourself") && !strings.Contains(p.Why, "given back") {
			t.Errorf("%+v", p)
		}
		inherited.Close()
	})
	if err != nil || len(g.LPUs) != 3 {
		t.Fatalf("%+v, %v", g, err)
	}
}

// TestWhoStopsWaitingIsOut: a wish ends with its connection, and a context that ends leaves it at once.
func TestWhoStopsWaitingIsOut(t *testing.T) {
	dir := serving(t)
	first := dial(t, dir)
	if _, err := first.Wish(t.Context(), wish(8), nil); err != nil {
		t.Fatal(err)
	}
	w := wish(1)
	w.Wait = true
	second := dial(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := second.Wish(ctx, w, func(lease.Place) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	_ = second.Close()
	_, err := dial(t, dir).Wish(t.Context(), w, func(p lease.Place) {
		if p.Place == 1 {
			_ = first.Close()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOver: the holder is told when the time of the lease is over, and keeps it until it ends.
func TestOver(t *testing.T) {
	dir := serving(t)
	c := dial(t, dir)
	w := wish(1)
	w.For, w.Command = 20*time.Millisecond, "a test"
	g, err := c.Wish(t.Context(), w, nil)
	if err != nil {
		t.Fatal(err)
	}
	if over, err := c.Over(t.Context()); err != nil || over.At != 0 || host.SinceBoot() < g.Until {
		t.Fatalf("at %s, until %s: %+v, %v", host.SinceBoot(), g.Until, over, err)
	}
	l, err := c.List(t.Context())
	if err != nil || len(l.Leases) != 1 || l.Leases[0].Until != g.Until || l.Leases[0].Command != "a test" {
		t.Fatalf("%+v, %v", l, err)
	}
	if _, err := dial(t, dir).Wish(t.Context(), wish(1), nil); os.Getuid() != 0 && !refusedWith(err, finding.LeaseLimit) {
		t.Errorf("another lease: %v", err)
	}
}

// TestReservations: they are kept for their owner, who gets them first, and end when they are released.
func TestReservations(t *testing.T) {
	dir := serving(t)
	c := dial(t, dir)
	r, err := c.Reserve(t.Context(), lease.Reserve{Selection: lease.Selection{Count: 2}, For: time.Hour, Reason: "a demo"})
	if err != nil || len(r.LPUs) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	longer, err := c.Extend(t.Context(), r.ID, time.Hour)
	if err != nil || longer.Until != r.Until+time.Hour {
		t.Fatalf("%+v, %v", longer, err)
	}
	g, err := c.Wish(t.Context(), lease.Wish{Selection: lease.Selection{Count: 2}, DryRun: true}, nil)
	if err != nil || g.ID != "" || !slices.Equal(g.LPUs, r.LPUs) {
		t.Fatalf("%+v, %v", g, err)
	}
	if err := c.Release(t.Context(), r.ID); err != nil {
		t.Fatal(err)
	}
	if err := c.Release(t.Context(), r.ID); !refusedWith(err, finding.LeaseUnknown) {
		t.Fatal(err)
	}
}

// TestNothingIsLeasedThatIsInUse: by a process without a lease; and a container keeps what is bound to it.
func TestNothingIsLeasedThatIsInUse(t *testing.T) {
	dir := serving(t)
	c := dial(t, dir)
	l, err := c.List(t.Context())
	if err != nil || len(l.Unleased) != 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	opened := opens(t, dir, 4711, 3)
	if _, err := c.Wish(t.Context(), wish(8), nil); !refusedWith(err, finding.LeaseNoneFree) || !strings.Contains(err.Error(), "in use") {
		t.Fatal(err)
	}
	id := strings.Repeat("c0", 32)
	process := filepath.Join(dir, "node/proc/4712")
	if err := errors.Join(os.MkdirAll(process, 0o755), os.WriteFile(process+"/cgroup", []byte("0::/docker/"+id+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wish(t.Context(), wish(7), nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Bind(t.Context(), strings.Repeat("d0", 32)); !refusedWith(err, finding.LeaseNoContainer) {
		t.Fatal(err)
	}
	if err := c.Bind(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	opened()
	other := dial(t, dir)
	w := wish(8)
	w.Wait = true
	if _, err := other.Wish(t.Context(), w, func(lease.Place) { _ = os.RemoveAll(process) }); err != nil {
		t.Fatal(err)
	}
}

// opens has a process of the simulated node hold the node of an LPU open, until the function that it returns is called.
func opens(t *testing.T, dir string, pid, lpu int) (closed func()) {
	t.Helper()
	process := filepath.Join(dir, "node/proc", fmt.Sprint(pid))
	inv, err := discovery.Scan(t.Context(), filepath.Join(dir, "node"), discovery.Options{Models: discovery.BuiltinModels()})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.MkdirAll(process+"/fd", 0o755), os.Symlink(inv.LPUs[lpu].Nodes[0].Path, process+"/fd/3"))
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = os.RemoveAll(process) }
}

// TestForgedAndOversized: what is no request is refused or hung up on, and nobody else notices.
func TestForgedAndOversized(t *testing.T) {
	dir := serving(t)
	holder := dial(t, dir)
	if _, err := holder.Wish(t.Context(), wish(2), nil); err != nil {
		t.Fatal(err)
	}
	for name, message := range map[string]string{
		"junk": "\x00\xff", "oversized": strings.Repeat("x", 100<<10),
		"forged": `{"apiVersion":"lpuctl.hyperaccel.ai/v1alpha1","wish":{"count":1,"uid":0}}`,
	} {
		conn, err := net.Dial("unixpacket", filepath.Join(dir, "socket"))
		if err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 1<<16)
		_, err = conn.Write([]byte(message))
		var n int
		if err == nil {
			n, err = conn.Read(answer)
		}
		var a lease.Answer
		if err != nil || json.Unmarshal(answer[:n], &a) != nil || a.Refused == nil || a.Refused.ID != finding.LeaseRequest {
			t.Errorf("%s: %s, %v", name, answer[:n], err)
		}
		_ = conn.Close()
	}
	// Of two requests at once, of which the first one waits, the second one is ignored.
	conn, err := net.Dial("unixpacket", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for range 2 {
		if _, err := conn.Write([]byte(`{"apiVersion":"lpuctl.hyperaccel.ai/v1alpha1","wish":{"count":8,"wait":true}}`)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Read(make([]byte, 1<<16)); err != nil {
		t.Fatal(err)
	}
	if l, err := holder.List(t.Context()); err != nil || len(l.Leases) != 1 || len(l.Waiting) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestAThousandIdleConnections: those of one user keep nobody else out, and no lease of that user ends because of them.
func TestAThousandIdleConnections(t *testing.T) {
	dir := serving(t)
	holder := dial(t, dir)
	if _, err := holder.Wish(t.Context(), wish(2), nil); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		asUser(t, 61000, func() { connectOften(t, dir) })
	} else {
		connectOften(t, dir)
	}
	c := dial(t, dir)
	if _, err := c.Wish(t.Context(), wish(2), nil); err != nil {
		t.Fatal(err)
	}
	if l, err := holder.List(t.Context()); err != nil || len(l.Leases) != 2 {
		t.Errorf("%+v, %v", l, err)
	}
}

func connectOften(t *testing.T, dir string) {
	t.Helper()
	for range 1000 {
		if conn, err := net.Dial("unixpacket", filepath.Join(dir, "socket")); err == nil {
			t.Cleanup(func() { _ = conn.Close() })
		} else {
			t.Error(err)
			return
		}
	}
	if _, err := dial(t, dir).List(t.Context()); err != nil {
		t.Errorf("the user who has connected so often: %v", err)
	}
}

// TestAFullDisk: what cannot be written down is not promised.
func TestAFullDisk(t *testing.T) {
	dir := serving(t)
	c := dial(t, dir)
	if _, err := c.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	// In one step: the arbiter makes the directory again as soon as it is missed.
	run, other := filepath.Join(dir, "run"), filepath.Join(dir, "other")
	exchange := func() error {
		return unix.Renameat2(unix.AT_FDCWD, run, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
	}
	if err := errors.Join(os.WriteFile(other, nil, 0o600), exchange()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wish(t.Context(), wish(1), nil); !refusedWith(err, finding.LeaseUnrecorded) {
		t.Fatal(err)
	}
	if l, err := c.List(t.Context()); err != nil || len(l.Leases) != 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	if err := exchange(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wish(t.Context(), wish(8), nil); err != nil {
		t.Fatal(err)
	}
}

// TestALostRecordIsWrittenAgain: while an arbiter runs no one takes a record that was removed or
// spoiled for none, and soon it is there again.
func TestALostRecordIsWrittenAgain(t *testing.T) {
	dir := serving(t)
	c := dial(t, dir)
	g, err := c.Wish(t.Context(), wish(2), nil)
	if err != nil {
		t.Fatal(err)
	}
	d := dial(t, dir)
	kept, err := d.Reserve(t.Context(), lease.Reserve{Selection: lease.Selection{Count: 1}, For: time.Hour, Reason: "a demo"})
	if err != nil {
		t.Fatal(err)
	}
	leases, reservations := lease.LeasesIn(filepath.Join(dir, "run")), lease.ReservationsIn(filepath.Join(dir, "var"))
	held := func() (map[pci.Address]string, error) {
		return lease.Held(host.Root(filepath.Join(dir, "node")), leases, reservations)
	}
	for _, loss := range []struct {
		name string
		lose func() error
	}{
		{"removed", func() error { return os.Remove(leases.Path) }},
		{"cut off", func() error { return os.Truncate(leases.Path, 40) }},
		{"empty", func() error { return os.Truncate(leases.Path, 0) }},
		{"reservations", func() error { return os.Truncate(reservations.Path, 40) }},
		{"both", func() error { return errors.Join(os.Remove(leases.Path), os.Truncate(reservations.Path, 0)) }},
		// Last, because with the directory the lock is lost that says that the arbiter runs: it
		// is there again a moment after the record.
		{"directory", func() error { return os.Rename(filepath.Dir(leases.Path), filepath.Join(dir, "away")) }},
	} {
		if err := loss.lose(); err != nil {
			t.Fatal(loss.name, err)
		}
		for end := time.Now().Add(await.Limit); ; time.Sleep(time.Millisecond) {
			by, err := held()
			has := by[g.LPUs[0].Address] != "" && by[g.LPUs[1].Address] != "" && by[kept.LPUs[0].Address] != ""
			if err == nil && has {
				break
			}
			if err == nil && loss.name != "directory" || time.Now().After(end) {
				t.Fatalf("%s: %v, %v", loss.name, by, err)
			}
		}
	}
}

// asUser does something in a thread of another user.
func asUser(t testing.TB, uid int, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { // the thread ends with the goroutine, because it is locked to it
		defer close(done)
		lockThread()
		if _, _, err := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); err != 0 {
			t.Error(err)
			return
		}
		do()
	}()
	<-done
}

func lockThread() { runtime.LockOSThread() }

// TestImpossibleWishes: what no LPUs of the node fulfil is refused even to those who would wait, and the LPU that is named is said.
func TestImpossibleWishes(t *testing.T) {
	dir := serving(t)
	missing := pci.Address{Bus: 0xee, Function: 1}
	for _, s := range []lease.Selection{
		{Count: 9}, {Count: 5, Place: allocate.Place{Near: allocate.SameSwitch}}, {Count: 1, Must: []pci.Address{missing}},
	} {
		_, err := dial(t, dir).Wish(t.Context(), lease.Wish{Selection: s, Wait: true}, nil)
		if !refusedWith(err, finding.LeaseImpossible) || len(s.Must) > 0 && !strings.Contains(err.Error(), missing.String()) {
			t.Errorf("%+v: %v", s, err)
		}
		s.Count, s.Must = 1, nil
		if _, err := dial(t, dir).Wish(t.Context(), lease.Wish{Selection: s, DryRun: true}, nil); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// TestTooManyLeases: who has as many connections as a user may have, and each has a lease or waits, gets no other until one ends.
func TestTooManyLeases(t *testing.T) {
	if os.Getuid() == 0 {
		dir := serving(t)
		asUser(t, 61001, func() { tooMany(t, dir) })
		return
	}
	tooMany(t, serving(t))
}

func tooMany(t *testing.T, dir string) {
	t.Helper()
	w := wish(8)
	w.Wait = true
	var clients []*lease.Client
	for range 64 {
		c := dial(t, dir)
		clients = append(clients, c)
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := c.Wish(ctx, w, func(lease.Place) { cancel() }); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
			return
		}
		cancel()
	}
	c := dial(t, dir)
	if _, err := c.List(t.Context()); !refusedWith(err, finding.LeaseBusy) {
		t.Errorf("%v", err)
	}
	_ = clients[30].Close()
	for _, err := dial(t, dir).List(t.Context()); refusedWith(err, finding.LeaseBusy); _, err = dial(t, dir).List(t.Context()) {
		time.Sleep(time.Millisecond)
	}
}
