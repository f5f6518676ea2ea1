package lease

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// connection is one at the arbiter's end.
type connection struct {
	*net.UnixConn
	conn   Conn
	peer   Peer
	busy   bool // a request waits for a look at the node
	stored bool // the service manager keeps a descriptor of it
}

// errHungUp is the error that a connection is closed, or was silent for too long.
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
	if err != nil { // closed here, or the deadline
		return nil, errHungUp
	}
	if !errors.Is(failed, errHungUp) {
		_ = c.SetReadDeadline(time.Time{}) // the loop sets the next one when the request is answered
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

// Store keeps descriptors of connections with the service manager, which hands them to
// the next arbiter (FDSTORE in sd_notify(3)).
type Store struct{ Socket string } // NOTIFY_SOCKET

// StoredPrefix begins the name under which the service manager keeps a connection.
const StoredPrefix = "lease-"

func nameOf(conn Conn) string { return fmt.Sprint(StoredPrefix, conn) }

// keep stores a descriptor of a connection. The service manager drops it by itself when
// the other end hangs up.
func (s *Store) keep(c *connection) error {
	return control(c.UnixConn, func(fd int) error { return s.notify("FDSTORE=1\nFDNAME="+nameOf(c.conn), unix.UnixRights(fd)) })
}

func (s *Store) forget(conn Conn) {
	if s != nil { // one that cannot be forgotten is in no record, and so no lease
		_ = s.notify("FDSTOREREMOVE=1\nFDNAME="+nameOf(conn), nil)
	}
}

// notify never waits for the service manager longer than a second.
func (s *Store) notify(state string, rights []byte) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return err
	}
	return unix.Sendmsg(fd, []byte(state), rights, &unix.SockaddrUnix{Name: s.Socket}, unix.MSG_NOSIGNAL)
}

// accept takes connections until the listener has a deadline or fails.
func (a *Arbiter) accept(ctx context.Context) <-chan error {
	failed := make(chan error, 1)
	go func() {
		for {
			conn, err := a.Listener.AcceptUnix()
			switch {
			case err == nil:
				a.do(ctx, func() { a.welcome(ctx, conn) })
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

// admit takes a new connection.
func (a *Arbiter) admit(ctx context.Context, conn *net.UnixConn, peer Peer) {
	a.last++
	c := &connection{UnixConn: conn, conn: a.last, peer: peer}
	if peer.UID != 0 && !a.makeRoom(peer.UID) {
		turnAway(conn, refuse(finding.LeaseBusy,
			fmt.Sprintf("user %d has %d connections that have a lease or wait for one", peer.UID, maxConnections), "end some of them"))
		return
	}
	a.conns[c.conn] = c
	_ = c.SetReadDeadline(time.Now().Add(silence))
	go a.read(ctx, c)
}

// makeRoom closes the oldest connection of a user that has too many, if one of them has
// nothing to lose.
func (a *Arbiter) makeRoom(uid int) bool {
	var idle []Conn
	n := 0
	for number, c := range a.conns {
		if c.peer.UID == uid {
			n++
			if !c.busy && !a.book.Keeps(number) {
				idle = append(idle, number)
			}
		}
	}
	if n < maxConnections {
		return true
	}
	if len(idle) == 0 {
		return false
	}
	a.hangUp(slices.Min(idle))
	return true
}

// read hands the requests of a connection to the loop of Serve, until the connection is
// closed. At rest it costs a goroutine and nothing else.
func (a *Arbiter) read(ctx context.Context, c *connection) {
	for {
		r, err := c.receive()
		if errors.Is(err, errHungUp) {
			a.do(ctx, func() { a.hangUp(c.conn) })
			return
		}
		a.do(ctx, func() { a.request(ctx, c, r, err) })
	}
}
