package dra

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/lazy"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// DriverName is the name of the driver, and the domain of its attributes.
const DriverName = claim.DriverName

// DefaultSizes are the sizes that are published besides whole rings. All sizes would more
// than double the devices that the scheduler looks at, and its cost. They are also those
// that HyperDex can use: HW-50 of docs/hardware.md.
func DefaultSizes() []int { return []int{1, 2, 4, 8} }

// Options is what one node publishes.
type Options struct {
	Node string // name of the node, and of its pool
	// Sizes are those of arcs; nil: DefaultSizes. Single LPUs are always published, whole
	// rings if their LPUs can be used so.
	Sizes   []int
	Singles bool // single LPUs only, without counters: the API server drops them
	// Sockets are the sockets of the NUMA nodes of an inventory's LPUs, such as
	// [discovery.Sockets] reads them. nil: they are not known.
	Sockets func(*discovery.Inventory) map[int]int
}

// Slices are what one inventory gives, without anything that is known of the time before.
// LPUs that are unhealthy or cordoned, and dead cables, are taints; LPUs that are kept
// for leases are in no device. Without a ring table there are single LPUs only. Without
// LPUs there are no slices.
func Slices(inv *discovery.Inventory, o Options) []resourceapi.ResourceSliceSpec {
	s := (&state{}).next(inv, &o, nil, time.Time{})
	s.Causes = s.causes(looked{inv: inv})
	return s.slices(&o)
}

// placeDomain is the domain of the attributes that say where in the server a device is.
// They would make DriverName's ten, and more than eight cost the scheduler time for each
// device that it looks at: its map of them must grow (docs/performance.md).
const placeDomain = "topology.hyperaccel.ai"

// The attributes of the driver. Beside them are the standard ones numaNode, pcieRoot and
// pciBusID (of single LPUs), as k8s.io/dynamic-resource-allocation/deviceattribute names
// them. Those of places are there if all LPUs of the device agree.
const (
	attributeSize = "size" // int: how many LPUs
	// attributeLPUs is a string: "6-7,0-1", in ring order; absent above 64 characters.
	attributeLPUs = "lpus"
	attributeRing = "ring" // string: "ring0"; absent on no ring
	// attributeStart is an int: position of the first LPU on the ring.
	attributeStart   = "start"
	attributeAligned = "aligned" // bool: start is a multiple of size
	attributeModel   = "model"   // string: row of the model table
	// attributeDriver is a version: of the kernel driver, its semantic part.
	attributeDriver = "driverVersion"
	attributeShell  = "shell" // string: name of the flashed shell
	// attributeSwitch is a string: PCI address of its upstream port; not the network's.
	attributeSwitch = placeDomain + "/pcieSwitch"
	// attributeSocket is an int: physical_package_id.
	attributeSocket = placeDomain + "/socket"
	attributeNUMA   = "resource.kubernetes.io/numaNode"
	attributeRoot   = "resource.kubernetes.io/pcieRoot"
	attributeBusID  = "resource.kubernetes.io/pciBusID"

	capacityMemory = "memory"
)

// The counters: a set with one for all LPUs, of which a device consumes its size, so that
// quota can count LPUs; and sets with one for each LPU, by its PCI address.
const (
	countersAll = "lpus"
	counterAll  = "lpus"
)

func countersOf(set int) string { return fmt.Sprint("cards-", set) }

func counterOf(a pci.Address) string { return "pci-" + label(a) }

// setsMax is how many counter sets a slice can have (ResourceSliceMaxCounterSets of
// k8s.io/api).
const setsMax = 8

