package lease_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/long"
)

// TestManyProcesses: processes of twenty users wish for LPUs, hold, reserve and hand leases on, and are killed at random, and so is the
// arbiter. Never has an LPU two holders, no lease is lost with the arbiter, and in the end nothing is held. In a long run these are 200
// processes, for a minute.
func TestManyProcesses(t *testing.T) {
	processes, least := long.Steps(t, 40), time.Duration(0)
	if long.Rounds(t, 1) > 1 {
		processes, least = 200, time.Minute
	}
	began := time.Now()
	w := newCrowd(t, long.Rand(t))
	enough, restart, had := time.Now().Add(least), time.Now(), 0
	for time.Now().Before(enough) || len(w.names("leased")) < 2*processes || w.arbiters < 5 {
		for w.count() < processes {
			w.startUser()
		}
		if 3*w.killed < w.started {
			w.killUser()
		}
		// On a busy machine an arbiter takes longer until it has given a lease.
		if has := len(w.names("leased")); time.Since(restart) > 700*time.Millisecond && has > had {
			w.restartArbiter()
			restart, had = time.Now(), has
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.finish()
	w.isUsage(len(w.names("leased")), time.Since(began))
	t.Logf("%d processes, %d of them killed, %d had leases, the arbiter was killed %d times", w.started, w.killed, len(w.names("leased")),
		w.arbiters-1)
}

// barrier is sent behind all that an arbiter has sent.
const barrier = "BARRIER=1"

// crowd is a node with users in processes of their own, and an arbiter of which a stand-in for systemd keeps the connections.
type crowd struct {
	t    testing.TB
	dir  string
	rand *rand.Rand

	listener *os.File
	notify   *net.UnixConn
	tell     *net.UnixConn // to notify
	read     chan struct{} // gets one for each barrier that is read
	arbiter  *exec.Cmd
	arbiters int

	mu      sync.Mutex
	users   map[int]*exec.Cmd
	running sync.WaitGroup
	stored  map[string]*os.File

	started, killed int
}

func newCrowd(t testing.TB, r *rand.Rand) *crowd {
	t.Helper()
	w := &crowd{t: t, dir: aNode(t), rand: r, read: make(chan struct{}), users: map[int]*exec.Cmd{}, stored: map[string]*os.File{}}
	for _, dir := range []string{"held", "leased", "wrong", "node/proc"} {
		path := filepath.Join(w.dir, dir)
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, 0o777)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := lease.Listen(filepath.Join(w.dir, "socket"), -1)
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if w.listener, err = l.File(); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := os.Chmod(filepath.Join(w.dir, "socket"), 0o666); err != nil {
		t.Fatal(err)
	}
	address := &net.UnixAddr{Name: filepath.Join(w.dir, "notify"), Net: "unixgram"}
	if w.notify, err = net.ListenUnixgram("unixgram", address); err != nil {
		t.Fatal(err)
	}
	if w.tell, err = net.DialUnix("unixgram", nil, address); err != nil {
		t.Fatal(err)
	}
	w.startArbiter()
	ctx, cancel := context.WithCancel(t.Context())
	var service sync.WaitGroup
	service.Go(func() { w.keepConnections(ctx) })
	service.Go(func() {
		for ctx.Err() == nil {
			w.sweep()
			time.Sleep(3 * time.Millisecond)
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = errors.Join(w.notify.Close(), w.tell.Close())
		service.Wait()
		_ = w.arbiter.Process.Kill()
		_ = w.arbiter.Wait()
	})
	return w
}

// startArbiter starts an arbiter with the socket and with all that is stored, as systemd does.
func (w *crowd) startArbiter() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	names, files := []string{"listener"}, []*os.File{w.listener}
	for name, f := range w.stored {
		names, files = append(names, name), append(files, f)
	}
	cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$0"`, os.Args[0])
	cmd.Env = append(os.Environ(), "LEASE_TEST=arbiter", "LEASE_DIR="+w.dir, "NOTIFY_SOCKET="+filepath.Join(w.dir, "notify"),
		fmt.Sprint("LISTEN_FDS=", len(files)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	cmd.ExtraFiles, cmd.Stderr = files, os.Stderr
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.arbiter = cmd
	w.arbiters++
}

func (w *crowd) restartArbiter() {
	w.t.Helper()
	_ = w.arbiter.Process.Kill()
	if err := w.arbiter.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		w.t.Fatalf("the arbiter had ended: %v", err)
	}
	// systemd reads all that a service has sent before it starts the service again.
	if _, err := w.tell.Write([]byte(barrier)); err != nil {
		w.t.Fatal(err)
	}
	<-w.read
	w.startArbiter()
}

// keepConnections keeps the descriptors that the arbiter sends, as systemd does.
func (w *crowd) keepConnections(ctx context.Context) {
	message, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	for ctx.Err() == nil {
		n, oob, _, _, err := w.notify.ReadMsgUnix(message, rights)
		if err != nil {
			return
		}
		if string(message[:n]) == barrier {
			w.read <- struct{}{}
			continue
		}
		_, name, _ := strings.Cut(string(message[:n]), "FDNAME=")
		w.mu.Lock()
		if f := w.stored[name]; f != nil {
			f.Close()
			delete(w.stored, name)
		}
		if messages, err := unix.ParseSocketControlMessage(rights[:oob]); err == nil && len(messages) > 0 {
			if fds, err := unix.ParseUnixRights(&messages[0]); err == nil {
				w.stored[name] = os.NewFile(uintptr(fds[0]), name)
			}
		}
		w.mu.Unlock()
	}
}

func (w *crowd) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.users)
}

// killUser kills one of the users.
func (w *crowd) killUser() {
	w.mu.Lock()
	defer w.mu.Unlock()
	pids := slices.Sorted(maps.Keys(w.users))
	if len(pids) > 0 && w.users[pids[w.rand.IntN(len(pids))]].Process.Kill() == nil {
		w.killed++
	}
}

func (w *crowd) startUser() {
	w.t.Helper()
	w.start("user", 61000+w.rand.IntN(20))
}

// start starts a process of a user, who can be another only for root, and returns its id.
func (w *crowd) start(kind string, uid int) (pid int) {
	w.t.Helper()
	cmd := exec.Command("/proc/self/exe", fmt.Sprint(w.rand.Uint64())) // whose directory other users cannot enter
	cmd.Env = append(os.Environ(), "LEASE_TEST="+kind, "LEASE_DIR="+w.dir)
	cmd.Stderr = os.Stderr
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	_, err := cmd.StdinPipe() // which ends with this process
	if err := errors.Join(err, cmd.Start()); err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.users[cmd.Process.Pid] = cmd
	w.mu.Unlock()
	w.started++
	w.running.Go(func() {
		if err := cmd.Wait(); err != nil && !strings.Contains(err.Error(), "killed") {
			w.t.Errorf("a user: %v", err)
		}
		w.mu.Lock()
		delete(w.users, cmd.Process.Pid)
		w.mu.Unlock()
	})
	return cmd.Process.Pid
}

// sweep does what the kernel does after the end of a process: it closes what the process had open. The nodes of LPUs are closed a moment
// after the connections, because somebody only sweeps now and then.
func (w *crowd) sweep() {
	for _, name := range w.names("node/proc") {
		if pid, _ := strconv.Atoi(name); runs(pid) {
			continue
		}
		for _, lpu := range w.names("held") {
			path := filepath.Join(w.dir, "held", lpu)
			if holder, err := os.Readlink(path); err == nil && holder == name {
				_ = os.Remove(path)
			}
		}
		_ = os.RemoveAll(filepath.Join(w.dir, "node/proc", name))
	}
}

func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return err == nil && !bytes.HasPrefix(state, []byte("Z")) && !bytes.HasPrefix(state, []byte("X"))
}

