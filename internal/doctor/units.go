package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// The units of lpuctl whose work is seen here. That of the socket of leases and of the
// timer of the self-check is seen by the links of these.
const (
	refreshPath = "lpuctl-cdi-refresh.path"
	leaseSocket = "lpuctl-lease.socket"
	checkTimer  = "lpuctl-runtime-check.timer"
)

// changed is the file that asks for a refresh. The refresh removes it when it starts.
const changed = "/run/lpuctl-cdi-changed"

// refreshAfter is how long a refresh may be asked for before it has started: it waits six
// seconds for udev (UDEV_SETTLE_SECONDS of the unit), and one may run before it.
const refreshAfter = time.Minute

// OwnUnits returns the check of the units of lpuctl. systemd is not asked: what it does
// shows in files.
func OwnUnits(root host.Root) Check {
	return Check{Units, "the units of lpuctl", func(context.Context) Result {
		if !runtimes.Systemd(root) {
			return Result{Absent: "systemd does not run"}
		}
		var r Result
		var enabled []string
		installed := 0
		for _, name := range []string{refreshPath, "lpuctl-serve.service", "lpuctl-exporter.service", leaseSocket, checkTimer} {
			u := runtimes.UnitOf(root, name)
			if u.Installed {
				installed++
			}
			if !u.Installed || !u.Enabled {
				continue
			}
			enabled = append(enabled, strings.TrimPrefix(name, "lpuctl-"))
			if strings.HasSuffix(name, ".service") && !u.Ran {
				r.addDown(name, "it is enabled, and does not run")
			}
			if name == refreshPath {
				r.lookForRefresh(root)
			}
		}
		r.Says = "enabled: " + strings.Join(enabled, ", ")
		switch {
		case installed == 0:
			r.Says, r.Absent = "", "the units of lpuctl are not installed"
		case len(enabled) == 0:
			r.Says, r.Absent = "", "no unit of lpuctl is enabled"
		}
		return r
	}}
}

func (r *Result) addDown(unit, message string) {
	r.Findings.Add(finding.UnitDown, unit, message, fmt.Sprintf("journalctl -u %s says why; then: systemctl restart %[1]s", unit))
}

// lookForRefresh finds a refresh that was asked for and does not come.
func (r *Result) lookForRefresh(root host.Root) {
	real, err := root.Resolve(changed)
	var info fs.FileInfo
	if err == nil {
		info, err = os.Lstat(real)
	}
	switch {
	case host.IsAbsent(err):
	case err != nil:
		r.Unseen = append(r.Unseen, Unseen{"whether a refresh is asked for", err.Error(), cmp.Or(right(err), "look at it: ls -l "+changed)})
	case time.Since(info.ModTime()) > refreshAfter:
		r.addDown(refreshPath, fmt.Sprintf("a refresh was asked for %s ago by %s, and has not come",
			time.Since(info.ModTime()).Round(time.Minute), path.Base(changed)))
	}
}
