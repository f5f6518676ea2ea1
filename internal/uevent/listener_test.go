package uevent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inNamespaces marks the process that runs the tests in namespaces of its own.
const inNamespaces = "LPUCTL_UEVENT_IN_NAMESPACES"

// obstacle is why this machine gives no namespaces.
var obstacle error

// TestMain runs the tests in a user and a network namespace of their own, where they may make the kernel send events, and where no
// others come.
func TestMain(m *testing.M) {
	if os.Getenv(inNamespaces) == "" {
		runtime.LockOSThread() // Pdeathsig speaks of the thread that forks
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.Env = append(os.Environ(), inNamespaces+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		}
		obstacle = cmd.Run()
		if cmd.ProcessState != nil {
			os.Exit(cmd.ProcessState.ExitCode())
		}
	}
	os.Exit(m.Run())
}

// speaker sends to sockets for uevents.
type speaker struct {
	t  *testing.T
	fd int
}

func newSpeaker(t *testing.T) speaker {
	t.Helper()
	if obstacle != nil {
		t.Skipf("this machine gives no user and network namespace: %v", obstacle)
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return speaker{t, fd}
}

// asKernel makes the kernel send an event. It puts a SEQNUM at the end.
func (s speaker) asKernel(m message) {
	s.t.Helper()
	const header = 16 // nlmsghdr
	request := make([]byte, header, header+len(m))
	binary.NativeEndian.PutUint32(request, uint32(header+len(m)))
	binary.NativeEndian.PutUint16(request[4:], 0x10) // no type of netlink itself
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST)
	if err := unix.Sendto(s.fd, append(request, m...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		s.t.Fatal(err)
	}
}

// event is a small one of our function.
func event(action string) message {
	return said(action+"@"+function, "ACTION="+action, "DEVPATH="+function, "SUBSYSTEM=pci")
}

func next(t *testing.T, l *Listener) Event {
	t.Helper()
	select {
	case e, ok := <-l.Events():
		if !ok {
			t.Fatal("the events have ended")
		}
		return e
	case <-time.After(10 * time.Second):
		t.Fatalf("no event comes; %+v", l.Counts())
	}
	return Event{}
}

// eventually waits for what other goroutines do.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not in 10 s: %s", what)
		}
	}
}

// listen listens until the test ends, and wants that nothing is left then.
func listen(t *testing.T) *Listener {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l, err := Listen(ctx, ofOurs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, cancel, l) })
	return l
}

func end(t *testing.T, cancel func(), l *Listener) {
	t.Helper()
	cancel()
	eventually(t, "the events end", func() bool {
		select {
		case _, ok := <-l.Events():
			return !ok
		default:
			return false
		}
	})
	eventually(t, "goroutine and socket go", func() bool { return sockets(t) == 1 && !strings.Contains(stacks(), "uevent.(*Listener)") })
}

func stacks() string {
	buffer := make([]byte, 1<<20)
	return string(buffer[:runtime.Stack(buffer, true)])
}

// sockets counts those of this process. The speaker has one.
func sockets(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		var family int
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(target, "socket:") {
			if _, err := fmt.Sscan(e.Name(), &family); err == nil {
				if domain, err := unix.GetsockoptInt(family, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && domain == unix.AF_NETLINK {
					n++
				}
			}
		}
	}
	return n
}

