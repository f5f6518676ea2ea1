package dra

import (
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// gone is the index of an LPU that is not in the machine.
const gone = -1

// state is what must outlive the process, so that no device disappears that a claim may
// have.
type state struct {
	statefile.Header
	Layout layout              `json:"layout"`
	Sets   map[pci.Address]int `json:"sets"` // the counter set of each LPU
	// Devices are those of the layout in order, then those of former ones.
	Devices []published `json:"devices"`
	Causes  []cause     `json:"causes"`

	noExecute bool                 // unhealthy LPUs are tainted so
	claimed   map[pci.Address]bool // LPUs that prepared claims have
}

// published is a device that claims may have.
type published struct {
	Name    string        `json:"name"`
	Members []pci.Address `json:"members"`
	// Former is since when it is of a former cabling; zero: it is of this one.
	Former time.Time `json:"former,omitzero"`
}

func (d *published) former() bool { return !d.Former.IsZero() }

// formerFor is how long a device of a former cabling stays, so that claims that were
// given it become known, and its LPUs are not given to others meanwhile.
const formerFor = 10 * time.Minute

// next is the state after an inventory, with the causes of taints as they were. prepared
// are the devices of prepared claims.
func (s *state) next(inv *discovery.Inventory, o *Options, prepared map[string][]pci.Address, at time.Time) *state {
	var sockets map[int]int
	if o.Sockets != nil {
		sockets = o.Sockets(inv)
	}
	n := &state{Layout: s.Layout.next(inv, sockets), Causes: s.Causes, claimed: map[pci.Address]bool{}}
	for _, members := range prepared {
		for _, m := range members {
			n.claimed[m] = true
		}
	}
	current := map[string]bool{}
	for _, group := range n.Layout.devices(o) {
		for _, d := range group {
			current[d.name] = true
			n.Devices = append(n.Devices, published{Name: d.name, Members: d.members})
		}
	}
	formers := slices.DeleteFunc(slices.Clone(s.Devices), func(d published) bool { return current[d.Name] })
	for name, members := range prepared {
		known := slices.ContainsFunc(formers, func(d published) bool { return d.Name == name })
		if !known && !current[name] && len(members) > 0 { // the memory was lost
			formers = append(formers, published{Name: name, Members: members})
		}
	}
	for _, d := range formers {
		if d.Former.IsZero() || d.Former.After(at) { // after: the clock was set back
			d.Former = at
		}
		if prepared[d.Name] != nil || at.Sub(d.Former) < formerFor {
			n.Devices = append(n.Devices, d)
		}
	}
	first := len(current)
	slices.SortFunc(n.Devices[first:], func(a, b published) int { return strings.Compare(a.Name, b.Name) })
	n.Sets = n.Layout.assign(s.Sets, n.Devices[first:])
	return n
}

// again is when the state changes though the node does not: a taint ends, or a device of
// a former cabling. 0: it does not.
func (s *state) again(at time.Time) (again time.Duration) {
	sooner := func(in time.Duration) {
		if in = max(in, lookMin); again == 0 || in < again {
			again = in
		}
	}
	for _, c := range s.Causes {
		if !c.Ended.IsZero() {
			sooner(c.Ended.Add(linger).Sub(at))
		}
	}
	for _, d := range s.Devices {
		if d.former() {
			sooner(d.Former.Add(formerFor).Sub(at))
		}
	}
	return again
}

// lookMin is how soon another look can be worth it: a device of a former cabling stays as
// long as a claim has it.
const lookMin = time.Second
