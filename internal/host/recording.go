package host

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/wholefile"
)

// Recording is a machine of which a copy lies below Root: what its files cannot say there.
// A copy has regular files in place of devices, and belongs to another user.
type Recording struct {
	Root Root
	Now  Moment    // of the machine when it was copied
	Wall time.Time // the time of day then
	// Files are what the files of the copy were.
	Files map[Inode]Original
	By    uint32 // uid of who has copied it

	began time.Duration // CLOCK_BOOTTIME when the replay began
}

// Inode is a file of this machine.
type Inode struct{ Dev, Ino uint64 }

// Original is what a file was on its machine.
type Original struct {
	Mode     uint32 // st_mode
	UID, GID uint32
	Device   uint64    // st_rdev
	Changed  time.Time // st_ctim
	Err      error     // of a read; nil: it could be read
}

//nolint:gochecknoglobals // a process has one clock
var replayed atomic.Pointer[Recording]

// Replay lets this process see a recorded machine, with its clock, until the returned
// function is called. The clock goes on from when the machine was copied.
func Replay(r Recording) (end func()) {
	r.began = bootTime()
	replayed.Store(&r)
	files := wholefile.Replay(r.read)
	return func() {
		files()
		replayed.CompareAndSwap(&r, nil)
	}
}

// read is original of a file that is read. What belonged to the user who copied it belongs
// to that of this process.
func (r *Recording) read(st *unix.Stat_t) error {
	err := original(st)
	if st.Uid == r.By {
		st.Uid = uint32(os.Geteuid()) //nolint:gosec // a uid
	}
	return err
}

// Answers are what was answered on recorded machines, by their roots. The zero value has
// none.
type Answers[T any] struct{ byRoot sync.Map }

// Replay lets an answer be that of the machine under a root, until the returned function is
// called.
func (a *Answers[T]) Replay(root Root, answer T) (end func()) {
	a.byRoot.Store(root, answer)
	return func() { a.byRoot.Delete(root) }
}

// Of returns the answer of the machine under a root. The result is false if none was
// recorded.
func (a *Answers[T]) Of(root Root) (answer T, ok bool) {
	v, ok := a.byRoot.Load(root)
	if ok {
		answer = v.(T) //nolint:forcetypeassert // Replay alone stores
	}
	return answer, ok
}

// elapsed is how long the replay has been going on.
func (r *Recording) elapsed() time.Duration { return bootTime() - r.began }

// original lets a status say what the file was on the recorded machine.
func original(st *unix.Stat_t) error {
	r := replayed.Load()
	if r == nil {
		return nil
	}
	o, known := r.Files[Inode{st.Dev, st.Ino}]
	if !known {
		return nil
	}
	st.Mode, st.Uid, st.Gid, st.Rdev = o.Mode, o.UID, o.GID, o.Device
	st.Ctim = unix.NsecToTimespec(o.Changed.UnixNano())
	return o.Err
}

// Lstat is lstat(2) of a path of this machine; in a replay it says what the file was. The
// error is an errno.
func Lstat(path string, st *unix.Stat_t) error {
	err := unix.Lstat(path, st)
	if err == nil {
		_ = original(st)
	}
	return err
}

// Stat is Lstat that follows links.
func Stat(path string, st *unix.Stat_t) error {
	err := unix.Stat(path, st)
	if err == nil {
		_ = original(st)
	}
	return err
}

// InodeOf returns which file a path of this machine is, links not followed.
func InodeOf(path string) (Inode, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return Inode{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return Inode{st.Dev, st.Ino}, nil
}
