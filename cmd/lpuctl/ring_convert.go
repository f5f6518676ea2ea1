package main

import (
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

func newRingConvertCommand(a *app) *cobra.Command {
	var to, output string
	var lpus []string
	cmd := &cobra.Command{
		Use:   "convert [FILE]",
		Short: "Print a ring table in the other format",
		Long: `convert prints this node's ring table, or FILE held against this node, as HyperDex reads it (hyperdex) or
in lpuctl's own form, keyed by PCI address (lpuctl). Links are in the order of the cables. With --lpus it is
the table for a container that has just these LPUs: there they are numbered from 0, in the order of their PCI
addresses. HyperDex takes LPUs that are cabled in a row for a line, and a whole ring for a ring; it ends where
no cable joins LPUs that it is asked for.

--output writes a file that exists in place, so that containers which have it mounted see the new table.`,
		Example: `  lpuctl ring convert --to lpuctl > ring.yaml
  lpuctl ring convert --to hyperdex --lpus lpu2,lpu3 > table.json
  sudo lpuctl ring convert --to hyperdex --output table.json table.json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cli.CompleteFile,
		RunE: a.onTable(func(b *boundTable) error {
			text, err := a.convert(b, to, lpus)
			if err != nil {
				return err
			}
			if output != "" && output != "-" {
				return os.WriteFile(output, text, 0o644)
			}
			_, err = a.Out.Write(text)
			return err
		}),
	}
	a.RingTableFlag(cmd)
	cmd.Flags().StringVar(&to, "to", "hyperdex", "write as `FORMAT`: hyperdex or lpuctl")
	cmd.Flags().StringSliceVar(&lpus, "lpus", nil, "only these `LPUS`, renumbered as a container sees them")
	cmd.Flags().StringVar(&output, "output", "", "write to `FILE` instead of stdout, which is -")
	cli.Complete(cmd, "to", "hyperdex", "lpuctl")
	_ = cmd.RegisterFlagCompletionFunc("lpus", a.completeLPUList)
	return cmd
}

// convert writes the table in another format, for all LPUs or, where lpus are named, for a container with just these.
func (a *app) convert(b *boundTable, to string, lpus []string) ([]byte, error) {
	cards, err := a.lpus(b.inv, lpus)
	if err != nil {
		return nil, err
	}
	slices.Sort(cards) // as a container numbers them
	container := lpus != nil || b.table.Container > 0
	if lpus == nil {
		for i := range b.inv.LPUs {
			cards = append(cards, i)
		}
	}
	if len(cards) == 0 {
		return nil, cli.Usage("--lpus names no LPU")
	}
	switch to {
	case "hyperdex":
		if container {
			return ring.WriteContainer(b.cabling, cards), nil
		}
		return ring.WriteHyperdex(b.cabling), nil
	case "lpuctl":
		addresses := make([]string, len(cards))
		for i, card := range cards {
			addresses[i] = b.inv.LPUs[card].Address.String()
		}
		return ring.WriteLpuctl(b.cabling.Renumber(cards), addresses), nil
	}
	return nil, cli.Usage("--to %s: expected hyperdex or lpuctl", to)
}
