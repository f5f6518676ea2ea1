package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func newExporterCommand(a *app) *cobra.Command {
	const here = "127.0.0.1:9477"
	var address string
	cmd := &cobra.Command{
		Use:   "exporter",
		Short: "Serve the metrics of a node without Kubernetes",
		Long: `exporter serves /metrics for Prometheus, /healthz and /readyz where no lpuctl serve does: health, sensors and links of the LPUs,
cordons, problems, how the CDI spec in place differs from one made now, and who has which LPU: by lease, by reservation, or by having its
node open. Of who has it open it tells the container runtime, the container and the user id, and no program or command line.

It watches as list --watch does, and writes nothing. Who has an LPU open is looked up at least every ten seconds. To see the processes of
other users it needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, which lpuctl-exporter.service gives it; without, lpuctl_users_hidden is 1.

On a node where lpuctl serve or lpuctl-dra runs it is refused, and ends when one comes: that has the metrics of the node.
After a change of the config file, start it again. More: /usr/share/doc/lpuctl/exporter.md.`,
		Example: `  sudo systemctl enable --now lpuctl-exporter.service    # the usual way
  sudo lpuctl exporter --listen 127.0.0.1:9478           # by hand, to see what it does
  curl -s 127.0.0.1:9477/metrics | grep lpuctl_lpu_holder`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.export(cmd, address) },
	}
	cmd.Flags().StringVar(&address, "listen", here, "`ADDRESS` of /healthz, /readyz and /metrics")
	cli.FromEnvironment(cmd.Flags().Lookup("listen"))
	a.SpecDirFlag(cmd)
	a.RingTableFlag(cmd)
	return cmd
}

func (a *app) export(cmd *cobra.Command, address string) error {
	if err := a.SetUpDaemonLog(cmd); err != nil {
		return err
	}
	if err := cli.CheckAddress(address); err != nil {
		return cli.Usage("--listen %s: %v", address, err)
	}
	e, err := a.newExporter()
	if err != nil {
		return err
	}
	if err := e.refused(); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(cmd.Context())
	defer end(nil)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return cli.WithRemedy(err, "choose another address with --listen, or see who has this one: ss -ltnp")
	}
	a.Log.Info("listening", "address", listener.Addr().String())
	e.run(ctx, end, listener)
	return cli.Stopped(ctx, cmd)
}

// exporter keeps what the metrics of a node are made of up to date.
type exporter struct {
	app     *app
	node    *node.Node
	spec    node.Spec
	watcher *discovery.Watcher

	updating sync.Mutex                   // held by update
	use      atomic.Pointer[node.Use]     // nil before the first look
	lost     atomic.Pointer[finding.List] // about containers that read the host's ring table

	// changed has room for one. It says that the inventory is another one than when it was
	// looked who has the LPUs.
	changed chan struct{}
	fault   cli.LatestFault // about leases
	unseen  cli.LatestFault // whether another program has the metrics
}

func (a *app) newExporter() (*exporter, error) {
	scan, memory, spec, err := a.Following()
	if err != nil {
		return nil, err
	}
	spec.ReadOnly, memory.ReadOnly = true, true // the files are those of serve and of the boot unit
	e := &exporter{
		app: a, node: node.New(a.Log), watcher: discovery.NewWatcher(string(a.Root), scan, host.SinceBoot), spec: spec,
		changed: make(chan struct{}, 1),
	}
	e.node.Memory = memory
	e.lost.Store(&finding.List{})
	e.node.Beside = func(*discovery.Inventory) finding.List { return *e.lost.Load() }
	return e, nil
}

