package cdi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Drift is how the devices of a spec in place differ from those of a spec made now, each list sorted as the spec is. What is
// compared is what a container really gets: the edits of the whole spec and those of the device.
type Drift struct {
	// Wrong are devices with a node that is not one of their LPUs'. A container could get another card with them.
	Wrong []string
	// Dangling are devices with a node that is not one of their LPUs', but is not there either. No container starts with them.
	Dangling []string
	// Missing are devices that the spec in place does not have, or has without some of their nodes.
	Missing []string
	// Other are devices of which something else differs, such as a mount, a variable or an annotation, and devices that a spec made
	// now does not have, but whose nodes are those of LPUs.
	Other []string
}

// Any tells whether there is a difference.
func (d *Drift) Any() bool { return len(d.All()) > 0 }

// All are the devices that differ.
func (d *Drift) All() []string { return slices.Concat(d.Wrong, d.Dangling, d.Missing, d.Other) }

// Names tells whether there is a name that does not lead to the nodes of its LPUs.
func (d *Drift) Names() bool { return len(d.Wrong)+len(d.Dangling)+len(d.Missing) > 0 }

// String says what differs, for the log.
func (d *Drift) String() string {
	var texts []string
	for _, part := range []struct {
		what  string
		names []string
	}{{"wrong nodes", d.Wrong}, {"nodes that are gone", d.Dangling}, {"missing", d.Missing}, {"other differences", d.Other}} {
		if len(part.names) > 0 {
			texts = append(texts, part.what+": "+some(part.names))
		}
	}
	return strings.Join(texts, "; ")
}

// Drift compares the file with the spec of an inventory, which is nil if no LPU has a node. The error says that the file cannot be
// read, or that no runtime would take it: then every device is missing.
func (f File) Drift(inv *discovery.Inventory, want *specs.Spec) (Drift, error) {
	data, err := f.Read()
	have := &specs.Spec{}
	if err == nil && data != nil {
		var spec *specs.Spec
		if spec, err = parse(data); err == nil && spec.Kind != f.kind {
			err = fmt.Errorf("%s: it is of kind %s", f.Path, spec.Kind)
		} else if err == nil {
			have = spec
		}
	}
	if want == nil {
		want = &specs.Spec{}
	}
	return compare(inv, have, want, f.exists), err
}

// exists tells whether there is a device node, as far as /dev can be seen.
func (f File) exists(path string) bool { return !f.root.Exists("/dev") || f.root.Exists(path) }

// compare compares a spec in place with one of the inventory. exists tells whether there is a node.
func compare(inv *discovery.Inventory, have, want *specs.Spec, exists func(path string) bool) (d Drift) {
	for wanted, w := range want.Devices {
		i := slices.IndexFunc(have.Devices, sameName(w.Name))
		if i < 0 {
			d.Missing = append(d.Missing, w.Name)
			continue
		}
		has, wants := effective(have, i), effective(want, wanted)
		strange, all := givenNodes(has, wants, inv)
		switch {
		case slices.ContainsFunc(strange, exists):
			d.Wrong = append(d.Wrong, w.Name)
		case len(strange) > 0:
			d.Dangling = append(d.Dangling, w.Name)
		case !all:
			d.Missing = append(d.Missing, w.Name)
		case !slices.Equal(texts(has), texts(wants)), !maps.Equal(have.Devices[i].Annotations, w.Annotations):
			d.Other = append(d.Other, w.Name)
		}
	}
	for i, h := range have.Devices {
		if slices.ContainsFunc(want.Devices, sameName(h.Name)) {
			continue
		}
		switch strange := strangeNodes(lpusNamed(inv, h.Name), effective(have, i)); {
		case len(strange) == 0:
			d.Other = append(d.Other, h.Name)
		case slices.ContainsFunc(strange, exists):
			d.Wrong = append(d.Wrong, h.Name)
		default:
			d.Dangling = append(d.Dangling, h.Name)
		}
	}
	return d
}

func sameName(name string) func(specs.Device) bool {
	return func(d specs.Device) bool { return d.Name == name }
}

// texts are all that a container gets, in a form that can be compared.
func texts(all []given) (sorted []string) {
	for _, g := range all {
		sorted = append(sorted, g.key+" "+g.text)
	}
	slices.Sort(sorted)
	return sorted
}

// givenNodes returns the nodes on the host that a container gets and should not, and whether it gets all that it should. The device
// numbers of a node need not be in a spec; if they are, they must be those of the LPU's node.
func givenNodes(has, wants []given, inv *discovery.Inventory) (strange []string, all bool) {
	nodes := 0
	for _, h := range has {
		if h.node == nil {
			continue
		}
		nodes++
		if w := byKey(wants, h.key); w == nil || hostPath(w.node) != hostPath(h.node) || !numbersFit(h.node, inv) {
			strange = append(strange, hostPath(h.node))
		}
	}
	for _, w := range wants {
		if w.node != nil {
			nodes--
		}
	}
	return strange, nodes == 0
}

func numbersFit(n *specs.DeviceNode, inv *discovery.Inventory) bool {
	if n.Major == 0 && n.Minor == 0 {
		return true
	}
	for _, l := range inv.LPUs {
		for _, node := range l.Nodes {
			if node.Path == hostPath(n) {
				return int64(node.Major) == n.Major && int64(node.Minor) == n.Minor
			}
		}
	}
	return false
}

// strangeNodes returns the nodes on the host that a container gets and that are not nodes of these LPUs, or not under their own path.
func strangeNodes(lpus []discovery.LPU, all []given) (strange []string) {
	for _, g := range all {
		has := func(l discovery.LPU) bool {
			return slices.ContainsFunc(l.Nodes, func(n discovery.Node) bool { return n.Path == hostPath(g.node) })
		}
		if g.node != nil && (g.node.Path != hostPath(g.node) || !slices.ContainsFunc(lpus, has)) {
			strange = append(strange, hostPath(g.node))
		}
	}
	return strange
}

// lpusNamed are the LPUs for which a device stands by its name: those with these indices or this PCI address. A name of another
// form, perhaps that of another release of lpuctl, may stand for any.
func lpusNamed(inv *discovery.Inventory, name string) (lpus []discovery.LPU) {
	if !ourName(name) || name == AllDevice {
		return inv.LPUs
	}
	for _, l := range inv.LPUs {
		indices := strings.Split(strings.TrimPrefix(name, "lpu"), "-")
		if AddressName(l.Address) == name || slices.Contains(indices, fmt.Sprint(l.Index)) {
			lpus = append(lpus, l)
		}
	}
	return lpus
}
