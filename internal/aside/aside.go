// Package aside reads files and sockets beside this process. A process cannot end while
// one of its threads sleeps in the kernel, not even by SIGKILL. So a file whose read
// may sleep is read by a process of its own, which can be left behind, and so is a socket
// over which others may pass descriptors whose close may sleep ([Relay]).
//
// That process is a copy of this one (fork), because to start a program again takes
// longer than all that a command does. No goroutine runs in it: it makes a few system
// calls and ends.
package aside

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// File is one to be read.
type File struct {
	Dir   int    // descriptor of its directory
	Name  string // in the directory; a link is not followed
	Limit int    // bytes that are read at most
}

// Process reads files, one after the other.
type Process struct {
	pid    int
	alive  *os.File // ends when it does
	shared []byte   // memory that both have
	taken  uint64   // files that Next has returned
	at     int      // where the next one begins in shared
}

// The shared memory begins with how many files are wanted and how many were read. For
// each of these follows its length or, if it is negative, an error number, and its
// content.
const (
	word      = 8
	preamble  = 2 * word
	stopsHere = word - 1 // a content is padded to whole words
)

// Start starts a process that reads files. It has a session of its own, and nothing open
// that this process has: who waits for the end of a file of this process, or for a lock,
// does not wait for it.
func Start(files []File) (*Process, error) {
	var pipe [2]int
	// O_NONBLOCK: so that Wait has a limit.
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	p := &Process{alive: os.NewFile(uintptr(pipe[0]), "pipe"), at: preamble}
	defer func() { _ = unix.Close(pipe[1]) }()
	size := preamble
	for _, f := range files {
		size += word + (f.Limit+stopsHere)&^stopsHere
	}
	var err error
	if p.shared, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON); err != nil {
		return nil, errors.Join(os.NewSyscallError("mmap", err), p.alive.Close())
	}
	p.Want(len(files))
	pid, errno := fork(newWork(files, pipe[1], p.shared))
	if errno != 0 {
		return nil, errors.Join(os.NewSyscallError("clone", errno), p.alive.Close(), unix.Munmap(p.shared))
	}
	p.pid = int(pid)
	return p, nil
}

// Want says that only the first n files are wanted. A read that goes on is not ended.
func (p *Process) Want(n int) { atomic.StoreUint64(p.word(0), uint64(n)) }

func (p *Process) word(at int) *uint64 { return (*uint64)(unsafe.Pointer(&p.shared[at])) }

// Wait waits until the process has ended, for a time. It reports whether it has.
func (p *Process) Wait(limit time.Duration) bool {
	_ = p.alive.SetReadDeadline(time.Now().Add(limit))
	_, err := p.alive.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// Asleep reports whether the process sleeps in a system call: it waits for what it reads,
// and not for a processor.
func (p *Process) Asleep() bool { return sleeps(fmt.Sprintf("/proc/%d/stat", p.pid)) }

// ThreadAsleep reports whether a thread of this process sleeps in a system call: it waits
// for what it reads, and not for a processor. Go's own threads wait for work in futex(2),
// which counts as none.
func ThreadAsleep(tid int) bool {
	task := fmt.Sprintf("/proc/self/task/%d/", tid)
	if !sleeps(task + "stat") {
		return false
	}
	call, err := os.ReadFile(task + "syscall") // its number, "running", or -1 outside of one
	number, _, _ := bytes.Cut(call, []byte(" "))
	waits := string(number) == "running\n" || string(number) == "-1" || string(number) == strconv.Itoa(unix.SYS_FUTEX)
	return err != nil || !waits
}

// sleeps reports whether the state in a file like /proc/PID/stat is that of a task that
// sleeps. proc(5) has the letters.
func sleeps(stat string) bool {
	text, err := os.ReadFile(stat)
	_, state, known := bytes.Cut(text, []byte(") "))
	return err == nil && known && (bytes.HasPrefix(state, []byte("D")) || bytes.HasPrefix(state, []byte("S")))
}

// Next returns the content of the next file, or the error of reading it. It is not ok if
// it was not read yet.
func (p *Process) Next() (data []byte, ok bool, err error) {
	if p.taken == atomic.LoadUint64(p.word(word)) {
		return nil, false, nil
	}
	p.taken++
	n := int(*p.word(p.at))
	p.at += word
	if n < 0 {
		return nil, true, unix.Errno(-n)
	}
	data = bytes.Clone(p.shared[p.at : p.at+n])
	p.at += (n + stopsHere) &^ stopsHere
	return data, true, nil
}

// End waits until the process has ended.
func (p *Process) End() {
	reap(p.pid)
	_ = p.alive.Close()
	_ = unix.Munmap(p.shared)
}

// work is what the other process does. All of it is there before the fork, because no
// memory can be allocated after it.
type work struct {
	files  []task
	shared []byte
	alive  uintptr   // also in place of the standard streams, which are not used
	open   []uintptr // the descriptors that stay open, in ascending order
	name   [16]byte
	relay  *relaying // what it does in place of reading files; nil: it reads these
}

type task struct {
	dir, limit uintptr
	name       *byte
}

func newWork(files []File, alive int, shared []byte) *work {
	w := &work{shared: shared, alive: uintptr(alive)}
	copy(w.name[:], "lpuctl-read")
	w.open = append(w.open, w.alive)
	for _, f := range files {
		name := append([]byte(f.Name), 0)
		w.files = append(w.files, task{uintptr(f.Dir), uintptr(f.Limit), &name[0]})
		w.open = append(w.open, uintptr(f.Dir))
	}
	slices.Sort(w.open)
	w.open = slices.Compact(w.open)
	return w
}
