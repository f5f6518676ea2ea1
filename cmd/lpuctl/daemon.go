package main

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// setUpDaemonLog is setUpLog of a command that runs until it is stopped: it tells what it does, if nobody wants it otherwise.
func (a *app) setUpDaemonLog(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("log-level") {
		a.logLevel = "info"
	}
	return a.setUpLog()
}

// watchAndTell looks at the node until ctx ends, and tells systemd of each look that succeeds: that the daemon lives, and at the first one
// that it has started.
func watchAndTell(ctx context.Context, watcher *discovery.Watcher, interval time.Duration, look func() bool) {
	ready := false
	watcher.Run(ctx, interval, func() {
		if !look() {
			return
		}
		if !ready {
			_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
		}
		ready = true
		_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
	})
}

// stopped tells systemd that a daemon ends because its ctx did. It returns nil if a signal has ended it, or else the cause.
func stopped(cmd *cobra.Command, ctx context.Context) error {
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	if cmd.Context().Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}
