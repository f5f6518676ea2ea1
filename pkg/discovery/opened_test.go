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
			defer func() { _ = end.Close(); _ = c.Process.Kill(); _ = c.Wait() }()
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatal(line, err)
			}
			if !slices.Contains(users(t, zero()), c.Process.Pid) {
				t.Errorf("process %d has the node open", c.Process.Pid)
			}
		})
	}
}

// init keeps the main function in the main thread where that thread shall end.
func init() {
	if os.Getenv("DISCOVERY_TEST") != "" {
		runtime.LockOSThread()
	}
}

// TestMain lets this program be the one that has a node open.
func TestMain(m *testing.M) {
	if do := os.Getenv("DISCOVERY_TEST"); do != "" {
		openInAThread(do == "orphan")
	}
	os.Exit(m.Run())
}

func mainEnded() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", os.Getpid()))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

// openInAThread opens a node where only a look at all threads finds it, says so, and waits until its input ends.
func openInAThread(orphan bool) {
	go func() {
		runtime.LockOSThread()
		if !orphan {
			if err := unix.Unshare(unix.CLONE_FILES); err != nil {
				panic(err)
			}
		}
		if _, err := unix.Open("/dev/zero", unix.O_RDONLY, 0); err != nil {
			panic(err)
		}
		if orphan {
			for !mainEnded() {
				runtime.Gosched()
			}
		}
		fmt.Println("open")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
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
