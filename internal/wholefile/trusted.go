package wholefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// UntrustedError is the reason why [ReadTrusted] does not read a file. It does not name
// the file.
type UntrustedError struct {
	Why     string
	Regular bool // it is a regular file, that another user can have written
}

func (e *UntrustedError) Error() string { return e.Why }

// ReadTrusted reads a file as [Read] does, if no user but root or the user of this
// process can have written it: a regular file, and no symbolic link. Otherwise the error
// is an *UntrustedError.
func ReadTrusted(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, &UntrustedError{Why: "a symbolic link"}
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := fstat(f)
	if err != nil {
		return nil, err
	}
	if err := distrust(&st); err != nil {
		return nil, err
	}
	return readAll(f, st.Size, limit)
}

// distrust returns why another user than root or that of this process can have written a
// file; nil if none can.
func distrust(st *unix.Stat_t) error {
	if kind := Kind(st.Mode); kind != "" {
		return &UntrustedError{Why: kind + ", not a regular file"}
	}
	return others(st)
}

func others(st *unix.Stat_t) error {
	switch {
	case st.Mode&0o022 != 0:
		return &UntrustedError{fmt.Sprintf("others may write to it (mode %04o)", st.Mode&0o7777), true}
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return &UntrustedError{fmt.Sprintf("it belongs to user %d, neither root nor the user lpuctl runs as", st.Uid), true}
	}
	return nil
}

// CheckProgram is an error if the file at an absolute path cannot be executed, or another
// user than root or that of this process can put another one in its place: the file and
// the directories above it are not writable by others, and none is a symbolic link.
// Errors name the path that is at fault.
func CheckProgram(program string) error {
	for path := filepath.Clean(program); ; path = filepath.Dir(path) {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return &os.PathError{Op: "stat", Path: path, Err: err}
		}
		var err error
		switch {
		case path == filepath.Clean(program):
			if err = distrust(&st); err == nil && st.Mode&0o111 == 0 {
				err = errors.New("it is not executable")
			}
		case st.Mode&unix.S_IFMT == unix.S_IFLNK:
			err = &UntrustedError{Why: "a symbolic link"}
		case st.Mode&unix.S_ISVTX == 0 || st.Uid != 0: // in /tmp others can replace their own files only
			err = others(&st)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if path == filepath.Dir(path) {
			return nil
		}
	}
}

// Kind names the kind of a file that is not regular, from st_mode: "a FIFO". It is "" for
// a regular file.
func Kind(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return ""
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	default:
		return "a device"
	}
}