// refused returns an error if a program is known to hand out the LPUs of this node to
// pods, whose metrics say the same. If none can be seen it only warns: the exporter gives
// nothing away, and what is there of a program may be of one that was killed.
func (e *exporter) refused() error {
	now, err := e.app.standing(e.node.Memory)
	if err != nil {
		return err
	}
	program, err := now.Program()
	if program != "" {
		return cli.Fail(cli.ExitUsage, "take its metrics (--listen), and switch the exporter off: "+
			"sudo systemctl disable --now lpuctl-exporter.service", "%s runs on this node, and has the metrics of its LPUs", program.Program())
	}
	if e.unseen.IsNew(err) {
		e.app.Log.Warn("it cannot be known whether another program has the metrics of this node",
			"error", strings.ReplaceAll(err.Error(), "\n", "; "), "remedy", "if nothing has the socket or the lock that is named, remove it")
	}
	return nil
}

// run watches the node and answers at a listener until ctx ends; end ends it.
func (e *exporter) run(ctx context.Context, end context.CancelCauseFunc, listener net.Listener) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		if err := e.app.ServeHTTP(ctx, listener, e); !errors.Is(err, http.ErrServerClosed) {
			end(err)
		}
	})
	running.Go(func() { e.node.Memory.FollowCordons(ctx, func() { e.update(ctx) }) })
	running.Go(func() { e.followUse(ctx) })
	cli.WatchAndTell(ctx, e.watcher, cli.WatchInterval, func() bool {
		if err := e.refused(); cli.CodeOf(err) == cli.ExitUsage { // serve has come
			end(err)
			return false
		}
		return e.update(ctx)
	})
}

// update takes the next snapshot of the node. It returns false if the machine cannot be
// read.
func (e *exporter) update(ctx context.Context) bool {
	e.updating.Lock()
	defer e.updating.Unlock()
	before := e.node.Latest()
	s := e.node.Update(ctx, e.spec, e.watcher.Scan)
	if s == nil {
		return false
	}
	if s.Inventory != before.Inventory {
		select {
		case e.changed <- struct{}{}:
		default: // it is known already
		}
	}
	return true
}

// followUse looks who has the LPUs after each change of the inventory, at most once a
// second. Without a change there is a new inventory every ten seconds. It is apart from
// the watch, because there may be many processes.
func (e *exporter) followUse(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.changed:
		}
		e.lookWho(ctx, e.node.Latest().Inventory)
		host.WaitBeat(ctx, time.Second)
	}
}

// lookWho looks who has the LPUs of an inventory.
func (e *exporter) lookWho(ctx context.Context, of *discovery.Inventory) {
	inv := *of
	inv.LPUs, inv.Problems = slices.Clone(of.LPUs), slices.Clone(of.Problems)
	findUsers(ctx, e.app.Root, &inv)
	lost := lostTables(ctx, e.app.Root, &inv)
	marked, err := e.app.MarkedLeases(&inv, e.node.Memory)
	if ctx.Err() != nil { // the look may be half-way
		return
	}
	if e.fault.IsNew(err) {
		e.app.WarnLeases(err)
	}
	e.lost.Store(&lost)
	e.use.Store(&node.Use{ReadAt: time.Now(), Inventory: marked, LeasesKnown: err == nil})
}

// Alive returns an error if the machine, or who has its LPUs, was looked at once and is
// not looked at any more.
func (e *exporter) Alive() error {
	if use := e.use.Load(); use != nil {
		if age := time.Since(use.ReadAt); age > 2*node.MaxAge {
			return fmt.Errorf("who has the LPUs was looked up %v ago for the last time", age.Round(time.Second))
		}
	}
	return e.node.Alive()
}

// Ready returns no error if the metrics are those of now, or else why not.
func (e *exporter) Ready() (phase string, err error) {
	latest := e.node.Latest()
	if latest.Inventory == nil || e.use.Load() == nil {
		return "", errors.New("the machine has not been read yet")
	}
	if err := latest.Fresh(time.Now(), node.MaxAge); err != nil {
		return "", err
	}
	return "ok", e.Alive()
}

// Metrics are those of the node and of who has its LPUs; build are labels that identify
// the build.
func (e *exporter) Metrics(build ...string) []*node.Metric {
	return slices.Concat(e.node.Metrics(build...), e.use.Load().Metrics())
}
