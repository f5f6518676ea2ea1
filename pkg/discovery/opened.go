package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// openNodes finds the nodes of LPUs among the files that processes have open. LPUs are
// positions in the inventory.
//
// An open file of the kernel's /proc is known by its device number, whatever it is called
// and wherever it was made. Where the number cannot be known, it is known by its path.
type openNodes struct {
	tree    *host.Tree
	paths   map[string]int
	numbers map[uint64]int  // as in st_rdev of stat(2)
	bare    map[string]int  // by path, of those whose number is not known
	inodes  map[uint64]bool // of the nodes in /dev
	proc    bool            // /proc is the kernel's, not a copy
	threads bool            // its process ids are those of this process too
	// mounts are those that processes see, by mount namespace; nil if none of them may hang.
	mounts map[string]mounts
}

// openNodesOf knows the nodes of an inventory.
func openNodesOf(t *host.Tree, inv *Inventory) *openNodes {
	o := &openNodes{
		tree: t, paths: map[string]int{}, numbers: map[uint64]int{}, bare: map[string]int{}, inodes: map[uint64]bool{},
		mounts: map[string]mounts{},
	}
	for i := range inv.LPUs {
		for _, n := range inv.LPUs[i].Nodes {
			o.paths[n.Path] = i
			if n.Major != 0 {
				o.numbers[unix.Mkdev(n.Major, n.Minor)] = i
			} else {
				o.bare[n.Path] = i
			}
		}
	}
	proc, err := t.Dir("proc")
	if err != nil {
		return o
	}
	defer proc.Close()
	if o.proc = proc.IsProc(); o.proc {
		o.threads = ownIDs(proc)
		for p := range o.paths {
			if st, err := t.Lstat(p); err == nil {
				o.inodes[st.Ino] = true
			}
		}
	}
	return o
}

// ownIDs reports whether the process ids of a /proc are those that system calls of this
// process take. NSpid in status (proc_pid_status(5)) then has one id: that of this
// process in the namespace of that /proc, and in none below it.
func ownIDs(proc *host.Dir) bool {
	id := strconv.Itoa(os.Getpid())
	if self, err := proc.Link("self"); err != nil || self != id {
		return false
	}
	status, _ := proc.Head("self/status", host.AttributeMax)
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return strings.TrimSpace(ids) == id
		}
	}
	return false
}

// heldBy returns the LPUs whose nodes a process has open in any of its threads. If the
// process ends meanwhile, that is an error too.
func (o *openNodes) heldBy(ctx context.Context, pid int) (held []int, err error) {
	p := &opened{openNodes: o, pid: pid}
	held, err = p.in("")
	if errors.Is(err, fs.ErrPermission) {
		if !o.mainEnded(pid) {
			return held, err
		}
		err = nil
	}
	for _, thread := range o.apart(pid) {
		if ctx.Err() != nil {
			return held, ctx.Err()
		}
		more, failed := p.in(fmt.Sprintf("task/%d", thread))
		if !host.IsAbsent(failed) { // else the thread has ended
			err = cmp.Or(err, failed)
		}
		held = append(held, more...)
	}
	slices.Sort(held)
	return slices.Compact(held), err
}

// mainEnded reports whether only other threads of a process still run. What the main thread
// had open then belongs to root.
func (o *openNodes) mainEnded(pid int) bool {
	process, err := o.tree.Dir(fmt.Sprintf("proc/%d", pid))
	if err != nil {
		return false
	}
	defer process.Close()
	return stat(process, 3) == "Z"
}

// apart are the threads of a process that may have a table of open files of their own
// (unshare(2), CLONE_FILES), or whose main thread has ended and has none.
func (o *openNodes) apart(pid int) (threads []int) {
	dir := fmt.Sprintf("proc/%d/task", pid)
	if st, err := o.tree.Lstat(dir); o.proc && err == nil && st.Nlink == 2+1 { // one thread
		return nil
	}
	names, _ := o.tree.Names(dir)
	seen := pid // the thread whose table was read last
	for _, name := range names {
		thread, err := strconv.Atoi(name)
		if err != nil || thread == pid || o.share(pid, thread) || o.share(seen, thread) {
			continue
		}
		threads, seen = append(threads, thread), thread
	}
	return threads
}

