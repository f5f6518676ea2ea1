package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// A lease that lasts as long as a container may have a time. Who is connected ends what it
// has started when the time is over. A container that is left behind is ended by the
// arbiter, if the user of the lease could do so: else a lease could be bound to a
// stranger's container, to have that ended.

const (
	clientTime = 10 * time.Second // for a client that is connected to end the container itself
	endGrace   = 30 * time.Second // for the container between SIGTERM and SIGKILL
	maxKills   = 16               // looks for processes: one may start another meanwhile
)

// Ending is a container whose time is over.
type Ending struct {
	Lease     string      // its id
	UID       int         // whose lease it is
	Container string      // its id
	Groups    []Group     // that the lease was bound to
	Signal    unix.Signal // for its processes; 0: the arbiter may not end it
}

// endings are the containers that are to end now.
func (b *Book) endings(now time.Duration) (endings []Ending) {
	for _, e := range b.leases {
		signal := unix.SIGTERM
		switch {
		case e.Container == "" || !e.isOver(now):
			continue
		case !e.MayEnd && e.askedToEnd != 0:
			continue
		case !e.MayEnd:
			signal, e.askedToEnd = 0, now
		case e.askedToEnd == 0 && !e.Gone && now < e.Until+clientTime:
			continue
		case e.askedToEnd == 0:
			e.askedToEnd = now
		case now < e.askedToEnd+endGrace:
			continue
		default:
			signal = unix.SIGKILL
		}
		endings = append(endings, Ending{e.ID, e.UID, e.Container, e.Groups, signal})
	}
	return endings
}

// ends reports whether the arbiter has to end a container sooner or later.
func (b *Book) ends() bool {
	return slices.ContainsFunc(b.leases, func(e *entry) bool { return e.Container != "" && e.Until != 0 && e.MayEnd })
}

// endContainers ends the containers whose time is over, beside the loop of Serve.
func (a *Arbiter) endContainers(ctx context.Context, endings []Ending) {
	for _, e := range endings {
		log := a.Log.With("lease", e.Lease, "container", e.Container)
		err := errors.New("it is not the user's own, so the arbiter may not end it")
		if e.Signal != 0 && a.End != nil {
			log.Info("the time of a lease is over: its container is ended", "signal", e.Signal.String())
			err = a.End(ctx, e)
		}
		if err != nil {
			log.Warn("the time of a lease is over, and its container runs on", "error", err, "id", finding.LeaseOver)
		}
	}
}

// End sends a signal to the processes of a container: to those in the groups that the lease
// was bound to, which are known by their numbers. In a group of a user's own these are
// the processes of that user.
func (k *Looker) End(ctx context.Context, e Ending) error {
	t, err := k.Root.Open()
	if err != nil {
		return err
	}
	defer t.Close()
	if !ownProcesses(t) {
		return fmt.Errorf("%s does not show the processes of this machine", k.Root.Shown("/proc"))
	}
	if e.Signal == unix.SIGKILL {
		for _, g := range e.Groups {
			k.killAtOnce(g)
		}
	}
	sent := map[string]bool{}
	for range maxKills {
		before := len(sent)
		names, _ := t.Names("proc")
		for _, name := range names {
			if pid, notOne := strconv.Atoi(name); notOne == nil && !sent[name] {
				hit, failed := k.signal(ctx, t, pid, e)
				err = cmp.Or(err, failed)
				if hit {
					sent[name] = true
				}
			}
		}
		if len(sent) == before || e.Signal != unix.SIGKILL {
			break
		}
	}
	return err
}

// ownProcesses reports whether proc in a tree has the numbers by which this process knows
// others.
func ownProcesses(t *host.Tree) bool {
	proc, err := t.Dir("proc")
	if err != nil {
		return false
	}
	defer proc.Close()
	self, err := proc.Link("self")
	return err == nil && proc.IsProc() && path.Base(self) == strconv.Itoa(os.Getpid())
}

// signal sends a signal to a process if it is one of a container, and reports that.
func (k *Looker) signal(ctx context.Context, t *host.Tree, pid int, e Ending) (bool, error) {
	process, err := t.Dir("proc/" + strconv.Itoa(pid))
	if err != nil {
		return false, nil //nolint:nilerr // it has ended
	}
	defer process.Close()
	if text, _ := process.Text("cgroup"); !strings.Contains(text, e.Container) {
		return false, nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	// What is read now is of a process that runs, so no other one has had its number since
	// its directory was opened.
	text, err := process.Text("cgroup")
	g := groupOf(t, text, e.Container)
	switch {
	case err != nil || g.Path == "" || g.isConmons(e.Container):
		return false, nil //nolint:nilerr // it has ended, or is another one
	case g.Inode == 0:
		return false, fmt.Errorf("process %d: its control group %s is not in /sys/fs/cgroup", pid, g.Path)
	case !k.isOf(ctx, g, process, e):
		return false, nil
	}
	if err := unix.PidfdSendSignal(fd, e.Signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return false, fmt.Errorf("process %d: %w", pid, err)
	}
	return true, nil
}

// isOf reports whether a process in a group is to end with a container.
func (k *Looker) isOf(ctx context.Context, g Group, process *host.Dir, e Ending) bool {
	same := func(b Group) bool { return b.Path == g.Path && b.Inode == g.Inode }
	if !slices.ContainsFunc(e.Groups, same) {
		return false
	}
	if g.owner == 0 || e.UID == 0 {
		return true
	}
	status, _ := process.Text("status")
	_, rest, _ := strings.Cut(status, "\nUid:")
	uid, err := strconv.Atoi(strings.Fields(rest + " -")[0])
	if err != nil {
		return false
	}
	users, _ := k.People.Users(ctx, uid)
	return slices.Contains(users, e.UID)
}

// killAtOnce ends all processes of a group of root's, so that none can start another
// meanwhile: where the kernel can (cgroup.kill, from Linux 5.14 on) and this process may
// write there. It does nothing elsewhere.
func (k *Looker) killAtOnce(g Group) {
	for _, mount := range []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"} {
		name, err := k.Root.Resolve(path.Join(mount, g.Path))
		if err != nil {
			continue
		}
		dir, err := os.Open(name)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Fstat(int(dir.Fd()), &st) == nil && st.Ino == g.Inode && st.Uid == 0 {
			if fd, err := unix.Openat(int(dir.Fd()), "cgroup.kill", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
				_, _ = unix.Write(fd, []byte("1"))
				_ = unix.Close(fd)
			}
		}
		dir.Close()
	}
}

// mayCommand reports whether the user at the other end of a connection may write to one of
// some sockets, as the kernel says which groups the user has.
func (c *connection) mayCommand(sockets []string) (may bool) {
	_ = control(c.UnixConn, func(fd int) error {
		u, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return err
		}
		groups := append(peerGroups(fd), u.Gid)
		for _, socket := range sockets {
			var st unix.Stat_t
			if unix.Stat(socket, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
				may = may || st.Mode&0o002 != 0 || st.Mode&0o020 != 0 && slices.Contains(groups, st.Gid)
			}
		}
		return nil
	})
	return may
}

// peerGroups are the supplementary groups of who has connected; none of more than a
// thousand.
func peerGroups(fd int) []uint32 {
	groups := make([]uint32, 1024)
	size := uint32(4 * len(groups))
	_, _, failed := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
	if failed != 0 {
		return nil
	}
	return groups[:size/4]
}
