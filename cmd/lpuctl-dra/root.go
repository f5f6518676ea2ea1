package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
)

// program is how people call it.
const program = "lpuctl-dra"

// app is what all commands of lpuctl-dra share.
type app struct{ cli.App }

// run is the whole program: arguments in, exit code out.
func run(ctx context.Context, args []string, out, errOut io.Writer, env func(string) (string, bool)) int {
	a := &app{cli.App{Terminal: cli.Terminal{Program: program, Out: out, Err: errOut}, Env: env}}
	_, err := a.Execute(ctx, newRootCommand(a, args...), args)
	return cli.CodeOf(err)
}

// newRootCommand makes the tree of commands, of which args call one.
func newRootCommand(a *app, args ...string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   program,
		Short: "Hand out LPUs to Kubernetes pods: the DRA driver",
		Long: `lpuctl-dra tells the scheduler of Kubernetes which LPUs of a node are connected, and gives containers what their claims were
allocated. Each run of connected LPUs is a device of its own, so what the scheduler hands out is connected.
More: /usr/share/doc/lpuctl/dra.md. lpuctl dra COMMAND runs the same commands.

Exit codes: 0 done; 1 failed; 2 usage; 3 worked and found something; 4 no LPU on this node.`,
		Example: `  lpuctl-dra slices                    # what the scheduler would be told of this node
  lpuctl-dra claims                    # which claims have which LPUs of it
  lpuctl-dra plan claim.yaml           # would this claim fit, and if not, why`,
	}
	of := func(make func(*app) *cobra.Command) func() *cobra.Command {
		return func() *cobra.Command { return make(a) }
	}
	a.SetUpRoot(cmd, cli.Commands{
		"serve": of(newServeCommand), "slices": of(newSlicesCommand), "claims": of(newClaimsCommand), "plan": of(newPlanCommand),
	}, args)
	return cmd
}
