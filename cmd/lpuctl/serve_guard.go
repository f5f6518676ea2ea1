package main

import (
	"context"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
)

// guardOf returns what ends serve when a directory that it writes to is out of reach. The
// kubelet's must always be writable. Those of the spec and of ring tables need not be if
// they are not so now, because something else may keep them up to date.
func (d *serveDaemon) guardOf(c guardConfig) func(context.Context, guardConfig) {
	writable := []string{c.pluginDir}
	for _, dir := range []string{c.specDir, c.tableDir} {
		if dir != "" && cli.OutOfReach(dir) == nil {
			writable = append(writable, dir)
		}
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
