package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

func newRingConvertCommand(a *app) *cobra.Command {
	var to, output string
	var lpus []string
	cmd := &cobra.Command{
		Use:   "convert [FILE]",
		Short: "Print a ring table in the other format",
		Long: `convert prints this node's ring table, or FILE held against this node, as HyperDex reads it (hyperdex) or
in lpuctl's own form, keyed by PCI address (lpuctl). Links are in the order of the cables. For HyperDex the
LPUs that are present are numbered from 0, in the order of their PCI addresses; a FILE by index is taken by
itself, on any machine. With --lpus it is the table for a container that has just these LPUs. HyperDex takes
LPUs that are cabled in a row for a line, and a whole ring for a ring; it ends where no cable joins LPUs that
it is asked for.

--output writes a file that exists in place, so that containers which have it mounted see the new table. If that
fails, as on a full disk, the file stays as it was.`,
		Example: `  lpuctl ring convert --to lpuctl > ring.yaml
  lpuctl ring convert --to hyperdex --lpus lpu2,lpu3 > table.json
  sudo lpuctl ring convert --to hyperdex --output table.json table.json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cli.CompleteFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := tableToConvert(cmd.Context(), a, args, to == "hyperdex" && lpus == nil)
			if err != nil {
				return err
			}
			return b.use(&a.Terminal, func(b *boundTable) error {
				text, err := b.convert(a, to, lpus)
				switch {
				case err != nil:
				case output != "" && output != "-":
					err = wholefile.Overwrite(output, text)
				default:
					_, err = a.Out.Write(text)
				}
				return err
			})
		},
	}
	a.RingTableFlag(cmd)
	cmd.Flags().StringVar(&to, "to", "hyperdex", "write as `FORMAT`: hyperdex or lpuctl")
	cmd.Flags().StringSliceVar(&lpus, "lpus", nil, "only these `LPUS`, renumbered as a container sees them")
	cmd.Flags().StringVar(&output, "output", "", "write to `FILE` instead of stdout, which is -")
	cli.Complete(cmd, "to", "hyperdex", "lpuctl")
	_ = cmd.RegisterFlagCompletionFunc("lpus", completeLPUList(a))
	return cmd
}

// tableToConvert reads the table and binds it to this node. A FILE by index needs no node
// to be written by index, byItself.
func tableToConvert(ctx context.Context, a *app, args []string, byItself bool) (*boundTable, error) {
	if len(args) > 0 && byItself {
		b, err := readTable(args[0])
		if err != nil {
			return nil, err
		}
		if b.cabling = b.table.Cabling(); b.cabling != nil {
			return b, nil
		}
	}
	return nodeTable(ctx, a, args)
}

// convert writes the table in another format, for the LPUs that are named; none: for all
// of the node.
func (b *boundTable) convert(a *app, to string, lpus []string) ([]byte, error) {
	if to == "hyperdex" && len(b.table.Extra) > 0 {
		a.Complain(cli.Fail(cli.ExitDone, "put it back if HyperDex needs it",
			"%s: what lpuctl does not know is left out: %s", b.path, strings.Join(b.table.Extra, ", ")))
	}
	write := ring.WriteNode
	if lpus != nil || b.table.Container > 0 && !b.table.OfNode {
		write = ring.WriteContainer
	}
	if b.inv == nil {
		return write(b.cabling, b.cabling.Cards()), nil
	}
	cards, err := toConvert(a.Config.CDI.Kind, b.inv, to, lpus)
	if err != nil {
		return nil, err
	}
	switch to {
	case "hyperdex":
		return write(b.cabling, cards), nil
	case "lpuctl":
		addresses := cli.Each(addressesOf(b.inv, cards), pci.Address.String)
		return ring.WriteLpuctl(b.cabling.Renumber(cards), addresses), nil
	}
	return nil, cli.Usage("--to %s: expected hyperdex or lpuctl", to)
}

// toConvert is the LPUs of a table in a format. HyperDex counts those that are present.
func toConvert(kind string, inv *discovery.Inventory, to string, lpus []string) ([]int, error) {
	cards, err := withNodes(kind, inv, lpus)
	for i, l := range inv.LPUs {
		if lpus == nil && (to == "lpuctl" || !l.Absent) {
			cards = append(cards, i)
		}
	}
	if err == nil && len(cards) == 0 {
		err = cli.Fail(cli.ExitUsage, "lpuctl list shows every LPU", "the table would have no LPU")
	}
	return cards, err
}
