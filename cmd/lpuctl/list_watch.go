package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/node"
)

// listInterval is how often a list that is watched is made, if nothing happens in /dev.
const listInterval = time.Second

// watchList prints the list whenever it changes, until ctx ends. An error ends it only at the first look, except that there is no LPU
// yet.
func (a *app) watchList(ctx context.Context, words []string, f format) (err error) {
	if f == formatName {
		return usage("--watch does not go with -o name: use table, wide, json or yaml")
	}
	options, err := a.scanOptions(discovery.Options{})
	if err == nil {
		options, err = a.remembering(options)
	}
	if err != nil {
		return err
	}
	memory, err := node.RememberIn(a.root)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	watcher, cordons := discovery.NewWatcher(string(a.root), options, host.SinceBoot), memory.Cordons()
	var shown *listing
	watcher.Run(ctx, listInterval, func() {
		now, lookErr := a.look(ctx, watcher, cordons, words, f)
		switch {
		case ctx.Err() != nil: // the look may be half-way
		case shown == nil && lookErr != nil && codeOf(lookErr) != exitNoLPU:
			err = lookErr
			end()
		case shown == nil || *shown != now:
			if err = a.showListing(shown, now, f); err != nil {
				end()
			}
			shown = &now
		}
	})
	return err
}

// listing is what one list prints.
type listing struct{ out, err string }

// look makes a list. Its error is among what it prints.
func (a *app) look(
	ctx context.Context, watcher *discovery.Watcher, cordons *health.CordonFile, words []string, f format,
) (l listing, err error) {
	var out, errOut bytes.Buffer
	view := *a
	view.out, view.err = &out, &errOut
	inv, err := watcher.Scan(ctx)
	if err == nil {
		inv = inv.WithCordons(cordons.Read())
		err = view.list(ctx, inv, words, f)
	}
	if err != nil {
		view.complain(err)
	}
	return listing{out.String(), errOut.String()}, err
}

// showListing prints a list that follows another one: on a terminal in its place, else after it.
func (a *app) showListing(before *listing, now listing, f format) error {
	head := ""
	switch {
	case f.isDocument() && before != nil && before.out == now.out: // only what is said to people has changed
		now.out = ""
	case f == formatYAML:
		head = "---\n"
	case f == formatJSON:
	case isTerminal(a.out):
		head = "\x1b[H\x1b[2J" // the cursor goes to the top left, and what was there is erased
	default:
		head = time.Now().Format(time.RFC3339) + "\n"
	}
	_, err := io.WriteString(a.out, head+now.out)
	fmt.Fprint(a.err, now.err)
	return err
}