func (w *crowd) names(dir string) (names []string) {
	entries, _ := os.ReadDir(filepath.Join(w.dir, dir))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// finish ends all users, and wants everything to be free.
func (w *crowd) finish() {
	w.t.Helper()
	w.mu.Lock()
	for _, cmd := range w.users {
		_ = cmd.Process.Kill()
	}
	w.mu.Unlock()
	w.running.Wait()
	for _, wrong := range w.names("wrong") {
		text, _ := os.ReadFile(filepath.Join(w.dir, "wrong", wrong))
		w.t.Errorf("%s", text)
	}
	c := dial(w.t, w.dir)
	w8 := wish(8)
	w8.Wait = true
	l, err := c.List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range l.Reservations {
		if os.Getuid() == 0 || r.UID == os.Getuid() {
			err := dial(w.t, w.dir).Release(w.t.Context(), r.ID)
			if err != nil && !refusedWith(err, finding.LeaseUnknown) { // its time may be over meanwhile
				w.t.Error(err)
			}
		}
	}
	if _, err := c.Wish(w.t.Context(), w8, nil); err != nil {
		w.t.Fatal(err)
	}
	_ = c.Close()
	other := dial(w.t, w.dir)
	for l, err = other.List(w.t.Context()); err == nil && len(l.Leases) > 0; l, err = other.List(w.t.Context()) {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil || len(l.Waiting) != 0 || len(l.Unleased) != 0 {
		w.t.Errorf("in the end: %+v, %v", l, err)
	}
	record, err := os.ReadFile(filepath.Join(w.dir, "run/leases.json"))
	if r, bad := lease.LeasesIn("").Parse(record); err != nil || bad != nil || len(r.Leases) != 0 {
		w.t.Errorf("in the end the record is %s, %v, %v", record, err, bad)
	}
}

// member is one of the users, in a process of its own.
type member struct {
	dir  string
	rand *rand.Rand
}

// user does a few things at random. What must not be it writes down.
func user(seed string) error {
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		return err
	}
	p := &member{os.Getenv("LEASE_DIR"), rand.New(rand.NewPCG(n, 0))}
	for range 4 {
		var err error
		switch p.rand.IntN(12) {
		case 0:
			err = p.reserve()
		default:
			err = p.lease()
		}
		if err != nil {
			return os.WriteFile(filepath.Join(p.dir, "wrong", fmt.Sprint(os.Getpid())), []byte(err.Error()), 0o600)
		}
	}
	return nil
}

// reserve reserves LPUs, and at times extends or releases the reservation. That the arbiter refuses or is killed meanwhile is no fault.
func (p *member) reserve() error {
	ctx := context.Background()
	c, err := lease.Dial(filepath.Join(p.dir, "socket"))
	if err != nil {
		return nil
	}
	defer func() { _ = c.Close() }()
	r, err := c.Reserve(ctx, lease.Reserve{
		Selection: lease.Selection{Count: 1 + p.rand.IntN(3)}, For: time.Duration(1000+p.rand.IntN(500)) * time.Millisecond, Reason: "a test",
	})
	if err != nil {
		return nil
	}
	if p.rand.IntN(2) == 0 {
		_, _ = c.Extend(ctx, r.ID, time.Second)
	}
	if p.rand.IntN(2) == 0 {
		_ = c.Release(ctx, r.ID)
	}
	return nil
}

// lease wishes for LPUs, and opens those that it gets. At times another process inherits the lease and the open nodes.
func (p *member) lease() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(100+p.rand.IntN(3000))*time.Millisecond)
	defer cancel()
	c, err := lease.Dial(filepath.Join(p.dir, "socket"))
	if err != nil {
		return nil
	}
	defer func() { _ = c.Close() }()
	w := wish(1 + p.rand.IntN(4)*p.rand.IntN(3))
	w.Wait, w.Connected = p.rand.IntN(4) > 0, p.rand.IntN(2) == 0
	g, err := c.Wish(ctx, w, nil)
	if err != nil {
		return nil
	}
	holder, heir, opened := os.Getpid(), (*exec.Cmd)(nil), io.WriteCloser(nil)
	if p.rand.IntN(5) == 0 {
		f, err := c.File()
		if err != nil {
			return err
		}
		heir = exec.Command("/bin/sh", "-c", fmt.Sprintf("read line; exec sleep 0.%03d", 1+p.rand.IntN(200)))
		heir.ExtraFiles = []*os.File{f}
		if opened, err = heir.StdinPipe(); err != nil {
			return err
		}
		if err := heir.Start(); err != nil {
			return err
		}
		f.Close()
		holder = heir.Process.Pid
	}
	if err := p.open(holder, g); err != nil {
		return err
	}
	if heir != nil { // which does not end before its nodes are open
		_ = errors.Join(c.Close(), opened.Close())
		return heir.Wait() // the sweep closes what it has open
	}
	time.Sleep(time.Duration(p.rand.IntN(100)) * time.Millisecond)
	if err := p.listed(g); err != nil {
		return err
	}
	return p.close(g)
}

