package lease

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// connection is one at the arbiter's end.
type connection struct {
	*net.UnixConn
	conn    Conn
	peer    Peer
	relayed bool        // a relay reads it
	busy    bool        // a request waits for a look at the node
	quiet   *time.Timer // hangs up if nothing is asked

	stored  bool      // the service manager keeps a descriptor of it
	storing bool      // it is about to
	ended   bool      // the arbiter has hung up meanwhile
	held    []Message // that are sent when it is stored
}

// errHungUp is the error that a connection is closed.
var errHungUp = errors.New("hung up")

// buffers are shared, because a connection at rest must not have one.
var buffers = sync.Pool{New: func() any { return new([maxRequest + 1]byte) }} //nolint:gochecknoglobals // a pool is shared by its nature

// receive waits for the next request. An error other than errHungUp says what is wrong
// with it.
func (c *connection) receive() (r *Request, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, errHungUp
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		buffer := buffers.Get().(*[maxRequest + 1]byte)
		defer buffers.Put(buffer)
		n, _, _, _, recvErr := unix.Recvmsg(int(fd), buffer[:], nil, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(recvErr, unix.EAGAIN), errors.Is(recvErr, unix.EINTR):
			return false
		case recvErr != nil || n == 0:
			failed = errHungUp
		default:
			r, failed = ParseRequest(buffer[:n])
		}
		return true
	})
	if err != nil { // closed here
		return nil, errHungUp
	}
	return r, failed
}

// send sends an answer, and never waits until there is room for it.
func (c *connection) send(a Answer) error {
	data, err := a.marshal()
	if err != nil {
		return err
	}
	return control(c.UnixConn, func(fd int) error { return unix.Sendto(fd, data, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) })
}

// control does something with the descriptor of a connection.
func control(conn *net.UnixConn, do func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
	return errors.Join(err, failed)
}

// credentials are who has connected, as the kernel says (SO_PEERCRED in unix(7)).
func credentials(conn *net.UnixConn) (p Peer, err error) {
	err = control(conn, func(fd int) error {
		u, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			p = Peer{UID: int(u.Uid), PID: int(u.Pid)}
		}
		return err
	})
	return p, err
}

// reopen is a connection out of a descriptor that was kept.
func reopen(f *os.File) (*connection, error) {
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	if c, ok := conn.(*net.UnixConn); ok {
		return &connection{UnixConn: c}, nil
	}
	_ = conn.Close()
	return nil, errors.New("not a connection of the arbiter")
}

// isTransient reports whether accept failed because of the load or of the one connection
// that it was about.
func isTransient(err error) bool {
	return host.IsShortage(err) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ECONNABORTED)
}

// Listen listens at a path, with a socket that its owner and one group can use; gid -1:
// the owner's. It replaces a socket at which no process listens any more.
func Listen(path string, gid int) (*net.UnixListener, error) {
	at := &net.UnixAddr{Name: path, Net: "unixpacket"}
	l, err := net.ListenUnix("unixpacket", at)
	if errors.Is(err, unix.EADDRINUSE) {
		if _, dialed := net.DialUnix("unixpacket", nil, at); errors.Is(dialed, unix.ECONNREFUSED) && os.Remove(path) == nil {
			l, err = net.ListenUnix("unixpacket", at)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Chown(path, -1, gid), os.Chmod(path, 0o660)); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// accept takes connections until the listener has a deadline or fails.
func (a *Arbiter) accept(ctx context.Context) <-chan error {
	failed := make(chan error, 1)
	go func() {
		for {
			conn, err := a.Listener.AcceptUnix()
			switch {
			case err == nil:
				select {
				case a.arrivals <- conn:
				case <-ctx.Done():
				}
			case isTransient(err):
				time.Sleep(firstPause) // those that are open have to be closed first
			default:
				failed <- err
				return
			}
		}
	}()
	return failed
}

// take takes in a connection.
func (a *Arbiter) take(ctx context.Context, c *connection) {
	c.quiet = time.AfterFunc(silence, func() { a.do(func() { a.silent(ctx, c) }) })
	a.conns[c.conn] = c
	if a.of[c.peer.UID] == nil {
		a.of[c.peer.UID] = map[Conn]*connection{}
	}
	a.of[c.peer.UID][c.conn] = c
}

// begin has a connection read.
func (a *Arbiter) begin(ctx context.Context, c *connection) {
	if c.relayed {
		a.relayed(ctx, c)
	} else {
		go a.read(ctx, c)
	}
}

// silent hangs up on a client that has asked for nothing for too long.
func (a *Arbiter) silent(ctx context.Context, c *connection) {
	switch {
	case a.conns[c.conn] != c || c.busy || a.book.Keeps(c.conn):
	case a.turns.has(c.peer.UID): // what it asks waits for its turn
		c.quiet.Reset(silence)
	default:
		a.hangUp(ctx, c.conn)
	}
}

// makeRoom closes the oldest connection of a user that has too many, if one of them has
// nothing to lose. If there are too many in all, it closes one of the user who has the
// most. The result is the refusal where none can be closed.
func (a *Arbiter) makeRoom(ctx context.Context, uid int) *Refusal {
	if len(a.conns) >= a.most {
		var most map[Conn]*connection
		for uid, of := range a.of {
			if uid != 0 && len(of) > len(most) && a.idlest(of, true) != 0 {
				most = of
			}
		}
		if most == nil {
			return refuse(finding.LeaseBusy, fmt.Sprintf("%d connections have a lease or wait for one", len(a.conns)), "ask again later")
		}
		a.hangUp(ctx, a.idlest(most, true))
	}
	of := a.of[uid]
	if uid == 0 || len(of) < maxConnections {
		return nil
	}
	oldest := a.idlest(of, false)
	if oldest == 0 {
		return refuse(finding.LeaseBusy,
			fmt.Sprintf("user %d has %d connections that have a lease or wait for one", uid, maxConnections), "end some of them")
	}
	a.hangUp(ctx, oldest)
	return nil
}

// idlest is the oldest of some connections that has no lease and does not wait for one;
// 0: none. One whose request waits for a look at the node is such a one if asking
// says so.
func (a *Arbiter) idlest(of map[Conn]*connection, asking bool) (oldest Conn) {
	for conn, c := range of {
		if (oldest == 0 || conn < oldest) && (asking || !c.busy) && !a.book.Keeps(conn) {
			oldest = conn
		}
	}
	return oldest
}

// read hands the requests of a connection to the loop of Serve, until the connection is
// closed. At rest it costs a goroutine and nothing else.
func (a *Arbiter) read(ctx context.Context, c *connection) {
	for {
		r, err := c.receive()
		if errors.Is(err, errHungUp) {
			a.do(func() { a.hangUp(ctx, c.conn) })
			return
		}
		a.turn(c.peer.UID, func() { a.request(ctx, c, r, err) })
	}
}

// turn has the loop of Serve do something when it is a user's turn, and waits until that
// is done.
func (a *Arbiter) turn(uid int, do func()) {
	done := make(chan struct{})
	a.turns.add(uid, func() {
		do()
		close(done)
	})
	select {
	case <-done:
	case <-a.over:
	}
}

// unstore has a connection forgotten that was stored.
func (a *Arbiter) unstore(c *connection) {
	if c.stored {
		a.storing.forget(c.peer.UID, c.conn)
		c.stored = false
	}
}

// close closes a connection, without waiting for that.
func (a *Arbiter) close(ctx context.Context, c *connection) {
	if c.quiet != nil {
		c.quiet.Stop()
	}
	if c.relayed {
		a.dispose(ctx, c)
	} else {
		_ = c.Close()
	}
}
