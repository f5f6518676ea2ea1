package filelock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/wholefile"
)

// Presence shows other programs that one of a kind runs. It is a lock of a file that any
// number of processes can have at once, and that the kernel frees with the process,
// however that ends. The lock file is named as that of [Hold], and only its owner can
// open it.
type Presence struct {
	Path string // of the file that the lock is named after, which need not be there

	lock *os.File // nil: not shown
}

// Show shows the presence. It is called again and again: a user or a program may have
// removed the file, or its directory. The error is that the file cannot be made.
func (p *Presence) Show() error {
	name := nameOf(p.Path)
	if p.lock != nil && isAt(p.lock, name) {
		return nil
	}
	p.Hide()
	if err := wholefile.MakeDir(filepath.Dir(name)); err != nil {
		return err
	}
	lock, err := open(name)
	if err != nil {
		return err
	}
	if err := unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLK, whole(unix.F_RDLCK)); err != nil {
		lock.Close()
		return &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	p.lock = lock
	return nil
}

// Hide takes the presence back.
func (p *Presence) Hide() {
	if p.lock != nil {
		p.lock.Close()
		p.lock = nil
	}
}

// noteSize is how long each note is, so that one takes the place of another in one write.
const noteSize = 128 // bytes

// Note writes a few words into the file for [Noted], in place of those before. They
// outlive the process. Without a presence it does nothing.
func (p *Presence) Note(text string) error {
	if p.lock == nil {
		return nil
	}
	_, err := p.lock.WriteAt(fmt.Appendf(nil, "%-*.*s", noteSize, noteSize, text), 0)
	return err
}

// Noted returns what was noted last in the file of a [Presence] of this path; "" if
// nothing was, or this user cannot read it.
func Noted(path string) string {
	file, err := os.OpenFile(nameOf(path), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer file.Close()
	text := make([]byte, noteSize)
	n, _ := io.ReadFull(file, text) // of half a note nothing is made
	return strings.TrimSpace(string(text[:n]))
}

// Present reports whether some process shows a [Presence] of this path. It takes no lock,
// so it keeps no process from showing one. The error is that this user cannot tell.
func Present(path string) (bool, error) {
	name := nameOf(path)
	file, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	lock := whole(unix.F_WRLCK) // would it be in anybody's way?
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, lock); err != nil {
		return false, &fs.PathError{Op: "look at the lock", Path: name, Err: err}
	}
	return lock.Type != unix.F_UNLCK, nil
}

// whole is a lock of a whole file.
func whole(kind int16) *unix.Flock_t { return &unix.Flock_t{Type: kind, Whence: io.SeekStart} }
