package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

const specName = "hyperaccel.ai-lpu.json"

// specDirNames are what a refresh leaves in the spec directory.
var specDirNames = []string{".hyperaccel.ai-lpu.lock", specName}

// sharedSpecDir makes one spec directory of the nodes' and returns it.
func sharedSpecDir(t *testing.T, roots ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, root := range roots {
		machine.BindMount(t, dir, filepath.Join(root, "var/run/cdi"))
	}
	return dir
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// steps are the system calls that change a file or a directory, or give one back.
var steps = map[uint64]string{
	unix.SYS_CLOSE: "close", unix.SYS_COPY_FILE_RANGE: "copy_file_range", unix.SYS_FALLOCATE: "fallocate", unix.SYS_FCHMOD: "fchmod",
	unix.SYS_FCHMODAT: "fchmodat", unix.SYS_FCHOWN: "fchown", unix.SYS_FCHOWNAT: "fchownat", unix.SYS_FDATASYNC: "fdatasync",
	unix.SYS_FLOCK: "flock", unix.SYS_FSYNC: "fsync", unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_LINKAT: "linkat", unix.SYS_MKDIRAT: "mkdirat",
	unix.SYS_OPENAT: "openat", unix.SYS_OPENAT2: "openat2", unix.SYS_PWRITE64: "pwrite64", unix.SYS_RENAMEAT: "renameat",
	unix.SYS_RENAMEAT2: "renameat2", unix.SYS_SENDFILE: "sendfile", unix.SYS_SYMLINKAT: "symlinkat", unix.SYS_SYNC: "sync",
	unix.SYS_SYNCFS: "syncfs", unix.SYS_TRUNCATE: "truncate", unix.SYS_UNLINKAT: "unlinkat", unix.SYS_WRITE: "write",
	unix.SYS_WRITEV: "writev",
}

// killer kills a process by SIGKILL before one of its steps. strace cannot: it counts the calls of each thread
// and of each kind by themselves, and Go moves between threads, so that most calls of the write phase are never the nth.
type killer struct {
	dir   string // the first call that names a path below it starts the count
	left  int    // steps until the kill
	begun bool
}

// run runs a command and tells before which step it was killed; "" if it ended by itself, with exit code 0.
func (k *killer) run(t *testing.T, command ...string) string {
	t.Helper()
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	pid, err := syscall.ForkExec(command[0], command, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	killed := ""
	for first := true; ; first = false {
		var status unix.WaitStatus
		thread, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		if err != nil {
			t.Fatalf("waiting for %v: %v", command, err)
		}
		switch {
		case thread == pid && status.Exited() && status.ExitStatus() != 0:
			t.Fatalf("%v: exit code %d", command, status.ExitStatus())
		case thread == pid && !status.Stopped():
			return killed
		case !status.Stopped():
			continue // another thread ended
		case first:
			if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL); err != nil {
				t.Fatal(err)
			}
		}
		signal := 0
		switch s := status.StopSignal(); s {
		case unix.SIGTRAP | 0x80: // before a system call or after one
			if step := k.step(thread); step != "" && killed == "" {
				if k.left--; k.left == 0 {
					killed = step
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
		case unix.SIGTRAP, unix.SIGSTOP: // it has started itself or a thread
		default:
			signal = int(s)
		}
		_ = unix.PtraceSyscall(thread, signal) // fails once the process is killed
	}
}

// syscallInfo is struct ptrace_syscall_info of include/uapi/linux/ptrace.h.
type syscallInfo struct {
	op     uint8
	_      [3]uint8
	_      uint32
	_, _   uint64
	number uint64
	args   [6]uint64
	_      [2]uint64
}

// step is the name of the step that the thread is about to make; "" if it is none, or too early.
func (k *killer) step(thread int) string {
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO,
		uintptr(thread), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 || info.op != unix.PTRACE_SYSCALL_INFO_ENTRY {
		return ""
	}
	k.begun = k.begun || k.names(thread, info.args[0]) || k.names(thread, info.args[1])
	if !k.begun {
		return ""
	}
	return steps[info.number]
}

// names tells whether an argument of a thread's call points to a path below the directory.
func (k *killer) names(thread int, argument uint64) bool {
	text := make([]byte, len(k.dir))
	local := []unix.Iovec{{Base: &text[0]}}
	local[0].SetLen(len(text))
	n, err := unix.ProcessVMReadv(thread, local, []unix.RemoteIovec{{Base: uintptr(argument), Len: len(text)}}, 0)
	return err == nil && n == len(text) && string(text) == k.dir
}

// TestKilledAtEachStep kills a refresh before each step it makes from when it first looks at the spec directory:
// readers find the old spec or the new one, and the next refresh finds nothing in its way.
func TestKilledAtEachStep(t *testing.T) {
	need(t)
	for name, inPlace := range map[string]bool{"over an old spec": true, "where there is none": false} {
		t.Run(name, func(t *testing.T) {
			before, after := simulate(t, "--profile", "lpu", "--lpus", "3"), simulate(t, "--profile", "lpu", "--lpus", "4")
			dir := filepath.Join(after, "var/run/cdi")
			if inPlace {
				sharedSpecDir(t, before, after)
			}
			k := killing{
				dir: dir, spec: filepath.Join(dir, specName),
				refresh: []string{machine.Binary(t), "--root", after, "--quiet", "cdi", "refresh"},
				want:    []byte(machine.Lpuctl(t, "--root", after, "cdi", "generate")),
				kills:   map[string]int{}, found: map[string]bool{},
			}
			reset := func() {
				if err := os.RemoveAll(filepath.Join(after, "var")); err != nil {
					t.Fatal(err)
				}
			}
			if inPlace {
				k.old = []byte(machine.Lpuctl(t, "--root", before, "cdi", "generate"))
				reset = func() { machine.Lpuctl(t, "--root", before, "cdi", "refresh") }
			}
			k.atEachStep(t, reset)
		})
	}
}

// killing is what a series of kills needs and finds.
type killing struct {
	dir, spec string
	refresh   []string
	old, want []byte // the spec before, nil if there is none, and after
	kills     map[string]int
	found     map[string]bool
}

func (k *killing) atEachStep(t *testing.T, reset func()) {
	t.Helper()
	for n := 1; ; n++ {
		reset()
		step := (&killer{dir: k.dir, left: n}).run(t, k.refresh...)
		if step == "" { // it ended before; once more, because the tracer sometimes misses when the first call names the directory
			reset()
			step = (&killer{dir: k.dir, left: n}).run(t, k.refresh...)
		}
		if step == "" {
			break
		}
		k.kills[step]++
		k.judge(t, fmt.Sprintf("killed at step %d, %s", n, step))
	}
	total := 0
	for _, n := range k.kills {
		total += n
	}
	t.Logf("%d kills: %v; found %v", total, k.kills, slices.Sorted(maps.Keys(k.found)))
	if total < 10 || !k.found["the old spec"] || !k.found["the new spec"] || !k.found["a file half done"] {
		t.Error("the write phase was not hit")
	}
}

// judge looks at what a killed refresh has left, and at what the next one makes of it.
func (k *killing) judge(t *testing.T, when string) {
	t.Helper()
	got, err := os.ReadFile(k.spec)
	switch {
	case err == nil && bytes.Equal(got, k.want):
		k.found["the new spec"] = true
	case err == nil && k.old != nil && bytes.Equal(got, k.old), os.IsNotExist(err) && k.old == nil:
		k.found["the old spec"] = true
	default:
		t.Fatalf("%s: the spec is neither the old one nor the new one: %v\n%s", when, err, got)
	}
	if entries, err := os.ReadDir(k.dir); err == nil {
		for _, e := range entries {
			k.found["a file half done"] = k.found["a file half done"] || !slices.Contains(specDirNames, e.Name())
		}
	}
	if r := machine.Run(t, k.refresh...); r.Code != 0 || r.Stderr != "" {
		t.Fatalf("%s: the next refresh: exit code %d: %s", when, r.Code, r.Stderr)
	}
	if !bytes.Equal(read(t, k.spec), k.want) {
		t.Fatalf("%s: the next refresh has not put the new spec in place", when)
	}
	if diff := cmp.Diff(specDirNames, namesIn(t, k.dir)); diff != "" {
		t.Fatalf("%s: the next refresh leaves more:\n%s", when, diff)
	}
}

// TestManyRefreshesAtOnce: sixteen processes from two nodes leave one whole file.
func TestManyRefreshesAtOnce(t *testing.T) {
	need(t)
	roots := []string{simulate(t, "--profile", "lpu", "--lpus", "3"), simulate(t, "--profile", "lpu", "--lpus", "4")}
	dir := sharedSpecDir(t, roots...)
	var wanted []string
	for _, root := range roots {
		wanted = append(wanted, machine.Lpuctl(t, "--root", root, "cdi", "generate"))
	}
	var results [16]machine.Result
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() { results[i] = machine.Run(t, machine.Binary(t), "--root", roots[i%2], "cdi", "refresh") })
	}
	wg.Wait()
	for i, r := range results {
		if r.Code != 0 {
			t.Errorf("refresh %d: exit code %d: %s", i, r.Code, r.Stderr)
		}
	}
	if got := string(read(t, filepath.Join(dir, specName))); got != wanted[0] && got != wanted[1] {
		t.Errorf("the file is neither node's spec:\n%s", got)
	}
	if diff := cmp.Diff(specDirNames, namesIn(t, dir)); diff != "" {
		t.Errorf("in the directory:\n%s", diff)
	}
}

// TestAFullOrFailingDisk: what cannot be written leaves what was there, and says why and what to do.
func TestAFullOrFailingDisk(t *testing.T) {
	need(t, "strace")
	// Each case makes the refresh fail and may return how to make the disk well again.
	for name, c := range map[string]struct {
		lpus  string // of the node whose refresh fails
		fail  []string
		spoil func(t *testing.T, dir string) (mend func())
		says  string
	}{
		"full disk":             {lpus: "64", says: "no space left on device"},
		"file not synced":       {lpus: "2", fail: failing("fsync"), says: "input/output error"},
		"file not renamed":      {lpus: "2", fail: failing("renameat"), says: "input/output error"},
		"lock refused":          {lpus: "2", fail: failing("flock"), says: "input/output error"},
		"read-only file system": {lpus: "2", spoil: readOnly, says: "read-only file system"},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := simulate(t, "--profile", "lpu", "--lpus", "3"), simulate(t, "--profile", "lpu", "--lpus", c.lpus)
			small := t.TempDir()
			machine.Mount(t, "tmpfs", small, "tmpfs", 0, "size=32k")
			for _, root := range []string{before, after} {
				machine.BindMount(t, small, filepath.Join(root, "var/run/cdi"))
			}
			machine.Lpuctl(t, "--root", before, "cdi", "refresh")
			old := read(t, filepath.Join(small, specName))
			mend := func() {}
			if c.spoil != nil {
				mend = c.spoil(t, small)
			}
			r := machine.Run(t, append(c.fail, machine.Binary(t), "--root", after, "cdi", "refresh")...)
			wantRefused(t, r, filepath.Join(after, "var/run/cdi"), c.says)
			if !bytes.Equal(read(t, filepath.Join(small, specName)), old) {
				t.Error("the spec is not what it was")
			}
			mend()
			machine.Lpuctl(t, "--root", before, "cdi", "refresh")
			if diff := cmp.Diff(specDirNames, namesIn(t, small)); diff != "" {
				t.Errorf("after the next refresh:\n%s", diff)
			}
		})
	}
}

