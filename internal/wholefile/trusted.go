package wholefile

import (
	"errors"
	"fmt"
	"os"

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
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	switch kind := Kind(st.Mode); {
	case kind != "":
		return nil, &UntrustedError{Why: kind + ", not a regular file"}
	case st.Mode&0o022 != 0:
		return nil, &UntrustedError{fmt.Sprintf("others may write to it (mode %04o)", st.Mode&0o7777), true}
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return nil, &UntrustedError{fmt.Sprintf("it belongs to user %d, neither root nor the user lpuctl runs as", st.Uid), true}
	}
	return readAll(f, st.Size, limit)
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
