package cdi

import (
	"fmt"
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
	// Missing are devices that the spec in place does not have, or has without some of their nodes.
	Missing []string
	// Other are devices of which something else differs, such as a mount or a variable, and devices that a spec made now does not
	// have, but whose nodes are those of LPUs.
	Other []string
}

// Any tells whether there is a difference.
func (d *Drift) Any() bool { return len(d.Wrong)+len(d.Missing)+len(d.Other) > 0 }

// String says what differs, for the log.
func (d *Drift) String() string {
	var texts []string
	for _, part := range []struct {
		what  string
		names []string
	}{{"wrong nodes", d.Wrong}, {"missing", d.Missing}, {"other differences", d.Other}} {
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
	return compare(inv, have, want), err
}

func compare(inv *discovery.Inventory, have, want *specs.Spec) (d Drift) {
	for wanted, w := range want.Devices {
		i := slices.IndexFunc(have.Devices, sameName(w.Name))
		if i < 0 {
			d.Missing = append(d.Missing, w.Name)
			continue
		}
		has, wants := effective(have, i), effective(want, wanted)
		switch only, all := givenNodes(has, wants, inv); {
		case !only:
			d.Wrong = append(d.Wrong, w.Name)
		case !all:
			d.Missing = append(d.Missing, w.Name)
		case !slices.Equal(texts(has), texts(wants)):
			d.Other = append(d.Other, w.Name)
		}
	}
	for i, h := range have.Devices {
		if slices.ContainsFunc(want.Devices, sameName(h.Name)) {
			continue
		}
		if onlyNodesOf(lpusNamed(inv, h.Name), effective(have, i)) {
			d.Other = append(d.Other, h.Name)
		} else {
			d.Wrong = append(d.Wrong, h.Name)
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

// givenNodes tells whether a container gets only device nodes that it should get, and whether it gets all of them. The device numbers
// of a node need not be in a spec; if they are, they must be those of the LPU's node.
func givenNodes(has, wants []given, inv *discovery.Inventory) (only, all bool) {
	nodes := 0
	for _, h := range has {
		if h.node == nil {
			continue
		}
		nodes++
		if w := byKey(wants, h.key); w == nil || hostPath(w.node) != hostPath(h.node) || !numbersFit(h.node, inv) {
			return false, false
		}
	}
	for _, w := range wants {
		if w.node != nil {
			nodes--
		}
	}
	return true, nodes == 0
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

// onlyNodesOf tells whether all nodes that a container gets are nodes of these LPUs, each under its own path.
func onlyNodesOf(lpus []discovery.LPU, all []given) bool {
	for _, g := range all {
		has := func(l discovery.LPU) bool {
			return slices.ContainsFunc(l.Nodes, func(n discovery.Node) bool { return n.Path == hostPath(g.node) })
		}
		if g.node != nil && (g.node.Path != hostPath(g.node) || !slices.ContainsFunc(lpus, has)) {
			return false
		}
	}
	return true
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
