package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/topology"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

const (
	formatMatrix cli.Format = "matrix"
	formatDot    cli.Format = "dot"
	formatSVG    cli.Format = "svg"
)

func newTopologyCommand(a *app) *cobra.Command {
	var f cli.Format
	cmd := &cobra.Command{
		Use:     "topology",
		Aliases: []string{"topo"},
		Short:   "Draw how the LPUs are connected",
		Long: `topology draws the rings of LPUs with health, NUMA node and PCIe switch of each; or a matrix of how any
two of them reach each other, or the same as dot, SVG or JSON. A cable is dead where the LPU at one of its
ends is not usable. Without a ring table the cabling is not known: then the LPUs are drawn by switch and
NUMA node only.`,
		Example: `  lpuctl topology
  lpuctl topology -o matrix
  lpuctl topology -o svg > rings.svg
  lpuctl topology -o dot | dot -Tpng > rings.png`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			inv, err := a.scan(cmd.Context())
			if err != nil {
				return err
			}
			a.Report(inv.Problems)
			if len(inv.LPUs) > 0 || f.IsDocument() {
				if err := drawTopology(&a.Terminal, inv, f); err != nil {
					return err
				}
			}
			if len(inv.LPUs) == 0 {
				return cli.NoLPU(a.Root)
			}
			return nil
		},
	}
	a.RingTableFlag(cmd)
	a.FormatFlag(cmd, &f, cli.FormatTable, formatMatrix, formatDot, formatSVG, cli.FormatJSON, cli.FormatYAML)
	return cmd
}

func drawTopology(t *cli.Terminal, inv *discovery.Inventory, f cli.Format) error {
	scene := topology.New(inv)
	var text string
	switch f {
	case formatMatrix:
		header, rows := scene.Matrix()
		if err := t.WriteTable(header, rows); err != nil {
			return err
		}
		text = topology.MatrixLegend
	case formatDot:
		text = scene.Dot()
	case formatSVG:
		text = scene.SVG()
	case cli.FormatJSON, cli.FormatYAML:
		return t.WriteDocument(f, inv)
	default:
		_, err := io.WriteString(t.People(), scene.Text())
		return err
	}
	_, err := io.WriteString(t.Out, text)
	return err
}
