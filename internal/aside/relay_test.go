package aside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/hostile"
)

// relayOf starts a relay that ends with the test.
func relayOf(t *testing.T, sockets int) *Relay {
	t.Helper()
	r, err := StartRelay(sockets)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.control.Close() })
	return r
}

// pair is a connection: one end for the relay, and the other.
func pair(t *testing.T) (relayed, client int) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ends[0], ends[1]
}

func closed(t *testing.T, fds ...int) {
	t.Helper()
	for _, fd := range fds {
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
}

// next is what the relay has read next.
func next(t *testing.T, r *Relay) (id uint64, text string) {
	t.Helper()
	_ = r.control.SetReadDeadline(time.Now().Add(generous))
	var buffer [word + RelayLimit]byte
	id, data, err := r.Next(&buffer)
	if err != nil {
		t.Fatal(err)
	}
	return id, string(data)
}

// has are the sockets that a process has open, beside its standard streams and control.
func has(pid int) (n int) {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(entries) - 4
}

// TestRelay: what clients send arrives with the ids of their sockets, an end does, and what is
// dropped is kept until it is forgotten.
func TestRelay(t *testing.T) {
	r := relayOf(t, 3)
	one, first := pair(t)
	two, second := pair(t)
	six, sixth := pair(t)
	if err := errors.Join(r.Take(1, one), r.Take(2, two), r.Take(6, six)); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", RelayLimit+1)
	for _, send := range []struct {
		fd         int
		id         uint64
		text, want string
	}{{first, 1, "hello", "hello"}, {second, 2, "there", "there"}, {first, 1, long, long[:RelayLimit]}} {
		if _, err := unix.Write(send.fd, []byte(send.text)); err != nil {
			t.Fatal(err)
		}
		if id, text := next(t, r); id != send.id || text != send.want {
			t.Errorf("%d says %.20q, want %d: %.20q", id, text, send.id, send.want)
		}
	}
	three, third := pair(t) // for which there is no room
	if err := r.Take(3, three); err != nil {
		t.Fatal(err)
	}
	closed(t, three)
	if n, err := unix.Read(third, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("the third reads %d, %v: there was no room for it", n, err)
	}
	closed(t, first) // whose end is the end of one
	if id, text := next(t, r); id != 1 || text != "" {
		t.Errorf("%d says %q at its end", id, text)
	}
	if err := errors.Join(unix.SetNonblock(second, true), r.Drop(1, one), r.Drop(2, two), r.Drop(4, third)); err != nil {
		t.Fatal(err)
	}
	closed(t, one, two, third)
	// What is sent now is read after the orders were carried out: the relay looks there first.
	for range 2 {
		if _, err := unix.Write(sixth, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if id, _ := next(t, r); id != 6 {
			t.Errorf("%d says something", id)
		}
	}
	if n, err := unix.Read(second, make([]byte, 1)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the second reads %d, %v: the relay keeps its end", n, err)
	}
	closed(t, six, sixth)
	if id, _ := next(t, r); id != 6 {
		t.Errorf("%d ends", id)
	}
	if err := errors.Join(r.Forget(6), r.Forget(1), r.Forget(2), r.Forget(4), r.Forget(5)); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(second, false); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Read(second, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("the second reads %d, %v: it was dropped", n, err)
	}
	closed(t, second)
	await.For(t, "all are closed", func() bool { return has(r.pid) == 0 })
}

// TestARelayThatSleeps: descriptors are closed by the relay, and by no other process. It takes
// orders until it has no room for more, and a kill ends its sleep.
func TestARelayThatSleeps(t *testing.T) {
	r := relayOf(t, 1000)
	one, first := pair(t)
	fd := hostile.Lingering(t)
	if err := unix.Sendmsg(first, []byte("x"), unix.UnixRights(fd), nil, 0); err != nil {
		t.Fatal(err)
	}
	closed(t, fd) // before the relay has it: its close is the last
	if err := r.Take(1, one); err != nil {
		t.Fatal(err)
	}
	await.For(t, "the relay closes it", func() bool { return closes(r.pid) })
	var err error
	for n := 0; err == nil; n++ {
		if err = r.Drop(uint64(n), one); n > 10_000 {
			t.Fatal("it takes all")
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	r.Kill()
	await.For(t, "it has ended", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", r.pid))
		return errors.Is(err, fs.ErrNotExist)
	})
	closed(t, one)
	if n, err := unix.Read(first, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("it reads %d, %v: the relay has ended, and this process has closed its end", n, err)
	}
	closed(t, first)
}

// closes reports whether a process sleeps at the end of a call that reads a message.
func closes(pid int) bool {
	call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
	return err == nil && strings.HasPrefix(string(call), fmt.Sprint(unix.SYS_RECVMSG)) && sleeps(fmt.Sprintf("/proc/%d/stat", pid))
}

// TestARelayEndsWithItsProgram: it has no other descriptor of it, and ends when control does.
func TestARelayEndsWithItsProgram(t *testing.T) {
	r := relayOf(t, 1)
	one, first := pair(t)
	if err := r.Take(1, one); err != nil {
		t.Fatal(err)
	}
	closed(t, one)
	await.For(t, "it has the socket", func() bool { return has(r.pid) == 1 })
	r.End()
	t.Cleanup(func() { _ = syscall.Kill(r.pid, syscall.SIGKILL) })
	await.For(t, "it has ended", func() bool { return errors.Is(syscall.Kill(r.pid, 0), syscall.ESRCH) })
	if n, err := unix.Read(first, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
	closed(t, first)
}
