package discovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// User is a process that holds an LPU's node open.
type User struct {
	PID       int    `json:"pid"`
	Command   string `json:"command"`             // /proc/PID/comm
	Container string `json:"container,omitempty"` // id, as far as the cgroup tells
	Pod       string `json:"pod,omitempty"`       // Kubernetes UID, likewise
}

// FindUsers fills in who uses each LPU. It sees what the caller may see: without root that is the caller's own
// processes, and then a note in the inventory's problems says so. It gives up when ctx ends.
func FindUsers(ctx context.Context, root string, inv *Inventory) {
	for i := range inv.LPUs {
		inv.LPUs[i].Users = []User{}
	}
	nodes := map[string]int{}
	for i, l := range inv.LPUs {
		for _, n := range l.Nodes {
			nodes[n.Path] = i
		}
	}
	t, err := host.Root(root).Open()
	if err != nil || len(nodes) == 0 {
		return
	}
	defer t.Close()
	hidden := 0 // processes that the caller may not look into
	for _, pid := range pids(t) {
		if ctx.Err() != nil {
			break
		}
		held, err := heldBy(t, pid, nodes)
		if errors.Is(err, fs.ErrPermission) {
			hidden++
		}
		if len(held) == 0 {
			continue
		}
		u := user(t, pid)
		for _, i := range held {
			inv.LPUs[i].Users = append(inv.LPUs[i].Users, u)
		}
	}
	if hidden > 0 {
		inv.Problems.Add(finding.UsersHidden, "/proc", fmt.Sprintf("of %d processes it cannot be seen which files they hold open", hidden), "")
	}
}

// pids are the processes of the machine, in ascending order; none where there is no /proc.
func pids(t *host.Tree) []int {
	names, _ := t.Names("proc")
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// heldBy are the LPUs, by index in the inventory, whose nodes a process holds open. That it ends meanwhile is an error
// like any other.
func heldBy(t *host.Tree, pid int, nodes map[string]int) ([]int, error) {
	open, err := t.Links(fmt.Sprintf("proc/%d/fd", pid))
	var held []int
	for _, file := range open {
		if i, isNode := nodes[file]; isNode && !slices.Contains(held, i) {
			held = append(held, i)
		}
	}
	return held, err
}

func user(t *host.Tree, pid int) User {
	u := User{PID: pid}
	d, err := t.Dir(fmt.Sprintf("proc/%d", pid))
	if err != nil {
		return u
	}
	defer d.Close()
	u.Command, _ = d.Line("comm")
	cgroup, _ := d.Text("cgroup")
	u.Container, u.Pod = parseCgroup(cgroup)
	return u
}

var (
	containerID = regexp.MustCompile(`[0-9a-f]{64}`)
	podUID      = regexp.MustCompile(`pod([0-9a-f]{8}([-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})`)
)

// parseCgroup reads /proc/PID/cgroup (cgroups(7)). Container engines end the path with the container's id of 64
// hexadecimal digits, with or without a prefix and ".scope" (libpod-, cri-containerd-, docker-); the kubelet
// names a directory above "pod" and the pod's UID, with underscores for hyphens under systemd.
func parseCgroup(text string) (container, pod string) {
	if ids := containerID.FindAllString(text, -1); len(ids) > 0 {
		container = ids[len(ids)-1]
	}
	if m := podUID.FindStringSubmatch(text); m != nil {
		pod = strings.ReplaceAll(m[1], "_", "-")
	}
	return container, pod
}
