package host

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// OutOfReach returns an error if a directory was removed or made again since this process
// was put into its sandbox. A container still sees the removed directory, which has no
// name left (st_nlink in stat(2)). A unit of systemd sees the new one, but read-only like
// all the rest. No process can mend that from within its sandbox.
func OutOfReach(dir string) error {
	var stat unix.Stat_t
	switch {
	case unix.Stat(dir, &stat) == nil && stat.Nlink == 0:
		return fmt.Errorf("%s: has been removed, and its successor cannot be seen from this mount namespace", dir)
	case errors.Is(unix.Access(dir, unix.W_OK), unix.EROFS):
		return fmt.Errorf("%s: is read-only in this mount namespace", dir)
	}
	return nil
}
