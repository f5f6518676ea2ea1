package cdi

import (
	"cmp"
	"slices"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Explanation is what a container gets with some devices of a spec, injected in the order
// given.
type Explanation struct {
	Devices []string `json:"devices"` // qualified names
	LPUs    []string `json:"lpus"`    // that the container gets, each once
	Edits
	Collisions []Collision `json:"collisions"`
	// Use are the devices to name instead, qualified, and UseEnv the variables to set
	// besides: the same LPUs without a collision. Where there is nothing better, Use is
	// Devices.
	Use    []string   `json:"use"`
	UseEnv []Variable `json:"useEnv"`
	// UseTable is the ring table to mount besides; nil: Use has the right one, or there
	// is none.
	UseTable *RingTable `json:"useTable,omitempty"`
	// WrongTable says that the container has several LPUs and does not get the ring table
	// of these: a program in it reads that of some of them, or the host's, which counts
	// LPUs in another way.
	WrongTable bool `json:"wrongTable,omitempty"`
	// Wanted is the ring table of all LPUs of the container; nil: there is none.
	Wanted *RingTable `json:"-"`
	// Meanings are those of the variables in Env and UseEnv.
	Meanings []Meaning `json:"meanings"`
}

// Collision is a variable that several of the devices set differently, or a list of LPUs
// that misses some of the container's. The container gets the last value.
type Collision struct {
	Variable string       `json:"variable"`
	Values   []SetByValue `json:"values"` // in the order of the devices
}

// SetByValue is the value that one device gives a variable.
type SetByValue struct {
	Device string `json:"device"` // without the kind
	Value  string `json:"value"`
}

// Explain says what a container gets with devices of a spec made now. Words name them: a
// device, or an LPU as [discovery.Inventory.Resolve] reads it.
func Explain(inv *discovery.Inventory, o Options, words []string) (*Explanation, error) {
	return explain(inv, o, words, false)
}

// Apart is Explain, with a device for each LPU to use: for when the spec in place brings
// another ring table with the device that covers them.
func Apart(inv *discovery.Inventory, o Options, words []string) (*Explanation, error) {
	return explain(inv, o, words, true)
}

func explain(inv *discovery.Inventory, o Options, words []string, apart bool) (*Explanation, error) {
	d, err := devicesOf(inv, o)
	if err != nil {
		return nil, err
	}
	names, err := d.names(words)
	if err != nil {
		return nil, err
	}
	e, cards := d.inject(names)
	if apart || len(e.Collisions) > 0 || e.WrongTable {
		d.advise(e, cards, apart)
	}
	e.Meanings = meaningsOf(slices.Concat(e.Env, e.UseEnv))
	return e, nil
}

// BringsTable reports whether a device in the bytes of a spec brings a ring table. It
// does if there is no such device: then no container starts with it.
func BringsTable(spec []byte, name string, table *RingTable) bool {
	devices := Devices(spec)
	i := slices.IndexFunc(devices, sameName(name))
	return i < 0 || table != nil && tableOf(devices[i]) == table.HostPath
}

// inject adds devices one after the other, as the CDI library does, and returns the LPUs
// of the container by position.
func (d *devices) inject(names []string) (e *Explanation, cards []int) {
	e = &Explanation{
		Edits: PartOf(d.inv, nil, d.Options), LPUs: []string{}, Collisions: []Collision{}, UseEnv: []Variable{},
	}
	e.merge(d.common)
	values := map[string][]SetByValue{} // of each variable
	for _, name := range names {
		c := d.find(name)
		e.Devices = append(e.Devices, d.kind()+"="+name)
		for _, card := range c.cards {
			if !slices.Contains(cards, card) {
				cards, e.LPUs = append(cards, card), append(e.LPUs, d.inv.LPUs[card].Name)
			}
		}
		e.merge(c.Edits)
		for _, v := range c.Env {
			values[v.Name] = append(values[v.Name], SetByValue{name, v.Value})
		}
	}
	for _, v := range e.Env {
		set := values[v.Name]
		differ := slices.ContainsFunc(set, func(s SetByValue) bool { return s.Value != set[0].Value })
		misses := (v.Name == visibleDevices || v.Name == ringOrder) && len(d.find(set[len(set)-1].Device).cards) < len(cards)
		if differ || misses {
			e.Collisions = append(e.Collisions, Collision{v.Name, set})
		}
	}
	e.Use = e.Devices
	e.Wanted = ringTable(d.inv, cards, d.Options)
	e.WrongTable = e.Wanted != nil && len(cards) > 1 && (e.Table == nil || e.Table.HostPath != e.Wanted.HostPath)
	return e, cards
}

// merge adds the edits of one more device: a node or a mount takes the place of an
// earlier one on its path, and a variable that of an earlier one of its name.
func (e *Edits) merge(more Edits) {
	for _, n := range more.Nodes {
		e.Nodes = append(slices.DeleteFunc(e.Nodes, func(have Node) bool { return have.Path == n.Path }), n)
	}
	for _, m := range more.Mounts {
		e.Mounts = append(slices.DeleteFunc(e.Mounts, func(have Mount) bool { return have.ContainerPath == m.ContainerPath }), m)
	}
	e.Table = cmp.Or(more.Table, e.Table)
	for _, v := range more.Env {
		if i := slices.IndexFunc(e.Env, func(have Variable) bool { return have.Name == v.Name }); i >= 0 {
			e.Env[i] = v
		} else {
			e.Env = append(e.Env, v)
		}
	}
}

// advise names devices of the same LPUs that do not collide: one that covers them all,
// else one for each with the variables and the ring table that describe them as a whole.
// It takes one for each in any case if apart is set. There are none where the models of
// the LPUs set a variable differently.
func (d *devices) advise(e *Explanation, cards []int, apart bool) {
	inRing, variables := Container(d.inv, d.inv.Cabled(), cards)
	names := []string{d.covering(cards)}
	if names[0] != "" && !apart {
		variables = []Variable{}
	} else {
		names = nil
		for _, l := range inRing {
			names = append(names, AddressName(l.Address))
		}
	}
	if better, _ := d.inject(names); len(better.Collisions) == 0 {
		e.Use, e.UseEnv = better.Devices, d.besidesCommon(variables)
		if better.WrongTable || apart {
			e.UseTable = e.Wanted
		}
	}
}