// open opens the nodes of the LPUs. Another holder of one is a fault.
func (p *member) open(pid int, g *lease.Grant) error {
	options := discovery.Options{Models: discovery.BuiltinModels(), CardDeadline: time.Minute} // the machine is busy
	inv, err := discovery.Scan(context.Background(), filepath.Join(p.dir, "node"), options)
	if err != nil {
		return err
	}
	fds := filepath.Join(p.dir, "node/proc", fmt.Sprint(pid), "fd")
	if err := os.MkdirAll(fds, 0o755); err != nil {
		return err
	}
	for i, l := range g.LPUs {
		at := slices.IndexFunc(inv.LPUs, func(other discovery.LPU) bool { return other.Address == l.Address })
		if err := os.Symlink(inv.LPUs[at].Nodes[0].Path, filepath.Join(fds, fmt.Sprint(3+i))); err != nil {
			return err
		}
	}
	for _, l := range g.LPUs {
		path := filepath.Join(p.dir, "held", l.Name)
		err := os.Symlink(fmt.Sprint(pid), path) // which makes the name and says the holder at once
		if errors.Is(err, fs.ErrExist) {
			holder, _ := os.Readlink(path)
			return fmt.Errorf("%d has got %s with lease %s, and %s has it", pid, l.Name, g.ID, holder)
		}
		if err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(p.dir, "leased", fmt.Sprint(pid)), nil, 0o600)
}

// listed wants the lease to be among those that the arbiter knows, however often it was killed since.
func (p *member) listed(g *lease.Grant) error {
	for began := host.SinceBoot(); host.SinceBoot()-began < 2*time.Minute; { // on a busy machine it is often killed before it answers
		c, err := lease.Dial(filepath.Join(p.dir, "socket"))
		if err != nil {
			continue
		}
		l, err := c.List(context.Background())
		_ = c.Close()
		if err != nil {
			continue // it was killed just now
		}
		if slices.ContainsFunc(l.Leases, func(other lease.Lease) bool { return other.ID == g.ID && slices.Equal(other.LPUs, g.LPUs) }) {
			return nil
		}
		return fmt.Errorf("lease %s of %v is lost: %+v", g.ID, g.LPUs, l.Leases)
	}
	return errors.New("the arbiter does not answer")
}

func (p *member) close(g *lease.Grant) (err error) {
	for _, l := range g.LPUs {
		err = errors.Join(err, os.Remove(filepath.Join(p.dir, "held", l.Name)))
	}
	return errors.Join(err, os.RemoveAll(filepath.Join(p.dir, "node/proc", fmt.Sprint(os.Getpid()))))
}
