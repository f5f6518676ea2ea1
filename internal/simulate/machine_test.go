package simulate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func start(t *testing.T, n Node) *Machine {
	t.Helper()
	m, err := n.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// do fails the test if a step of a machine fails, and checks that the tree is whole afterwards.
func do(t *testing.T, m *Machine, step error) listing {
	t.Helper()
	if step != nil {
		t.Fatal(step)
	}
	tree := list(t, m.tree.root)
	checkLinks(t, tree)
	checkFunctions(t, tree)
	checkNodes(t, tree, m.DeviceNodes())
	return tree
}

// A change and its opposite leave the tree as it was, and the tree in between is like that of a node with the fault, where
// there is such a fault.
func TestChangesCanBeUndone(t *testing.T) {
	for _, profile := range []string{"orion", "bertha"} {
		n := Node{Profile: profile, LPUs: 3}
		withoutDriver := withFault(t, n, "unbound")
		for name, c := range map[string]struct {
			do, undo func(m *Machine) error
			between  listing
		}{
			"unplug": {do: func(m *Machine) error { return m.Unplug(1) }, undo: func(m *Machine) error { return m.Replug(1) }},
			"unbind": {
				do: func(m *Machine) error { return m.Unbind(1) }, undo: func(m *Machine) error { return m.Bind(1) }, between: withoutDriver,
			},
			"swap": {do: func(m *Machine) error { return m.SwapNodes(0, 2) }, undo: func(m *Machine) error { return m.SwapNodes(2, 0) }},
			"renumber": {
				do:   func(m *Machine) error { return m.Renumber(1, Numbers{10, 229}) },
				undo: func(m *Machine) error { return m.Renumber(1, m.originally(1)) },
			},
			"dead": {
				do: func(m *Machine) error { return m.AllOnes(1, true) }, undo: func(m *Machine) error { return m.AllOnes(1, false) },
				between: withFault(t, n, "all-ones"),
			},
			"asleep": {
				do:      func(m *Machine) error { return m.Power(1, "D3hot", "suspended") },
				undo:    func(m *Machine) error { return m.Power(1, "D0", "active") },
				between: withFault(t, n, "asleep"),
			},
			"a narrow link": {
				do: func(m *Machine) error { return m.LinkNow(1, 0, 4) }, undo: func(m *Machine) error { return m.LinkNow(1, 0, 16) },
				between: withFault(t, n, "link-x4"),
			},
			"errors, and another card": {
				do:   func(m *Machine) error { return m.CountErrors(1, "fatal", 7) },
				undo: func(m *Machine) error { return errors.Join(m.Unplug(1), m.Replug(1)) }, between: withFault(t, n, "aer-fatal"),
			},
			"reset behind the driver": {
				do:   func(m *Machine) error { return m.ResetBehindDriver(1) },
				undo: func(m *Machine) error { return errors.Join(m.Unbind(1), m.Bind(1)) }, between: withFault(t, n, "reset-behind-driver"),
			},
			"hot": {
				do:      func(m *Machine) error { return m.Set(1, "hwmon/temp1_input", "101000") },
				undo:    func(m *Machine) error { return m.Set(1, "hwmon/temp1_input", "41000") },
				between: withFault(t, n, "hot"),
			},
			"all at once, and another card": {
				do: func(m *Machine) error {
					return errors.Join(m.AllOnes(1, true), m.Power(1, "D3cold", "active"), m.ResetBehindDriver(1), m.CountErrors(1, "nonfatal", 1))
				},
				undo: func(m *Machine) error { return errors.Join(m.Unplug(1), m.Replug(1)) },
			},
			"swap while one is out": {
				do:   func(m *Machine) error { return errors.Join(m.Unplug(0), m.SwapNodes(0, 2), m.Unbind(2)) },
				undo: func(m *Machine) error { return errors.Join(m.Bind(2), m.SwapNodes(0, 2), m.Replug(0)) },
			},
		} {
			t.Run(profile+" "+name, func(t *testing.T) {
				m := start(t, n)
				before := do(t, m, nil)
				between := do(t, m, c.do(m))
				if len(changes(before, between)) == 0 {
					t.Error("nothing changed")
				}
				if c.between != nil {
					if diff := changes(withoutEmptyDrivers(c.between), withoutEmptyDrivers(between)); len(diff) > 0 {
						t.Errorf("not like a node with the fault: %v", diff)
					}
				}
				if diff := changes(before, do(t, m, c.undo(m))); len(diff) > 0 {
					t.Errorf("afterwards it differs: %v", diff)
				}
			})
		}
	}
}

// withFault is the tree of a node whose second LPU has a fault.
func withFault(t *testing.T, n Node, fault string) listing {
	t.Helper()
	n.Faults = []Fault{{fault, 1}}
	tree, _ := write(t, n)
	return tree
}

// originally are the numbers that an LPU has in a new tree.
func (m *Machine) originally(i int) Numbers {
	s, _ := m.server.server()
	return s.cards[i].node().numbers
}

// withoutEmptyDrivers leaves out drivers that no device has: they stay loaded when the last device goes.
func withoutEmptyDrivers(l listing) listing {
	kept := listing{}
	for p, what := range l {
		if !strings.HasPrefix(p, "sys/bus/platform/drivers/") || strings.HasPrefix(what, "-> ") {
			kept[p] = what
		}
	}
	return kept
}

func TestCardsOfAMachine(t *testing.T) {
	m := start(t, Node{Profile: "orion", LPUs: 3, Faults: []Fault{{"unbound", 2}}})
	want := Card{
		Address: at(0, 0x43, 0).Sibling(1), Dir: block + "/0000:41:00.0/0000:42:00.0/0000:43:00.1",
		Node: "/dev/dri/renderD131", Numbers: Numbers{226, 131}, Plugged: true, Bound: true,
	}
	if diff := gocmp.Diff(want, m.Card(0)); diff != "" {
		t.Error(diff)
	}
	do(t, m, m.Renumber(0, Numbers{226, 140}))
	want.Node, want.Numbers = "/dev/dri/renderD140", Numbers{226, 140}
	if diff := gocmp.Diff(want, m.Card(0)); diff != "" {
		t.Error(diff)
	}
	do(t, m, errors.Join(m.Unbind(0), m.Unplug(0)))
	want.Plugged, want.Bound = false, false
	if diff := gocmp.Diff(want, m.Card(0)); diff != "" {
		t.Error(diff)
	}
	if c := m.Card(2); c.Bound || c.Node != "" || !c.Plugged || m.LPUs() != 3 || m.Card(3) != (Card{}) {
		t.Errorf("%+v", c)
	}
}

// TestTakenNumbers: while a card is out another device may get its numbers. The card cannot come back with them then.
func TestTakenNumbers(t *testing.T) {
	for name, c := range map[string]struct{ out, in func(m *Machine) error }{
		"unplug": {func(m *Machine) error { return m.Unplug(0) }, func(m *Machine) error { return m.Replug(0) }},
		"unbind": {func(m *Machine) error { return m.Unbind(0) }, func(m *Machine) error { return m.Bind(0) }},
	} {
		m := start(t, Node{Profile: "lpu", LPUs: 2})
		numbers := m.Card(0).Numbers
		before := do(t, m, nil)
		refused := func(step error) {
			t.Helper()
			want := fmt.Sprintf("device numbers %s are those of", numbers)
			if _, ok := errors.AsType[*InvalidError](step); !ok || !strings.Contains(step.Error(), want) {
				t.Errorf("%s: error %v", name, step)
			}
		}
		refused(m.Renumber(1, numbers))
		if diff := changes(before, do(t, m, nil)); len(diff) > 0 {
			t.Errorf("%s: a change that is refused leaves %v", name, diff)
		}
		out := do(t, m, errors.Join(c.out(m), m.Renumber(1, numbers)))
		refused(c.in(m))
		if diff := changes(out, do(t, m, nil)); len(diff) > 0 {
			t.Errorf("%s: a change that is refused leaves %v", name, diff)
		}
		do(t, m, errors.Join(m.Renumber(0, Numbers{511, 9}), c.in(m)))
	}
}

func TestHiddenAttributes(t *testing.T) {
	m := start(t, Node{Profile: "orion", LPUs: 2})
	before := do(t, m, nil)
	hide := errors.Join(m.Hide(1, "vendor", "uevent"), m.Hide(1, "vendor", "class", "enable"))
	if err := errors.Join(hide, m.Unbind(1), m.Bind(1), m.LinkNow(1, 3, 16)); err != nil {
		t.Fatal(err)
	}
	lpu := m.Card(1).Dir
	var hidden []string
	for _, change := range changes(before, list(t, m.tree.root)) {
		hidden = append(hidden, strings.Fields(change)[0])
	}
	want := []string{"~" + lpu + "/class", "~" + lpu + "/enable", "~" + lpu + "/uevent", "~" + lpu + "/vendor"}
	if !slices.Equal(hidden, want) {
		t.Errorf("%q, want %q", hidden, want)
	}
	if diff := changes(before, do(t, m, m.Show(1))); len(diff) > 0 {
		t.Errorf("after Show it differs: %v", diff)
	}
	do(t, m, errors.Join(m.Hide(1, "vendor"), m.Unplug(1), m.Replug(1)))
}

func TestImpossibleChanges(t *testing.T) {
	m := start(t, Node{Profile: "lpu", LPUs: 3, Faults: []Fault{{"unbound", 1}, {"two-nodes", 2}}})
	for want, got := range map[string]error{
		"there is no LPU 3":       m.Unplug(3),
		"there is no LPU -1":      m.Replug(-1),
		"LPU 0 is plugged":        m.Replug(0),
		"LPU 1 has no driver":     m.Unbind(1),
		"LPU 1 is not unbound":    m.Bind(1),
		"LPU 1 has no node":       m.Renumber(1, Numbers{1, 3}),
		"LPU 0 and LPU 2 do not ": m.SwapNodes(0, 2),
		"LPU 1 has no driver\nLPU 0 has no attribute hwmon/temp1_input\nLPU 0 has no attribute state": errors.Join(
			m.Set(1, "ready", "0"), m.Set(0, "hwmon/temp1_input", "0"), m.Set(0, "state", "ok")),
		"there is no LPU 4":                    m.AllOnes(4, true),
		"LPU 1 has no node\nthere is no LPU 7": m.SwapNodes(1, 7),
	} {
		if got == nil || !strings.HasPrefix(got.Error(), want) {
			t.Errorf("error %v, want %s", got, want)
		}
	}
	if err := m.Unplug(0); err != nil {
		t.Fatal(err)
	}
	for want, got := range map[string]error{
		"LPU 0 is not plugged": errors.Join(m.Unplug(0), m.Hide(0, "vendor"), m.Show(0)),
		"LPU 0 has no driver":  m.Unbind(0),
		"LPU 0 is not unbound": m.Bind(0),
	} {
		if got == nil || !strings.HasPrefix(got.Error(), want) {
			t.Errorf("error %v, want %s", got, want)
		}
	}
}
