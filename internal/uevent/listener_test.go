package uevent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
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
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	kernel := speaker{t, fd}
	if obstacle == nil {
		obstacle = kernel.ask(disk)
	}
	if obstacle != nil {
		t.Skipf("this machine gives no user and network namespace, or no rights there: %v", obstacle)
	}
	return kernel
}

// asKernel makes the kernel send an event.
func (s speaker) asKernel(m message) {
	s.t.Helper()
	if err := s.ask(m); err != nil {
		s.t.Fatal(err)
	}
}

// ask asks the kernel to send an event, at the end of which it puts a SEQNUM.
func (s speaker) ask(m message) error {
	const header = 16 // nlmsghdr
	request := make([]byte, header, header+len(m))
	binary.NativeEndian.PutUint32(request, uint32(header+len(m)))
	binary.NativeEndian.PutUint16(request[4:], 0x10) // no type of netlink itself
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST)
	return unix.Sendto(s.fd, append(request, m...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
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
	case <-time.After(await.Limit):
		t.Fatalf("no event comes; %+v", l.Counts())
	}
	return Event{}
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
	await.For(t, "the events end", func() bool {
		select {
		case _, ok := <-l.Events():
			return !ok
		default:
			return false
		}
	})
	await.For(t, "goroutine and socket go", func() bool { return sockets(t) == 1 && !strings.Contains(stacks(), "uevent.(*Listener)") })
}

func stacks() string {
	buffer := make([]byte, 1<<20)
	return string(buffer[:runtime.Stack(buffer, true)])
}

// sockets counts the netlink sockets of this process. The speaker has one.
func sockets(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && family == unix.AF_NETLINK {
			n++
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
		{Family: unix.AF_NETLINK, Pid: port(t)},
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

// port returns the netlink port of the socket that is in the kernel's group, of which there is one here.
func port(t *testing.T) uint32 {
	t.Helper()
	table, err := os.ReadFile("/proc/self/net/netlink")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		column := strings.Fields(line) // sk, Eth (the protocol), Pid (the port), Groups
		if column[1] == strconv.Itoa(unix.NETLINK_KOBJECT_UEVENT) && column[3] == "00000001" {
			port, err := strconv.ParseUint(column[2], 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			return uint32(port)
		}
	}
	t.Fatalf("no socket in the group:\n%s", table)
	return 0
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

// flood sends until the kernel has no room. So many events can be read then, of which the listener holds unread ones back.
func flood(kernel speaker, l *Listener) {
	kernel.t.Helper()
	before := l.Counts().Received
	for range unread {
		kernel.asKernel(event("change"))
	}
	await.For(kernel.t, "it waits for its consumer", func() bool { return l.Counts().Received == before+unread })
	for range 20_000 {
		kernel.asKernel(event("change"))
	}
}

// unread is how many events the listener takes before it waits for its consumer.
const unread = burst + 1

// TestOverflow: after an overflow the kernel loses events until all that wait are read. Only then is a scan sure to see what they said.
func TestOverflow(t *testing.T) {
	kernel := newSpeaker(t)
	l := listen(t)
	flood(kernel, l)
	read := 0
	for ; read < 2*unread; read++ {
		if next(t, l).Overflow {
			t.Fatalf("the loss is told after %d events, while later ones are still being lost", read)
		}
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

	// A storm that never lets the listener see that none waits: when it has taken the last one, there is no room again.
	flood(kernel, l)
	for range read - unread {
		next(t, l)
	}
	await.For(t, "all are taken", func() bool { return l.Counts().Received == uint64(2*read)+1 })
	for range 20_000 {
		kernel.asKernel(event("change"))
	}
	for range unread {
		if next(t, l).Overflow {
			t.Fatal("the loss is told too early")
		}
	}
	if got := next(t, l); !got.Overflow {
		t.Error("as long as the storm goes on, the loss is not told")
	}
}

// TestSender: of the messages that arrive, those of the kernel to its group are uevents.
func TestSender(t *testing.T) {
	for sender, want := range map[unix.Sockaddr]bool{
		&unix.SockaddrNetlink{Groups: 1}: true, &unix.SockaddrNetlink{Groups: 1, Pid: 7}: false, &unix.SockaddrNetlink{Pid: 7}: false,
		&unix.SockaddrNetlink{}: false, &unix.SockaddrNetlink{Groups: 2}: false, &unix.SockaddrUnix{}: false, nil: false,
	} {
		if got := isFromKernel(sender); got != want {
			t.Errorf("%+v: %v", sender, got)
		}
	}
}

// TestSocketFails: a socket that fails is closed, another one is opened, and the consumer is told that events may have been lost.
func TestSocketFails(t *testing.T) {
	kernel := newSpeaker(t)
	socket, err := open()
	if err != nil {
		t.Fatal(err)
	}
	broken := replace(t, socket, os.DevNull)
	ctx, cancel := context.WithCancel(t.Context())
	l := &Listener{wanted: ofOurs, events: make(chan Event, burst)}
	go l.run(ctx, socket)
	t.Cleanup(func() { end(t, cancel, l) })
	if got := next(t, l); !got.Overflow {
		t.Errorf("%+v after the socket failed", got)
	}
	if target, err := os.Readlink(broken); err == nil && target == os.DevNull {
		t.Error("the socket that failed is left")
	}
	kernel.asKernel(event("bind"))
	if got := next(t, l); got.Action != "bind" {
		t.Errorf("%+v", got)
	}
}

// replace puts a file in the place of a socket, from which then nothing can be received. It returns the path of the descriptor.
func replace(t *testing.T, socket *os.File, path string) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	conn, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var descriptor string
	if err := conn.Control(func(fd uintptr) {
		descriptor = fmt.Sprintf("/proc/self/fd/%d", fd)
		err = unix.Dup3(int(file.Fd()), int(fd), unix.O_CLOEXEC)
	}); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return descriptor
}

// TestRoom: more events can wait than in a socket as it comes.
func TestRoom(t *testing.T) {
	socket, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	plain, err := unix.GetsockoptInt(newSpeaker(t).fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Control(func(fd uintptr) {
		if room, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil || room <= plain {
			t.Errorf("room of %d bytes, %v; without asking there are %d", room, err, plain)
		}
	}); err != nil {
		t.Fatal(err)
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
	await.For(t, "it waits for its consumer", func() bool { return l.Counts().Received > burst })
	cancel()
	await.For(t, "it ends", func() bool { return !strings.Contains(stacks(), "uevent.(*Listener)") })
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
