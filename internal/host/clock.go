package host

import (
	"context"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Moment is a time that all processes of a machine agree on and that no user can set: the
// time since boot, suspension included, and which boot it was.
type Moment struct {
	// Boot is /proc/sys/kernel/random/boot_id; "" if it cannot be read.
	Boot      string        `json:"boot"`
	SinceBoot time.Duration `json:"sinceBoot"` // CLOCK_BOOTTIME, in nanoseconds
}

// Now returns the present moment of the machine that this process runs on, whatever root
// it reads; in a [Replay] that of the recorded machine.
func Now() Moment {
	if r := replayed.Load(); r != nil {
		return Moment{r.Now.Boot, SinceBoot()}
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return Moment{strings.TrimSpace(string(boot)), SinceBoot()}
}

// SinceBoot is [Moment.SinceBoot] of now.
func SinceBoot() time.Duration {
	if r := replayed.Load(); r != nil {
		return r.Now.SinceBoot + r.elapsed()
	}
	return bootTime()
}

func bootTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // since Linux 2.6.39
	return time.Duration(t.Nano())
}

// WallClock returns the time of day at a time since boot (CLOCK_BOOTTIME): in UTC, to the
// second, by the clock as it is set now. It is the zero time for 0, which is never.
func WallClock(sinceBoot time.Duration) time.Time {
	if sinceBoot == 0 {
		return time.Time{}
	}
	now := time.Now()
	if r := replayed.Load(); r != nil {
		now = r.Wall.Add(r.elapsed())
	}
	return now.Add(sinceBoot - SinceBoot()).UTC().Round(time.Second)
}

// UntilBeat is how long it is from now, a time since boot, to the next multiple of an
// interval. Loops that wait for the same beat wake the processor together, which costs
// less than one by one.
func UntilBeat(interval, now time.Duration) time.Duration { return interval - now%interval }

// WaitBeat waits for the next multiple of an interval since boot, or until ctx ends.
func WaitBeat(ctx context.Context, interval time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(UntilBeat(interval, SinceBoot())):
	}
}

// After reports whether m is later than other in the same boot. It is false if a boot is
// not known.
func (m Moment) After(other Moment) bool {
	return m.Boot != "" && m.Boot == other.Boot && m.SinceBoot > other.SinceBoot
}
