package discovery

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// followLink is the file to which a symbolic link leads that root or the user of this process has made: each file of a ConfigMap is such
// a link in a pod. Any other path stays as it is, and whoever reads it refuses the link of another user.
func followLink(path string) string {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return path
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}
