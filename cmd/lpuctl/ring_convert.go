package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

func newRingConvertCommand(a *app) *cobra.Command {
	var to string
	var lpus []string
	cmd := &cobra.Command{
		Use:   "convert [FILE]",
		Short: "Print a ring table in the other format",
		Long: `convert prints this node's ring table, or FILE held against this node, as HyperDex reads it (hyperdex) or
in lpuctl's own form, keyed by PCI address (lpuctl). With --lpus it is the table for a container that has
just these LPUs: there they are numbered from 0, in the order of their PCI addresses.`,
		Example: `  lpuctl ring convert --to lpuctl > ring.yaml
  lpuctl ring convert --to hyperdex --lpus lpu2,lpu3 > table.json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cli.CompleteFile,
		RunE: a.onTable(func(b *boundTable) error {
			text, err := a.convert(b, to, lpus)
			if err != nil {
				return err
			}
			_, err = a.Out.Write(text)
			return err
		}),
	}
	a.RingTableFlag(cmd)
	cmd.Flags().StringVar(&to, "to", "hyperdex", "write as `FORMAT`: hyperdex or lpuctl")
	cmd.Flags().StringSliceVar(&lpus, "lpus", nil, "only these `LPUS`, renumbered as a container sees them")
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
	if lpus == nil {
		for i := range b.inv.LPUs {
			cards = append(cards, i)
		}
	}
	if len(cards) == 0 {
		return nil, cli.Usage("--lpus names no LPU")
	}
	cabling := b.cabling.Renumber(cards)
	switch to {
	case "hyperdex":
		return ring.WriteHyperdex(cabling), nil
	case "lpuctl":
		addresses := make([]string, len(cards))
		for i, card := range cards {
			addresses[i] = b.inv.LPUs[card].Address.String()
		}
		return ring.WriteLpuctl(cabling, addresses), nil
	}
	return nil, cli.Usage("--to %s: expected hyperdex or lpuctl", to)
}
