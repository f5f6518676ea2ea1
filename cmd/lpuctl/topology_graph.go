package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// matrix prints how any two LPUs reach each other, in the manner of nvidia-smi topo -m.
func (p *plan) matrix(w io.Writer) error {
	header := []string{""}
	for _, l := range p.inv.LPUs {
		header = append(header, l.Name)
	}
	header = append(header, "NUMA", "SWITCH")
	var rows [][]string
	for i := range p.inv.LPUs {
		from := &p.inv.LPUs[i]
		row := []string{from.Name}
		for j := range p.inv.LPUs {
			row = append(row, p.relation(from, &p.inv.LPUs[j]))
		}
		rows = append(rows, append(row, optional(from.NUMANode), optional(from.Switch)))
	}
	if err := writeTable(w, header, rows); err != nil {
		return err
	}
	_, err := io.WriteString(w, `
X     itself
Rn    over n cables of the ring; R1 are neighbours
PSW   no way over the ring; same PCIe switch
NODE  no way over the ring; same NUMA node
SYS   no way over the ring; across NUMA nodes, or nobody knows
`)
	return err
}

// relation is the shortest way from one LPU to another.
func (p *plan) relation(a, b *discovery.LPU) string {
	switch hops := p.hops(a, b); {
	case a == b:
		return "X"
	case hops > 0:
		return fmt.Sprintf("R%d", hops)
	case a.Switch != nil && b.Switch != nil && *a.Switch == *b.Switch:
		return "PSW"
	case a.NUMANode != nil && b.NUMANode != nil && *a.NUMANode == *b.NUMANode:
		return "NODE"
	}
	return "SYS"
}

