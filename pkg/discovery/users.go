package discovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// User is a process that has the device node of an LPU open.
type User struct {
	PID       int    `json:"pid"`                 // /proc/PID
	Command   string `json:"command"`             // /proc/PID/comm
	Container string `json:"container,omitempty"` // container id, from /proc/PID/cgroup
	Pod       string `json:"pod,omitempty"`       // Kubernetes UID of the pod, from /proc/PID/cgroup

	// UID is the real user id, of the host: Uid of /proc/PID/status; -1 if it cannot be
	// read.
	UID int `json:"-"`
	// Runtime is what runs the container, from /proc/PID/cgroup: podman, docker,
	// containerd, cri-o, nerdctl or other; "" outside of one.
	Runtime string `json:"-"`
	// Started is when the process began, since boot: starttime of /proc/PID/stat, to a
	// hundredth of a second; 0 if it cannot be read.
	Started time.Duration `json:"-"`
}

// String formats the user for people: "vllm(12)", with the pod or the container if it is
// in one.
func (u User) String() string {
	text := fmt.Sprintf("%s(%d)", u.Command, u.PID)
	switch {
	case u.Pod != "":
		text += " pod " + u.Pod
	case u.Container != "":
		text += " container " + u.Container[:min(12, len(u.Container))]
	}
	return text
}

// FindUsers sets LPU.Users. It finds the processes that the caller may inspect; without
// root these are the caller's own. If there are others, or if ctx ends before all were
// inspected, it sets LPU.UsersHidden of the LPUs that have a node, and adds users-hidden
// to the problems of the inventory.
func FindUsers(ctx context.Context, root string, inv *Inventory) {
	for i := range inv.LPUs {
		inv.LPUs[i].Users = []User{}
	}
	if recorded, ok := recordedUsers.Of(host.Root(root)); ok {
		inv.replayUsers(recorded)
		return
	}
	t, err := host.Root(root).Open()
	if host.IsShortage(err) {
		inv.hideUsers(cannotSee + "any process: " + err.Error())
	}
	if err != nil || inv.withNodes() == 0 {
		return
	}
	defer t.Close()
	if hidden := inv.addUsers(ctx, t); len(hidden) > 0 {
		inv.hideUsers(cannotSee + strings.Join(hidden, ", or "))
	}
}

// addUsers adds the processes that the caller may inspect, and returns what of others is
// hidden.
func (inv *Inventory) addUsers(ctx context.Context, t *host.Tree) (hidden []string) {
	all := pids(t)
	nodes := openNodesOf(t, inv)
	if len(all) > 0 && !seesEveryProcess(t) {
		hidden = append(hidden, "some processes")
	}
	closed := 0 // processes whose open files were not seen
	for _, pid := range all {
		if ctx.Err() != nil {
			closed++
			continue
		}
		held, err := nodes.heldBy(ctx, pid)
		if errors.Is(err, fs.ErrPermission) || ctx.Err() != nil {
			closed++
		}
		for _, i := range held {
			inv.LPUs[i].Users = append(inv.LPUs[i].Users, user(t, pid))
		}
	}
	if err := t.Shortage(); err != nil {
		hidden = append(hidden, "all processes: "+err.Error())
	}
	if closed > 0 {
		hidden = append(hidden, fmt.Sprintf("the open files of %d of %d processes", closed, len(all)))
	}
	return hidden
}

// processes is where processes are seen, and cannotSee begins what is said of those that
// are not.
const (
	processes = "/proc"
	cannotSee = "cannot see "
)

// hideUsers says that the LPUs may have users that are not listed. An empty list would
// say that there are none.
func (inv *Inventory) hideUsers(why string) {
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		l.UsersHidden = len(l.Nodes) > 0
		if l.UsersHidden && len(l.Users) == 0 {
			l.Users = nil
		}
	}
	inv.Problems.Add(finding.UsersHidden, processes, why, "")
}

// seesEveryProcess reports whether /proc lists every process of the machine. Process 2 of
// the machine is a thread of the kernel, kthreadd. A container does not see it
// (pid_namespaces(7)), and neither does an ordinary user if /proc is mounted with
// hidepid=2 (proc(5)).
func seesEveryProcess(t *host.Tree) bool {
	name, err := t.Line("proc/2/comm")
	return err == nil && name == "kthreadd"
}

// pids returns the processes of the machine in ascending order; none if there is no
// /proc.
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

func user(t *host.Tree, pid int) User {
	u := User{PID: pid, UID: -1}
	d, err := t.Dir(fmt.Sprintf("proc/%d", pid))
	if err != nil {
		return u
	}
	defer d.Close()
	u.Command, _ = d.Line("comm")
	u.Started = started(d)
	u.UID = uid(d)
	cgroup, _ := d.Text("cgroup")
	u.Container, u.Pod = parseCgroup(cgroup)
	u.Runtime = runtimeOf(cgroup, u.Container)
	return u
}

// uid reads the real user id of a process. Only the start of the file is read: the list
// of groups further down may be long.
func uid(process *host.Dir) int {
	text, _ := process.Head("status", 512)
	for line := range strings.Lines(string(text)) {
		if ids, ok := strings.CutPrefix(line, "Uid:\t"); ok {
			real, _, _ := strings.Cut(ids, "\t")
			if id, err := strconv.Atoi(real); err == nil {
				return id
			}
		}
	}
	return -1
}

// started reads when a process began.
func started(process *host.Dir) time.Duration {
	const perSecond = 100 // USER_HZ, on every architecture of today
	ticks, _ := strconv.ParseInt(stat(process, 22), 10, 64)
	return time.Duration(ticks) * time.Second / perSecond
}

// stat reads a field of /proc/PID/stat from the third on (proc_pid_stat(5)); "" if it is
// not there. The second, the name of the program, is in parentheses and may hold any
// character.
func stat(process *host.Dir, field int) string {
	text, _ := process.Text("stat")
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) <= field-3 {
		return ""
	}
	return fields[field-3]
}

var (
	containerID = regexp.MustCompile(`[0-9a-f]{64}`)
	podUID      = regexp.MustCompile(`pod([0-9a-f]{8}([-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})`)
)

// parseCgroup finds the container and the pod in /proc/PID/cgroup (cgroups(7)). The path
// of a container ends with its id of 64 hexadecimal digits, with or without a prefix and
// ".scope" (libpod-, cri-containerd-, docker-). A directory above it is named "pod" and
// the UID of the pod by the kubelet, with underscores instead of hyphens under systemd.
func parseCgroup(text string) (container, pod string) {
	if ids := containerID.FindAllString(text, -1); len(ids) > 0 {
		container = ids[len(ids)-1]
	}
	if m := podUID.FindStringSubmatch(text); m != nil {
		pod = strings.ReplaceAll(m[1], "_", "-")
	}
	return container, pod
}

// runtimeOf returns what runs a container by how its control group is named: most
// runtimes put their name before the id, and Docker without systemd the directory above.
func runtimeOf(cgroup, container string) string {
	if container == "" {
		return ""
	}
	before := cgroup[:strings.LastIndex(cgroup, container)]
	dir, prefix := path.Split(before[strings.LastIndexByte(before, '\n')+1:])
	switch prefix {
	case "libpod-":
		return "podman"
	case "docker-":
		return "docker"
	case "cri-containerd-":
		return "containerd"
	case "crio-":
		return "cri-o"
	case "nerdctl-":
		return "nerdctl"
	}
	if strings.HasSuffix(dir, ":/docker/") {
		return "docker"
	}
	return "other"
}
