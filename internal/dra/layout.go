package dra

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// layout is the LPUs of a node and how they are cabled, by PCI address: all that devices
// are made of. It outlives what it was made of: an LPU that is gone and a ring table that
// is gone leave it as it was.
type layout struct {
	LPUs  []lpu  `json:"lpus"` // in the order of their addresses
	Rings []loop `json:"rings"`
}

// lpu is what is published of one LPU. A value that is not known is zero.
type lpu struct {
	Address       pci.Address     `json:"address"`
	Index         int             `json:"index"` // on the node; -1: it is gone
	Model         string          `json:"model,omitempty"`
	DriverVersion string          `json:"driverVersion,omitempty"`
	Shell         string          `json:"shell,omitempty"`
	MemoryGiB     int             `json:"memoryGiB,omitempty"`
	UsableSizes   discovery.Sizes `json:"usableSizes,omitempty"`
	NUMANode      *int            `json:"numaNode,omitempty"`
	Socket        *int            `json:"socket,omitempty"`
	PCIeRoot      string          `json:"pcieRoot,omitempty"`
	Switch        *pci.Address    `json:"switch,omitempty"`
}

// loop is a ring or a chain of LPUs, in the order of the cables.
type loop struct {
	ID      string        `json:"id"`
	Members []pci.Address `json:"members"`
	Closed  bool          `json:"closed"`
}

// whole reports whether LPUs are all those of the ring, and not only of a chain: such a
// set stays connected while one cable is dead.
func (l *loop) whole(members []pci.Address) bool {
	return l.Closed && len(l.Members) > 2 && len(members) == len(l.Members)
}

// device is what the scheduler can hand out: LPUs that follow each other.
type device struct {
	name    string
	members []pci.Address // in the order of the cables
	ring    *loop         // nil: an LPU on no ring
	start   int           // position of the first member on the ring
}

// next is the layout after an inventory. The cabling stays while there is none to be had,
// and what is known of an LPU that is not healthy. Without rings an LPU that is gone is
// left out.
func (l *layout) next(inv *discovery.Inventory, sockets map[int]int) layout {
	n := layout{Rings: l.Rings}
	names := map[string]pci.Address{}
	for i := range inv.LPUs {
		found := &inv.LPUs[i]
		names[found.Name] = found.Address
		n.LPUs = append(n.LPUs, l.facts(found, sockets))
	}
	if inv.RingTable != nil {
		n.Rings = nil
		for _, r := range inv.Rings {
			made := loop{ID: r.ID, Closed: r.Closed}
			for _, name := range r.Members {
				made.Members = append(made.Members, names[name])
			}
			n.Rings = append(n.Rings, made)
		}
	}
	for _, r := range n.Rings {
		for _, member := range r.Members {
			if n.find(member) == nil {
				missing := lpu{Address: member}
				if before := l.find(member); before != nil {
					missing = *before
				}
				missing.Index = gone
				n.LPUs = append(n.LPUs, missing)
			}
		}
	}
	slices.SortFunc(n.LPUs, func(a, b lpu) int { return a.Address.Compare(b.Address) })
	return n
}

// facts is what is published of an LPU. One that is not healthy may have lost its driver,
// and tells less than before.
func (l *layout) facts(found *discovery.LPU, sockets map[int]int) lpu {
	if before := l.find(found.Address); before != nil && found.Health != discovery.Healthy {
		kept := *before
		kept.Index = found.Index
		return kept
	}
	f := lpu{
		Address: found.Address, Index: found.Index, Model: found.Model, DriverVersion: found.DriverVersion, Shell: found.Shell,
		MemoryGiB: found.MemoryGiB, UsableSizes: found.UsableSizes, NUMANode: found.NUMANode, PCIeRoot: found.PCIeRoot, Switch: found.Switch,
	}
	if f.NUMANode != nil {
		if socket, known := sockets[*f.NUMANode]; known {
			f.Socket = &socket
		}
	}
	return f
}

func (l *layout) find(a pci.Address) *lpu {
	if i := slices.IndexFunc(l.LPUs, func(one lpu) bool { return one.Address == a }); i >= 0 {
		return &l.LPUs[i]
	}
	return nil
}

// alone are the LPUs on no ring, each as a ring of its own.
func (l *layout) alone() (alone []loop) {
	for _, one := range l.LPUs {
		if !slices.ContainsFunc(l.Rings, func(r loop) bool { return slices.Contains(r.Members, one.Address) }) {
			alone = append(alone, loop{Members: []pci.Address{one.Address}})
		}
	}
	return alone
}

// devicesMax is how many devices a slice can have if they consume counters or have taints
// (ResourceSliceMaxDevicesWithTaintsOrConsumes- Counters of k8s.io/api).
const devicesMax = 64

