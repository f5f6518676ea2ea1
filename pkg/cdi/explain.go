package cdi

import (
	"slices"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Explanation is what a container gets with some devices of a spec, injected in the order given.
type Explanation struct {
	Devices []string `json:"devices"` // qualified names
	LPUs    []string `json:"lpus"`    // that the container gets, each once
	Edits
	Collisions []Collision `json:"collisions"`
	// Use are the devices to name instead, qualified, and Env the variables to set besides: the same LPUs without a collision. Where
	// there is none, Use is Devices.
	Use    []string   `json:"use"`
	UseEnv []Variable `json:"useEnv"`
}

// Collision is a variable that several of the devices set differently. The container gets the last value.
type Collision struct {
	Variable string       `json:"variable"`
	Values   []SetByValue `json:"values"` // in the order of the devices
}

// SetByValue is the value that one device gives a variable.
type SetByValue struct {
	Device string `json:"device"` // without the kind
	Value  string `json:"value"`
}

// Explain says what a container gets with devices, which are named as [DeviceNames] reads them, of a spec made now.
func Explain(inv *discovery.Inventory, o Options, words []string) (*Explanation, error) {
	lpus, _ := withNodes(inv.LPUs)
	d := devicesOf(inv, lpus, o)
	names, err := d.names(inv, o.kind(), words)
	if err != nil {
		return nil, err
	}
	m := merger{Explanation: Explanation{
		Edits: Edits{Nodes: []Node{}, Mounts: []Mount{}, Env: []Variable{}}, LPUs: []string{}, Collisions: []Collision{}, UseEnv: []Variable{},
	}, setBy: map[string]string{}}
	m.add("", d.common)
	for _, name := range names {
		m.Devices = append(m.Devices, o.kind()+"="+name)
		c := d.find(name)
		m.add(name, c.Edits)
		for _, l := range c.lpus {
			if !slices.Contains(m.cards, l.Index) {
				m.cards, m.LPUs = append(m.cards, l.Index), append(m.LPUs, l.Name)
			}
		}
	}
	m.advise(inv, o.kind())
	return &m.Explanation, nil
}

// merger injects devices one after the other, as runtimes do.
type merger struct {
	Explanation

	cards []int             // of LPUs
	setBy map[string]string // variable: the device that set it last
}

func (m *merger) add(device string, e Edits) {
	for _, n := range e.Nodes {
		if !slices.ContainsFunc(m.Nodes, func(have Node) bool { return have.Path == n.Path }) {
			m.Nodes = append(m.Nodes, n)
		}
	}
	for _, mount := range e.Mounts {
		m.addMount(mount)
	}
	for _, v := range e.Env {
		m.set(device, v)
	}
}

func (m *merger) set(device string, v Variable) {
	i := slices.IndexFunc(m.Env, func(have Variable) bool { return have.Name == v.Name })
	if i < 0 {
		m.Env = append(m.Env, v)
		m.setBy[v.Name] = device
		return
	}
	if m.Env[i].Value != v.Value {
		m.collide(m.Env[i], device, v)
	}
	m.Env[i], m.setBy[v.Name] = v, device
}

// collide notes that a device gives a variable another value than those before it.
func (m *merger) collide(before Variable, device string, now Variable) {
	i := slices.IndexFunc(m.Collisions, func(c Collision) bool { return c.Variable == now.Name })
	if i < 0 {
		i = len(m.Collisions)
		m.Collisions = append(m.Collisions, Collision{now.Name, []SetByValue{{m.setBy[now.Name], before.Value}}})
	}
	m.Collisions[i].Values = append(m.Collisions[i].Values, SetByValue{device, now.Value})
}

// advise finds devices of the same LPUs that do not collide: one that covers them all, else the building blocks with the
// variables that would list them.
func (m *merger) advise(inv *discovery.Inventory, kind string) {
	m.Use = m.Devices
	if len(m.Collisions) == 0 {
		return
	}
	f := inv.Fabric()
	inRing, variables := Container(inv, f, m.cards)
	ordered := make([]int, len(inRing))
	for i, l := range inRing {
		ordered[i] = l.Index
	}
	if name := NameOf(inv, ordered); name != "" {
		m.Use = []string{kind + "=" + name}
		return
	}
	m.Use, m.UseEnv = nil, variables
	for _, l := range inRing {
		m.Use = append(m.Use, kind+"="+AddressName(l.Address))
	}
}
