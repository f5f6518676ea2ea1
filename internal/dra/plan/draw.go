package plan

import (
	"slices"
	"strconv"
	"strings"
)

// marks are what stands below an LPU in a drawing, one character, and what that means.
func marks() map[LPUState]string {
	return map[LPUState]string{Given: "* given", Held: "# a claim has it", Tainted: "x tainted", Free: ". free"}
}

// row is how many LPUs stand beside each other in a drawing.
const row = 16

// Text draws the ring for a terminal: its LPUs in the order of the cables, and below each
// what it is.
func (r *Ring) Text() string {
	var b strings.Builder
	indent := strings.Repeat(" ", len(r.Name)+2)
	for n, lpus := range slices.Collect(slices.Chunk(r.LPUs, row)) {
		names, states := indent+"──", indent+"  "
		switch {
		case n == 0 && r.Closed:
			names = r.Name + "  ╭─"
		case n == 0:
			names = r.Name + "    "
		}
		for i := range lpus {
			l := &lpus[i]
			name, wire := l.name(), "──"
			last := n*row+i == len(r.LPUs)-1
			switch {
			case last && l.Dead:
				wire = "╳╮"
			case l.Dead:
				wire = "╳╳"
			case last && r.Closed:
				wire = "─╮"
			case last:
				wire = ""
			}
			names += name + wire
			states += marks()[l.State][:1] + strings.Repeat(" ", len(name)+1)
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
	var all []RingLPU
	for _, r := range rings {
		all = append(all, r.LPUs...)
	}
	var parts []string
	for _, state := range []LPUState{Given, Free, Held, Tainted} {
		if slices.ContainsFunc(all, func(l RingLPU) bool { return l.State == state }) {
			parts = append(parts, marks()[state])
		}
	}
	if slices.ContainsFunc(all, func(l RingLPU) bool { return l.Dead }) {
		parts = append(parts, "╳ dead cable")
	}
	return strings.Join(parts, ", ")
}
