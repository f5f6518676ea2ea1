package main

import "github.com/spf13/cobra"

func newRuntimeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "runtime",
		Aliases: []string{"runtimes"},
		Short:   "Check whether the container runtimes of this node hand out LPUs",
		Long: `A container runtime hands out an LPU if it knows CDI, has it turned on, and reads the directory that
lpuctl writes to. Where it does not, many start the container without the device and say nothing.`,
		Example: `  sudo lpuctl runtime check`,
	}
	cmd.AddCommand(newRuntimeCheckCommand(a))
	return cmd
}
