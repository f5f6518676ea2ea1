package main

import (
	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
)

// topProgram is the program of the screen. It is one of its own because lpuctl needs
// nothing of what draws on terminals.
const topProgram companion = "lpuctl-top"

func newTopCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "top",
		Short: "Show the LPUs on a screen that stays up to date",
		Long: `top runs ` + string(topProgram) + `, which is a program and a package of its own: temperature, power, link, health and holder of
each LPU, in the order of the ring, with what sensors said in the last ten minutes. --once prints one screen, or a document.`,
		Example: `  lpuctl top
  lpuctl top --once -o json
  lpuctl top --help`,
		Args:               cobra.ArbitraryArgs,
		DisableFlagParsing: true, // they are the other program's
		ValidArgsFunction:  topProgram.complete,
		Annotations:        topProgram.annotation(),
		RunE: func(_ *cobra.Command, args []string) error {
			return cli.Fail(cli.ExitFailed, "install the package "+string(topProgram)+" beside lpuctl; without it: lpuctl list --watch",
				"%s cannot be run: %w", topProgram, topProgram.become(args))
		},
	}
}
