package doctor

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/launch"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Memlocks returns the check of how much memory programs may lock: those of this user, by
// limit, and containers by the daemons that start them. limit returns the user's, in
// bytes, and whether it counts; nil: the user is not one of the machine under root.
func Memlocks(root host.Root, limit func() (uint64, bool)) Check {
	return Check{Memlock, "how much memory programs may lock", func(context.Context) Result {
		var r Result
		var said []string
		say := func(who string, bytes uint64) {
			amount := "any amount"
			if bytes != math.MaxUint64 {
				amount = launch.SizeText(bytes)
			}
			said = append(said, who+" "+amount)
		}
		if limit != nil {
			bytes, counts := limit()
			if !counts {
				bytes = math.MaxUint64
			}
			say("this user", bytes)
			if bytes < launch.MemlockDefault {
				r.Findings.Add(finding.MemlockLow, "this user", mayLock("programs", bytes), "")
			}
		}
		for _, s := range runtimes.Starters(root) {
			say(strings.TrimSuffix(s.Unit, ".service"), s.Limit)
			if s.Limit < launch.MemlockDefault {
				r.Findings.Add(finding.MemlockLow, s.Unit, mayLock("its containers", s.Limit), raise(s.Unit))
			}
		}
		r.Says = strings.Join(said, ", ")
		if len(said) == 0 {
			r.Absent = "no daemon that starts containers"
		}
		return r
	}}
}

func mayLock(who string, bytes uint64) string {
	return fmt.Sprintf("%s may lock %s of memory, and %s may be needed", who, launch.SizeText(bytes), launch.SizeText(launch.MemlockDefault))
}

// raise is how root lets what a unit starts lock any amount of memory.
func raise(unit string) string {
	dropIn := "/etc/systemd/system/" + unit + ".d/lpuctl-memlock.conf"
	return fmt.Sprintf("as root: install -D -m 644 /usr/share/lpuctl/memlock/unit.conf %s; systemctl daemon-reload; systemctl restart %s",
		dropIn, unit)
}
