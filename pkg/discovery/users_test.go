package discovery

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/plant"
)

func TestFindUsers(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	root := plant.Tree(t, map[string]string{
		"proc/12/fd/0":    "-> /dev/null",
		"proc/12/fd/3":    "-> /dev/lpu0",
		"proc/12/fd/4":    "-> /dev/lpu0", // twice is once
		"proc/12/fd/5":    "-> /dev/lpu1",
		"proc/12/comm":    "vllm\n",
		"proc/12/cgroup":  "0::/kubepods.slice/kubepods-pod3f5fdb9a_1f3b_4d0e_9d5c_0a1b2c3d4e5f.slice/cri-containerd-" + id + ".scope\n",
		"proc/12/status":  "Name:\tvllm\nUmask:\t0022\nUid:\t1001\t0\t0\t0\nGid:\t1\t1\t1\t1\nGroups:\t" + strings.Repeat("100000 ", 1000) + "\n",
		"proc/9/fd/1":     "-> /dev/lpu1",
		"proc/9/comm":     "x\x1by\n", // junk is left out
		"proc/9/cgroup":   "0::/user.slice\n",
		"proc/7/comm":     "no fd directory",
		"proc/self/fd/1":  "-> /dev/lpu0", // not a pid
		"proc/8/fd/1":     "a file",
		"proc/sys/kernel": "dir",
		"proc/2/comm":     "kthreadd\n",
	})
	inv := &Inventory{LPUs: []LPU{
		{Name: "lpu0", Nodes: []Node{{Path: "/dev/lpu0"}}},
		{Name: "lpu1", Nodes: []Node{{Path: "/dev/lpu1"}}},
		{Name: "lpu2", Nodes: []Node{{Path: "/dev/lpu2"}}},
	}}
	FindUsers(context.Background(), root, inv)
	vllm := User{
		PID: 12, Command: "vllm", Container: id, Pod: "3f5fdb9a-1f3b-4d0e-9d5c-0a1b2c3d4e5f", UID: 1001, Runtime: "containerd",
	}
	for i, want := range [][]User{{vllm}, {{PID: 9, UID: -1}, vllm}, {}} {
		if diff := gocmp.Diff(want, inv.LPUs[i].Users); diff != "" {
			t.Errorf("lpu%d: %s", i, diff)
		}
	}
	if len(inv.Problems) != 0 {
		t.Errorf("problems %v", inv.Problems)
	}
}

func TestParseCgroup(t *testing.T) {
	id := strings.Repeat("ab", 32)
	for text, want := range map[string][3]string{
		"": {},
		"12:devices:/kubepods/besteffort/pod3f5fdb9a-1f3b-4d0e-9d5c-0a1b2c3d4e5f/" + id + "\n1:name=systemd:/": {
			id, "3f5fdb9a-1f3b-4d0e-9d5c-0a1b2c3d4e5f", "other",
		},
		"0::/machine.slice/libpod-" + id + ".scope/container":                                           {id, "", "podman"},
		"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id + ".scope/container": {id, "", "podman"},
		"0::/system.slice/docker-" + id + ".scope":                                                      {id, "", "docker"},
		"11:pids:/docker/" + id + "\n1:name=systemd:/docker/" + id + "\n0::/\n":                         {id, "", "docker"},
		"0::/system.slice/nerdctl-" + id + ".scope":                                                     {id, "", "nerdctl"},
		"0::/kubepods.slice/crio-" + id + ".scope":                                                      {id, "", "cri-o"},
		"0::/default/" + id:     {id, "", "other"},
		"0::/evil-docker-" + id: {id, "", "other"},
		"0::/podman":            {},
	} {
		container, pod := parseCgroup(text)
		if got := [3]string{container, pod, runtimeOf(text, container)}; got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestHiddenUsers: an LPU whose users may be hidden never looks free, and one that has a user keeps it.
func TestHiddenUsers(t *testing.T) {
	open := map[string]string{
		"proc/2/comm": "kthreadd\n", "proc/12/fd/3": "-> /dev/lpu0", "proc/12/comm": "vllm\n", "proc/9/fd/1": "-> /dev/lpu1",
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx     context.Context
		change  map[string]string // of the files of /proc; "": removed
		closed  os.FileMode       // of the directory of process 9, whose files may not be seen
		message string            // "": nothing is hidden
		users   int               // of lpu0
	}{
		"nothing":             {users: 1},
		"what it has open":    {closed: 0o444, users: 1, message: "cannot see the open files of 1 of 3 processes"},
		"another's process":   {closed: 0o300, users: 1, message: "cannot see the open files of 1 of 3 processes"},
		"a container, no /2":  {change: map[string]string{"proc/2/comm": ""}, users: 1, message: "cannot see some processes"},
		"a container's /2":    {change: map[string]string{"proc/2/comm": "sh\n"}, users: 1, message: "cannot see some processes"},
		"there is no time":    {ctx: canceled, message: "cannot see the open files of 3 of 3 processes"},
		"a root without proc": {change: map[string]string{"proc/2/comm": "", "proc/12/fd/3": "", "proc/12/comm": "", "proc/9/fd/1": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(open)
			for file, text := range c.change {
				files[file] = text
				if text == "" {
					delete(files, file)
				}
			}
			root := plant.Tree(t, files)
			inv := &Inventory{LPUs: []LPU{{Nodes: []Node{{Path: "/dev/lpu0"}}}, {Nodes: []Node{{Path: "/dev/lpu1"}}}, {}}}
			if c.closed != 0 {
				closeDirectory(t, filepath.Join(root, "proc/9/fd"), c.closed)
			}
			FindUsers(cmp.Or(c.ctx, t.Context()), root, inv)
			used, other, bare := inv.LPUs[0], inv.LPUs[1], inv.LPUs[2]
			hidden := c.message != ""
			if used.UsersHidden != hidden || other.UsersHidden != hidden || bare.UsersHidden {
				t.Errorf("hidden: %v, %v and, without a node, %v", used.UsersHidden, other.UsersHidden, bare.UsersHidden)
			}
			if len(used.Users) != c.users || hidden && len(other.Users) == 0 && other.Users != nil {
				t.Errorf("users are %v and %v", used.Users, other.Users)
			}
			if hidden != (len(inv.Problems) == 1) || hidden && inv.Problems[0].Message != c.message {
				t.Errorf("problems: %v", inv.Problems)
			}
		})
	}
}

// closeDirectory gives a directory a mode with which this test may not read it, or not what
// is in it. Root may read every directory, so for the rest of the test this thread reads
// files as another user. The thread ends with the goroutine of the test.
func closeDirectory(t *testing.T, dir string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	if os.Getuid() != 0 {
		return
	}
	for above := filepath.Dir(dir); above != os.TempDir(); above = filepath.Dir(above) {
		if err := os.Chmod(above, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	runtime.LockOSThread()
	if err := unix.Setfsuid(65534); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setfsuid(0) })
}