// TestListen: events of ours arrive as they are and in order, those of others do not, and all are counted.
func TestListen(t *testing.T) {
	kernel := newSpeaker(t)
	l := listen(t)
	sent := []message{nodeGone, disk, unbound, disk, failed}
	for _, m := range sent {
		kernel.asKernel(m)
	}
	for _, m := range []message{nodeGone, unbound, failed} {
		want, err := m.parse()
		if err != nil {
			t.Fatal(err)
		}
		if got := next(t, l); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if got, want := l.Counts(), (Counts{Received: uint64(len(sent))}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestForged: what another process sends does not arrive, to the group or to the socket alone, however true it looks.
func TestForged(t *testing.T) {
	kernel := newSpeaker(t)
	l := listen(t)
	for _, to := range []*unix.SockaddrNetlink{
		{Family: unix.AF_NETLINK, Groups: 1 << (kernelGroup - 1)},
		{Family: unix.AF_NETLINK, Pid: uint32(os.Getpid())}, // which the kernel gives to the first socket that is bound
	} {
		if err := unix.Sendto(kernel.fd, unbound, 0, to); err != nil {
			t.Fatal(err)
		}
	}
	kernel.asKernel(event("bind"))
	if got := next(t, l); got.Action != "bind" {
		t.Errorf("%+v, which was forged", got)
	}
	if got, want := l.Counts(), (Counts{Received: 1, Forged: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestUnreadable: an event that is ours and that cannot be read is lost, which is told; one of others is nobody's concern.
func TestUnreadable(t *testing.T) {
	kernel := newSpeaker(t)
	l := listen(t)
	for _, m := range []message{said("add@/devices/virtual/x", "ACTION=remove"), event("add")[:12], event("add")[1:]} {
		kernel.asKernel(m)
	}
	if got := next(t, l); !got.Overflow {
		t.Errorf("%+v", got)
	}
	kernel.asKernel(event("bind"))
	if got := next(t, l); got.Action != "bind" {
		t.Errorf("%+v", got)
	}
	if got, want := l.Counts(), (Counts{Received: 4, Overflows: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestOverflow: after an overflow the kernel loses events until all that wait are read. Only then is a scan sure to see what they said.
func TestOverflow(t *testing.T) {
	kernel := newSpeaker(t)
	l := listen(t)
	var read int
	flood := func() {
		for range 20_000 {
			kernel.asKernel(event("change"))
		}
	}
	flood()
	for range 2 * burst {
		if next(t, l).Overflow {
			t.Fatalf("the loss is told after %d events, while later ones are still being lost", read)
		}
		read++
	}
	kernel.asKernel(event("remove")) // lost without a word: more wait than there is room for
	for e := next(t, l); !e.Overflow; e = next(t, l) {
		if e.Action == "remove" {
			t.Fatal("it was not lost, so this test shows nothing")
		}
		read++
	}
	kernel.asKernel(event("bind"))
	if got := next(t, l); got.Action != "bind" {
		t.Errorf("after the overflow comes %+v", got)
	}
	if got, want := l.Counts(), (Counts{Received: uint64(read) + 1, Overflows: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestSocketFails: a socket that fails is opened anew, and the consumer is told that events may have been lost.
func TestSocketFails(t *testing.T) {
	kernel := newSpeaker(t)
	socket, err := open()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &Listener{wanted: ofOurs, events: make(chan Event, burst)}
	go l.run(ctx, socket)
	t.Cleanup(func() { end(t, cancel, l) })
	kernel.asKernel(event("add"))
	if got := next(t, l); got.Action != "add" {
		t.Errorf("%+v", got)
	}
	if err := socket.Close(); err != nil {
		t.Fatal(err)
	}
	if got := next(t, l); !got.Overflow {
		t.Errorf("%+v after the socket failed", got)
	}
	kernel.asKernel(event("bind"))
	if got := next(t, l); got.Action != "bind" {
		t.Errorf("%+v", got)
	}
}

// TestEndsUnread: it ends also where nobody reads what it has got.
func TestEndsUnread(t *testing.T) {
	kernel := newSpeaker(t)
	ctx, cancel := context.WithCancel(t.Context())
	l, err := Listen(ctx, ofOurs)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * burst {
		kernel.asKernel(event("change"))
	}
	eventually(t, "it waits for its consumer", func() bool { return l.Counts().Received > burst })
	cancel()
	eventually(t, "it ends", func() bool { return !strings.Contains(stacks(), "uevent.(*Listener)") })
	end(t, cancel, l)
}

// TestNoSocket: what forbids the socket is an error that says so.
func TestNoSocket(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), ofOurs)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.EMFILE) || l != nil {
		t.Errorf("%v, %v", l, err)
	}
}

// TestManyEvents: a storm of 100,000 events, of which few are ours, leaves nothing behind.
func TestManyEvents(t *testing.T) {
	const (
		rounds = 1000
		others = 99 // for one of ours
		most   = 256 << 10
	)
	kernel := newSpeaker(t)
	l := listen(t)
	round := func() {
		for range others {
			kernel.asKernel(disk)
		}
		kernel.asKernel(event("change"))
		if got := next(t, l); got.Action != "change" {
			t.Fatalf("%+v", got)
		}
	}
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	round()
	before, goroutines, descriptors := memory(), runtime.NumGoroutine(), sockets(t)
	for range rounds - 1 {
		round()
	}
	if now := memory(); now > before+most {
		t.Errorf("%d bytes became %d", before, now)
	}
	if g, d := runtime.NumGoroutine(), sockets(t); g > goroutines || d != descriptors {
		t.Errorf("%d goroutines became %d, %d sockets %d", goroutines, g, descriptors, d)
	}
	if got, want := l.Counts(), (Counts{Received: rounds * (others + 1)}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