// share reports whether it is certain that two threads have one table of open files
// (kcmp(2)). Some sandboxes refuse the call.
func (o *openNodes) share(one, other int) bool {
	const files = 2 // KCMP_FILES of linux/kcmp.h
	if !o.threads {
		return false
	}
	order, _, failed := unix.Syscall6(unix.SYS_KCMP, uintptr(one), uintptr(other), files, 0, 0, 0)
	return failed == 0 && order == 0
}

// opened is what one process has open.
type opened struct {
	*openNodes
	pid    int
	asked  bool   // for its mounts
	mounts mounts // that it sees; nil if none of them may hang
}

// in returns the LPUs whose nodes are open in the table of the process, or of a thread:
// "task/ID".
func (p *opened) in(thread string) (held []int, err error) {
	dir := path.Join("proc", strconv.Itoa(p.pid), thread)
	files, err := p.tree.Dir(path.Join(dir, "fd"))
	if err != nil {
		return nil, err
	}
	defer files.Close()
	names, err := files.Names()
	for _, name := range names {
		file, failed := files.Link(name)
		switch {
		case errors.Is(failed, fs.ErrPermission):
			return held, failed
		case failed != nil || !path.IsAbs(file): // closed meanwhile; or a socket, a pipe
			continue
		}
		if lpu, is := p.lpu(files, dir, name, file); is {
			held = append(held, lpu)
		}
	}
	return held, err
}

// lpu returns the LPU whose node an open file is.
func (p *opened) lpu(files *host.Dir, dir, name, file string) (lpu int, is bool) {
	paths := p.paths
	if p.proc {
		if !p.answers(path.Join(dir, "fdinfo"), name) {
			return 0, false
		}
		if number, err := files.Device(name); err == nil {
			if lpu, is = p.numbers[number]; is {
				return lpu, true
			}
			paths = p.bare
		}
	}
	file = path.Clean(strings.TrimSuffix(file, " (deleted)")) // made again, it has the same name
	lpu, is = paths[file]
	return lpu, is
}

// answers reports whether an open file can be asked for its number without waiting for a
// program or another machine. Where there are mounts that may hang, what is in none of
// the mounts may have been unmounted because it does hang: there only a node that is in
// /dev too is asked.
func (p *opened) answers(fdinfo, name string) bool {
	if !p.asked {
		p.asked, p.mounts = true, p.hanging(p.pid)
	}
	if p.mounts == nil {
		return true
	}
	mount, inode := p.place(fdinfo, name)
	i := slices.IndexFunc(p.mounts, func(m mounted) bool { return m.id == mount })
	if i < 0 {
		return p.inodes[inode]
	}
	return !p.mounts[i].mayHang()
}

// hanging returns the mounts that a process sees; nil if none of them may hang.
func (o *openNodes) hanging(pid int) mounts {
	namespace := namespaceOf(o.tree, pid)
	seen, known := o.mounts[namespace]
	if !known {
		if seen = mountsOf(o.tree, pid); !slices.ContainsFunc(seen, mounted.mayHang) {
			seen = nil
		}
		o.mounts[namespace] = seen
	}
	return seen
}

// place returns the id of the mount in which an open file is, and its inode number:
// mnt_id and, since Linux 5.14, ino of /proc/PID/fdinfo/FD (proc_pid_fdinfo(5)).
func (o *openNodes) place(fdinfo, name string) (mount string, inode uint64) {
	text, _ := o.tree.Read(path.Join(fdinfo, name), host.AttributeMax)
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch value = strings.TrimSpace(value); key {
		case "mnt_id":
			mount = value
		case "ino":
			inode, _ = strconv.ParseUint(value, 10, 64)
		}
	}
	return mount, inode
}
