package aside

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What runs between fork and the end of the other process must not grow the stack,
// allocate memory or write pointers, as in forkAndExecInChild of package syscall: there
// is no Go runtime in that process, only this one thread with a copy of all memory.

// closedAtMost is up to which descriptor is closed on kernels without close_range(2),
// before Linux 5.9.
const closedAtMost = 8192

// fork makes the other process do its work. No signal tells of its end.
func fork(w *work) (pid uintptr, err syscall.Errno) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return forkBlocked(w)
}

// forkBlocked blocks all signals meanwhile: Go's handlers must not run in the other
// process.
//
//go:norace
//go:noinline
//go:nosplit
//go:nocheckptr
func forkBlocked(w *work) (pid uintptr, err syscall.Errno) {
	all, before := ^uint64(0), uint64(0)
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK,
		uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&before)), 8, 0, 0)
	pid, _, err = syscall.RawSyscall6(unix.SYS_CLONE, 0, 0, 0, 0, 0, 0)
	if pid == 0 && err == 0 {
		alone(w)
		if w.relay != nil {
			relay(w.relay)
		} else {
			do(w)
		}
		for {
			_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&before)), 0, 8, 0, 0)
	return pid, err
}

// alone gives the process a session and a name of its own, and closes what it does not
// need.
//
//go:norace
//go:noinline
//go:nosplit
//go:nocheckptr
func alone(w *work) {
	_, _, _ = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
	_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(&w.name[0])), 0)
	for stream := uintptr(0); stream <= 2; stream++ {
		_, _, _ = syscall.RawSyscall(unix.SYS_DUP3, w.alive, stream, 0)
	}
	closeOthers(w)
}

// do reads the files.
//
//go:norace
//go:noinline
//go:nosplit
//go:nocheckptr
func do(w *work) {
	wanted, read, at := (*uint64)(unsafe.Pointer(&w.shared[0])), (*uint64)(unsafe.Pointer(&w.shared[word])), uintptr(preamble)
	for i := range w.files {
		if uint64(i) >= load(wanted) {
			return
		}
		f := &w.files[i]
		const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
		fd, _, err := syscall.RawSyscall6(unix.SYS_OPENAT, f.dir, uintptr(unsafe.Pointer(f.name)), flags, 0, 0, 0)
		n := uintptr(0)
		if err == 0 {
			n, _, err = syscall.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&w.shared[at+word])), f.limit)
			_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
		}
		length := (*int64)(unsafe.Pointer(&w.shared[at]))
		if *length = int64(n); err != 0 {
			*length, n = -int64(err), 0
		}
		at += word + (n+stopsHere)&^stopsHere
		store(read, uint64(i)+1)
	}
}

// closeOthers closes all descriptors but the standard streams and those that the work
// needs.
//
//go:norace
//go:noinline
//go:nosplit
//go:nocheckptr
func closeOthers(w *work) {
	from := uintptr(3)
	for i := 0; i <= len(w.open); i++ {
		to, next := ^uintptr(0)>>33, from // the largest int32
		if i < len(w.open) {
			to, next = w.open[i]-1, w.open[i]+1
			if w.open[i] < from {
				continue
			}
		}
		if from <= to {
			if _, _, err := syscall.RawSyscall(unix.SYS_CLOSE_RANGE, from, to, 0); err != 0 {
				for fd := from; fd <= to && fd <= closedAtMost; fd++ {
					_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
				}
			}
		}
		from = next
	}
}
