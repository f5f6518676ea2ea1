package cli

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/internal/host"
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
	if scan, memory, err = a.Remembering(discovery.Options{}); err != nil {
		return scan, memory, spec, err
	}
	spec.Options = cdi.Options{Kind: a.Config.CDI.Kind, Annotations: a.Config.CDI.Annotations}
	spec.File, err = a.LocateSpec()
	spec.Orders = SpecOrders(context.Background(), a.Root)
	return scan, memory, spec, err
}

// SpecOrders are the orders in which the container runtimes of this node read spec
// directories.
func SpecOrders(ctx context.Context, root host.Root) []cdi.Order {
	return Each(runtimes.Orders(ctx, string(root)), func(o runtimes.Order) cdi.Order { return cdi.Order(o) })
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

// WatchInterval is how often the machine is looked at, if nothing happens.
const WatchInterval = time.Second
