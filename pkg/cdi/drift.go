package cdi

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Drift is how the devices of a spec in place differ from those of a spec made now, each list sorted as the spec is. What is
// compared is what a container really gets: the edits of the whole spec and those of the device.
type Drift struct {
	// Wrong are devices with a node that is not one of their LPUs', or not the whole list of these. A container could get another
	// card with them.
	Wrong []string
	// Missing are devices that the spec in place does not have.
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
		has, wants := effectiveEdits(have, i), effectiveEdits(want, wanted)
		switch {
		case !has.sameNodes(wants, inv):
			d.Wrong = append(d.Wrong, w.Name)
		case !reflect.DeepEqual(has.rest, wants.rest):
			d.Other = append(d.Other, w.Name)
		}
	}
	for i, h := range have.Devices {
		if slices.ContainsFunc(want.Devices, sameName(h.Name)) {
			continue
		}
		if effectiveEdits(have, i).onlyNodesOf(lpusNamed(inv, h.Name)) {
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

// effective is what a container gets with one device.
type effective struct {
	nodes map[string]specs.DeviceNode // by path in the container
	rest  rest
}

// rest is what a container gets besides nodes, in a form that can be compared.
type rest struct {
	env    map[string]string
	mounts map[string]string // by path in the container
	others string            // edits that lpuctl does not make
}

// effectiveEdits are the edits of the whole spec and then those of a device. As in a container, the last of two with one name or path
// counts.
func effectiveEdits(spec *specs.Spec, device int) effective {
	e := effective{nodes: map[string]specs.DeviceNode{}, rest: rest{env: map[string]string{}, mounts: map[string]string{}}}
	for _, c := range []specs.ContainerEdits{spec.ContainerEdits, spec.Devices[device].ContainerEdits} {
		for _, n := range c.DeviceNodes {
			if n != nil { // no runtime takes such a spec, but it can be parsed
				node := *n
				node.HostPath = cmp.Or(n.HostPath, n.Path)
				e.nodes[n.Path] = node
			}
		}
		for _, m := range c.Mounts {
			if m != nil {
				e.rest.mounts[m.ContainerPath] = fmt.Sprintln(m.HostPath, m.Type, slices.Sorted(slices.Values(m.Options)))
			}
		}
		for _, variable := range c.Env {
			name, value, _ := strings.Cut(variable, "=")
			e.rest.env[name] = value
		}
		for _, h := range c.Hooks {
			if h != nil {
				e.rest.others += fmt.Sprintf("hook %+v\n", *h)
			}
		}
		if c.IntelRdt != nil {
			e.rest.others += fmt.Sprintf("rdt %+v\n", *c.IntelRdt)
		}
		if len(c.AdditionalGIDs) > 0 {
			e.rest.others += fmt.Sprintln("gids", c.AdditionalGIDs)
		}
	}
	return e
}

// sameNodes tells whether a container gets the same device nodes. The device numbers of a node need not be in a spec; if they are,
// they must be those of the LPU's node.
func (e effective) sameNodes(other effective, inv *discovery.Inventory) bool {
	return maps.EqualFunc(e.nodes, other.nodes, func(a, b specs.DeviceNode) bool {
		return a.HostPath == b.HostPath && numbersFit(a, inv)
	})
}

func numbersFit(n specs.DeviceNode, inv *discovery.Inventory) bool {
	if n.Major == 0 && n.Minor == 0 {
		return true
	}
	for _, l := range inv.LPUs {
		for _, node := range l.Nodes {
			if node.Path == n.HostPath {
				return int64(node.Major) == n.Major && int64(node.Minor) == n.Minor
			}
		}
	}
	return false
}

// onlyNodesOf tells whether all nodes are nodes of these LPUs, each under its own path.
func (e effective) onlyNodesOf(lpus []discovery.LPU) bool {
	for path, n := range e.nodes {
		if n.HostPath != path || !slices.ContainsFunc(lpus, func(l discovery.LPU) bool {
			return slices.ContainsFunc(l.Nodes, func(node discovery.Node) bool { return node.Path == path })
		}) {
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
