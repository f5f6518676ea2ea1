package main

import (
	"context"
	"path"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/dra/driver"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	sizes                             []int
	noExecute                         bool
	podUID, kubeconfig, listen, owner string
	onCDIOff                          node.OnCDIOff
	kubeletDir, podResources          string
	interval                          time.Duration
}

func newServeCommand(a *app) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Hand out LPUs to Kubernetes pods: the DRA driver",
		Long: `serve publishes the LPUs of this node as ResourceSlices of the driver ` + dra.DriverName + `, prepares the claims that the
scheduler has placed here, and tells the kubelet how healthy each device is. Each run of connected LPUs is a device of its own that
consumes a counter for each of its LPUs, so the scheduler can only give away LPUs that are connected. It also keeps the CDI spec of this
node right, as lpuctl serve does.

A device is not withdrawn while a claim may have it: what is not to be given away gets a taint. --no-execute evicts pods from LPUs that are
not healthy.

Device plugin and driver never hand out one LPU twice. Which of them hands out the LPUs of this node is written in
/var/lib/lpuctl/owner.json; lpuctl owner changes it, and so does --owner at the start. A driver that is not the owner publishes its devices
with a taint.

A container runtime that has CDI off starts containers without their LPUs. The self-check on the node (lpuctl-runtime-check.timer, of the
package of lpuctl) leaves in ` + runtimes.ResultPath + ` whether it has. While the latest result is off, --on-cdi-off fail
gives out nothing new, so that pods wait; warn says so in the log, in /readyz and in the metrics.

With --pod-uid a new instance starts while the old one still serves (DaemonSet with maxSurge). /healthz, /readyz and, for Prometheus,
/metrics are served on --listen. After a change of the config file, start it again.`,
		Example: `  lpuctl-dra serve --node-name "$NODE" --pod-uid "$UID" --root /host    # in a pod that has the host's directories there
  lpuctl-dra serve --node-name worker-1 --kubeconfig /root/.kube/config`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.serve(cmd, a) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.noExecute, "no-execute", false, "evict pods whose LPUs are not healthy, unless they tolerate it")
	flags.StringVar(&f.owner, "owner", "", "make `OWNER` the one that hands out LPUs on this node: dra; empty: who is it stays it")
	flags.StringVar((*string)(&f.onCDIOff), "on-cdi-off", string(node.WarnOnCDIOff),
		"what to do (`POLICY`) while the runtime has CDI off: fail or warn")
	flags.StringVar(&f.podUID, "pod-uid", "", "`UID` of this pod; with it two instances may run at the same time")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "reach the cluster by this `FILE`; empty: as a pod of it")
	flags.StringVar(&f.listen, "listen", ":9477", "`ADDRESS` of /healthz, /readyz and /metrics; empty: none")
	flags.DurationVar(&f.interval, "interval", cli.WatchInterval, "`TIME` between two looks at the LPUs")
	flags.StringVar(&f.kubeletDir, "kubelet-dir", "/var/lib/kubelet",
		"`DIR` of the kubelet, not below the root: it has to have the same path for the kubelet and here")
	flags.StringVar(&f.podResources, "pod-resources", plugin.DefaultPodResources,
		"`SOCKET` under the root where the kubelet tells which pods have LPUs of the device plugin")
	flags.VisitAll(cli.FromEnvironment)
	sizesFlag(cmd, &f.sizes)
	cli.NodeNameFlag(cmd, &a.NodeName)
	a.SpecDirFlag(cmd)
	a.RingTableFlag(cmd)
	cli.Complete(cmd, "owner", string(owner.DRA))
	cli.Complete(cmd, "on-cdi-off", string(node.FailOnCDIOff), string(node.WarnOnCDIOff))
	_ = cmd.MarkFlagFilename("kubeconfig")
	_ = cmd.MarkFlagDirname("kubelet-dir")
	return cmd
}

// check finds flags that cannot be used.
func (f *serveFlags) check() error {
	switch {
	case f.owner != "" && f.owner != string(owner.DRA):
		return cli.Usage("--owner %s: this program can only be started as the owner dra; see lpuctl owner set", f.owner)
	case f.onCDIOff != node.FailOnCDIOff && f.onCDIOff != node.WarnOnCDIOff:
		return cli.Usage("--on-cdi-off %s: expected %s or %s: claims are handed out by CDI only",
			f.onCDIOff, node.FailOnCDIOff, node.WarnOnCDIOff)
	case !path.IsAbs(f.kubeletDir):
		return cli.Usage("--kubelet-dir %s: it is not an absolute path", f.kubeletDir)
	case f.interval < 100*time.Millisecond || f.interval > 10*time.Second:
		return cli.Usage("--interval %v: expected a time between 100ms and 10s", f.interval)
	}
	if err := cli.CheckAddress(f.listen); err != nil && f.listen != "" {
		return cli.Usage("--listen %s: %v", f.listen, err)
	}
	return nil
}

func (f *serveFlags) serve(cmd *cobra.Command, a *app) error {
	if err := a.SetUpDaemonLog(cmd); err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	if a.NodeName == "" {
		return cli.Fail(cli.ExitUsage, "give the name of the node in the cluster: --node-name, or LPUCTL_NODE_NAME", "--node-name is missing")
	}
	klog.SetSlogLogger(a.Log.With("by", "kubernetes"))
	s, err := f.server(a)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(cmd.Context())
	defer end(nil)
	if f.owner != "" {
		if err := s.driver.Gate.Claim(ctx); err != nil {
			return err
		}
	}
	s.run(klog.NewContext(ctx, klog.Background()), end, f)
	return cli.Stopped(ctx, cmd)
}

