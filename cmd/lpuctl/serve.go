package main

import (
	"cmp"
	"context"
	"errors"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/features"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/pods"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
)

func newServeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Hand out LPUs to Kubernetes pods: the device plugin",
		Long: `serve registers the LPUs of this node with the kubelet as ` + plugin.DefaultResource +
			`, reports their health, prefers LPUs that are
connected and hands them to containers as CDI devices. It keeps itself registered whatever happens to the kubelet.
It writes the CDI spec only if what is there does not name the right nodes, and leaves it when it ends. In a sandbox it ends,
to be started again, when a directory that it writes to was made anew outside.

The config file is read again when it changes, within 10 seconds, and at SIGHUP; a bad file changes nothing. /healthz, /readyz and, for
Prometheus, /metrics are served on --listen. With --pod-resources the metrics say too which containers have which LPUs, and what is left.

A container runtime that has CDI off starts containers without the devices that are named to it. The self-check on the node
(lpuctl-runtime-check.timer, of the package) leaves in ` + runtimes.ResultPath + ` whether it has. While the latest result is off,
--on-cdi-off fail offers no LPU, so that pods wait; device-specs gives nodes and mounts to containers instead; warn only says so.

--nfd writes a file from which node-feature-discovery makes labels of the node: what LPUs it has and, from topology in the config file,
where it is in the network. The file stays when serve ends, and expires.

One program of a node hands out its LPUs to pods: serve, or the DRA driver (lpuctl-dra). While lpuctl owner says that it is the driver,
serve tells the kubelet that all LPUs are unhealthy; pods that have LPUs keep them. An LPU that a prepared claim still has is not offered
either. --owner plugin makes serve the one when it starts. If the driver is told to be it too, the one that starts last is, until it ends.

--numa tells the kubelet the NUMA node of each LPU. With a Topology Manager policy it then takes LPUs of one node without
asking which are connected, so it is off by default; auto does it only where the ring table says that no ring crosses NUMA nodes.
--overlap lets a new instance register while the old one still serves (DaemonSet with maxSurge). It needs a kubelet of
1.37 or later; without it the new instance waits for the old one's end.`,
		Example: `  lpuctl serve
  lpuctl serve --require-connected --log-format json
  lpuctl serve --device-list-strategy device-specs    # for a runtime without CDI
  lpuctl serve --on-cdi-off fail                      # rather no pod than one that does not find its LPUs
  lpuctl serve --nfd /etc/kubernetes/node-feature-discovery/features.d/lpuctl
  lpuctl serve --root /host                           # in a container that has the host's directories there`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd) },
	}
	cli.Reloads(cmd)
	serveFlags(cmd)
	cmd.Flags().String("owner", "", "be the `OWNER` of the LPUs from now on: plugin; empty: as lpuctl owner says")
	cli.FromEnvironment(cmd.Flags().Lookup("owner"))
	cli.Complete(cmd, "owner", string(owner.Plugin))
	cli.NodeNameFlag(cmd, &a.NodeName)
	a.SpecDirFlag(cmd)
	a.RingTableFlag(cmd)
	return cmd
}

