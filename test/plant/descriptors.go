package plant

import (
	"testing"

	"golang.org/x/sys/unix"
)

// LeaveDescriptors lets this process open so many more files, until the test ends or restore is called. No other test may run at the
// same time.
func LeaveDescriptors(t testing.TB, n int) (restore func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	var fds []int
	for range n + 1 {
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	// The kernel gives the lowest number that is free, and refuses those from the limit on.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(fds[n]), Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	restore = func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before) }
	t.Cleanup(restore)
	return restore
}
