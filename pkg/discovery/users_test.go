package discovery

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		"proc/9/fd/1":     "-> /dev/lpu1",
		"proc/9/comm":     "x\x1by\n", // junk is left out
		"proc/9/cgroup":   "0::/user.slice\n",
		"proc/7/comm":     "no fd directory",
		"proc/self/fd/1":  "-> /dev/lpu0", // not a pid
		"proc/8/fd/1":     "a file",
		"proc/sys/kernel": "dir",
	})
	inv := &Inventory{LPUs: []LPU{
		{Name: "lpu0", Nodes: []Node{{Path: "/dev/lpu0"}}},
		{Name: "lpu1", Nodes: []Node{{Path: "/dev/lpu1"}}},
		{Name: "lpu2", Nodes: []Node{{Path: "/dev/lpu2"}}},
	}}
	FindUsers(context.Background(), root, inv)
	vllm := User{PID: 12, Command: "vllm", Container: id, Pod: "3f5fdb9a-1f3b-4d0e-9d5c-0a1b2c3d4e5f"}
	for i, want := range [][]User{{vllm}, {{PID: 9}, vllm}, {}} {
		if diff := cmp.Diff(want, inv.LPUs[i].Users); diff != "" {
			t.Errorf("lpu%d: %s", i, diff)
		}
	}
	if len(inv.Problems) != 0 {
		t.Errorf("problems %v", inv.Problems)
	}
}

func TestParseCgroup(t *testing.T) {
	id := strings.Repeat("ab", 32)
	for text, want := range map[string][2]string{
		"": {},
		"12:devices:/kubepods/besteffort/pod3f5fdb9a-1f3b-4d0e-9d5c-0a1b2c3d4e5f/" + id + "\n1:name=systemd:/": {
			id, "3f5fdb9a-1f3b-4d0e-9d5c-0a1b2c3d4e5f",
		},
		"0::/machine.slice/libpod-" + id + ".scope/container": {id, ""},
		"0::/system.slice/docker-" + id + ".scope":            {id, ""},
		"0::/podman": {},
	} {
		container, pod := parseCgroup(text)
		if got := [2]string{container, pod}; got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
