package discovery

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// LostTables returns a finding for each container that has some of the LPUs of an
// inventory and reads the ring table of the host, because its own was detached or it
// never had one. One with all LPUs counts them as the host does. It sees the containers
// whose processes the caller may inspect.
func LostTables(ctx context.Context, root string, inv *Inventory) (lost finding.List) {
	t, err := host.Root(root).Open()
	if err != nil {
		return nil
	}
	defer t.Close()
	outside := mountsOf(t, 1)
	tables := hostTables(t, inv, outside)
	if len(tables) == 0 {
		return nil
	}
	seen := map[string]bool{namespaceOf(t, 1): true}
	for _, pid := range pids(t) {
		if ctx.Err() != nil {
			return lost
		}
		namespace := namespaceOf(t, pid)
		if namespace == "" || seen[namespace] {
			continue
		}
		seen[namespace] = true
		inside := mountsOf(t, pid)
		reads := func(path string) bool { return tables[path] != "" && inside.file(path) == tables[path] }
		if !slices.ContainsFunc(inv.LPUs, func(l LPU) bool { return reads(l.RingTable.Path) }) {
			continue
		}
		has := lpusIn(t, pid, inv, outside, inside)
		if len(has) == 0 || len(has) == inv.withNodes() {
			continue
		}
		if i := slices.IndexFunc(has, func(l *LPU) bool { return reads(l.RingTable.Path) }); i >= 0 {
			lost = append(lost, lostTable(user(t, pid), has[i].RingTable.HostPath, has))
		}
	}
	return lost
}

// hostTables are the files of the host that are seen in a container without a ring table
// of its own, by the path there. What cannot have one is left out: starting again would
// not help it.
func hostTables(t *host.Tree, inv *Inventory, outside mounts) map[string]string {
	tables := map[string]string{}
	for _, l := range inv.LPUs {
		place := l.RingTable
		real, err := t.Resolve(place.HostPath)
		if place.HostPath == "" || place.Unfit != "" || err != nil || len(outside) == 0 {
			continue
		}
		tables[place.Path] = outside.file("/" + strings.TrimPrefix(strings.TrimPrefix(real, string(t.Root)), "/"))
	}
	return tables
}

// lostTable says that a container reads the table of the host.
func lostTable(u User, table string, has []*LPU) finding.Finding {
	var names []string
	for _, l := range has {
		names = append(names, l.Name)
	}
	remedy := "start the container again; if it is found after that too, make it again, with one device that has all its LPUs"
	switch {
	case u.Pod != "":
		remedy = "delete the pod, so that it is made again"
	case u.Container == "":
		remedy = "start the program, or the container that it is in, again"
	}
	return finding.New(finding.RingTableDetached, u.String(), fmt.Sprintf(
		"it has %s and reads %s of the host, where its LPUs may have other numbers", strings.Join(names, " "), table), remedy)
}

// withNodes counts the LPUs that have a node.
func (inv *Inventory) withNodes() (n int) {
	for _, l := range inv.LPUs {
		if len(l.Nodes) > 0 {
			n++
		}
	}
	return n
}

// lpusIn are the LPUs whose nodes are in the mount namespace of a process.
func lpusIn(t *host.Tree, pid int, inv *Inventory, outside, inside mounts) (has []*LPU) {
	process, err := t.Dir(fmt.Sprintf("proc/%d", pid))
	if err != nil {
		return nil
	}
	defer process.Close()
	root, err := process.ProcessRoot()
	if err == nil {
		defer root.Close()
	}
	made := func(n Node) bool { // by the runtime, in a file system that does not hang
		if err != nil || inside.at(n.Path).kind != "tmpfs" || inside.at("/").mayHang() {
			return false
		}
		st, err := root.Lstat(n.Path)
		return err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(n.Major, n.Minor)
	}
	for i := range inv.LPUs {
		in := func(n Node) bool { return inside.file(n.Path) == outside.file(n.Path) || made(n) }
		if slices.ContainsFunc(inv.LPUs[i].Nodes, in) {
			has = append(has, &inv.LPUs[i])
		}
	}
	return has
}

// namespaceOf names the mount namespace of a process; "" if this user may not know it.
func namespaceOf(t *host.Tree, pid int) string {
	process, err := t.Dir(fmt.Sprintf("proc/%d", pid))
	if err != nil {
		return ""
	}
	defer process.Close()
	name, _ := process.Link("ns/mnt")
	return name
}

// mounts are those that a process sees (/proc/PID/mountinfo, proc_pid_mountinfo(5)).
type mounts []mounted

// mounted is a mount: of a directory or file of a file system.
type mounted struct {
	id, parent string
	device     string // of the file system
	source     string // in the file system
	point      string // where it is mounted, as the process sees it
	kind       string // of the file system
	name       string // of what is mounted: a device, or any word
	nodev      bool   // no device works in it
}

// mountsMax is more than a process sees, in bytes of its mountinfo.
const mountsMax = 16 << 20

// mountsOf reads the mounts that a process sees; none if they cannot be read.
func mountsOf(t *host.Tree, pid int) mounts {
	text, _ := t.Read(fmt.Sprintf("proc/%d/mountinfo", pid), mountsMax)
	return parseMounts(text)
}

func parseMounts(text []byte) (all mounts) {
	plain := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if len(fields) >= 6 && len(kind) > 1 {
			all = append(all, mounted{fields[0], fields[1], fields[2], plain.Replace(fields[3]), plain.Replace(fields[4]), kind[0],
				plain.Replace(kind[1]), slices.Contains(strings.Split(fields[5], ","), "nodev")})
		}
	}
	return all
}

// at returns the mount in which a path lies, by the way that the kernel goes: of the
// mounts on the one where it is, it comes to the uppermost first. Links are not followed.
func (all mounts) at(path string) (m mounted) {
	onTop := func(above mounted) (next mounted, found bool) {
		for _, c := range all {
			covers := c.point == "/" || c.point == path || strings.HasPrefix(path, c.point+"/")
			if c.parent == above.id && c.id != above.id && covers && (!found || len(c.point) < len(next.point)) {
				next, found = c, true
			}
		}
		return next, found
	}
	for _, c := range all {
		if c.point == "/" && !slices.ContainsFunc(all, func(p mounted) bool { return p.id == c.parent && p.id != c.id }) {
			m = c
		}
	}
	for range all { // a tree has no loop, and a file may say anything
		next, found := onTop(m)
		if !found {
			break
		}
		m = next
	}
	return m
}

// file names the file to which a path leads, in all namespaces the same; "" if that is
// not known.
func (all mounts) file(path string) string {
	m := all.at(path)
	if m.id == "" {
		return ""
	}
	below := strings.Trim(m.source, "/") + "/" + strings.TrimPrefix(strings.TrimPrefix(path, m.point), "/")
	return m.device + " /" + strings.Trim(below, "/")
}

// mayHang reports whether a look at the file system may wait for a program or another
// machine.
func (m mounted) mayHang() bool {
	return slices.ContainsFunc([]string{"fuse", "nfs", "cifs", "smb", "9p", "ceph", "gfs", "ocfs", "afs", "lustre"},
		func(kind string) bool { return strings.HasPrefix(m.kind, kind) })
}
