package topology

import (
	"fmt"
	"strings"
)

// Dot returns the scene as a graph for Graphviz, with the positions of the SVG. They are
// in points, and y grows upwards.
func (s *Scene) Dot() string {
	var b strings.Builder
	fmt.Fprintf(&b, "graph lpus {\n  layout=neato; inputscale=72; node [shape=box, width=%.2f, height=%.2f, fontname=sans, fontsize=%g];\n",
		boxWidth/72, boxHeight/72, textSize)
	for _, n := range s.nodes {
		k := n.look()
		fmt.Fprintf(&b, "  %s [label=%q, pos=\"%.0f,%.0f!\", style=\"rounded,filled,%s\", fillcolor=%q];\n",
			n.Name, strings.Join(n.lines(), "\n"), n.x, -n.y, k.border, k.fill)
		if n.next != nil {
			fmt.Fprintf(&b, "  %s -- %s%s;\n", n.Name, n.next.Name, n.wire("", " [style=dashed, color=red, penwidth=2]"))
		}
	}
	for i, g := range s.groups {
		fmt.Fprintf(&b, "  title%d [label=%q, pos=\"%.0f,%.0f!\", shape=plaintext, height=0];\n", i, g.title, g.x, -g.y)
	}
	return b.String() + "}\n"
}
