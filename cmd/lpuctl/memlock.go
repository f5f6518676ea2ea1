package main

import (
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// memlockDefault is how much memory a command should be able to lock. The library pins the buffers that an LPU reads and writes; how much
// that is depends on the model that is served, and it is not published. Other users of the library allow it to lock any amount.
const memlockDefault = 64 << 20

// raiseMemlock lets the command lock as much memory as this user may. If that is less than wanted, it warns, unless the limit does not
// count for those who lock: root's own processes, and containers whose limits a daemon sets.
func (a *app) raiseMemlock(wanted uint64, args []string) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return fmt.Errorf("memlock: %w", err)
	}
	if limit.Max < wanted && unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: wanted, Max: wanted}) == nil {
		return nil
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: limit.Max, Max: limit.Max}); err != nil {
		return fmt.Errorf("memlock: %w", err)
	}
	container := startsContainer(args)
	ofDaemon := container && slices.Contains([]string{"docker", "nerdctl"}, filepath.Base(args[0]))
	if limit.Max < wanted && !ofDaemon && (container || !mayLockAll()) {
		var findings finding.List
		findings.Add(finding.MemlockLow, "memlock", fmt.Sprintf("the command may lock %s of memory, and %s may be needed",
			sizeText(limit.Max), sizeText(wanted)), "")
		a.report(findings)
	}
	return nil
}

// mayLockAll tells whether this process has the capability to lock any amount of memory.
func mayLockAll() bool {
	var have [2]unix.CapUserData // two words of 32 capabilities each, by version 3
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &have[0])
	return err == nil && have[0].Effective>>unix.CAP_IPC_LOCK&1 == 1
}
