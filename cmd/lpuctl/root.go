package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// app is what all commands of lpuctl share.
type app struct{ cli.App }

// run is the whole program: arguments in, exit code out.
func run(ctx context.Context, args []string, out, errOut io.Writer, env func(string) (string, bool)) int {
	a := &app{cli.App{Out: out, Err: errOut, Env: env}}
	root := newRootCommand(a)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && err.Error() != "" {
		a.Complain(err)
	}
	switch {
	case cmd.Name() == runName:
		return codeOfRun(err)
	case isForNPD(cmd, args, err):
		return codeForNPD(a.Out, err)
	}
	return cli.CodeOf(err)
}

func newRootCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lpuctl",
		Short: "Bring LPUs from the PCIe slot into the container",
		Long: `lpuctl finds the LPUs of a Linux node, tells whether a container could use each of them, and
writes the CDI specification by which podman, nerdctl, Docker, containerd and CRI-O hand them out.

Exit codes: 0 done; 1 failed; 2 usage; 3 worked and found something; 4 no LPU on this node.
run has that of the command that it starts, or 125.`,
		Example: `  lpuctl list                          # the LPUs of this node
  sudo lpuctl cdi refresh              # write the spec where runtimes look
  podman run --device hyperaccel.ai/lpu=lpu0 IMAGE

  lpuctl demo                          # no hardware? the main job on a simulated server
  lpuctl simulate /tmp/node            # such a server that stays
  lpuctl --root /tmp/node list`,
	}
	cmd.AddCommand(newListCommand(a), newHealthCommand(a), newDescribeCommand(a), newTopologyCommand(a), newRingCommand(a),
		newAllocateCommand(a), newRunCommand(a), newReserveCommand(a), newReleaseCommand(a), newExtendCommand(a),
		newCordonCommand(a), newUncordonCommand(a),
		newCDICommand(a), newRuntimeCommand(a), newServeCommand(a), newOwnerCommand(a), newExporterCommand(a), newLeaseCommand(a),
		newConfigCommand(a),
		newSimulateCommand(a), newDemoCommand(a), newDRACommand())
	a.SetUpRoot(cmd)
	return cmd
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
	return a.marking(memory)(inv), nil
}

// marking returns what adds the cordons, the leases and the reservations to an inventory.
func (a *app) marking(memory node.Memory) func(*discovery.Inventory) *discovery.Inventory {
	cordons := memory.Cordons()
	return func(inv *discovery.Inventory) *discovery.Inventory {
		return a.MarkLeases(inv.WithCordons(cordons.Read()), memory)
	}
}
