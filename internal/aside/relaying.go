package aside

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a relay does, under the rules of fork.go.

// relay reads sockets until the other end of control is closed.
//
//go:norace
//go:noinline
//go:nosplit
//go:nocheckptr
func relay(w *relaying) {
	for {
		_, _, err := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&w.polls[0])), uintptr(w.n), 0, 0, 0, 0)
		if err != 0 && err != syscall.EINTR {
			return
		}
		if w.polls[0].Revents != 0 && !obey(w) {
			return
		}
		for i := 1; i < w.n; i++ {
			if w.polls[i].Revents != 0 && !pass(w, i) {
				return
			}
		}
	}
}

// obey carries out an order. It returns false at the end of control.
//
//go:norace
//go:noinline
//go:nosplit
//go:nocheckptr
func obey(w *relaying) bool {
	w.ordered.Controllen, w.ordered.Flags = w.fresh.Controllen, 0
	n, _, err := syscall.RawSyscall(unix.SYS_RECVMSG, w.control, uintptr(unsafe.Pointer(&w.ordered)), unix.MSG_DONTWAIT)
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR:
		return true
	case err != 0 || n == 0:
		return false
	case n != order:
		return true
	}
	what, id := *(*uint64)(unsafe.Pointer(&w.order[0])), *(*uint64)(unsafe.Pointer(&w.order[word]))
	at := 1
	for at < w.n && w.ids[at] != id {
		at++
	}
	if what == orderEnd {
		forget(w, at)
		return true
	}
	if w.ordered.Controllen == 0 {
		return true
	}
	fd := *(*int32)(unsafe.Pointer(&w.rights[w.fdAt]))
	switch {
	case at < w.n || w.n == len(w.polls): // it has one already, or has no room
		_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
	default:
		w.polls[at].Fd, w.polls[at].Events, w.polls[at].Revents, w.ids[at] = fd, unix.POLLIN, 0, id
		w.n++
	}
	if what == orderDrop && at < w.n {
		w.polls[at].Fd |= ended
		w.polls[at].Revents = 0
	}
	return true
}

// forget closes a socket, if it is one. The last one takes its place.
//
//go:norace
//go:noinline
//go:nosplit
//go:nocheckptr
func forget(w *relaying, at int) {
	if at >= w.n {
		return
	}
	fd := w.polls[at].Fd &^ ended
	w.n--
	w.polls[at].Fd, w.polls[at].Revents, w.ids[at] = w.polls[w.n].Fd, w.polls[w.n].Revents, w.ids[w.n]
	_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
}

// ended is set in the number of a descriptor that is no longer read. It makes the
// number negative, which ppoll(2) leaves out.
const ended = -1 << 31

// pass passes on what is read of a socket. It returns false if this program has ended.
//
//go:norace
//go:noinline
//go:nosplit
//go:nocheckptr
func pass(w *relaying, i int) bool {
	n, _, err := syscall.RawSyscall(unix.SYS_RECVMSG, uintptr(w.polls[i].Fd), uintptr(unsafe.Pointer(&w.message)), unix.MSG_DONTWAIT)
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return true
	}
	if err != 0 || n == 0 { // it is closed when it is dropped
		n = 0
		w.polls[i].Fd |= ended
		w.polls[i].Revents = 0
	}
	*(*uint64)(unsafe.Pointer(&w.buffer[0])) = w.ids[i]
	for {
		_, _, err = syscall.RawSyscall6(unix.SYS_SENDTO, w.control, uintptr(unsafe.Pointer(&w.buffer[0])), word+n, unix.MSG_NOSIGNAL, 0, 0)
		if err != syscall.EINTR {
			return err == 0
		}
	}
}
