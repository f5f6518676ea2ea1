// lpuctl-top shows the LPUs of a node on one screen that stays up to date. It is a program
// beside lpuctl because what draws the screen would make every command of lpuctl larger
// and slower to start.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.LookupEnv)
	stop()
	os.Exit(code)
}
