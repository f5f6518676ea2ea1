// lpuctl-dra hands out LPUs to Kubernetes pods by dynamic resource allocation (DRA), and
// shows how. It is a program beside lpuctl because what it links would make every command
// of lpuctl start two to three times slower.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.LookupEnv)
	stop()
	os.Exit(code)
}
