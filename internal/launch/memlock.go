package launch

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// MemlockDefault is how many bytes of memory a command should be able to lock. The library pins
// the buffers that an LPU reads and writes; how much that is depends on the model that is
// served, and it is not published. Other users of the library allow it to lock any
// amount.
const MemlockDefault = 64 << 20

// raiseMemlock lets the command lock as much memory as this user may.
func (j *Job) raiseMemlock() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return fmt.Errorf("memlock: %w", err)
	}
	if limit.Max < j.Memlock && unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: j.Memlock, Max: j.Memlock}) == nil {
		return nil
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: limit.Max, Max: limit.Max}); err != nil {
		return fmt.Errorf("memlock: %w", err)
	}
	return nil
}

// warnOfMemlock warns if the command, which starts now, can lock less memory than is
// wanted, unless the limit does not count for those who lock: root's own processes, and
// containers whose limits a daemon sets.
func (j *Job) warnOfMemlock() {
	limit, counts := MemlockLimit()
	if j.startsContainer() {
		counts = !j.startedByDaemon()
	}
	if limit < j.Memlock && counts {
		var findings finding.List
		findings.Add(finding.MemlockLow, "memlock", fmt.Sprintf("the command may lock %s of memory, and %s may be needed",
			SizeText(limit), SizeText(j.Memlock)), "")
		j.Report(findings)
	}
}

// memlockOption lets a container lock memory that a daemon of root's starts: as much as
// --memlock says, or any amount. Other daemons cannot raise their limit.
func (j *Job) memlockOption() []string {
	given := slices.ContainsFunc(j.Args, func(arg string) bool {
		return strings.HasPrefix(arg, "memlock=") || strings.HasPrefix(arg, "--ulimit=memlock=")
	})
	if !j.startedByDaemon() || given || j.Memlock == 0 || !j.ofRoot() {
		return nil
	}
	limit := "-1"
	if j.MemlockGiven {
		limit = fmt.Sprintf("%d:%[1]d", j.Memlock)
	}
	return []string{"--ulimit", "memlock=" + limit}
}

// ofRoot reports whether the daemon that docker or nerdctl asks is root's.
func (j *Job) ofRoot() bool {
	if os.Geteuid() == 0 {
		return true
	}
	_, elsewhere := j.Env("DOCKER_HOST")
	_, other := j.Env("DOCKER_CONTEXT")
	return filepath.Base(j.Args[0]) == "docker" && !elsewhere && !other && unix.Access(dockerSocket, unix.W_OK) == nil
}

// dockerSocket is where the daemon of root's docker listens.
const dockerSocket = "/var/run/docker.sock"

// mayLockAll reports whether this process has the capability to lock any amount of
// memory.
func mayLockAll() bool {
	var have [2]unix.CapUserData // two words of 32 capabilities each, by version 3
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &have[0])
	return err == nil && have[0].Effective>>unix.CAP_IPC_LOCK&1 == 1
}

// SizeText is a number of bytes for people: "64 MiB".
func SizeText(n uint64) string {
	unit, units := "", []string{"KiB", "MiB", "GiB", "TiB"}
	for n > 0 && n%1024 == 0 && len(units) > 0 {
		n, unit, units = n/1024, " "+units[0], units[1:]
	}
	return fmt.Sprint(n, unit)
}

// MemlockLimit returns how many bytes of memory programs of this user may lock, and
// whether that limit counts: it does not for those who may lock any amount.
func MemlockLimit() (limit uint64, counts bool) {
	var of unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &of); err != nil {
		return math.MaxUint64, false
	}
	return of.Max, !mayLockAll()
}
