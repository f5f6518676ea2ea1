// Package killer kills programs before each step by which they change files, for tests of what they leave then.
package killer

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// steps are the system calls that change a file or a directory, or give one back.
//
//nolint:gochecknoglobals // never changed; Go has no constant maps
var steps = map[uint64]string{
	unix.SYS_CLOSE: "close", unix.SYS_COPY_FILE_RANGE: "copy_file_range", unix.SYS_FALLOCATE: "fallocate", unix.SYS_FCHMOD: "fchmod",
	unix.SYS_FCHMODAT: "fchmodat", unix.SYS_FCHOWN: "fchown", unix.SYS_FCHOWNAT: "fchownat", unix.SYS_FDATASYNC: "fdatasync",
	unix.SYS_FLOCK: "flock", unix.SYS_FSYNC: "fsync", unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_LINKAT: "linkat", unix.SYS_MKDIRAT: "mkdirat",
	unix.SYS_OPENAT: "openat", unix.SYS_OPENAT2: "openat2", unix.SYS_PWRITE64: "pwrite64", unix.SYS_RENAMEAT: "renameat",
	unix.SYS_RENAMEAT2: "renameat2", unix.SYS_SENDFILE: "sendfile", unix.SYS_SYMLINKAT: "symlinkat", unix.SYS_SYNC: "sync",
	unix.SYS_SYNCFS: "syncfs", unix.SYS_TRUNCATE: "truncate", unix.SYS_UNLINKAT: "unlinkat", unix.SYS_WRITE: "write",
	unix.SYS_WRITEV: "writev",
}

// harmless are the steps that leave the files as they are. A kill before one leaves what a kill before the next one leaves.
//
//nolint:gochecknoglobals // never changed
var harmless = map[uint64]bool{
	unix.SYS_CLOSE: true, unix.SYS_FDATASYNC: true, unix.SYS_FLOCK: true, unix.SYS_FSYNC: true, unix.SYS_SYNC: true, unix.SYS_SYNCFS: true,
}

// Killer kills a process by SIGKILL before one of its steps. strace cannot: it counts the calls of each thread
// and of each kind by themselves, and Go moves between threads, so that most calls of the write phase are never the nth.
type Killer struct {
	Dir  string // the first call that names a path below it starts the count
	Left int    // steps until the kill
	// Changes counts only the steps that change a file, and the end of the process.
	Changes bool
	// Signal is sent in place of SIGKILL, and the command goes on if it heeds that. 0: SIGKILL.
	Signal unix.Signal

	begun bool
}

// Run runs a command and tells before which step it was killed; "" if it ended by itself, with exit code 0.
func (k *Killer) Run(command ...string) (killed string, err error) {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	pid, err := start(command)
	if err != nil {
		return "", err
	}
	isOwn := threadsOf(pid)
	for first := true; ; first = false {
		var status unix.WaitStatus
		thread, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case err != nil:
			return "", fmt.Errorf("waiting for %v: %w", command, err)
		case thread == pid && status.Exited() && status.ExitStatus() != 0:
			return killed, fmt.Errorf("%v: exit code %d", command, status.ExitStatus())
		case thread == pid && !status.Stopped():
			return killed, nil
		case !status.Stopped():
			continue // another thread ended
		case first:
			if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL); err != nil {
				return "", err
			}
		}
		if !isOwn(thread) { // it has started another process, which is let go
			_ = unix.PtraceDetach(thread)
			continue
		}
		if step := k.goOn(thread, status.StopSignal(), killed == ""); step != "" {
			killed = step
			_ = unix.Kill(pid, cmp.Or(k.Signal, unix.SIGKILL))
			if k.Signal != 0 {
				_ = unix.PtraceSyscall(thread, 0)
			}
		}
	}
}

// threadsOf returns what reports whether a thread is one of a process.
func threadsOf(pid int) func(thread int) bool {
	known := map[int]bool{}
	return func(thread int) bool {
		if !known[thread] {
			_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", pid, thread))
			known[thread] = err == nil
		}
		return known[thread]
	}
}

// start starts a command that stops at once, traced by this thread.
func start(command []string) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	return syscall.ForkExec(command[0], command, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{Ptrace: true},
	})
}

// goOn lets a thread that has stopped go on. If it is about to make the last step, and the process still lives, it stays before that, and
// goOn returns which it is.
func (k *Killer) goOn(thread int, stop syscall.Signal, lives bool) (step string) {
	signal := 0
	switch stop {
	case unix.SIGTRAP | 0x80: // before a system call or after one
		if step = k.step(thread); step != "" && lives {
			if k.Left--; k.Left == 0 {
				return step
			}
		}
	case unix.SIGTRAP, unix.SIGSTOP: // it has started itself or a thread
	default:
		signal = int(stop)
	}
	_ = unix.PtraceSyscall(thread, signal) // fails once the process is killed
	return ""
}

// syscallInfo is struct ptrace_syscall_info of include/uapi/linux/ptrace.h.
type syscallInfo struct {
	op     uint8
	_      [3]uint8
	_      uint32
	_, _   uint64
	number uint64
	args   [6]uint64
	_      [2]uint64
}

// step is the name of the step that the thread is about to make; "" if it is none, or too early.
func (k *Killer) step(thread int) string {
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO,
		uintptr(thread), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 || info.op != unix.PTRACE_SYSCALL_INFO_ENTRY {
		return ""
	}
	k.begun = k.begun || k.names(thread, info.args[0]) || k.names(thread, info.args[1])
	if !k.begun {
		return ""
	}
	if k.Changes {
		flags := info.args[2]
		if info.number == unix.SYS_OPENAT2 {
			flags = word(thread, info.args[2]) // open_how.flags
		}
		opens := info.number == unix.SYS_OPENAT || info.number == unix.SYS_OPENAT2
		switch {
		case info.number == unix.SYS_EXIT_GROUP:
			return "exit_group"
		case harmless[info.number] || opens && flags&(unix.O_CREAT|unix.O_TRUNC) == 0:
			return ""
		}
	}
	return steps[info.number]
}

// word is what a thread has at an address; 0 if it cannot be read.
func word(thread int, address uint64) uint64 {
	var data [8]byte
	local := []unix.Iovec{{Base: &data[0], Len: uint64(len(data))}}
	_, _ = unix.ProcessVMReadv(thread, local, []unix.RemoteIovec{{Base: uintptr(address), Len: len(data)}}, 0)
	return binary.NativeEndian.Uint64(data[:])
}

// names tells whether an argument of a thread's call points to a path below the directory.
func (k *Killer) names(thread int, argument uint64) bool {
	text := make([]byte, len(k.Dir))
	local := []unix.Iovec{{Base: &text[0]}}
	local[0].SetLen(len(text))
	n, err := unix.ProcessVMReadv(thread, local, []unix.RemoteIovec{{Base: uintptr(argument), Len: len(text)}}, 0)
	return err == nil && n == len(text) && string(text) == k.Dir
}
