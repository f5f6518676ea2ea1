package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/topology"
)

const (
	formatMatrix format = "matrix"
	formatDot    format = "dot"
	formatSVG    format = "svg"
)

func newTopologyCommand(a *app) *cobra.Command {
	var f format
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
			inv, err := a.scan(cmd.Context(), discovery.Options{})
			if err != nil {
				return err
			}
			a.report(inv.Problems)
			if len(inv.LPUs) > 0 || f.isDocument() {
				if err := a.drawTopology(inv, f); err != nil {
					return err
				}
			}
			if len(inv.LPUs) == 0 {
				return noLPU(a.root)
			}
			return nil
		},
	}
	a.ringTableFlag(cmd)
	a.formatFlag(cmd, &f, formatTable, formatMatrix, formatDot, formatSVG, formatJSON, formatYAML)
	return cmd
}

func (a *app) drawTopology(inv *discovery.Inventory, f format) error {
	scene := topology.New(inv)
	var text string
	switch f {
	case formatMatrix:
		header, rows := scene.Matrix()
		if err := a.writeTable(header, rows); err != nil {
			return err
		}
		text = topology.MatrixLegend
	case formatDot:
		text = scene.Dot()
	case formatSVG:
		text = scene.SVG()
	case formatJSON, formatYAML:
		return writeDocument(a.out, f, inv)
	default:
		text = scene.Text()
	}
	_, err := io.WriteString(a.out, text)
	return err
}
