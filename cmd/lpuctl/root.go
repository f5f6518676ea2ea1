package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/launch"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// app is what all commands of lpuctl share.
type app struct {
	cli.App

	replay *replay // of a bundle; nil: the root is a directory
}

// run is the whole program: arguments in, exit code out.
func run(ctx context.Context, args []string, out, errOut io.Writer, env func(string) (string, bool)) int {
	a := &app{App: cli.App{Terminal: cli.Terminal{Out: out, Err: errOut}, Env: env}}
	a.Replay = a.openBundle
	defer func() { a.replay.end() }()
	cmd, err := a.Execute(ctx, newRootCommand(a, args...), args)
	switch {
	case cmd.Name() == runName:
		return launch.Code(err)
	case isForNPD(cmd, args, err):
		return codeForNPD(a.Out, err)
	}
	return cli.CodeOf(err)
}

// newRootCommand makes the tree of commands, of which args call one.
func newRootCommand(a *app, args ...string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lpuctl",
		Short: "Bring LPUs from the PCIe slot into the container",
		Long: `lpuctl finds the LPUs of a Linux node, tells whether a container could use each of them, and
writes the CDI specification by which podman, nerdctl, Docker, containerd and CRI-O hand them out.
Without a command it shows this node at a glance, and which commands come next.

Exit codes: 0 done; 1 failed; 2 usage; 3 worked and found something; 4 no LPU on this node.
run has that of the command that it starts, or 125.`,
		Example: `  lpuctl                               # this node at a glance
  lpuctl list                          # the LPUs of this node
  sudo lpuctl cdi refresh              # write the spec where runtimes look
  podman run --device hyperaccel.ai/lpu=lpu0 IMAGE

  lpuctl demo                          # no hardware? the main job on a simulated server
  lpuctl simulate /tmp/node            # such a server that stays
  lpuctl --root /tmp/node list`,
		RunE: func(cmd *cobra.Command, _ []string) error { return glance(cmd.Context(), a) },
	}
	of := func(make func(*app) *cobra.Command) func() *cobra.Command {
		return func() *cobra.Command { return make(a) }
	}
	commands := cli.Commands{
		"doctor":   of(newDoctorCommand),
		"list":     of(newListCommand),
		"health":   of(newHealthCommand),
		"describe": of(newDescribeCommand),
		"topology": of(newTopologyCommand),
		"ring":     of(newRingCommand),
		"allocate": of(newAllocateCommand),
		"run":      of(newRunCommand),
		"queue":    of(newQueueCommand),
		"reserve":  of(newReserveCommand),
		"release":  of(newReleaseCommand),
		"extend":   of(newExtendCommand),
		"usage":    of(newUsageCommand),
		"cordon":   of(newCordonCommand),
		"uncordon": of(newUncordonCommand),
		"cdi":      of(newCDICommand),
		"runtime":  of(newRuntimeCommand),
		"serve":    of(newServeCommand),
		"owner":    of(newOwnerCommand),
		"exporter": of(newExporterCommand),
		"lease":    of(newLeaseCommand),
		"config":   of(newConfigCommand),
		"simulate": of(newSimulateCommand),
		"demo":     of(newDemoCommand),
		"dra":      newDRACommand,
		"top":      newTopCommand,
	}
	for _, g := range groups() {
		cmd.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, name := range g.names {
			make := commands[name]
			commands[name] = func() *cobra.Command {
				c := make()
				c.GroupID = g.title
				return c
			}
		}
	}
	a.SetUpRoot(cmd, commands, args)
	return cmd
}

// group is a part of the commands, as the help and README.md have them.
type group struct {
	title string
	names []string
}

func groups() []group {
	return []group{
		{"See", []string{"doctor", "list", "top", "health", "describe", "topology"}},
		{"Give to containers", []string{"cdi", "allocate", "run", "runtime"}},
		{"Share a server", []string{"reserve", "extend", "release", "queue", "usage", "lease"}},
		{"Kubernetes", []string{"serve", "dra", "owner"}},
		{"Operate", []string{"cordon", "uncordon", "ring", "exporter", "config"}},
		{"Try without hardware", []string{"demo", "simulate"}},
	}
}

// scan reads the config, the machine, and which LPUs are cordoned.
func (a *app) scan(ctx context.Context) (*discovery.Inventory, error) {
	return a.scanWith(ctx, discovery.Options{})
}

func (a *app) scanWith(ctx context.Context, options discovery.Options) (*discovery.Inventory, error) {
	inv, memory, err := a.ScanOnly(ctx, options)
	if err != nil {
		return nil, err
	}
	return marking(a.Log, a.Root, memory)(inv), nil
}

// marking returns what adds the cordons, the leases and the reservations to an inventory.
func marking(log *slog.Logger, root host.Root, memory node.Memory) func(*discovery.Inventory) *discovery.Inventory {
	cordons := memory.Cordons()
	return func(inv *discovery.Inventory) *discovery.Inventory {
		return lease.MarkOrWarn(log, root, memory.Dir, inv.WithCordons(cordons.Read()))
	}
}

// site is where something is launched on this node. The config was read.
func (a *app) site() (launch.Site, error) {
	spec, err := a.LocateSpec()
	if err != nil {
		return launch.Site{}, err
	}
	return launch.Site{
		Root: a.Root, Spec: spec, Kind: a.Config.CDI.Kind, Env: a.Env, Log: a.Log, Say: a.Say, Report: a.Report,
	}, nil
}
