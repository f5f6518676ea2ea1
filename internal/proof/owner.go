package proof

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Prefix begins the names of all that a proof makes: containers, images, directories.
const Prefix = "lpuctl-proof-"

// Label is that of containers and pods: its value says whose they are.
const Label = "lpuctl-proof"

// Longest is the longest that an engine may take. What is older than twice that was left
// behind.
const Longest = time.Hour

// self says which process makes something, so that another one knows whether it was left
// behind: process id, start of the process since boot in ticks, pid namespace, and time in
// seconds. Numbers and points are allowed in names and labels of every engine.
func self(now time.Time) string {
	start, _ := startOf("self") // 0 says of no process that it lives
	return fmt.Sprintf("%d.%d.%d.%d", os.Getpid(), start, pidNamespace(), now.Unix())
}

// leftBehind reports whether what a process has made is of no use any more: the process
// has ended, or it cannot be seen from here and the time is over.
func leftBehind(owner string, now time.Time) bool {
	var pid int
	var start, namespace uint64
	var made int64
	if n, _ := fmt.Sscanf(owner, "%d.%d.%d.%d", &pid, &start, &namespace, &made); n != 4 {
		return false // not ours
	}
	if now.Sub(time.Unix(made, 0)) > 2*Longest {
		return true
	}
	if namespace != pidNamespace() {
		return false
	}
	lives, err := startOf(strconv.Itoa(pid))
	if errors.Is(err, fs.ErrNotExist) && errors.Is(unix.Kill(pid, 0), unix.EPERM) {
		return false // /proc hides it
	}
	return err != nil || lives != start
}

// startOf is when a process began, in ticks since boot: /proc/PID/stat, field 22.
func startOf(process string) (uint64, error) {
	data, err := os.ReadFile("/proc/" + process + "/stat")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data[max(0, strings.LastIndexByte(string(data), ')')):]), " ")
	const after = 19 // fields after the name, of which the state is the third of all
	fields := strings.Fields(rest)
	if len(fields) <= after {
		return 0, fs.ErrInvalid
	}
	return strconv.ParseUint(fields[after], 10, 64)
}

// pidNamespace is the inode number of this process's.
func pidNamespace() uint64 {
	var st unix.Stat_t
	_ = unix.Stat("/proc/self/ns/pid", &st) // 0 is no namespace
	return st.Ino
}

// sweepDirs removes what earlier proofs of this user have left in a directory.
func sweepDirs(in string, now time.Time) {
	found, _ := filepath.Glob(filepath.Join(in, Prefix+"*")) // fails on a bad pattern only
	for _, dir := range found {
		var st unix.Stat_t
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), Prefix), "-")
		if unix.Lstat(dir, &st) == nil && int(st.Uid) == os.Geteuid() && leftBehind(owner, now) {
			_ = removeTree(dir) // the next proof tries again
		}
	}
}

// removeTree removes a directory, unless something is mounted below it, which would be
// emptied with it.
func removeTree(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	mounts, err := (&Inside{Root: "/"}).mounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if m.path == real || strings.HasPrefix(m.path, real+"/") {
			return fmt.Errorf("%s stays: something is mounted on %s", dir, m.path)
		}
	}
	return os.RemoveAll(dir)
}
