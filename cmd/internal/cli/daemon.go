package cli

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// SetUpDaemonLog is SetUpLog of a command that runs until it is stopped. Such a command
// logs what it does, unless the user asks for another level.
func (a *App) SetUpDaemonLog(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("log-level") {
		a.LogLevel = "info"
	}
	return a.SetUpLog()
}

// Following is what a daemon follows the LPUs of this node with: the options of its
// scans, what outlives it, and the CDI spec.
func (a *App) Following() (scan discovery.Options, memory node.Memory, spec node.Spec, err error) {
	if scan, memory, err = a.Remembering(discovery.Options{Patience: discovery.Patience}); err != nil {
		return scan, memory, spec, err
	}
	spec.Options = cdi.Options{Kind: a.Config.CDI.Kind, Annotations: a.Config.CDI.Annotations}
	spec.File, err = a.LocateSpec()
	spec.Orders = a.SpecOrders(context.Background())
	return scan, memory, spec, err
}

// SpecOrders are the orders in which the container runtimes of this node read spec
// directories.
func (a *App) SpecOrders(ctx context.Context) []cdi.Order {
	return Each(runtimes.Orders(ctx, string(a.Root)), func(o runtimes.Order) cdi.Order { return cdi.Order(o) })
}

// WatchAndTell looks at the node until ctx ends. It tells systemd with each look that the
// daemon lives, and with the first one that succeeds that it has started. A machine that
// cannot be read is no reason to start it again, which would forget what holds meanwhile.
func WatchAndTell(ctx context.Context, watcher *discovery.Watcher, interval time.Duration, look func() bool) {
	ready := false
	watcher.Run(ctx, interval, func() {
		if look() && !ready {
			ready = true
			_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
		}
		_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
	})
}

// Stopped tells systemd that a daemon ends because its ctx did. It returns nil if a
// signal has ended it, or else the cause.
func Stopped(ctx context.Context, cmd *cobra.Command) error {
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	if cmd.Context().Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// LatestFault is the text of an error that was there at the latest look; "" if none was.
// With it a daemon that looks again and again logs an error once, until it is another
// one, or was over.
type LatestFault string

// IsNew takes the error of the next look. It returns false for nil, and for one that says
// the same as before.
func (f *LatestFault) IsNew(err error) bool {
	before := *f
	*f = ""
	if err != nil {
		*f = LatestFault(err.Error())
	}
	return err != nil && *f != before
}

// WatchInterval is how often the machine is looked at, if nothing happens.
const WatchInterval = time.Second
