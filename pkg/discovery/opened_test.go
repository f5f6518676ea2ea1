package discovery

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// zero is an LPU of this machine whose node is called otherwise than what is opened: it has the numbers of /dev/zero (mem(4)).
func zero() *Inventory {
	return &Inventory{LPUs: []LPU{{Name: "lpu0", Nodes: []Node{{Path: "/dev/lpu0", Major: 1, Minor: 5}}}}}
}

// users are the processes of this machine that have an LPU open.
func users(t testing.TB, inv *Inventory) (pids []int) {
	t.Helper()
	FindUsers(t.Context(), "/", inv)
	for _, u := range inv.LPUs[0].Users {
		pids = append(pids, u.PID)
	}
	return pids
}

// TestAnOpenNodeIsKnownByItsNumber: by whatever name a node was opened, its LPU is in use, and a file of another number that has the
// node's name is not it.
func TestAnOpenNodeIsKnownByItsNumber(t *testing.T) {
	if slices.Contains(users(t, zero()), os.Getpid()) {
		t.Fatal("it is open already")
	}
	f, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !slices.Contains(users(t, zero()), os.Getpid()) {
		t.Error("the node is open")
	}
	other := zero()
	other.LPUs[0].Nodes[0] = Node{Path: "/dev/zero", Major: 1, Minor: 99}
	if slices.Contains(users(t, other), os.Getpid()) {
		t.Error("what is open has the path of the node and another number")
	}
	other.LPUs[0].Nodes[0].Major = 0 // of a rule that names the path alone
	if !slices.Contains(users(t, other), os.Getpid()) {
		t.Error("what is open has the path of the node, which has no number")
	}
}

// TestWhatMayHangIsNotAsked: a file in a file system of another machine is not asked for its number, which might take for ever. One that
// is in no mount is asked if it may be a node of /dev.
func TestWhatMayHangIsNotAsked(t *testing.T) {
	f, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tree, err := host.Root("/").Open()
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	mount, inode := openNodesOf(tree, zero()).place(fmt.Sprintf("proc/%d/fdinfo", os.Getpid()), fmt.Sprint(f.Fd()))
	for name, c := range map[string]struct {
		mount string
		inode uint64
		held  []int
	}{
		"of another machine": {mount: mount, inode: inode},
		"unmounted":          {mount: "gone", held: nil},
		"unmounted, a node":  {mount: "gone", inode: inode, held: []int{0}},
	} {
		o := openNodesOf(tree, zero())
		o.inodes = map[uint64]bool{c.inode: true}
		o.mounts[namespaceOf(tree, os.Getpid())] = mounts{{id: c.mount, kind: "nfs4"}}
		if held, err := o.heldBy(t.Context(), os.Getpid()); err != nil || !slices.Equal(held, c.held) {
			t.Errorf("%s: %v, %v", name, held, err)
		}
	}
}

// TestANodeInAThread: a thread may have a table of open files of its own (unshare(2)), and may go on after the main thread.
func TestANodeInAThread(t *testing.T) {
	for name, do := range map[string]string{"a table of its own": "apart", "the main thread has ended": "orphan"} {
		t.Run(name, func(t *testing.T) {
			if pid := another(t, do); !slices.Contains(users(t, zero()), pid) {
				t.Errorf("process %d has the node open", pid)
			}
		})
	}
}

// TestHidden: what no look at open files shows is said of the process, and of no other.
func TestHidden(t *testing.T) {
	inv := zero()
	inv.LPUs[0].Nodes[0].Path = "/dev/zero" // memory has its path, not its number
	for do, why := range map[string]string{
		"queue": "has 1 descriptors in the queue of socket ", "registered": "has 1 descriptors in io_uring ",
		"memory": "has a node of an LPU in its memory", "apart": "",
	} {
		t.Run(do, func(t *testing.T) {
			pid, got := another(t, do), ""
			const owner = 1 << 30
			unclear, err := new(Hidden).Find(t.Context(), "/", inv, func(uid int) []int {
				if uid == os.Getuid() {
					return []int{owner}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range unclear {
				if u.PID == pid && u.Of == owner {
					got = u.Why
				}
			}
			if !strings.HasPrefix(got, why) || (got == "") != (why == "") {
				t.Errorf("process %d %s", pid, got)
			}
			if others, err := new(Hidden).Find(t.Context(), "/", inv, func(int) []int { return nil }); err != nil || len(others) != 0 {
				t.Errorf("of another user: %v, %v", others, err)
			}
		})
	}
}

// another starts a process that has the node of zero in its way, and ends with the test.
func another(t *testing.T, do string) (pid int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), "DISCOVERY_TEST="+do)
	end, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = end.Close()
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	return c.Process.Pid
}

// init keeps the main function in the main thread where that thread shall end.
func init() { //nolint:gochecknoinits // later the main function may be in another thread
	if os.Getenv("DISCOVERY_TEST") != "" {
		runtime.LockOSThread()
	}
}

// TestMain lets this program be the one that has a node open.
func TestMain(m *testing.M) {
	switch do := os.Getenv("DISCOVERY_TEST"); do {
	case "":
		os.Exit(m.Run())
	case "apart", "orphan":
		openInAThread(do == "orphan")
	default:
		must(hide(do))
		wait()
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// wait says that the node is open, and waits until its input ends.
func wait() {
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// hide takes a node where it is not among the files that this process has open.
func hide(where string) error {
	node, err := unix.Open("/dev/zero", unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { must(unix.Close(node)) }()
	switch where {
	case "queue":
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(node), nil, 0)
	case "memory":
		_, err := unix.Mmap(node, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
		return err
	default:
		return register(node)
	}
}

// register registers a file with io_uring (io_uring_setup(2), io_uring_register(2)).
func register(file int) error {
	const registerFiles = 2 // IORING_REGISTER_FILES
	var params [120]byte    // struct io_uring_params
	ring, _, failed := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	if failed != 0 {
		return failed
	}
	files := [1]int32{int32(file)}
	if _, _, failed = unix.Syscall6(unix.SYS_IO_URING_REGISTER, ring, registerFiles, uintptr(unsafe.Pointer(&files)), 1, 0, 0); failed != 0 {
		return failed
	}
	return nil
}

func mainEnded() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", os.Getpid()))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

// openInAThread opens a node where only a look at all threads finds it.
func openInAThread(orphan bool) {
	go func() {
		runtime.LockOSThread()
		if !orphan {
			must(unix.Unshare(unix.CLONE_FILES))
		}
		_, err := unix.Open("/dev/zero", unix.O_RDONLY, 0)
		must(err)
		if orphan {
			for !mainEnded() {
				runtime.Gosched()
			}
		}
		wait()
	}()
	if orphan {
		_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
	select {}
}

// BenchmarkFindUsers looks at all processes of this machine.
func BenchmarkFindUsers(b *testing.B) {
	for b.Loop() {
		users(b, zero())
	}
}
