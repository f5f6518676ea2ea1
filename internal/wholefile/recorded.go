package wholefile

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

//nolint:gochecknoglobals // a process looks at one machine
var recorded atomic.Pointer[func(*unix.Stat_t) error]

// Replay lets files be what they were on a machine of which a copy is read, until the
// returned function is called: original changes the status of a file of the copy to that of
// the file, and returns the error that a read had there.
func Replay(original func(*unix.Stat_t) error) (end func()) {
	recorded.Store(&original)
	return func() { recorded.CompareAndSwap(&original, nil) }
}

// fstat is fstat(2) of an open file, or what it was on a recorded machine. Its errors and
// those that a read had there are *fs.PathError.
func fstat(f *os.File) (st unix.Stat_t, err error) {
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return st, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	if original := recorded.Load(); original != nil {
		if err := (*original)(&st); err != nil {
			return st, &os.PathError{Op: "open", Path: f.Name(), Err: err}
		}
	}
	return st, nil
}
