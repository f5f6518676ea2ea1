// lpuctl takes a Linux node from "there is an LPU in a PCIe slot" to "the container has
// it".
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/isolate"
	"github.com/hyperaccel/lpuctl/internal/launch"
)

func main() {
	if err := isolate.Continue(os.Args); err != nil {
		if !errors.Is(err, isolate.ErrAbandoned) {
			(&cli.Terminal{Err: os.Stderr}).Complain(err)
		}
		os.Exit(launch.Code(err))
	}
	base := cli.HeedHangUp(context.Background())
	heeded := []os.Signal{syscall.SIGTERM}
	// A script's background job ignores the signal, and so does what such a job starts.
	if !signal.Ignored(os.Interrupt) {
		heeded = append(heeded, os.Interrupt)
	}
	ctx, stop := signal.NotifyContext(base, heeded...)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.LookupEnv)
	stop()
	os.Exit(code)
}
