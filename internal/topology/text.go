package topology

import (
	"fmt"
	"strings"
)

// text collects the lines of a drawing for a terminal.
type text struct {
	strings.Builder
	state int // columns of the widest state
}

// Text returns the drawing for a terminal. Each ring is a ladder: it goes down on the
// left side, and up on the right side.
func (s *Scene) Text() string {
	t := &text{state: 10}
	for _, n := range s.nodes {
		t.state = max(t.state, len(n.State())+1)
	}
	for _, g := range s.groups {
		fmt.Fprintln(t, g.title)
		if g.cabled() {
			t.ladder(g.members)
		} else {
			for _, n := range g.members {
				fmt.Fprintf(t, "  %s\n", t.label(n))
			}
		}
		fmt.Fprintln(t)
	}
	for i, a := range s.switches {
		fmt.Fprintf(t, "S%d: PCIe switch %s\n", i, a)
	}
	return t.String()
}

// label returns the text of an LPU: name, state, NUMA node, switch.
func (t *text) label(n *node) string {
	return strings.TrimRight(fmt.Sprintf("%-7s%-*s%-8s%s", n.Name, t.state, n.State(), n.numaName, n.behind), " ")
}

func (t *text) ladder(ring []*node) {
	width := 19 + t.state // of a label
	for left, right := 0, len(ring)-1; left <= right; left, right = left+1, right-1 {
		a, b := ring[left], ring[right]
		label := t.label(a)
		pad := max(0, width-len(label))
		if a == b { // the foot of an odd ring
			fmt.Fprintf(t, "  %s %s┘\n", label, strings.Repeat("─", pad+10))
			return
		}
		bar, middle := " ", "        "
		for _, n := range [2]*node{a, b} { // the foot, or the cable that closes the ring
			if n.next == a || n.next == b {
				bar, middle = "─", n.wire("────────", "───╳╳───")
			}
		}
		fmt.Fprintf(t, "  %s %s%s %s\n", label, strings.Repeat(bar, pad), middle, t.label(b))
		if right > left+1 {
			fmt.Fprintf(t, "   %s%*s%s\n", a.wire("│", "╳"), width+9, "", ring[right-1].wire("│", "╳"))
		}
	}
}

// wire returns the drawing of the cable to the next LPU, whether it is alive or dead.
func (n *node) wire(alive, dead string) string {
	if n.dead {
		return dead
	}
	return alive
}
