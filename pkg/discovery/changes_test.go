package discovery_test

import (
	"errors"
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/simulate"
)

// machine starts a simulated node that can change, and returns its root too.
func machine(t *testing.T, node simulate.Node) (*simulate.Machine, string) {
	t.Helper()
	root := t.TempDir()
	m, err := node.Start(root)
	if err != nil {
		t.Fatal(err)
	}
	return m, root
}

func must(t *testing.T, steps ...error) {
	t.Helper()
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
}

// expectNodes checks that each LPU has the node that its card has, and none else, verified where there is a /dev.
func expectNodes(t *testing.T, m *simulate.Machine, inv *discovery.Inventory) {
	t.Helper()
	for _, l := range inv.LPUs {
		c := m.Card(l.Index)
		want := discovery.Node{Path: c.Node, Major: c.Numbers.Major, Minor: c.Numbers.Minor, Verified: m.DeviceNodes()}
		if l.Address != c.Address || len(l.Nodes) != 1 || l.Nodes[0] != want {
			t.Errorf("%s %s has %+v, its card has %+v", l.Name, l.Address, l.Nodes, want)
		}
	}
}

// TestSwappedNodes: every profile's nodes are followed when drivers give them to other cards.
func TestSwappedNodes(t *testing.T) {
	for _, profile := range []string{"orion", "lpu", "edge"} {
		m, root := machine(t, simulate.Node{Profile: profile, LPUs: 3})
		expectNodes(t, m, scan(t, root, discovery.Options{}))
		must(t, m.SwapNodes(0, 2))
		expectNodes(t, m, scan(t, root, discovery.Options{}))
		must(t, m.Renumber(1, simulate.Numbers{Major: 10, Minor: 229}))
		expectNodes(t, m, scan(t, root, discovery.Options{}))
	}
}

// TestAPathRuleThatGuesses: a rule that counts gives cards the nodes of others. Without /dev nobody can tell; with it no
// node is handed out that is not the card's.
func TestAPathRuleThatGuesses(t *testing.T) {
	m, root := machine(t, simulate.Node{Profile: "orion"})
	models := discovery.MergeModels(discovery.BuiltinModels(), []discovery.Model{
		{Name: "orion-u55c", Nodes: []string{"path:/dev/dri/renderD13{index}"}},
	})
	inv := scan(t, root, discovery.Options{Models: models})
	for _, l := range inv.LPUs {
		right := m.Card(l.Index).Node == "/dev/dri/renderD13"+string('0'+rune(l.Index))
		if got := len(l.Nodes) == 1; m.DeviceNodes() && (got != right || l.Usable != right) || !m.DeviceNodes() && (!got || l.Nodes[0].Verified) {
			t.Errorf("%s: node %+v, its card has %s, reasons %v", l.Name, l.Nodes, m.Card(l.Index).Node, l.Reasons)
		}
	}
}