func (a *app) serve(cmd *cobra.Command) error {
	if err := a.SetUpDaemonLog(cmd); err != nil {
		return err
	}
	config := a.followConfig()
	c, options, err := a.serveConfig(cmd)
	if err == nil {
		err = cli.CheckNodeName(a.NodeName)
	}
	if err != nil {
		return err
	}
	hangUp := cli.HangUps(cmd)
	defer signal.Stop(hangUp)
	ctx, fail := context.WithCancelCause(cmd.Context())
	d := &serveDaemon{app: a, plugin: plugin.New(options, a.Log), fail: fail}
	if d.plugin.Node.Memory, err = node.RememberIn(a.Root); err != nil {
		return err
	}
	d.detached = &plugin.Detached{Root: a.Root, Node: d.plugin.Node}
	of, err := a.Pods(d.plugin.Node.Memory)
	if err != nil {
		return err
	}
	word, _ := cmd.Flags().GetString("owner") // it has the flag
	gate, err := newGate(ctx, of, word, c.PodResources, d.detached.Hear)
	if err != nil {
		return err
	}
	gate.Changed = func() { d.plugin.Again(ctx) }
	d.plugin.Node.Gate = gate
	gate.Renew(ctx) // the first list is to be right
	var following sync.WaitGroup
	following.Go(func() { gate.Run(ctx) })
	d.plugin.Node.Runtime = cli.AskResult(d.plugin.Node.Memory)
	d.plugin.Node.Memory.SetApart = a.Config.Leases.Cordons()
	d.configFault.Store(a.checkNetwork(c) != nil)
	d.run(ctx, c, options)
	for ctx.Err() == nil {
		select {
		case <-hangUp:
			config.inPlace = a.configState() // what changes after this is seen the next time
		case <-time.After(host.UntilBeat(configInterval, host.SinceBoot())):
			if !config.look() {
				continue
			}
		case <-ctx.Done():
			continue
		}
		c, options, err := a.reload(cmd)
		d.configFault.Store(err != nil)
		if err == nil {
			d.plugin.Reload(ctx, options)
			d.run(ctx, c, options)
		}
	}
	err = cli.Stopped(ctx, cmd)
	d.registration.stop()
	d.watch.stop() // a look that has begun may still write
	d.http.stop()  // so that an answer that has begun is whole
	fail(nil)
	following.Wait()
	a.Log.Info("ended; the CDI spec stays")
	return err
}

// serveDaemon is a running serve. A reload restarts only the components whose own
// configuration has changed, so that no card's health is forgotten and the kubelet
// notices nothing.
type serveDaemon struct {
	app    *app
	plugin *plugin.Plugin
	server atomic.Pointer[plugin.Server] // the present one; nil before the first run
	fail   context.CancelCauseFunc       // ends serve with an error

	detached    *plugin.Detached
	features    *features.File
	configFault atomic.Bool // the config file in place could not be used when it was read last

	watch        component[watchConfig]
	guard        component[guardConfig]
	registration component[registrationConfig]
	pods         component[podsConfig]
	http         component[httpConfig]
}

// The configurations of the components.
type (
	watchConfig struct {
		scan     discovery.Options
		interval time.Duration
	}
	// specDir is "" if no spec is written.
	guardConfig        struct{ pluginDir, specDir, tableDir string }
	registrationConfig struct {
		dir, resource     string
		overlap, preStart bool
	}
	podsConfig struct {
		registrationConfig
		socket  string // "": it is not asked
		metrics bool
	}
	httpConfig struct {
		registrationConfig
		address string
	}
)

