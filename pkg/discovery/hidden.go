package discovery

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// HiddenBy is the name of what lpuctl run mounts over a directory with nodes that it hides
// (proc_pid_mountinfo(5)).
const HiddenBy = "lpuctl-run"

// HiddenNode reports whether lpuctl run keeps this process from a device node that is
// there: its directory is covered by one without it, or it is a mount on which no device
// works. found says whether lstat(2) finds something at the path, which has no links.
func HiddenNode(path string, found bool) bool {
	var st unix.Statfs_t
	if found && (unix.Statfs(path, &st) != nil || st.Flags&unix.ST_NODEV == 0) {
		return false // as nearly always: mounts need not be read
	}
	m, alone := mountHere(path)
	if found {
		return alone && m.nodev
	}
	return m.name == HiddenBy
}

// IsHidden reports whether lpuctl run keeps this process from a node of the LPU.
func (l *LPU) IsHidden() bool {
	return slices.ContainsFunc(l.Nodes, func(n Node) bool { return n.Hidden })
}

// ofSome reports whether a ring table is not that of the node, but mounted over it for
// this program or container, which has some of the LPUs.
func ofSome(table string) bool {
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, table, unix.AT_SYMLINK_NOFOLLOW, 0, &st) != nil || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false
	}
	m, alone := mountHere(table)
	return alone && path.Base(strings.TrimSuffix(path.Dir(m.source), "/ring")) == "lpuctl"
}

// mountHere returns the mount in which a file lies for this process, and whether it is the
// file alone that is mounted.
func mountHere(file string) (m mounted, alone bool) {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	if abs, err := filepath.Abs(file); err == nil {
		file = abs
	}
	m = parseMounts(text).at(file)
	return m, m.point == file
}