// failing is the command that makes the first such system call of the command after it fail.
func failing(call string) []string {
	return []string{"strace", "-f", "-qqq", "-o", "/dev/null", "-e", "trace=" + call, "-e", "inject=" + call + ":error=EIO:when=1"}
}

func readOnly(t *testing.T, dir string) (mend func()) {
	t.Helper()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=32k"); err != nil {
			t.Fatal(err)
		}
	}
}

// wantRefused wants exit code 1 and one message, with the path, the reason and a remedy.
func wantRefused(t *testing.T, r machine.Result, path, reason string) {
	t.Helper()
	message, remedy, _ := strings.Cut(r.Stderr, "\n")
	says := strings.HasPrefix(message, "lpuctl: ") && strings.Contains(message, path) && strings.Contains(message, reason)
	if r.Code != 1 || r.Stdout != "" || !says {
		t.Errorf("exit code %d, want 1, and a message with %s and %q:\n%s%s", r.Code, path, reason, r.Stdout, r.Stderr)
	}
	if !strings.HasPrefix(remedy, "  remedy: ") || strings.Count(remedy, "\n") != 1 {
		t.Errorf("want one remedy below the message:\n%s", r.Stderr)
	}
}

// TestADirectoryThatIsNotSynced: the new spec is in place, yet whether it survives a power cut is not known.
func TestADirectoryThatIsNotSynced(t *testing.T) {
	need(t, "strace")
	before, after := simulate(t, "--profile", "lpu", "--lpus", "3"), simulate(t, "--profile", "lpu", "--lpus", "4")
	dir := sharedSpecDir(t, before, after)
	machine.Lpuctl(t, "--root", before, "cdi", "refresh")
	here := filepath.Join(after, "var/run/cdi")
	r := machine.Run(t, "strace", "-f", "-qqq", "-o", "/dev/null", "-P", here,
		"-e", "trace=fsync", "-e", "inject=fsync:error=EIO", machine.Binary(t), "--root", after, "cdi", "refresh")
	wantRefused(t, r, here, "input/output error")
	if got, want := string(read(t, filepath.Join(dir, specName))), machine.Lpuctl(t, "--root", after, "cdi", "generate"); got != want {
		t.Errorf("the spec is not the new one:\n%s", got)
	}
}

// TestNoDirectory: a file that stands where the spec directory should be is named.
func TestNoDirectory(t *testing.T) {
	need(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "1")
	dir := filepath.Join(root, "var/run/cdi")
	machine.Write(t, dir, "")
	wantRefused(t, machine.Run(t, machine.Binary(t), "--root", root, "cdi", "refresh"), dir, "not a directory")
}
