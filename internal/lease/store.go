package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Store keeps descriptors of connections with the service manager, which hands them to
// the next arbiter (FDSTORE in sd_notify(3)).
type Store struct {
	Socket string // NOTIFY_SOCKET
	// Wait is for how long it may have no room for a message, at least a second.
	Wait time.Duration
}

// StoredPrefix begins the name under which the service manager keeps a connection.
const StoredPrefix = "lease-"

func nameOf(conn Conn) string { return fmt.Sprint(StoredPrefix, conn) }

// storing is what stores and forgets connections, beside the loop of Serve: a service
// manager that is busy holds up who is to be stored, and no other client.
type storing struct {
	*Store
	*turns
	slow bool // the service manager had no room for the latest message
}

// run does the work until ctx ends, and then what is left.
func (s *storing) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.ready:
			s.rest()
		}
	}
	s.rest()
}

func (s *storing) rest() {
	for do := s.next(); do != nil; do = s.next() {
		do()
	}
}

// keep stores a descriptor of a connection. The service manager drops it by itself when
// the other end hangs up.
func (s *storing) keep(c *connection) error {
	return control(c.UnixConn, func(fd int) error { return s.notify("FDSTORE=1\nFDNAME="+nameOf(c.conn), unix.UnixRights(fd)) })
}

// forget has a connection forgotten. One that cannot be forgotten is in no record, and so
// no lease.
func (s *storing) forget(uid int, conn Conn) {
	s.add(uid, func() { _ = s.notify("FDSTOREREMOVE=1\nFDNAME="+nameOf(conn), nil) })
}

// notify waits until the service manager has room, at most for its time, and not at all
// once it had none.
func (s *storing) notify(state string, rights []byte) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	limit := unix.NsecToTimeval(int64(max(s.Wait, time.Second)))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return err
	}
	flags := unix.MSG_NOSIGNAL
	if s.slow {
		flags |= unix.MSG_DONTWAIT
	}
	err = unix.Sendmsg(fd, []byte(state), rights, &unix.SockaddrUnix{Name: s.Socket}, flags)
	s.slow = errors.Is(err, unix.EAGAIN)
	return err
}