// slices are the slices of a state. Devices of a former cabling are in slices of their
// own at the end.
func (s *state) slices(o *Options) []resourceapi.ResourceSliceSpec {
	all := s.counters(o)
	add := func(devices []resourceapi.Device) {
		if len(devices) > 0 {
			all = append(all, resourceapi.ResourceSliceSpec{Devices: devices})
		}
	}
	for _, group := range s.Layout.devices(o) {
		var devices []resourceapi.Device
		for _, d := range group {
			if s.set(d.members) >= 0 && !s.leased(d.members) {
				devices = append(devices, s.publish(&d, o))
			}
		}
		add(devices)
	}
	var former []resourceapi.Device
	for _, d := range s.Devices {
		if d.former() && !s.leased(d.Members) {
			made := s.bare(d.Name, d.Members, o)
			made.Taints = []resourceapi.DeviceTaint{{Key: TaintRecabled, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
			former = append(former, made)
		}
	}
	for devices := range slices.Chunk(former, devicesMax) {
		add(devices)
	}
	for i := range all {
		all[i].Driver, all[i].NodeName = DriverName, &o.Node
		all[i].Pool = resourceapi.ResourcePool{Name: o.Node, Generation: 1, ResourceSliceCount: int64(len(all))}
	}
	return all
}

// counters are the slices with the counters.
func (s *state) counters(o *Options) []resourceapi.ResourceSliceSpec {
	if o.Singles || len(s.Sets) == 0 {
		return []resourceapi.ResourceSliceSpec{}
	}
	sets := map[int]map[string]resourceapi.Counter{}
	for a, set := range s.Sets {
		if sets[set] == nil {
			sets[set] = map[string]resourceapi.Counter{}
		}
		sets[set][counterOf(a)] = count(1)
	}
	shared := []resourceapi.CounterSet{{Name: countersAll, Counters: map[string]resourceapi.Counter{counterAll: count(len(s.Sets))}}}
	for _, set := range slices.Sorted(maps.Keys(sets)) {
		shared = append(shared, resourceapi.CounterSet{Name: countersOf(set), Counters: sets[set]})
	}
	var all []resourceapi.ResourceSliceSpec
	for chunk := range slices.Chunk(shared, setsMax) {
		all = append(all, resourceapi.ResourceSliceSpec{SharedCounters: chunk})
	}
	return all
}

func count(n int) resourceapi.Counter {
	return resourceapi.Counter{Value: *resource.NewQuantity(int64(n), resource.DecimalSI)}
}

// set is the counter set that has all members; -1 if there is none: a device can use one
// set besides that of all LPUs.
func (s *state) set(members []pci.Address) int {
	for _, m := range members {
		if s.Sets[m] != s.Sets[members[0]] {
			return -1
		}
	}
	return s.Sets[members[0]]
}

// bare is a device with no more than what keeps its LPUs from others.
func (s *state) bare(name string, members []pci.Address, o *Options) resourceapi.Device {
	a := attributes{}
	a.number(attributeSize, len(members))
	if len(members) == 1 {
		a.text(attributeBusID, members[0].String())
	}
	d := resourceapi.Device{Name: name, Attributes: a}
	if set := s.set(members); !o.Singles && set >= 0 {
		cards := map[string]resourceapi.Counter{}
		for _, m := range members {
			cards[counterOf(m)] = count(1)
		}
		d.ConsumesCounters = []resourceapi.DeviceCounterConsumption{
			{CounterSet: countersAll, Counters: map[string]resourceapi.Counter{counterAll: count(len(members))}},
			{CounterSet: countersOf(set), Counters: cards},
		}
	}
	return d
}

// publish is a device as it is published.
func (s *state) publish(d *device, o *Options) resourceapi.Device {
	made := s.bare(d.name, d.members, o)
	lpus := make([]*lpu, len(d.members))
	indices, memory := make([]int, len(d.members)), 0
	for i, m := range d.members {
		lpus[i] = s.Layout.find(m)
		indices[i] = lpus[i].Index
		memory += lpus[i].MemoryGiB
	}
	a := attributes(made.Attributes)
	if !slices.Contains(indices, gone) {
		a.text(attributeLPUs, ranges(indices))
	}
	if d.ring != nil {
		a.text(attributeRing, d.ring.ID)
		a.number(attributeStart, d.start)
		a[attributeAligned] = resourceapi.DeviceAttribute{BoolValue: new(d.start%len(d.members) == 0)}
	}
	a.places(lpus)
	made.Taints = s.taints(d)
	if !slices.ContainsFunc(lpus, func(l *lpu) bool { return l.MemoryGiB == 0 }) {
		made.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			capacityMemory: {Value: *resource.NewQuantity(int64(memory)<<30, resource.BinarySI)},
		}
	}
	return made
}

type attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

func (a attributes) number(name resourceapi.QualifiedName, value int) {
	a[name] = resourceapi.DeviceAttribute{IntValue: new(int64(value))}
}

// text sets an attribute, unless there is nothing to say or it is longer than the API
// takes.
func (a attributes) text(name resourceapi.QualifiedName, value string) {
	if value != "" && len(value) <= resourceapi.DeviceAttributeMaxValueLength {
		a[name] = resourceapi.DeviceAttribute{StringValue: &value}
	}
}

// places sets what all LPUs of a device agree on.
func (a attributes) places(lpus []*lpu) {
	shared := func(of func(*lpu) string) string {
		first := of(lpus[0])
		if slices.ContainsFunc(lpus, func(l *lpu) bool { return of(l) != first }) {
			return ""
		}
		return first
	}
	a.text(attributeModel, shared(func(l *lpu) string { return l.Model }))
	a.text(attributeShell, shared(func(l *lpu) string { return l.Shell }))
	a.text(attributeRoot, shared(func(l *lpu) string { return l.PCIeRoot }))
	a.text(attributeSwitch, shared(func(l *lpu) string {
		if l.Switch == nil {
			return ""
		}
		return l.Switch.String()
	}))
	if version := shared(func(l *lpu) string { return semantic(l.DriverVersion) }); version != "" {
		a[attributeDriver] = resourceapi.DeviceAttribute{VersionValue: &version}
	}
	number := func(name resourceapi.QualifiedName, of func(*lpu) *int) {
		text := func(l *lpu) string {
			if of(l) == nil {
				return ""
			}
			return fmt.Sprint(*of(l))
		}
		if shared(text) != "" {
			a.number(name, *of(lpus[0]))
		}
	}
	number(attributeNUMA, func(l *lpu) *int { return l.NUMANode })
	number(attributeSocket, func(l *lpu) *int { return l.Socket })
}

// semantic is the part of a version of the kernel driver that is a semantic version:
// "2.17.391" of "2.17.391,a5c32b1". The API refuses any other form, such as numbers with
// zeros in front.
func semantic(version string) string {
	found := versions().FindStringSubmatch(version)
	if found == nil {
		return ""
	}
	return found[1]
}

var versions = lazy.Regexp(`(?:^|[^0-9.])((?:0|[1-9][0-9]{0,8})(?:\.(?:0|[1-9][0-9]{0,8})){2})(?:$|[^0-9])`)

// Size is how many LPUs a device of this driver has.
func Size(d *resourceapi.Device) int {
	if size := d.Attributes[attributeSize].IntValue; size != nil {
		return int(*size)
	}
	return 0
}

// MembersOf are the LPUs of a device of this driver, by address: they are not in ring
// order. Without counters only single LPUs have them.
func MembersOf(d *resourceapi.Device) (members []pci.Address) {
	for _, consumed := range d.ConsumesCounters {
		for name := range consumed.Counters {
			text, isCard := strings.CutPrefix(name, "pci-")
			if a, err := parseLabel(text); isCard && err == nil {
				members = append(members, a)
			}
		}
	}
	if id := d.Attributes[attributeBusID].StringValue; id != nil && len(members) == 0 {
		if a, err := pci.Parse(*id); err == nil {
			members = append(members, a)
		}
	}
	slices.SortFunc(members, pci.Address.Compare)
	return members
}

// Devices are those of slices, in order.
func Devices(specs []resourceapi.ResourceSliceSpec) iter.Seq[*resourceapi.Device] {
	return func(yield func(*resourceapi.Device) bool) {
		for i := range specs {
			for j := range specs[i].Devices {
				if !yield(&specs[i].Devices[j]) {
					return
				}
			}
		}
	}
}

// Placeable is how many devices of each size could be allocated now: they have no taint,
// and none of their LPUs is used. They may overlap. Each size that is published is in it.
func Placeable(specs []resourceapi.ResourceSliceSpec, used func(pci.Address) bool) map[int]int {
	counts := map[int]int{}
	for d := range Devices(specs) {
		add := 0
		if len(d.Taints) == 0 && !slices.ContainsFunc(MembersOf(d), used) {
			add = 1
		}
		counts[Size(d)] += add
	}
	return counts
}
