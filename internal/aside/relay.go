package aside

import (
	"encoding/binary"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Relay is a process that reads sockets of type SOCK_SEQPACKET for this one, which sees
// bytes only: descriptors that are sent along are closed in that process, where a close
// may sleep for as long as it likes. It ends with this process.
type Relay struct {
	pid     int
	control *net.UnixConn // to the process
}

// What goes to the process is an order, but for orderEnd with the descriptor that it is
// about. What comes from it is the id of a socket, and what was read there: nothing at its end.
const (
	orderTake = 1
	orderDrop = 2
	orderEnd  = 3
	order     = 2 * word
)

// RelayLimit is how many bytes of a message are read: 16 KiB. The rest is lost.
const RelayLimit = 16 << 10

// ErrFull is the error that a relay takes no more, because it sleeps.
var ErrFull = errors.New("the relay takes no more")

// StartRelay starts a process that reads at most so many sockets at a time.
func StartRelay(sockets int) (*Relay, error) {
	var pair [2]int
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	defer func() { _ = unix.Close(pair[1]) }()
	f := os.NewFile(uintptr(pair[0]), "relay")
	conn, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return nil, err
	}
	pid, errno := fork(newRelaying(pair[1], sockets))
	if errno != 0 {
		return nil, errors.Join(os.NewSyscallError("clone", errno), conn.Close())
	}
	return &Relay{int(pid), conn.(*net.UnixConn)}, nil
}

// Take has the relay read a socket, by a descriptor of its own. It does not
// wait: the error is ErrFull if the relay sleeps.
func (r *Relay) Take(id uint64, fd int) error { return r.order(orderTake, id, fd) }

// Drop has the relay read a socket no longer, and keep it: from now on this process can
// close its own descriptor, which is not the last. Then it calls Forget. The relay need
// not have taken the socket. Drop does not wait, as Take does not.
func (r *Relay) Drop(id uint64, fd int) error { return r.order(orderDrop, id, fd) }

// Forget has the relay close a socket that was dropped. It does not wait, as Take does
// not.
func (r *Relay) Forget(id uint64) error { return r.order(orderEnd, id) }

func (r *Relay) order(what, id uint64, fds ...int) error {
	var text [order]byte
	binary.NativeEndian.PutUint64(text[:word], what)
	binary.NativeEndian.PutUint64(text[word:], id)
	raw, err := r.control.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(to uintptr) {
		sent = unix.Sendmsg(int(to), text[:], unix.UnixRights(fds...), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	if errors.Is(sent, unix.EAGAIN) || errors.Is(sent, unix.ETOOMANYREFS) {
		return ErrFull
	}
	return errors.Join(err, sent)
}

// Next returns what was read next, in the buffer, and the socket. Nothing was read
// where a socket has ended. The error is that the relay has.
func (r *Relay) Next(buffer *[word + RelayLimit]byte) (id uint64, data []byte, err error) {
	n, err := r.control.Read(buffer[:])
	if err == nil && n < word {
		err = unix.ESRCH
	}
	if err != nil {
		return 0, nil, err
	}
	return binary.NativeEndian.Uint64(buffer[:word]), buffer[word:n], nil
}

// End has the relay end when it has carried out all orders, and does not wait for that.
func (r *Relay) End() {
	_ = r.control.Close()
	go reap(r.pid)
}

// Kill ends the relay. What it has read and not passed on is lost. It sleeps no longer in
// a close that a signal ends, and it keeps no socket once it has ended.
func (r *Relay) Kill() {
	_ = unix.Kill(r.pid, unix.SIGKILL)
	r.End()
}

// reap waits until a process has ended.
func reap(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, unix.WALL, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// relaying is what the other process does. All of it is there before the fork.
type relaying struct {
	control uintptr
	polls   []unix.PollFd // the first one is of control
	ids     []uint64      // of the sockets that are polled
	n       int           // of both that are used
	buffer  [word + RelayLimit]byte
	message unix.Msghdr // of a socket: it leaves room for the id in buffer
	order   [order]byte
	rights  [64]byte    // a control message with one descriptor
	ordered unix.Msghdr // of control, with the lengths of an order
	fresh   unix.Msghdr // has these lengths
	fdAt    uintptr     // where the descriptor is in rights
}

func newRelaying(control, sockets int) *work {
	w := &relaying{
		control: uintptr(control), polls: make([]unix.PollFd, sockets+1), ids: make([]uint64, sockets+1), n: 1, fdAt: uintptr(unix.CmsgLen(0)),
	}
	w.polls[0] = unix.PollFd{Fd: int32(control), Events: unix.POLLIN}
	text, orders := &unix.Iovec{Base: &w.buffer[word]}, &unix.Iovec{Base: &w.order[0]}
	text.SetLen(RelayLimit)
	orders.SetLen(order)
	w.message.Iov, w.ordered.Iov = text, orders
	w.message.SetIovlen(1)
	w.ordered.SetIovlen(1)
	w.ordered.Control = &w.rights[0]
	w.ordered.SetControllen(unix.CmsgSpace(4)) // there is no room for two
	w.fresh = w.ordered
	all := &work{relay: w, alive: w.control, open: []uintptr{w.control}}
	copy(all.name[:], "lpuctl-relay")
	return all
}
