package topology

import (
	"fmt"
	"math"
)

// MatrixLegend explains the words of the matrix.
const MatrixLegend = `
X     itself
Rn    over n cables of the ring, none of them dead; R1 are neighbours
PSW   no way over the ring; same PCIe switch
NODE  no way over the ring; same NUMA node
SYS   no way over the ring; across NUMA nodes, or unknown
`

// Matrix returns a table of how any two LPUs reach each other, like nvidia-smi topo -m. A
// cell is empty if the kernel does not report the value.
func (s *Scene) Matrix() (header []string, rows [][]string) {
	header = []string{""}
	for _, from := range s.nodes {
		header = append(header, from.Name)
		row := []string{from.Name}
		for _, to := range s.nodes {
			row = append(row, relation(from, to))
		}
		rows = append(rows, append(row, from.numa, from.port))
	}
	return append(header, "NUMA", "SWITCH"), rows
}

// relation names the shortest way from one LPU to another, in the words of MatrixLegend.
func relation(a, b *node) string {
	switch hops := min(walk(a, b), walk(b, a)); {
	case hops == 0:
		return "X"
	case hops < noWay:
		return fmt.Sprintf("R%d", hops)
	case a.port != "" && a.port == b.port:
		return "PSW"
	case a.numa != "" && a.numa == b.numa:
		return "NODE"
	}
	return "SYS"
}

// noWay is more cables than any way has.
const noWay = math.MaxInt

// walk counts the cables from one LPU to another in the order of the ring. It is noWay if
// a dead or missing one is between them, or if it comes back to where it started.
func walk(from, to *node) int {
	hops := 0
	for at := from; at != to; at = at.next {
		if at.next == nil || at.dead || at.next == from {
			return noWay
		}
		hops++
	}
	return hops
}