// hops is the least number of cables from a to b, in either direction; 0 if there is no way.
func (p *plan) hops(a, b *discovery.LPU) int {
	if a.Ring == nil || b.Ring == nil || a.Ring.ID != b.Ring.ID {
		return 0
	}
	i := slices.IndexFunc(p.inv.Rings, func(r discovery.Ring) bool { return r.ID == a.Ring.ID })
	r := p.inv.Rings[i]
	least := 0
	for _, step := range []int{1, len(r.Members) - 1} {
		if n := walk(r, a.Ring.Position, b.Ring.Position, step); n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// walk counts the cables from one position to another in one direction; 0 if a cable on the way is missing.
func walk(r discovery.Ring, from, to, step int) int {
	n := len(r.Members)
	hops := 0
	for at := from; at != to; hops++ {
		next := (at + step) % n
		end := !r.Closed && (step == 1 && next == 0 || step != 1 && at == 0)
		if end || r.Dead(r.Members[at], r.Members[next]) {
			return 0
		}
		at = next
	}
	return hops
}

// cables calls each with every cable of a ring.
func cables(r discovery.Ring, each func(a, b string)) {
	n := len(r.Members)
	for i := range n - 1 {
		each(r.Members[i], r.Members[i+1])
	}
	if r.Closed && n > 2 {
		each(r.Members[n-1], r.Members[0])
	}
}

// dot is the rings for Graphviz.
func (p *plan) dot() string {
	var b strings.Builder
	b.WriteString("graph lpus {\n  layout=circo; node [shape=box, style=\"rounded,filled\"];\n")
	for _, l := range p.inv.LPUs {
		fmt.Fprintf(&b, "  %s [label=\"%s\\n%s\\n%s\", fillcolor=\"%s\"];\n", l.Name, l.Name, l.Address, p.place(&l), fill(&l))
	}
	for _, r := range p.inv.Rings {
		cables(r, func(from, to string) {
			style := ""
			if r.Dead(from, to) {
				style = " [style=dashed, color=red]"
			}
			fmt.Fprintf(&b, "  %s -- %s%s;\n", from, to, style)
		})
	}
	b.WriteString("}\n")
	return b.String()
}

// fill is the colour of an LPU: green, red, or grey where its state is not known.
func fill(l *discovery.LPU) string {
	switch {
	case l.Absent || l.Health == discovery.HealthUnknown:
		return "#d0d7de"
	case l.Usable:
		return "#a7e3b4"
	}
	return "#ffb3b3"
}

// place is the NUMA node and the switch of an LPU, as far as they are known.
func (p *plan) place(l *discovery.LPU) string {
	place := p.switchName(l)
	if l.NUMANode != nil {
		place = strings.TrimSpace(fmt.Sprintf("NUMA %d %s", *l.NUMANode, place))
	}
	return place
}

// Sizes in the SVG, in pixels: an LPU, the space between two, what a switch is in words.
const (
	boxWidth, boxHeight     = 92.0, 46.0
	gap                     = 24.0
	legendWidth, lineHeight = 230.0, 16.0
)

// svg draws each ring as a circle, as many in a row as there are rows; then LPUs on none, and what the switches are.
func (p *plan) svg() string {
	var body strings.Builder
	x, y, width, height := gap, gap, 0.0, 0.0 // of the next ring, of all, of this row
	inRow := int(math.Ceil(math.Sqrt(float64(len(p.inv.Rings)))))
	for i, r := range p.inv.Rings {
		if i > 0 && i%inRow == 0 {
			x, y, height = gap, y+height, 0
		}
		radius := max(150, float64(len(r.Members))*(boxWidth+gap)/(2*math.Pi))
		side := 2*radius + boxWidth + gap
		p.circle(&body, r, x+side/2, y+side/2, radius)
		x, height = x+side, max(height, side)
		width = max(width, x)
	}
	y += height
	for i, name := range p.loose {
		column, row := float64(i%8), float64(i/8)
		p.box(&body, name, gap+boxWidth/2+column*(boxWidth+gap), y+boxHeight/2+row*(boxHeight+gap))
		width = max(width, gap+(column+1)*(boxWidth+gap))
	}
	y += float64((len(p.loose)+7)/8) * (boxHeight + gap)
	width = max(width, gap+legendWidth)
	columns := int(width / legendWidth)
	for i, s := range p.switches {
		if i%columns == 0 {
			y += lineHeight
		}
		fmt.Fprintf(&body, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"start\">S%d: PCIe switch %s</text>\n", gap+float64(i%columns)*legendWidth, y, i, s)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="sans-serif" font-size="12" text-anchor="middle">
<rect width="100%%" height="100%%" fill="white"/>
%s</svg>
`, width, y+gap, body.String())
}

func (p *plan) circle(b *strings.Builder, r discovery.Ring, x, y, radius float64) {
	at := map[string][2]float64{}
	for i, name := range r.Members {
		angle := 2*math.Pi*float64(i)/float64(len(r.Members)) - math.Pi/2
		at[name] = [2]float64{x + radius*math.Cos(angle), y + radius*math.Sin(angle)}
	}
	cables(r, func(from, to string) {
		style := `stroke="#57606a" stroke-width="3"`
		if r.Dead(from, to) {
			style = `stroke="#cf222e" stroke-width="3" stroke-dasharray="6 5"`
		}
		fmt.Fprintf(b, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", at[from][0], at[from][1], at[to][0], at[to][1], style)
	})
	for _, name := range r.Members {
		p.box(b, name, at[name][0], at[name][1])
	}
	// The cable of a ring of two passes behind the text.
	const halo = `stroke="white" stroke-width="10" paint-order="stroke"`
	fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"16\" %s>%s</text>\n<text x=\"%.1f\" y=\"%.1f\" fill=\"#57606a\" %s>%s</text>\n",
		x, y, halo, r.ID, x, y+20, halo, ringTitle(r))
}

func (p *plan) box(b *strings.Builder, name string, x, y float64) {
	l := p.byName[name]
	fmt.Fprintf(b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"92\" height=\"46\" rx=\"8\" fill=\"%s\" stroke=\"#57606a\"/>\n", x-46, y-23, fill(l))
	fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%.1f\" font-weight=\"bold\">%s</text>\n", x, y-8, name)
	fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"11\">%s</text>\n<text x=\"%.1f\" y=\"%.1f\" font-size=\"11\">%s</text>\n", x, y+6, l.Address, x, y+19, p.place(l))
}
