package discovery

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
	t, err := openTree(root)
	if err != nil || len(nodes) == 0 {
		return
	}
	processes, hidden := t.processes(ctx, nodes)
	for _, p := range processes {
		for _, i := range p.lpus {
			inv.LPUs[i].Users = append(inv.LPUs[i].Users, p.user)
		}
	}
	if hidden > 0 {
		inv.Problems = append(inv.Problems, Finding{
			Severity: SeverityNote, ID: "users-hidden", Subject: "/proc",
			Message: "of " + strconv.Itoa(hidden) + " processes it cannot be seen which files they hold open",
			Remedy:  "run as root to see every user of an LPU",
		})
	}
}

// holder is a process with the LPUs, by index in the inventory, whose nodes it holds open.
type holder struct {
	user User
	lpus []int
}

// processes looks through /proc in the order of pids. hidden counts those it may not look into.
func (t *tree) processes(ctx context.Context, nodes map[string]int) (holders []holder, hidden int) {
	proc, err := t.open("proc")
	if err != nil {
		return nil, 0
	}
	defer proc.close()
	names, err := proc.names()
	if err != nil {
		return nil, 0
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	for _, pid := range pids {
		if ctx.Err() != nil {
			break
		}
		h, err := t.process(pid, nodes)
		switch {
		case errors.Is(err, fs.ErrPermission):
			hidden++
		case err == nil && len(h.lpus) > 0:
			holders = append(holders, h)
		}
	}
	return holders, hidden
}

// process looks which nodes one process holds open. That it ends meanwhile is an error like any other.
func (t *tree) process(pid int, nodes map[string]int) (holder, error) {
	dir := path.Join("proc", strconv.Itoa(pid))
	open, err := t.open(dir + "/fd")
	if err != nil {
		return holder{}, err
	}
	defer open.close()
	names, err := open.names()
	if err != nil {
		return holder{}, err
	}
	h := holder{user: User{PID: pid}}
	for _, name := range names {
		target, err := open.link(name)
		if i, isNode := nodes[target]; err == nil && isNode && !slices.Contains(h.lpus, i) {
			h.lpus = append(h.lpus, i)
		}
	}
	if len(h.lpus) > 0 {
		t.identifyProcess(dir, &h.user)
	}
	return h, nil
}

func (t *tree) identifyProcess(dir string, u *User) {
	d, err := t.open(dir)
	if err != nil {
		return
	}
	defer d.close()
	u.Command, _ = d.line("comm")
	cgroup, _ := d.text("cgroup")
	u.Container, u.Pod = parseCgroup(cgroup)
}

// parseCgroup reads /proc/PID/cgroup (cgroups(7)). Container engines end the path with the container's id of 64
// hexadecimal digits, with or without a prefix and ".scope" (libpod-, cri-containerd-, docker-); the kubelet
// names a directory above "pod" and the pod's UID, with underscores for hyphens under systemd.
func parseCgroup(text string) (container, pod string) {
	id := regexp.MustCompile(`[0-9a-f]{64}`)
	uid := regexp.MustCompile(`pod([0-9a-f]{8}([-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})`)
	if ids := id.FindAllString(text, -1); len(ids) > 0 {
		container = ids[len(ids)-1]
	}
	if m := uid.FindStringSubmatch(text); m != nil {
		pod = strings.ReplaceAll(m[1], "_", "-")
	}
	return container, pod
}
