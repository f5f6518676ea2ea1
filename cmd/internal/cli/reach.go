package cli

import (
	"errors"

	"golang.org/x/sys/unix"
)

// OutOfReach returns an error if a directory was removed or made anew since this process was put into its sandbox. A
// container still sees the removed directory, which has no name left (st_nlink in stat(2)). A unit of systemd sees the new one,
// but read-only like all the rest. No process can mend that from within its sandbox.
func OutOfReach(dir string) error {
	var stat unix.Stat_t
	var fault string
	switch {
	case unix.Stat(dir, &stat) == nil && stat.Nlink == 0:
		fault = "has been removed, and its successor cannot be seen from this mount namespace"
	case errors.Is(unix.Access(dir, unix.W_OK), unix.EROFS):
		fault = "is read-only in this mount namespace"
	default:
		return nil
	}
	return Fail(ExitFailed, "start it again, as systemd and the kubelet do, and it sees the directory that is there by then;"+
		" if that is read-only, remount it", "%s: %s", dir, fault)
}
