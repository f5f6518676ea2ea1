package node

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/hyperaccel/lpuctl/internal/watch"
)

// WatchAndTell looks at the node until ctx ends. It tells systemd with each look that the
// daemon lives, and with the first one that succeeds that it has started. A machine that
// cannot be read is no reason to start it again, which would forget what holds meanwhile.
func WatchAndTell(ctx context.Context, watcher *watch.Watcher, interval time.Duration, look func() bool) {
	ready := false
	watcher.Run(ctx, interval, func() {
		if look() && !ready {
			ready = true
			_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
		}
		_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
	})
}