// run starts the components with a configuration.
func (d *serveDaemon) run(ctx context.Context, c cli.ServeConfig, options plugin.Options) {
	scan, err := d.app.ScanOptions(discovery.Options{})
	if err != nil {
		d.fail(err)
		return
	}
	dir, err := d.app.Root.Resolve(c.PluginDir)
	if err != nil {
		d.fail(err)
		return
	}
	if d.features == nil {
		d.features = features.NewFile(d.app.Root, d.app.Log, d.fail, cli.OutOfReach)
	}
	d.features.Follow(ctx, d.app.featurePlan(c))
	guard := guardConfig{pluginDir: dir, tableDir: options.Spec.File.RingTables()}
	if options.Strategy == plugin.CDI {
		guard.specDir = filepath.Dir(options.Spec.File.Path)
	}
	d.guard.start(ctx, guard, d.guardOf(guard))
	r := registrationConfig{dir, c.Resource, c.Overlap, c.PreStartCheck}
	if d.registration.config != r {
		d.server.Store(&plugin.Server{Plugin: d.plugin, Dir: dir, Resource: c.Resource, Overlap: c.Overlap, Log: d.app.Log})
	}
	server := d.server.Load()
	// The watch calls both functions. It has not started yet, and outlives a server.
	if d.plugin.Node.Recall == nil {
		d.plugin.Node.Recall = func(ctx context.Context) map[string]bool { return d.server.Load().Recall(ctx) }
		d.plugin.Node.Beside = func(inv *discovery.Inventory) finding.List {
			return slices.Concat(d.server.Load().Rivals(inv), d.detached.Problems(inv))
		}
	}
	interval, _ := time.ParseDuration(c.Interval) // check has seen that it is one
	remembering, _, err := d.app.Remembering(scan)
	if err != nil {
		d.fail(err)
		return
	}
	d.watch.start(ctx, watchConfig{scan, interval}, func(ctx context.Context, c watchConfig) { d.watchLPUs(ctx, remembering, c.interval) })
	d.registration.start(ctx, r, func(ctx context.Context, _ registrationConfig) { server.Run(ctx) })
	asked := podsConfig{r, d.podsSocket(c.PodResources), c.PodResources != ""}
	d.pods.start(ctx, asked, func(ctx context.Context, c podsConfig) { server.FollowPods(ctx, c.socket, c.metrics) })
	d.http.start(ctx, httpConfig{r, c.Listen}, func(ctx context.Context, c httpConfig) {
		node.Listen(ctx, c.address, observedServe{server, d}, d.app.Log, cli.BuildLabels()...)
	})
}

// podsSocket returns where the kubelet is asked for pods, unless a socket is named; "":
// nowhere.
func (d *serveDaemon) podsSocket(named string) string {
	if found, err := pods.Socket(d.app.Root); err == nil && found != "" && named == "" {
		return found
	}
	socket, err := d.app.Root.Resolve(cmp.Or(named, plugin.DefaultPodResources)) // it may come later
	if err != nil {                                                              // no reason to end
		d.app.Log.Error("the kubelet is not asked for pods", "error", err)
	}
	return socket
}

// observedServe is serve as it is observed: the plugin's server, the config file and the
// feature file.
type observedServe struct {
	*plugin.Server

	daemon *serveDaemon
}

// Alive adds the loop of the feature file.
func (o observedServe) Alive() error { return errors.Join(o.Server.Alive(), o.daemon.features.Alive()) }

// Metrics adds those of the config file and of the feature file.
func (o observedServe) Metrics(build ...string) []*node.Metric {
	var all node.Metrics
	valid := all.Gauge("lpuctl_config_valid",
		"Whether the config file in place is the one by which LPUs are handed out; 0: it has faults, and the one before holds.")
	valid.SetBool(!o.daemon.configFault.Load())
	return slices.Concat(o.Server.Metrics(build...), all, o.daemon.features.Metrics())
}

// watchLPUs keeps the plugin up to date, and tells systemd that it does.
func (d *serveDaemon) watchLPUs(ctx context.Context, scan discovery.Options, interval time.Duration) {
	records, err := d.plugin.Node.Memory.Records()
	if err != nil {
		if host.IsShortage(err) { // a new start may still read it
			d.fail(err)
			return
		}
		d.app.Log.Warn("what serve knew of the LPUs before is lost", "error", err)
	}
	watcher := watch.New(string(d.app.Root), watch.Options{Scan: scan, Patience: watch.Patience, Records: records}, host.SinceBoot)
	d.plugin.Renew() // before anything looks: it may have other models than the one before
	var following sync.WaitGroup
	following.Go(func() {
		d.plugin.Node.Memory.FollowCordons(ctx, func() { d.plugin.Update(ctx, watcher.Scan) })
	})
	defer following.Wait()
	// Nothing here waits for the kubelet, which may be away for long: that is no failure
	// to start.
	node.WatchAndTell(ctx, watcher, interval, func() bool {
		updated := d.plugin.Update(ctx, watcher.Scan)
		d.features.Look(d.plugin.Node.Latest().Inventory)
		if updated {
			d.plugin.Node.Gate.Show() // not before: one that cannot run would end the exporter for nothing
		}
		return updated
	})
}
