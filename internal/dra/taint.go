package dra

import (
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// The keys of taints. The value names the LPU that is the cause, or the first of several,
// as a CDI device: "pci-0000-41-00.1"; for a link both of its LPUs:
// "0000-41-00.1_0000-42-00.1".
const (
	TaintUnhealthy = DriverName + "/unhealthy" // an LPU is not healthy, or gone
	TaintCordoned  = DriverName + "/cordoned"  // an administrator has cordoned an LPU
	// TaintLeases: an LPU that a claim has is kept for leases; without a claim it is in no
	// device.
	TaintLeases = DriverName + "/leases"
	TaintHeld   = DriverName + "/held" // another user or program has an LPU, or may have it
	TaintLink   = DriverName + "/link" // a cable between two LPUs is dead
	// TaintNoRing: there is no ring table any more, so the cables are in doubt.
	TaintNoRing   = DriverName + "/no-ring"
	TaintRecabled = DriverName + "/recabled" // the device is of a former cabling
)

// cause is why devices are tainted.
type cause struct {
	Key string      `json:"key"`
	LPU pci.Address `json:"lpu"`
	// Next is the other end of a link; the zero address otherwise.
	Next pci.Address `json:"next"`
	// Ended is when the cause ended; zero: it is there. The taint stays a while, because
	// what comes and goes would have every waiting pod tried again and again.
	Ended time.Time `json:"ended,omitzero"`
}

func (c *cause) same(other cause) bool {
	return c.Key == other.Key && c.LPU == other.LPU && c.Next == other.Next
}

// value is that of the taint.
func (c *cause) value() string {
	switch c.Key {
	case TaintLink:
		return strings.ReplaceAll(c.LPU.String()+"_"+c.Next.String(), ":", "-")
	case TaintNoRing:
		return ""
	}
	return cdi.AddressName(c.LPU)
}

// hits reports whether the cause is one of the device.
func (c *cause) hits(d *device) bool {
	if c.Key == TaintNoRing {
		return len(d.members) > 1
	}
	i := slices.Index(d.members, c.LPU)
	if c.Key != TaintLink || i < 0 {
		return i >= 0
	}
	n := len(d.members)
	around := d.ring != nil && d.ring.whole(d.members)
	next := func(at, by int) bool {
		to := at + by
		return (around || to >= 0 && to < n) && d.members[(to+n)%n] == c.Next
	}
	return next(i, 1) || next(i, -1)
}

// taints are those of a device. All of a closed ring is still connected while one of its
// cables is dead.
func (s *state) taints(d *device) (taints []resourceapi.DeviceTaint) {
	links := 0
	for _, c := range s.Causes {
		if c.Key == TaintLink && c.hits(d) {
			links++
		}
	}
	spared := links == 1 && d.ring != nil && d.ring.whole(d.members)
	for _, c := range s.Causes {
		known := slices.ContainsFunc(taints, func(t resourceapi.DeviceTaint) bool { return t.Key == c.Key })
		if known || !c.hits(d) || c.Key == TaintLink && spared {
			continue
		}
		effect := resourceapi.DeviceTaintEffectNoSchedule
		if c.Key == TaintUnhealthy && s.noExecute {
			effect = resourceapi.DeviceTaintEffectNoExecute
		}
		taints = append(taints, resourceapi.DeviceTaint{Key: c.Key, Value: c.value(), Effect: effect})
	}
	return taints
}

// leased reports whether a device is not published because an LPU of it is kept for
// leases, and no claim has that. A taint would not do: a claim may tolerate every taint.
func (s *state) leased(members []pci.Address) bool {
	return slices.ContainsFunc(s.Causes, func(c cause) bool {
		return c.Key == TaintLeases && !s.claimed[c.LPU] && slices.Contains(members, c.LPU)
	})
}

// looked is what is known of a node at one moment.
type looked struct {
	inv    *discovery.Inventory
	snap   *node.Snapshot // nil: health is what inv says
	held   []pci.Address  // healthy LPUs that must not be given away all the same
	leased []pci.Address  // besides those that the configuration keeps for leases
}

// unhealthy reports whether an LPU is so. An LPU in doubt is what it was: the snapshot
// knows that.
func (l *looked) unhealthy(found *discovery.LPU) bool {
	if l.snap == nil {
		return found.Health == discovery.Unhealthy
	}
	d := l.device(found.Address)
	return d == nil || !d.Healthy
}

// device is an LPU as the snapshot has it; nil: it has not.
func (l *looked) device(a pci.Address) *node.Device {
	if l.snap == nil {
		return nil
	}
	i := slices.IndexFunc(l.snap.Devices, func(d node.Device) bool { return d.ID == cdi.AddressName(a) })
	if i < 0 {
		return nil
	}
	return &l.snap.Devices[i]
}

func (l *looked) isHeld(a pci.Address) bool {
	d := l.device(a)
	return d != nil && d.Withheld || slices.Contains(l.held, a)
}

// causesOf are the causes of one LPU; now is nil if it is not there.
func (l *looked) causesOf(a pci.Address, now *discovery.LPU) (causes []cause) {
	add := func(is bool, key string) {
		if is {
			causes = append(causes, cause{Key: key, LPU: a})
		}
	}
	add(now == nil || l.unhealthy(now), TaintUnhealthy)
	cordoned := now != nil && now.Cordoned != nil
	apart := cordoned && now.Cordoned.SetApart
	leased := now != nil && (now.Leased != nil || now.Reserved != nil) || slices.Contains(l.leased, a)
	add(apart || leased, TaintLeases)
	add(cordoned && !apart, TaintCordoned)
	add(l.isHeld(a), TaintHeld)
	return causes
}

// causes are the causes of taints at one moment, by LPU in the order of the addresses,
// then by cable.
func (s *state) causes(l looked) (causes []cause) {
	addresses := map[string]pci.Address{}
	found := map[pci.Address]*discovery.LPU{}
	for i := range l.inv.LPUs {
		one := &l.inv.LPUs[i]
		addresses[one.Name], found[one.Address] = one.Address, one
	}
	for _, one := range s.Layout.LPUs {
		causes = append(causes, l.causesOf(one.Address, found[one.Address])...)
	}
	// Its arcs are tainted as they are, and all others do not use the cable.
	bad := func(a pci.Address) bool {
		return slices.ContainsFunc(causes, func(c cause) bool { return c.Key == TaintUnhealthy && c.LPU == a })
	}
	for _, r := range l.inv.Rings {
		for _, link := range r.DeadLinks {
			if c := (cause{Key: TaintLink, LPU: addresses[link[0]], Next: addresses[link[1]]}); !bad(c.LPU) && !bad(c.Next) {
				causes = append(causes, c)
			}
		}
	}
	if len(s.Layout.Rings) > 0 && l.inv.RingTable == nil {
		causes = append(causes, cause{Key: TaintNoRing})
	}
	return causes
}

// linger is how long a taint stays after its cause, because what was unhealthy is often
// so again. Who has an LPU does not come and go like that: an LPU that is free can be
// given at once.
const linger = time.Minute

// lingering are the causes now and those that ended a short while ago.
func lingering(now, before []cause, at time.Time) []cause {
	all := slices.Clone(now)
	for _, c := range before {
		if c.Key == TaintHeld || c.Key == TaintLeases || slices.ContainsFunc(now, func(n cause) bool { return n.same(c) }) {
			continue
		}
		if c.Ended.IsZero() || c.Ended.After(at) { // after: the clock was set back
			c.Ended = at
		}
		if at.Sub(c.Ended) < linger {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b cause) int { return a.LPU.Compare(b.LPU) })
	return all
}
