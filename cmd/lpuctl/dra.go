package main

import (
	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
)

// draProgram is the program of the DRA driver. It is one of its own because what it links
// would make every command of lpuctl start two to three times slower.
const draProgram companion = "lpuctl-dra"

func newDRACommand() *cobra.Command {
	return &cobra.Command{
		Use:   "dra [COMMAND]",
		Short: "Hand out LPUs to Kubernetes pods: the DRA driver",
		Long: `dra runs ` + string(draProgram) +
			`, which is a program and a package of its own. Its serve is the driver that a cluster runs on each node;
its other commands show without a cluster what the scheduler is told of this node, and where a claim would be placed.`,
		Example: `  lpuctl dra slices                  # what the scheduler would be told of this node
  lpuctl dra plan claim.yaml         # which LPUs a claim would get
  lpuctl dra --help`,
		Args:               cobra.ArbitraryArgs,
		DisableFlagParsing: true, // they are the other program's
		ValidArgsFunction:  draProgram.complete,
		Annotations:        draProgram.annotation(),
		RunE: func(_ *cobra.Command, args []string) error {
			return cli.Fail(cli.ExitFailed,
				"install the package "+string(draProgram)+" beside lpuctl; in a cluster the Helm chart runs it, with mode: dra",
				"%s cannot be run: %w", draProgram, draProgram.become(args))
		},
	}
}
