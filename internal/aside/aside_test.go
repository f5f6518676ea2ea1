package aside

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const generous = time.Minute

// open opens a directory.
func open(t *testing.T, dir string) int {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// TestRead: content and errors come in the order of the files.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("a", 5000)
	for name, text := range map[string]string{"short": "0\n", "empty": "", "long": long} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("short", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	fd := open(t, dir)
	p, err := Start([]File{
		{fd, "short", 4097}, {fd, "absent", 4097}, {fd, "empty", 4097}, {fd, "long", 4097}, {fd, "link", 8}, {fd, "short", 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !p.Wait(generous) {
		t.Fatal("it has not ended")
	}
	for i, want := range []struct {
		text string
		err  error
	}{{"0\n", nil}, {"", unix.ENOENT}, {"", nil}, {long[:4097], nil}, {"", unix.ELOOP}, {"0", nil}} {
		if data, ok, err := p.Next(); string(data) != want.text || !errors.Is(err, want.err) || !ok {
			t.Errorf("file %d: %.20q, %v, %t", i, data, err, ok)
		}
	}
	if _, ok, _ := p.Next(); ok {
		t.Error("there is more")
	}
	p.End()
}

// TestAsleep: a process that is stopped, as one that waits for a processor, is not asleep, and neither
// is one that has ended.
func TestAsleep(t *testing.T) {
	sleeper := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	asleep := &Process{pid: sleeper.Process.Pid}
	for end := time.Now().Add(generous); !asleep.Asleep(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("one that sleeps is not asleep")
		}
	}
	p := stopped(t, []File{{open(t, t.TempDir()), "absent", 1}})
	if p.Asleep() {
		t.Error("it is stopped, and waits for no file")
	}
	if err := unix.Kill(p.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for !p.Wait(generous) {
	}
	if p.Asleep() {
		t.Error("it has ended")
	}
	p.End()
}

// TestThreadAsleep: a thread that reads an empty pipe is asleep, and one whose goroutine waits for
// another goroutine is not.
func TestThreadAsleep(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	onThread := func(do func()) (tid int) {
		started := make(chan int)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			started <- unix.Gettid()
			do()
		}()
		return <-started
	}
	released := make(chan struct{})
	reads := onThread(func() { _, _ = unix.Read(pipe[0], make([]byte, 1)) })
	waits := onThread(func() { <-released })
	becomes := func(state func() bool) {
		t.Helper()
		for end := time.Now().Add(generous); !state(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it is not so")
			}
		}
	}
	becomes(func() bool { return ThreadAsleep(reads) })
	becomes(func() bool { return sleeps(fmt.Sprintf("/proc/self/task/%d/stat", waits)) }) // in futex(2)
	if ThreadAsleep(waits) {
		t.Error("it waits for a goroutine, and not in the kernel")
	}
	close(released)
	if err := errors.Join(unix.Close(pipe[1]), unix.Close(pipe[0])); err != nil {
		t.Fatal(err)
	}
}

// TestWhatItHasOpen: nothing that this process has, not even what a program is to inherit.
func TestWhatItHasOpen(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	fifo, err := os.OpenFile(filepath.Join(dir, "fifo"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	inherited, err := unix.FcntlInt(fifo.Fd(), unix.F_DUPFD, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(inherited) }()
	own := open(t, "/proc/self/fd") // of this process: it reads that there, and must not have it
	p := stopped(t, []File{{open(t, dir), "absent", 1}, {own, "absent", 1}})
	links, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
	if err != nil {
		t.Fatal(err)
	}
	var has []string
	for _, l := range links {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", p.pid, l.Name()))
		if strings.HasPrefix(to, "pipe:") {
			to = "pipe"
		}
		has = append(has, to)
	}
	slices.Sort(has)
	want := []string{"pipe", "pipe", "pipe", dir, fmt.Sprintf("/proc/%d/fd", os.Getpid()), "pipe"}
	slices.Sort(want)
	if !slices.Equal(has, want) {
		t.Errorf("it has open %v, want %v", has, want)
	}
	if sid, err := unix.Getsid(p.pid); err != nil || sid != p.pid {
		t.Errorf("its session is %d, %v", sid, err)
	}
	p.Want(0)
	if err := unix.Kill(p.pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.End()
}

// stopped starts a process that reads these files very often, and stops it while it does so. One
// that has ended before it could be stopped is followed by another.
func stopped(t *testing.T, files []File) *Process {
	t.Helper()
	for {
		p, err := Start(slices.Repeat(files, 300_000))
		if err != nil {
			t.Fatal(err)
		}
		ended := false
		for ok := false; !ok && !ended; _, ok, _ = p.Next() {
			ended = p.Wait(time.Millisecond)
		}
		if err := unix.Kill(p.pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if !ended && !p.Wait(time.Millisecond) {
			return p
		}
		p.End()
	}
}
