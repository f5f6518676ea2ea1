// bench-dra measures what arcs as devices cost the scheduler. It runs a real etcd, API server and scheduler with many simulated Orions,
// none of which has a kubelet, and lets them place the same pods in three ways, each in a cluster of its own:
//
//   - plugin: LPUs are an extended resource, as `lpuctl serve` offers them
//   - single: each LPU is a device, a claim counts them, and nobody looks whether they are connected
//   - arcs: what internal/dra publishes; a claim is for one device
//
// It counts the CPU time that the scheduler takes (/proc), not the time that passes: the load shares the machine with it. It prints a
// table, and fails where a bar is missed. Needs KUBERNETES, the directory of etcd, kube-apiserver and kube-scheduler.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	nodes := flag.String("nodes", "100,300", "how many nodes, several with commas")
	file := flag.String("json", "", "write the results to this file, too, as JSON")
	rounds := flag.Int("rounds", 3, "how often pods are placed on nearly empty nodes, and where most LPUs are taken")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Stdout, *nodes, *file, *rounds)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-dra:", err)
		os.Exit(1) //nolint:gocritic // stop only gives the signals back
	}
}

func run(ctx context.Context, w io.Writer, counts, file string, rounds int) error {
	programs := os.Getenv("KUBERNETES")
	for _, p := range []string{"etcd", "kube-apiserver", "kube-scheduler"} {
		if _, err := os.Stat(filepath.Join(programs, p)); err != nil {
			return fmt.Errorf("%w (KUBERNETES is the directory that make e2e-kubelet-tools fills)", err)
		}
	}
	server, err := newServer(ctx)
	if err != nil {
		return err
	}
	var results []*result
	for text := range strings.SplitSeq(counts, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-nodes %s: %q is not a number of nodes", counts, text)
		}
		for _, m := range []mode{plugin, single, arcs} {
			fmt.Fprintf(os.Stderr, "%d nodes, %s\n", n, m)
			r, err := measure(ctx, programs, &world{server: server, mode: m, nodes: n}, rounds)
			if err != nil {
				return fmt.Errorf("%d nodes, %s: %w", n, m, err)
			}
			results = append(results, r)
		}
	}
	if file != "" {
		data, err := json.MarshalIndent(results, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, append(data, '\n'), 0o644); err != nil { //nolint:gosec // for everybody to read
			return err
		}
	}
	return report(w, results)
}

// measure starts a cluster and lets it place pods: on nearly empty nodes, where nothing fits, and where 80 % of the LPUs are taken.
func measure(ctx context.Context, programs string, w *world, rounds int) (r *result, err error) {
	c, err := start(ctx, programs)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	w.cluster = c
	if err := w.furnish(ctx); err != nil {
		return nil, err
	}
	r = &result{Mode: w.mode, Nodes: w.nodes, SliceBytes: w.sliceBytes()}
	// The first pods cost more: the scheduler compiles the selectors of the classes.
	if _, err := w.place(ctx, []int{1, 2, 4, 8}); err != nil {
		return nil, err
	}
	if err := w.clear(ctx, 0); err != nil {
		return nil, err
	}
	if r.Empty, err = w.rounds(ctx, rounds, func(i int) []int { return shuffled(w.share(emptyWave), uint64(i)) }); err != nil {
		return nil, err
	}
	if r.Refused, err = w.refuse(ctx); err != nil {
		return nil, err
	}
	if err := w.clear(ctx, 0); err != nil {
		return nil, err
	}
	all, next := w.play()
	if err := w.take(ctx, all); err != nil {
		return nil, err
	}
	if r.Full, err = w.rounds(ctx, rounds, func(int) []int { return next }); err != nil {
		return nil, err
	}
	r.SchedulerMiB, err = c.scheduler.memory()
	return r, err
}
