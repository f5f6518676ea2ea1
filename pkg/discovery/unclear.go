package discovery

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/aside"
	"github.com/hyperaccel/lpuctl/internal/host"
)

// Unclear is a process that may use the node of an LPU though it is not among the files
// that the process has open.
type Unclear struct {
	User
	Of  int    // the uid of the user whose process it is, where UID may be a subordinate one
	Why string // "has 1 descriptor in the queue of socket 7"
}

// String names the process, and says why: "python(12) has ...".
func (u Unclear) String() string { return u.User.String() + " " + u.Why }

// Hidden looks for such processes again and again. It is not safe for concurrent use.
// The zero value is ready.
type Hidden struct {
	// memories are the processes whose memory is still being read, by those who read it.
	memories map[int]*aside.Process
}

const (
	memoryLimit = 4 << 20         // bytes of /proc/PID/maps; more than a process has
	memoryWait  = time.Second / 4 // until the memory of a process counts as one that cannot be read
	memoriesMax = 64              // that are read at a time
)

// Find returns the processes that may use the nodes of an inventory, of those users that
// whose returns for the uid of a process. Descriptors lie in the queue of a socket
// (scm_fds of /proc/PID/fdinfo/FD, unix(7)), or are registered with io_uring (UserFiles,
// io_uring_register(2)), or the node is mapped into memory (/proc/PID/maps). The caller
// needs the rights of root for this.
func (h *Hidden) Find(ctx context.Context, root string, inv *Inventory, whose func(uid int) []int) (found []Unclear, err error) {
	t, err := host.Root(root).Open()
	if err != nil {
		return nil, err
	}
	defer t.Close()
	nodes := mappable(t, inv)
	for _, pid := range pids(t) {
		if ctx.Err() != nil {
			return found, ctx.Err()
		}
		u := user(t, pid)
		users := whose(u.UID)
		if len(users) == 0 {
			continue
		}
		why := queued(t, pid)
		if why == "" {
			why = h.mapped(t, pid, nodes)
		}
		for _, of := range users {
			if why != "" {
				found = append(found, Unclear{u, of, why})
			}
		}
	}
	return found, t.Shortage()
}

// queued says where descriptors of a process are of which no look shows what is open; ""
// if there are none.
func queued(t *host.Tree, pid int) string {
	dir := fmt.Sprintf("proc/%d", pid)
	threads, _ := t.Names(path.Join(dir, "task"))
	for _, thread := range threads {
		task := path.Join(dir, "task", thread)
		files, err := t.Dir(path.Join(task, "fd"))
		if err != nil {
			continue // it has ended
		}
		names, _ := files.Names()
		for _, fd := range names {
			file, _ := files.Link(fd)
			var count, what string
			switch {
			case strings.HasPrefix(file, "socket:"):
				count, what = "scm_fds", "the queue of socket"
			case file == "anon_inode:[io_uring]":
				count, what = "UserFiles", "io_uring"
			default:
				continue
			}
			if n := counted(t, path.Join(task, "fdinfo", fd), count); n > 0 {
				files.Close()
				return fmt.Sprintf("has %d descriptors in %s %s", n, what, fd)
			}
		}
		files.Close()
	}
	return ""
}

// counted returns a number in a file of /proc/PID/fdinfo; 0 if it has none of this name.
func counted(t *host.Tree, info, name string) int {
	text, _ := t.Read(info, memoryLimit)
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(line, ":"); key == name {
			n, _ := strconv.Atoi(strings.TrimSpace(value))
			return n
		}
	}
	return 0
}

// mappable are the names under which nodes are in /proc/PID/maps: the path, or the
// numbers of file system and file, "00:05 600".
func mappable(t *host.Tree, inv *Inventory) map[string]bool {
	names := map[string]bool{}
	for i := range inv.LPUs {
		for _, n := range inv.LPUs[i].Nodes {
			names[n.Path] = true
			if st, err := t.Lstat(n.Path); err == nil {
				names[fmt.Sprintf("%02x:%02x %d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)] = true
			}
		}
	}
	return names
}

// mapped says that a process has a node mapped into its memory, or that this cannot be
// known; "" if it has none. Another process reads it, because the process can make a look
// at its memory last for ever.
func (h *Hidden) mapped(t *host.Tree, pid int, nodes map[string]bool) string {
	const unknown = "does not let its memory be looked at"
	reading := h.memories[pid]
	if reading == nil {
		dir, err := t.Dir(fmt.Sprintf("proc/%d", pid))
		if err != nil {
			return ""
		}
		defer dir.Close()
		fd, err := dir.Dup()
		if err != nil || len(h.memories) >= memoriesMax {
			return unknown
		}
		reading, err = aside.Start([]aside.File{{Dir: fd, Name: "maps", Limit: memoryLimit}})
		_ = unix.Close(fd)
		if err != nil {
			return unknown
		}
	}
	if !reading.Wait(memoryWait) {
		if h.memories == nil {
			h.memories = map[int]*aside.Process{}
		}
		h.memories[pid] = reading
		return unknown
	}
	delete(h.memories, pid)
	text, read, err := reading.Next()
	reading.End()
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH): // it has ended
		return ""
	case err != nil || !read:
		return unknown
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // address, permissions, offset, device, inode, path
		if len(fields) >= 5 && (nodes[fields[3]+" "+fields[4]] || slices.ContainsFunc(fields[5:], func(p string) bool { return nodes[p] })) {
			return "has a node of an LPU in its memory"
		}
	}
	return ""
}
