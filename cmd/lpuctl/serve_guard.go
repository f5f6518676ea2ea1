package main

import (
	"context"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
)

// guardOf returns what ends serve when a directory that it writes to is out of reach. The kubelet's
// must always be writable; that of the spec need not be if it is not so now, because something else
// may keep the spec up to date.
func (d *serveDaemon) guardOf(c guardConfig) func(context.Context, guardConfig) {
	writable := []string{c.pluginDir}
	if c.specDir != "" && cli.OutOfReach(c.specDir) == nil {
		writable = append(writable, c.specDir)
	}
	return func(ctx context.Context, _ guardConfig) {
		for ; ctx.Err() == nil; host.WaitBeat(ctx, time.Second) {
			for _, dir := range writable {
				if err := cli.OutOfReach(dir); err != nil {
					d.fail(err)
					return
				}
			}
		}
	}
}