// devices are all that is published, for each slice. A ring has slices of its own, so
// that a taint changes as few as can be.
func (l *layout) devices(o *Options) (groups [][]device) {
	add := func(all []device) { groups = slices.AppendSeq(groups, slices.Chunk(all, devicesMax)) }
	for i := range l.Rings {
		add(slices.DeleteFunc(l.Rings[i].devices(o), func(d device) bool { return !l.usable(d.members, o) }))
	}
	var singles []device
	for _, one := range l.alone() {
		singles = append(singles, device{name: deviceName(one.Members), members: one.Members})
	}
	add(singles)
	return groups
}

// usable reports whether a program can use LPUs together, by what their models say. A
// size that is asked for by name is published all the same, and so is a single LPU.
func (l *layout) usable(members []pci.Address, o *Options) bool {
	size := len(members)
	return size == 1 || slices.Contains(o.Sizes, size) || !slices.ContainsFunc(members, func(m pci.Address) bool {
		return !l.find(m).UsableSizes.Allow(size)
	})
}

// devices are the arcs of a ring, in rounds: of each size as many as fill half of the
// ring, at least one. A claim is of one size, so only the order within a size decides
// which arc it gets. But the scheduler evaluates the selectors of a claim for each device
// that is listed before it (make bench-dra): so the first of each size come early, for
// servers that are nearly empty, and so do the single LPUs, which are what most pods want
// that still fit on a server that is nearly full.
func (l *loop) devices(o *Options) (all []device) {
	sizes := o.sizesOf(len(l.Members))
	arcs := make([][]device, len(sizes))
	total := 0
	for i, size := range sizes {
		arcs[i] = l.arcs(size)
		total += len(arcs[i])
	}
	for len(all) < total {
		for i, size := range sizes {
			n := min(max(1, len(l.Members)/2/size), len(arcs[i]))
			all = append(all, arcs[i][:n]...)
			arcs[i] = arcs[i][n:]
		}
	}
	return all
}

// sizesOf are the sizes that are published of a ring.
func (o *Options) sizesOf(ring int) []int {
	if o.Singles {
		return []int{1}
	}
	wanted := o.Sizes
	if wanted == nil {
		wanted = DefaultSizes()
	}
	sizes := slices.DeleteFunc(append(slices.Clone(wanted), 1, ring), func(size int) bool { return size < 1 || size > ring })
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// arcs are the arcs of a size as devices, in the order in which the scheduler is to take
// them.
func (l *loop) arcs(size int) (arcs []device) {
	twice := slices.Concat(l.Members, l.Members)
	for _, start := range Starts(len(l.Members), size, l.Closed) {
		members := twice[start : start+size]
		arcs = append(arcs, device{name: deviceName(members), members: members, ring: l, start: start})
	}
	return arcs
}

// deviceName is "lpu4-0000-41-00-1-1a2b3c4d": the size, the first PCI address, and a hash
// of the members in order. So a name never means other LPUs, or the same ones cabled
// otherwise. It is a DNS label, as the API asks for.
func deviceName(members []pci.Address) string {
	hash := sha256.New()
	for _, m := range members {
		fmt.Fprintln(hash, m)
	}
	return fmt.Sprintf("lpu%d-%s-%s", len(members), label(members[0]), hex.EncodeToString(hash.Sum(nil)[:4]))
}

// label is an address as part of a DNS label: "0000-41-00-1".
func label(a pci.Address) string {
	return strings.NewReplacer(":", "-", ".", "-").Replace(a.String())
}

// parseLabel is the address that label was given.
func parseLabel(text string) (pci.Address, error) {
	if n := len(text); n > 5 {
		text = strings.Replace(text[:n-2], "-", ":", 2) + "." + text[n-1:]
	}
	return pci.Parse(text)
}

// setMax is how many counters a set, and a device, can have
// (ResourceSliceMaxCountersPerCounterSet of k8s.io/api).
const setMax = 32

// assign gives every LPU a counter set, by number. An LPU of the layout, or of a former
// device, keeps the set that it has: its counter is one and the same for all devices. A
// ring is in one set as far as there is room.
func (l *layout) assign(before map[pci.Address]int, formers []published) map[pci.Address]int {
	sets, used := map[pci.Address]int{}, map[int]int{}
	groups := slices.Concat(l.Rings, l.alone())
	for _, d := range formers {
		groups = append(groups, loop{Members: d.Members})
	}
	for _, group := range groups {
		for _, a := range group.Members {
			if _, has := sets[a]; has {
				continue
			}
			if set, had := before[a]; had {
				sets[a] = set
				used[set]++
			}
		}
	}
	for _, group := range groups {
		missing := slices.DeleteFunc(slices.Clone(group.Members), func(a pci.Address) bool { _, has := sets[a]; return has })
		for chunk := range slices.Chunk(missing, setMax) {
			set := 0
			for used[set]+len(chunk) > setMax {
				set++
			}
			used[set] += len(chunk)
			for _, a := range chunk {
				sets[a] = set
			}
		}
	}
	return sets
}

// ranges are numbers with runs that rise by one joined: "6-7,0-1".
func ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		end := i
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		part := fmt.Sprint(numbers[i])
		if end > i {
			part += fmt.Sprintf("-%d", numbers[end])
		}
		parts, i = append(parts, part), end+1
	}
	return strings.Join(parts, ",")
}
