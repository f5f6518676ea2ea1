package plan

import (
	"slices"
	"strconv"
	"strings"
)

// marks are what stands below an LPU in a drawing.
func marks() map[LPUState]string {
	return map[LPUState]string{Given: "*", Held: "#", Tainted: "x", Free: "."}
}

// row is how many LPUs stand beside each other in a drawing.
const row = 16

// Text draws the ring for a terminal: its LPUs in the order of the cables, and below each what it is.
func (r *Ring) Text() string {
	var b strings.Builder
	indent := strings.Repeat(" ", len(r.Name)+2)
	for n, lpus := range slices.Collect(slices.Chunk(r.LPUs, row)) {
		first, last := n == 0, (n+1)*row >= len(r.LPUs)
		names, states := indent, indent
		switch {
		case first && r.Closed:
			names = r.Name + "  ╭─"
		case first:
			names = r.Name + "    "
		default:
			names += "──"
		}
		states += "  "
		for i := range lpus {
			l := &lpus[i]
			name, wire := l.name(), "──"
			switch {
			case l.Dead:
				wire = "╳╳"
			case last && i == len(lpus)-1 && r.Closed:
				wire = "─╮"
			case last && i == len(lpus)-1:
				wire = ""
			}
			if last && i == len(lpus)-1 && l.Dead {
				wire = "╳╮"
			}
			names += name + wire
			states += marks()[l.State] + strings.Repeat(" ", len(name)+1)
		}
		b.WriteString(names + "\n" + strings.TrimRight(states, " ") + "\n")
	}
	return b.String()
}

// name is the index of the LPU, or its address without the domain.
func (l *RingLPU) name() string {
	if l.Index != nil {
		return strconv.Itoa(*l.Index)
	}
	return strings.TrimPrefix(l.Address, "0000:")
}

// Legend explains the marks of drawings: those that are in them.
func Legend(rings []Ring) string {
	words := []struct {
		state LPUState
		word  string
	}{{Given, "given"}, {Free, "free"}, {Held, "a claim has it"}, {Tainted, "tainted"}}
	var parts []string
	for _, w := range words {
		has := slices.ContainsFunc(rings, func(r Ring) bool {
			return slices.ContainsFunc(r.LPUs, func(l RingLPU) bool { return l.State == w.state })
		})
		if has {
			parts = append(parts, marks()[w.state]+" "+w.word)
		}
	}
	if slices.ContainsFunc(rings, func(r Ring) bool { return slices.ContainsFunc(r.LPUs, func(l RingLPU) bool { return l.Dead }) }) {
		parts = append(parts, "╳ dead cable")
	}
	return strings.Join(parts, ", ")
}
