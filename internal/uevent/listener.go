// Package uevent receives what the kernel says of devices that come, go or change
// (netlink(7), NETLINK_KOBJECT_UEVENT). It needs no privilege. A network namespace that
// another user namespace than the initial one owns gets no events, and nothing tells that
// it does not: only an event that was received proves that events arrive
// ([Listener.Counts]).
package uevent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// kernelGroup is the multicast group of the kernel. udev sends what it made of the
	// events to group 2.
	kernelGroup = 1
	// bufferSize is the room for events that wait to be read, in bytes: 2,500 events. The
	// kernel gives less where net.core.rmem_max is less.
	bufferSize = 1 << 20
	// maxMessage is more than the kernel sends: 2 KiB of keys (UEVENT_BUFFER_SIZE) and a
	// path.
	maxMessage = 8 << 10
	// burst is how many events are handed on before the first one is looked at: a switch
	// with eight cards makes some fifty.
	burst = 64
	// A socket that fails, which none was seen to do, is opened again after firstPause,
	// the next time after twice as long, up to lastPause.
	firstPause, lastPause = 100 * time.Millisecond, 10 * time.Second
)

// Listener receives events until the context of [Listen] ends.
type Listener struct {
	wanted    func(devPath, subsystem []byte) bool
	events    chan Event
	received  atomic.Uint64
	forged    atomic.Uint64
	overflows atomic.Uint64
}

// Counts says what a listener has got so far.
type Counts struct {
	Received  uint64 // events from the kernel, wanted or not; 0 may mean that none can arrive here
	Forged    uint64 // messages from other processes, which were dropped
	Overflows uint64 // times that events were lost
}

// Counts returns the counts of now.
func (l *Listener) Counts() Counts {
	return Counts{l.received.Load(), l.forged.Load(), l.overflows.Load()}
}

// Events is where the events come. It has to be read: what waits there keeps later ones
// in the kernel, which loses some when it has too many, and says so (Overflow). It is
// closed when the context has ended and nothing of the listener is left.
func (l *Listener) Events() <-chan Event { return l.events }

// Listen begins to receive the events for which wanted is true, until ctx ends. Events
// that come after Listen has returned are not missed. wanted is called for every event of
// the machine, in a goroutine of the listener; what it is given holds during the call
// only. The error says that a socket cannot be had, as where AF_NETLINK is forbidden.
func Listen(ctx context.Context, wanted func(devPath, subsystem []byte) bool) (*Listener, error) {
	socket, err := open()
	if err != nil {
		return nil, err
	}
	l := &Listener{wanted: wanted, events: make(chan Event, burst)}
	go l.run(ctx, socket)
	return l, nil
}

// open returns a socket on which the events of the kernel arrive.
func open() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("socket for uevents: %w", err)
	}
	socket := os.NewFile(uintptr(fd), "socket for uevents")
	// The default size holds 256 events.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bufferSize)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (kernelGroup - 1)}); err != nil {
		return nil, errors.Join(fmt.Errorf("socket for uevents: bind: %w", err), socket.Close())
	}
	return socket, nil
}

// run receives from one socket, and from a new one when that fails, until ctx ends.
func (l *Listener) run(ctx context.Context, socket *os.File) {
	defer close(l.events)
	hasLost := false
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if socket != nil {
			l.receive(ctx, socket, hasLost)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		socket, _ = open() // nil if it fails
		hasLost = true     // what came while there was no socket
	}
}

// receive hands on what comes on a socket, until ctx ends or the socket fails. It closes
// the socket. hasLost says that events were lost before. receive reports lost events to
// the consumer when it has read all that waited. Until then the kernel drops further ones
// without a word, and a scan before that could miss what they said. That none waits shows
// it, or the next overflow.
func (l *Listener) receive(ctx context.Context, socket *os.File, hasLost bool) {
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() }) // wakes the read below
	defer func() {
		stop()
		_ = socket.Close()
	}()
	conn, err := socket.SyscallConn()
	if err != nil {
		return
	}
	var (
		buffer [maxMessage]byte
		n      int
		from   unix.Sockaddr
		failed error
	)
	read := func(fd uintptr) (isDone bool) {
		// MSG_TRUNC: n is the true length.
		n, from, failed = unix.Recvfrom(int(fd), buffer[:], unix.MSG_TRUNC)
		return hasLost || !errors.Is(failed, unix.EAGAIN)
	}
	for ctx.Err() == nil && conn.Read(read) == nil {
		switch {
		case errors.Is(failed, unix.EAGAIN) || hasLost && errors.Is(failed, unix.ENOBUFS):
			l.overflows.Add(1)
			l.send(ctx, Event{Overflow: true})
			hasLost = errors.Is(failed, unix.ENOBUFS)
		case errors.Is(failed, unix.ENOBUFS):
			hasLost = true
		case errors.Is(failed, unix.EINTR):
		case failed != nil:
			return
		case !isFromKernel(from):
			l.forged.Add(1)
		case n > len(buffer) || !l.take(ctx, buffer[:n]):
			hasLost = true
		}
	}
}

// isFromKernel tells the messages of the kernel from those that a process sent to this
// socket. Only the kernel has port 0. Who has CAP_SYS_ADMIN over the network namespace
// can make the kernel send an event: that is an event like any other. The user id of the
// sender would tell no more, and is not 0 where this user namespace does not know root.
func isFromKernel(from unix.Sockaddr) bool {
	sender, ok := from.(*unix.SockaddrNetlink)
	return ok && sender.Pid == 0 && sender.Groups == 1<<(kernelGroup-1)
}

// take hands an event of the kernel on if it is wanted. It returns false if the event is
// wanted and cannot be read.
func (l *Listener) take(ctx context.Context, m message) bool {
	l.received.Add(1)
	if !l.wanted(m.devPath(), m.subsystem()) {
		return true
	}
	event, err := m.parse()
	if err == nil {
		l.send(ctx, event)
	}
	return err == nil
}

func (l *Listener) send(ctx context.Context, event Event) {
	select {
	case l.events <- event:
	case <-ctx.Done():
	}
}
