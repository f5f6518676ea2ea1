package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// board is what a node has, and who has it.
type board struct {
	node     string
	problems []string // pools that the allocator passes over
	devices  []*piece
	lpus     map[pci.Address]*lpu
}

// piece is a device of the node, in the order in which the allocator takes devices.
type piece struct {
	*resourceapi.Device
	driver, pool string
	members      []pci.Address
	holders      []string // claims that have an LPU of it, or the device itself; sorted
}

// lpu is what the slices tell of one.
type lpu struct {
	pci.Address
	index   *int     // as lpuctl list has it; nil if the slices do not say
	ring    string   // "" if it is on none
	at      int      // its position there
	holders []string // claims that have it; sorted
	taints  []resourceapi.DeviceTaint
}

// board reads the slices of a node. Of a pool only the newest generation counts, and only
// if it is whole.
func (c *cluster) board(node string) *board {
	b := &board{node: node, lpus: map[pci.Address]*lpu{}}
	pools := map[string][]*resourceapi.ResourceSlice{}
	for _, s := range c.slices {
		if s.Spec.NodeName != nil && *s.Spec.NodeName == node {
			pool := s.Spec.Driver + "/" + s.Spec.Pool.Name
			pools[pool] = append(pools[pool], s)
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		b.addPool(pool, pools[pool])
	}
	c.setHolders(b)
	return b
}

func (b *board) addPool(pool string, all []*resourceapi.ResourceSlice) {
	newest := slices.MaxFunc(all, func(a, b *resourceapi.ResourceSlice) int {
		return cmp.Compare(a.Spec.Pool.Generation, b.Spec.Pool.Generation)
	}).Spec.Pool
	all = slices.DeleteFunc(all, func(s *resourceapi.ResourceSlice) bool { return s.Spec.Pool.Generation != newest.Generation })
	if int64(len(all)) != newest.ResourceSliceCount {
		b.problems = append(b.problems, fmt.Sprintf("the pool %s is incomplete: %d of %d slices of its generation %d are here",
			pool, len(all), newest.ResourceSliceCount, newest.Generation))
		return
	}
	slices.SortFunc(all, func(a, b *resourceapi.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range all {
		for i := range s.Spec.Devices {
			b.addDevice(s, &s.Spec.Devices[i])
		}
	}
}

func (b *board) addDevice(s *resourceapi.ResourceSlice, d *resourceapi.Device) {
	p := &piece{Device: d, driver: s.Spec.Driver, pool: s.Spec.Pool.Name}
	b.devices = append(b.devices, p)
	if p.driver != driver {
		return
	}
	p.members = dra.MembersOf(d)
	for _, m := range p.members {
		if b.lpus[m] == nil {
			b.lpus[m] = &lpu{Address: m}
		}
	}
	if len(p.members) == 1 {
		l := b.lpus[p.members[0]]
		l.taints = d.Taints
		if index, err := strconv.Atoi(textOf(d, "lpus")); err == nil {
			l.index = &index
		}
		l.ring = textOf(d, "ring")
		if at := d.Attributes["start"].IntValue; at != nil {
			l.at = int(*at)
		}
	}
}

func textOf(d *resourceapi.Device, name resourceapi.QualifiedName) string {
	if text := d.Attributes[name].StringValue; text != nil {
		return *text
	}
	return ""
}

// setHolders says who has what. A device that a claim has and the node publishes no
// longer charges nothing: neither does it for the allocator.
func (c *cluster) setHolders(b *board) {
	for _, p := range b.devices {
		for _, claim := range c.holders[p.id()] {
			p.holders = append(p.holders, claim)
			for _, m := range p.members {
				b.lpus[m].holders = append(b.lpus[m].holders, claim)
			}
		}
	}
	for _, p := range b.devices {
		for _, m := range p.members {
			p.holders = append(p.holders, b.lpus[m].holders...)
		}
		slices.Sort(p.holders)
		p.holders = slices.Compact(p.holders)
	}
}

func (p *piece) id() structured.DeviceID { return structured.MakeDeviceID(p.driver, p.pool, p.Name) }

// find is the device of an allocation.
func (b *board) find(r *resourceapi.DeviceRequestAllocationResult) *piece {
	for _, p := range b.devices {
		if p.driver == r.Driver && p.pool == r.Pool && p.Name == r.Device {
			return p
		}
	}
	return nil
}

// ringOf are the LPUs of a ring in its order.
func (b *board) ringOf(name string) (ring []*lpu) {
	for _, l := range b.lpus {
		if l.ring == name {
			ring = append(ring, l)
		}
	}
	slices.SortFunc(ring, func(a, b *lpu) int { return cmp.Or(cmp.Compare(a.at, b.at), a.Compare(b.Address)) })
	return ring
}

// ordered are the LPUs of a device in the order of their ring, from where the device
// starts.
func (b *board) ordered(p *piece) []*lpu {
	var members []*lpu
	for _, m := range p.members {
		members = append(members, b.lpus[m])
	}
	start := p.Attributes["start"].IntValue
	if start == nil {
		return members
	}
	size := len(b.ringOf(textOf(p.Device, "ring")))
	place := func(l *lpu) int { return (l.at - int(*start) + size) % max(size, 1) }
	slices.SortStableFunc(members, func(a, b *lpu) int { return cmp.Compare(place(a), place(b)) })
	return members
}

// tainted reports whether taints keep a device from those who tolerate none.
func tainted(taints []resourceapi.DeviceTaint) bool {
	var nobody alternative
	return slices.ContainsFunc(taints, func(t resourceapi.DeviceTaint) bool { return !nobody.tolerated(&t) })
}

// left is what can still be given.
func (b *board) left() *Left {
	counts := map[int]int{}
	l := &Left{Sizes: []Placeable{}}
	for _, p := range b.devices {
		if p.driver != driver {
			continue
		}
		size := dra.Size(p.Device)
		counts[size] += 0
		if len(p.holders) == 0 && !tainted(p.Taints) {
			counts[size]++
			l.Longest = max(l.Longest, size)
		}
	}
	for _, size := range slices.Sorted(maps.Keys(counts)) {
		l.Sizes = append(l.Sizes, Placeable{size, counts[size]})
	}
	l.LPUs = b.free()
	return l
}

// free counts the LPUs that no claim has and no taint keeps back.
func (b *board) free() (n int) {
	for _, l := range b.lpus {
		if len(l.holders) == 0 && !tainted(l.taints) {
			n++
		}
	}
	return n
}

// Ring is what a drawing of a ring needs.
type Ring struct {
	Name   string    `json:"name"`
	Closed bool      `json:"closed"` // a cable leads from the last LPU to the first
	LPUs   []RingLPU `json:"lpus"`   // in the order of the cables
}

// RingLPU is an LPU of a ring.
type RingLPU struct {
	Address string   `json:"address"`
	Index   *int     `json:"index,omitempty"`
	State   LPUState `json:"state"`
	Dead    bool     `json:"dead,omitempty"` // the cable to the next LPU is dead
}

// LPUState is what an LPU is in a plan.
type LPUState string

// The states of LPUs. One that is given by the plan was free.
const (
	Given   LPUState = "given"
	Held    LPUState = "held" // a claim has it
	Tainted LPUState = "tainted"
	Free    LPUState = "free"
)

// rings are the rings of the node, with what a wish was given.
func (b *board) rings(given []Device) []Ring {
	names := map[string]bool{}
	for _, l := range b.lpus {
		names[l.ring] = true
	}
	delete(names, "")
	var rings []Ring
	for _, name := range slices.Sorted(maps.Keys(names)) {
		members := b.ringOf(name)
		ring := Ring{Name: name, Closed: b.closed(name, len(members))}
		for i, l := range members {
			next := members[(i+1)%len(members)]
			ring.LPUs = append(ring.LPUs, RingLPU{l.String(), l.index, l.state(given), b.dead(l, next)})
		}
		rings = append(rings, ring)
	}
	return rings
}

func (l *lpu) state(given []Device) LPUState {
	switch {
	case slices.ContainsFunc(given, func(d Device) bool { return slices.Contains(d.LPUs, l.String()) }):
		return Given
	case len(l.holders) > 0:
		return Held
	case tainted(l.taints):
		return Tainted
	}
	return Free
}

// closed reports whether a device of the ring leads over its end.
func (b *board) closed(ring string, size int) bool {
	return slices.ContainsFunc(b.devices, func(p *piece) bool {
		start := p.Attributes["start"].IntValue
		on := p.driver == driver && textOf(p.Device, "ring") == ring && start != nil
		return on && len(p.members) < size && int(*start)+len(p.members) > size
	})
}

// dead reports whether a taint says that the cable between two LPUs is dead. Its value
// names both, as internal/dra writes it.
func (b *board) dead(l, next *lpu) bool {
	name := func(l *lpu) string { return strings.ReplaceAll(l.String(), ":", "-") }
	return slices.ContainsFunc(b.devices, func(p *piece) bool {
		return p.driver == driver && slices.ContainsFunc(p.Taints, func(t resourceapi.DeviceTaint) bool {
			return t.Key == dra.TaintLink && strings.Contains(t.Value, name(l)) && strings.Contains(t.Value, name(next))
		})
	})
}
