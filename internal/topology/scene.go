// Package topology draws how the LPUs of a node are connected. An inventory becomes one
// scene. The drawing for the terminal, the matrix, the graph for Graphviz and the SVG are
// views of that scene, so they cannot contradict each other. For JSON the inventory
// itself has the same facts.
//
// The package is pure: it reads no file and prints nothing.
package topology

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Scene is the LPUs of an inventory, the cables between them, and the position of each in
// a picture.
type Scene struct {
	nodes         []*node // in the order of the inventory
	groups        []*group
	switches      []pci.Address // S0, S1, ... in the order of the first LPU behind each
	width, height float64       // of all groups, in pixels
}

// node is one LPU, and the cable from it to the next LPU of its ring or chain. A text is
// empty if the kernel does not report the value.
type node struct {
	*discovery.LPU
	numa, port       string  // "0", "0000:41:00.0"
	numaName, behind string  // "NUMA 0", "S0"
	next             *node   // nil if no cable leads on
	dead             bool    // the cable to next: one of the two is not usable
	x, y             float64 // of the centre
}

// group is a ring, a chain, or the LPUs that are on neither.
type group struct {
	title   string
	members []*node
	x, y    float64 // the middle of the title's baseline
}

// cabled reports whether the members are a ring or a chain.
func (g *group) cabled() bool { return g.members[0].next != nil }

// New returns the scene of an inventory.
func New(inv *discovery.Inventory) *Scene {
	s := &Scene{}
	loose := &group{title: "not on a ring"}
	if inv.RingTable == nil {
		loose.title = "no ring table: which LPUs are neighbours is not known (see lpuctl ring install)"
	}
	byName := map[string]*node{}
	for i := range inv.LPUs {
		n := s.newNode(&inv.LPUs[i])
		s.nodes = append(s.nodes, n)
		byName[n.Name] = n
		if n.Ring == nil {
			loose.members = append(loose.members, n)
		}
	}
	for _, r := range inv.Rings {
		s.groups = append(s.groups, newGroup(r, byName))
	}
	if len(loose.members) > 0 {
		s.groups = append(s.groups, loose)
	}
	s.arrange()
	return s
}

func (s *Scene) newNode(l *discovery.LPU) *node {
	n := &node{LPU: l}
	if l.NUMANode != nil {
		n.numa = fmt.Sprint(*l.NUMANode)
		n.numaName = "NUMA " + n.numa
	}
	if l.Switch != nil {
		i := slices.Index(s.switches, *l.Switch)
		if i < 0 {
			i = len(s.switches)
			s.switches = append(s.switches, *l.Switch)
		}
		n.port, n.behind = l.Switch.String(), fmt.Sprintf("S%d", i)
	}
	return n
}

// lines returns the text of a box in a picture.
func (n *node) lines() []string {
	lines := []string{n.Name, n.Address.String(), n.State()}
	if location := strings.TrimSpace(n.numaName + " " + n.behind); location != "" {
		lines = append(lines, location)
	}
	return lines
}

func newGroup(r discovery.Ring, byName map[string]*node) *group {
	n, kind := len(r.Members), "chain"
	if r.Closed {
		kind = "ring"
	}
	g := &group{title: fmt.Sprintf("%s: %s of %d LPUs", r.ID, kind, n)}
	for i, name := range r.Members {
		m := byName[name]
		g.members = append(g.members, m)
		if i+1 < n || r.Closed && n > 2 { // a ring of two has one cable
			next := r.Members[(i+1)%n]
			m.next, m.dead = byName[next], r.Dead(name, next)
		}
	}
	return g
}
