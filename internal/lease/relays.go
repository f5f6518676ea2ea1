package lease

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/aside"
)

// A client can pass descriptors along with its bytes whose last close sleeps for
// as long as the client likes: a socket with SO_LINGER, a file of a file system of its
// own. The kernel closes them in the thread that reads the bytes or closes the
// connection, also where that takes no descriptors. From Linux 6.16 on a socket can
// refuse them (SO_PASSRIGHTS). A connection that may have got some, because the kernel is
// older or the connection is older than this setting, is read and closed by a process
// beside the arbiter, one for each user: what sleeps there harms that user only.

// refuseRights has the connections to a listener take no descriptors. It does nothing
// where the kernel cannot.
func refuseRights(l *net.UnixListener) {
	raw, err := l.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0) })
	}
}

// mayHaveRights reports whether descriptors may have been passed over a connection. From
// now on none are, where the kernel can refuse them.
func mayHaveRights(conn *net.UnixConn) bool {
	passed := 1
	err := control(conn, func(fd int) (err error) {
		if passed, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS); err == nil && passed != 0 {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0)
		}
		return err
	})
	return err != nil || passed != 0
}

// relay is the process that reads the connections of a user.
type relay struct {
	*aside.Relay
	uid  int
	took map[Conn]bool // those that it reads
}

// relayOf is the relay of a user, which is started if there is none; nil if it cannot be.
func (a *Arbiter) relayOf(ctx context.Context, uid int) *relay {
	if r := a.relays[uid]; r != nil {
		return r
	}
	process, err := aside.StartRelay(2 * maxConnections)
	if err != nil {
		a.Log.Error("no process can be started that reads the connections of a user", "uid", uid, "error", err)
		return nil
	}
	r := &relay{process, uid, map[Conn]bool{}}
	a.relays[uid] = r
	go a.hear(ctx, r)
	return r
}

// relayed has a relay read a connection, or hangs up.
func (a *Arbiter) relayed(ctx context.Context, c *connection) {
	for range 2 {
		r := a.relayOf(ctx, c.peer.UID)
		if r == nil {
			break
		}
		if control(c.UnixConn, func(fd int) error { return r.Take(uint64(c.conn), fd) }) == nil {
			r.took[c.conn] = true
			return
		}
		a.replace(ctx, r)
	}
	a.hangUp(ctx, c.conn)
}

// dispose has a relay close a connection, which the arbiter closes before: it may have
// unread descriptors.
func (a *Arbiter) dispose(ctx context.Context, c *connection) {
	for range 2 {
		r := a.relayOf(ctx, c.peer.UID)
		if r == nil {
			break
		}
		delete(r.took, c.conn)
		if control(c.UnixConn, func(fd int) error { return r.Drop(uint64(c.conn), fd) }) == nil {
			_ = c.Close() // the relay has the last descriptor
			if r.Forget(uint64(c.conn)) != nil {
				a.replace(ctx, r)
			}
			if len(r.took) == 0 {
				time.AfterFunc(silence, func() { a.do(func() { a.dismiss(r) }) })
			}
			return
		}
		a.replace(ctx, r)
	}
	go func() { _ = c.Close() }() // which may sleep
}

// dismiss ends a relay that has nothing to read.
func (a *Arbiter) dismiss(r *relay) {
	if a.relays[r.uid] == r && len(r.took) == 0 {
		delete(a.relays, r.uid)
		r.End()
	}
}

// replace puts another relay in place of one that sleeps or has ended. What that one has
// read and not passed on is lost, and so the arbiter hangs up on who may wait for an
// answer to it.
func (a *Arbiter) replace(ctx context.Context, r *relay) {
	if a.relays[r.uid] != r {
		return
	}
	a.Log.Warn("the process that reads the connections of a user sleeps, or has ended: another takes its place", "uid", r.uid)
	delete(a.relays, r.uid)
	r.Kill()
	var keep []*connection
	for conn := range r.took {
		if c := a.conns[conn]; c != nil && (c.busy || a.book.Keeps(conn)) {
			keep = append(keep, c)
		} else {
			a.hangUp(ctx, conn)
		}
	}
	// What it has to close may have unread descriptors. A process that is killed closes these
	// without waiting.
	if other := a.relays[r.uid]; other != nil {
		delete(a.relays, r.uid)
		other.Kill()
	}
	for _, c := range keep {
		a.relayed(ctx, c)
	}
}

// hear hands what a relay reads to the loop of Serve, until the relay ends. Of a user
// there is one request at a time.
func (a *Arbiter) hear(ctx context.Context, r *relay) {
	var buffer [8 + aside.RelayLimit]byte
	for {
		id, data, err := r.Next(&buffer)
		if err != nil {
			a.do(func() { a.replace(ctx, r) })
			return
		}
		request, err := ParseRequest(data)
		if len(data) == 0 {
			err = errHungUp
		}
		a.turn(r.uid, func() {
			c := a.conns[Conn(id)]
			switch {
			case c == nil || a.relays[r.uid] != r:
			case errors.Is(err, errHungUp):
				a.hangUp(ctx, c.conn)
			default:
				a.request(ctx, c, request, err)
			}
		})
	}
}
