package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// view is what a command prints of an inventory, on the streams of an app.
type view func(a *app, inv *discovery.Inventory) error

// keepShowing prints a view whenever it changes, until ctx ends. An error ends it only at the
// first look, except that there is no LPU yet, or that something is found.
func keepShowing(ctx context.Context, a *app, f cli.Format, show view) (err error) {
	switch f {
	case cli.FormatName:
		return cli.Usage("--watch does not go with -o name: use table, wide, json or yaml")
	case cli.FormatNPD:
		return cli.Usage("--watch does not go with -o npd: node-problem-detector runs the command again and again by itself")
	}
	options, memory, err := a.Remembering(discovery.Options{})
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	watcher := watch.New(string(a.Root), watch.Options{Scan: options, Patience: watch.Patience}, host.SinceBoot)
	mark := marking(a.Log, a.Root, memory)
	var shown *printed
	watcher.Run(ctx, cli.WatchInterval, func() {
		now, lookErr := look(ctx, a, watcher, mark, show)
		code := cli.CodeOf(lookErr)
		switch {
		case ctx.Err() != nil: // the look may be half-way
		case shown == nil && lookErr != nil && code != cli.ExitNoLPU && code != cli.ExitFound:
			err = lookErr
			end()
		case shown == nil || *shown != now:
			if err = showNext(&a.Terminal, shown, now, f); err != nil {
				end()
			}
			shown = &now
		}
	})
	return err
}

// printed is what one look prints.
type printed struct{ out, err string }

// look prints a view of what is there now. Its error is among what it prints.
func look(
	ctx context.Context, a *app, watcher *watch.Watcher, mark func(*discovery.Inventory) *discovery.Inventory, show view,
) (p printed, err error) {
	var out, errOut bytes.Buffer
	aside := *a
	aside.Terminal = a.Aside(&out, &errOut)
	inv, err := watcher.Scan(ctx)
	if err == nil {
		err = show(&aside, mark(inv))
	}
	if err != nil && err.Error() != "" { // what was found is shown already
		aside.Complain(err)
	}
	return printed{out.String(), errOut.String()}, err
}

// showNext shows what follows on another one: on a terminal in its place, else after it.
func showNext(t *cli.Terminal, before *printed, now printed, f cli.Format) error {
	head := ""
	switch {
	// In this case only what is said to people has changed.
	case f.IsDocument() && before != nil && before.out == now.out:
		now.out = ""
	case f == cli.FormatYAML:
		head = "---\n"
	case f == cli.FormatJSON:
	case t.Screen.Redraws:
		head = "\x1b[H\x1b[2J" // the cursor goes to the top left, and what was there is erased
	default:
		head = time.Now().Format(time.RFC3339) + "\n"
	}
	_, err := io.WriteString(t.Out, head+now.out)
	fmt.Fprint(t.Err, now.err)
	return err
}
