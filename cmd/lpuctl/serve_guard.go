package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// guardDirs ends serve when a directory that it writes to is out of reach. The kubelet's must always be writable; that of
// the spec need not be if it is not so at the start, because something else may keep the spec up to date.
func (d *serveDaemon) guardDirs(ctx context.Context, c guardConfig) {
	writable := []string{c.pluginDir}
	if c.specDir != "" && outOfReach(c.specDir) == nil {
		writable = append(writable, c.specDir)
	}
	for ctx.Err() == nil {
		for _, dir := range writable {
			if err := outOfReach(dir); err != nil {
				d.fail(err)
				return
			}
		}
		host.WaitBeat(ctx, time.Second)
	}
}

// outOfReach returns an error if a directory was removed or made anew since this process was put into its sandbox. A
// container still sees the removed directory, which has no name left (st_nlink in stat(2)). A unit of systemd sees the new one,
// but read-only like all the rest. No process can mend that from within its sandbox.
func outOfReach(dir string) error {
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
	return fail(exitFailed, "start it again, as systemd and the kubelet do, and it sees the directory that is there by then;"+
		" if that is read-only, remount it", "%s: %s", dir, fault)
}
