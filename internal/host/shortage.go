package host

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// IsShortage reports whether an error says that this process or the machine has run out
// of file descriptors or memory. It is no fault of what was to be read: nothing is known
// of that.
func IsShortage(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// reserve is how many descriptors must be left before anything is read. It is more than
// is open at a time where one file is read after the other, so that nothing there takes a
// file for absent or broken that could not be opened.
const reserve = 8

// Spare returns an error, which [IsShortage], unless there are descriptors left for
// reading files one after the other.
func Spare() error {
	fds := make([]int, 0, reserve)
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	for range reserve {
		fd, err := retry(func() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC) })
		if err != nil {
			return fmt.Errorf("only %d more files can be opened: %w", len(fds), err)
		}
		fds = append(fds, fd)
	}
	return nil
}

// ShortageError is the error of a scan in which a read failed for a shortage
// ([IsShortage]); nil without one. It is no fault of a card, so nothing is known.
func ShortageError(shortage error) error {
	if shortage == nil {
		return nil
	}
	return fmt.Errorf("the machine cannot be read for a shortage: %w", shortage)
}

// ShortageRemedy says what to do about an error that [IsShortage]; "" for any other.
func ShortageRemedy(err error) string {
	const holders = "; ls -l /proc/PID/fd shows what a process has open"
	switch {
	case errors.Is(err, unix.EMFILE):
		return "raise the limit of open files: ulimit -n 1024 in this shell, or LimitNOFILE=1024 in the unit" + holders
	case errors.Is(err, unix.ENFILE):
		return "the machine has too many files open: end what holds them, or raise the limit: " +
			"sysctl fs.file-nr; sysctl -w fs.file-max=NUMBER" + holders
	case errors.Is(err, unix.ENOMEM):
		return "free some memory, or raise the limit of this service (MemoryMax= in the unit): free -m; dmesg | grep -i memory"
	}
	return ""
}