// server is a running serve.
type server struct {
	app    *app
	driver *driver.Driver
	scan   discovery.Options
}

// server is the server of these flags.
func (f *serveFlags) server(a *app) (*server, error) {
	publishing, err := draOptions(a, f.sizes)
	if err != nil {
		return nil, err
	}
	scan, memory, spec, err := a.Following()
	if err != nil {
		return nil, err
	}
	socket, err := a.Root.Resolve(f.podResources)
	if err != nil {
		return nil, err
	}
	client, err := connect(f.kubeconfig)
	if err != nil {
		return nil, err
	}
	kubelet := &plugin.Pods{Socket: socket}
	n := node.New(a.Log)
	n.Memory, n.Runtime = memory, cli.AskResult(memory)
	detached := &plugin.Detached{Root: a.Root, Node: n}
	n.Beside = detached.Problems
	of, err := a.Pods(memory)
	if err != nil {
		return nil, err
	}
	claims := of.Claims()
	claims.Kind, claims.Log = spec.Options.Kind, a.Log
	ask := func(ctx context.Context) (*plugin.Said, error) {
		said, err := kubelet.Ask(ctx)
		if err == nil {
			claims.Hear(said.Claims())
			detached.Hear(said)
		}
		return said, err
	}
	gate := &owner.Gate{
		File: of.Owner(), Me: owner.DRA, Settle: owner.KubeletSettle,
		Patience: owner.KubeletPatience, Insist: f.owner != "", By: program + " serve --owner", Log: a.Log,
		Others: plugin.From(ask, (*plugin.Said).Holders), Twice: plugin.From(ask, (*plugin.Said).Twice),
	}
	if err := of.RespectLeases(gate); err != nil {
		return nil, err
	}
	n.Gate = gate
	return &server{
		app: a, scan: scan,
		driver: driver.New(driver.Options{
			Node: n, Spec: spec,
			Publisher: &dra.Publisher{Options: publishing, Path: filepath.Join(memory.Dir, "dra-slices.json"), NoExecute: f.noExecute},
			Claims:    claims,
			Gate:      gate, OnCDIOff: f.onCDIOff,
			InUse:  plugin.From(kubelet.Ask, (*plugin.Said).Claims),
			Client: client, Name: a.NodeName, PodUID: f.podUID, KubeletDir: f.kubeletDir, Log: a.Log,
		}),
	}, nil
}

// connect makes the client of the cluster. Nothing is asked yet.
func connect(kubeconfig string) (kubernetes.Interface, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, cli.Fail(cli.ExitFailed, "run it as a pod with a service account, or give --kubeconfig",
			"the cluster cannot be reached: %w", err)
	}
	config.UserAgent = program
	// As the kubelet has it: each claim of its pods is asked for once.
	config.QPS, config.Burst = 50, 100
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return kubernetes.NewForConfig(config)
}

// shedInterval is how often it is looked whether the start or a claim has needed memory
// that can be given back.
const shedInterval = 20 * time.Second

// run serves until ctx ends.
func (s *server) run(ctx context.Context, end context.CancelCauseFunc, f *serveFlags) {
	// To wake other processors each second, of a hundred maybe, costs more than it helps.
	runtime.GOMAXPROCS(1)
	d, a := s.driver, s.app
	records, err := d.Node.Memory.Records()
	if err != nil {
		if host.IsShortage(err) { // a new start may still read it
			end(err)
			return
		}
		a.Log.Warn("what serve knew of the LPUs before is lost", "error", err)
	}
	watcher := watch.New(string(a.Root), watch.Options{Scan: s.scan, Patience: watch.Patience, Records: records}, host.SinceBoot)
	guarded := []string{filepath.Dir(d.Spec.File.Path), driver.RegistryDir(f.kubeletDir)}
	if tables := d.Spec.File.RingTables(); cli.OutOfReach(tables) == nil { // else containers get none
		guarded = append(guarded, tables)
	}
	d.Node.Renew() // before anything looks
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			host.WaitBeat(ctx, shedInterval)
			if resident() > shedAbove {
				shed()
			}
		}
	})
	running.Go(func() { d.Run(ctx) })
	running.Go(func() { d.Node.Memory.FollowCordons(ctx, func() { d.Update(ctx, watcher.Scan) }) })
	running.Go(func() { node.Listen(ctx, f.listen, d, a.Log, cli.BuildLabels()...) })
	running.Go(func() { guard(ctx, end, guarded...) })
	node.WatchAndTell(ctx, watcher, f.interval, func() bool {
		updated := d.Update(ctx, watcher.Scan)
		if updated {
			d.Gate.Show()
		}
		return updated
	})
	running.Wait()
}

// guard ends serve when a directory that it writes to was removed or made again outside
// of its sandbox.
func guard(ctx context.Context, end context.CancelCauseFunc, dirs ...string) {
	for ; ctx.Err() == nil; host.WaitBeat(ctx, time.Second) {
		for _, dir := range dirs {
			if err := cli.OutOfReach(dir); err != nil {
				end(err)
				return
			}
		}
	}
}
