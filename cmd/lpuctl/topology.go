package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

const (
	formatMatrix format = "matrix"
	formatDot    format = "dot"
	formatSVG    format = "svg"
)

func newTopologyCommand(a *app) *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "Draw how the LPUs are connected",
		Long: `topology draws the rings of LPUs with health, NUMA node and PCIe switch of each; or a matrix of how any
two of them reach each other, or the same as dot, SVG or JSON. Without a ring table the cabling is not
known: then the LPUs are drawn by switch and NUMA node only.`,
		Example: `  lpuctl topology
  lpuctl topology -o matrix
  lpuctl topology -o svg > rings.svg
  lpuctl topology -o dot | dot -Tpng > rings.png`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			inv, err := a.scan(cmd.Context(), discovery.Options{})
			if err != nil {
				return err
			}
			a.report(inv.Problems)
			isDocument := f == formatJSON || f == formatYAML
			if len(inv.LPUs) > 0 || isDocument {
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
	formatFlag(cmd, &f, formatTable, formatMatrix, formatDot, formatSVG, formatJSON, formatYAML)
	return cmd
}

func (a *app) drawTopology(inv *discovery.Inventory, f format) error {
	p := newPlan(inv)
	var text string
	switch f {
	case formatMatrix:
		return p.matrix(a.out)
	case formatDot:
		text = p.dot()
	case formatSVG:
		text = p.svg()
	case formatJSON, formatYAML:
		return writeDocument(a.out, f, inv)
	default:
		text = p.text()
	}
	_, err := a.out.Write([]byte(text))
	return err
}

// plan is an inventory made ready to be drawn.
type plan struct {
	inv      *discovery.Inventory
	byName   map[string]*discovery.LPU
	switches []discovery.Address // in order: S0, S1, ...
	loose    []string            // LPUs on no ring
}

func newPlan(inv *discovery.Inventory) *plan {
	p := &plan{inv: inv, byName: map[string]*discovery.LPU{}}
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		p.byName[l.Name] = l
		if l.Switch != nil && !slices.Contains(p.switches, *l.Switch) {
			p.switches = append(p.switches, *l.Switch)
		}
		if l.Ring == nil {
			p.loose = append(p.loose, l.Name)
		}
	}
	return p
}

// label is an LPU as the drawing shows it: name, health, NUMA node, switch.
func (p *plan) label(name string) string {
	l := p.byName[name]
	numa := ""
	if l.NUMANode != nil {
		numa = fmt.Sprintf("NUMA %d", *l.NUMANode)
	}
	return strings.TrimRight(fmt.Sprintf("%-7s%-10s%-8s%s", name, healthText(l), numa, p.switchName(l)), " ")
}

func (p *plan) switchName(l *discovery.LPU) string {
	if l.Switch == nil {
		return ""
	}
	return fmt.Sprintf("S%d", slices.Index(p.switches, *l.Switch))
}

// text draws each ring as a ladder: down the left side, and up the right side.
func (p *plan) text() string {
	var b strings.Builder
	for _, r := range p.inv.Rings {
		fmt.Fprintf(&b, "%s: %s\n", r.ID, ringTitle(r))
		p.ladder(&b, r)
		b.WriteString("\n")
	}
	if len(p.loose) > 0 {
		if p.inv.RingTable == nil {
			b.WriteString("no ring table: which LPUs are neighbours is not known (see lpuctl ring install)\n")
		} else {
			b.WriteString("not on a ring:\n")
		}
		for _, name := range p.loose {
			fmt.Fprintf(&b, "  %s\n", p.label(name))
		}
		b.WriteString("\n")
	}
	for i, s := range p.switches {
		fmt.Fprintf(&b, "S%d: PCIe switch %s\n", i, s)
	}
	return b.String()
}

func ringTitle(r discovery.Ring) string {
	n := len(r.Members)
	if !r.Closed {
		return fmt.Sprintf("chain of %s; %s-%s is not cabled", plural(n, "LPU"), r.Members[n-1], r.Members[0])
	}
	return "ring of " + plural(n, "LPU")
}

func (p *plan) ladder(b *strings.Builder, r discovery.Ring) {
	n := len(r.Members)
	left := (n + 1) / 2
	const width = 29
	for row := range left {
		a := r.Members[row]
		other := n - 1 - row // on the right side; the same as row at the foot of an odd ring
		if other == row {
			fmt.Fprintf(b, "  %s %s┘\n", p.label(a), strings.Repeat("─", max(0, width+10-len(p.label(a)))))
			continue
		}
		joint := " "
		if row == 0 && r.Closed || other == row+1 {
			joint = "─"
		}
		cable := strings.Repeat(joint, 8)
		if joint == "─" && r.Dead(a, r.Members[other]) {
			cable = "───╳╳───"
		}
		pad := strings.Repeat(joint, max(0, width-len(p.label(a))))
		fmt.Fprintf(b, "  %s %s%s %s\n", p.label(a), pad, cable, p.label(r.Members[other]))
		p.rungs(b, r, row, other, width)
	}
}

// rungs are the cables from one row of the ladder down to the next.
func (p *plan) rungs(b *strings.Builder, r discovery.Ring, row, other, width int) {
	if row+1 >= other {
		return
	}
	mark := func(a, c string) string {
		if r.Dead(a, c) {
			return "╳"
		}
		return "│"
	}
	fmt.Fprintf(b, "   %s%s%s\n", mark(r.Members[row], r.Members[row+1]), strings.Repeat(" ", width+9), mark(r.Members[other], r.Members[other-1]))
}
