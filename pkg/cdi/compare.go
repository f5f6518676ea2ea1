package cdi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// given is one thing that a container gets with a device, and the place in the document
// that says so.
type given struct {
	key  string // what it takes the place of: the same variable, or the same path in the container
	text string // for people
	at   string
	node *specs.DeviceNode // nil: it is no node
}

// hostPath is the node on the host.
func hostPath(n *specs.DeviceNode) string { return cmp.Or(n.HostPath, n.Path) }

// effective is what a container gets with a device of a spec: the common edits and the
// device's own, merged as the CDI library does, in which the last of a key counts.
func effective(spec *specs.Spec, i int) (all []given) {
	for _, g := range slices.Concat(
		givenBy("containerEdits", &spec.ContainerEdits),
		givenBy(fmt.Sprintf("devices.%d.containerEdits", i), &spec.Devices[i].ContainerEdits),
	) {
		all = append(slices.DeleteFunc(all, func(before given) bool { return before.key == g.key }), g)
	}
	return all
}

func givenBy(at string, e *specs.ContainerEdits) (all []given) {
	for i, n := range e.DeviceNodes {
		if n == nil { // no runtime takes such a spec, but it can be parsed
			continue
		}
		all = append(all, given{"node " + n.Path, access(n), fmt.Sprintf("%s.deviceNodes.%d", at, i), n})
	}
	for i, m := range e.Mounts {
		if m == nil {
			continue
		}
		text := fmt.Sprintf("the mount of %s at %s (%s)", m.HostPath, m.ContainerPath, strings.Join(m.Options, ","))
		all = append(all, given{"mount " + m.ContainerPath, text, fmt.Sprintf("%s.mounts.%d", at, i), nil})
	}
	for i, variable := range e.Env {
		name, _, _ := strings.Cut(variable, "=")
		all = append(all, given{"variable " + name, variable, fmt.Sprintf("%s.env.%d", at, i), nil})
	}
	rest := *e
	rest.DeviceNodes, rest.Mounts, rest.Env = nil, nil, nil
	if text, _ := json.Marshal(rest); string(text) != "{}" {
		all = append(all, given{at, string(text), at, nil})
	}
	return all
}

// access is what a container may do with a node, besides its numbers.
func access(n *specs.DeviceNode) string {
	may := specs.DeviceNode{Path: n.Path, Permissions: cmp.Or(n.Permissions, "rwm"), FileMode: n.FileMode, UID: n.UID, GID: n.GID}
	text, _ := json.Marshal(may)
	return string(text)
}

// made is a spec that would be made now, and where each of its devices is.
type made struct {
	*specs.Spec

	at map[string]int
}

func newMade(spec *specs.Spec) made {
	m := made{cmp.Or(spec, &specs.Spec{}), map[string]int{}}
	for i, d := range m.Devices {
		m.at[d.Name] = i
	}
	return m
}

// given is what a container gets with the device of a name; nothing if the spec has none.
func (m made) given(name string) []given {
	i, has := m.at[name]
	if !has {
		return nil
	}
	return effective(m.Spec, i)
}

// table is the ring table of the device of a name; "": it has none.
func (m made) table(name string) string {
	if i, has := m.at[name]; has {
		return tableOf(m.Devices[i])
	}
	return ""
}

func byKey(all []given, key string) *given {
	if i := slices.IndexFunc(all, func(g given) bool { return g.key == key }); i >= 0 {
		return &all[i]
	}
	return nil
}

// comparison holds what a container gets with devices of ours against what it would get
// by a spec made now. All who ask whether a file leads to the right nodes ask it.
type comparison struct {
	inv    *discovery.Inventory
	owners map[string]owned       // by the path of a node
	exists func(path string) bool // whether there is a node
	want   made
	// What a user may have asked for, and is no difference: the nodes of management
	// functions, mounts that this machine does not have.
	management, unchecked made
}

// owned is a node and the LPU that it belongs to.
type owned struct {
	*discovery.LPU

	node discovery.Node
}

// newComparison compares with a spec made now, and with nothing else.
func newComparison(inv *discovery.Inventory, want *specs.Spec, exists func(path string) bool) *comparison {
	now := newMade(want)
	return &comparison{inv, ownersOf(inv), exists, now, now, now}
}

// ownersOf are the LPUs of nodes, by path.
func ownersOf(inv *discovery.Inventory) map[string]owned {
	owners := map[string]owned{}
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		for _, n := range nodesOf(l, Options{Management: true}) {
			owners[n.Path] = owned{l, n}
		}
	}
	return owners
}

// verdict is how a device of a file differs from that of a spec made now.
type verdict struct {
	now     bool         // a spec made now has the device
	nodes   []given      // that a container gets with it
	foreign []given      // those of them that are not of its LPUs, or not under the path of its own
	numbers []given      // those of its LPUs under other device numbers than theirs
	lacks   []string     // its LPUs of which it lacks a node
	rest    []difference // what else differs: mounts, variables, what a container may do with a node
}

// difference is one thing that differs, and its place in the file; "" is the device.
type difference struct{ at, text string }

// judge compares one device of a spec in place. One that a spec made now would not have
// may give the nodes of the LPUs that its name stands for.
func (c *comparison) judge(have *specs.Spec, i int) (v verdict) {
	name := have.Devices[i].Name
	_, v.now = c.want.at[name]
	has, want := effective(have, i), c.want.given(name)
	own := c.ownNodes(name, v.now)
	for _, h := range has {
		if h.node == nil {
			continue
		}
		v.nodes = append(v.nodes, h)
		switch n := h.node; {
		case !own(h):
			v.foreign = append(v.foreign, h)
		case (n.Major != 0 || n.Minor != 0) && !c.numbersFit(n):
			v.numbers = append(v.numbers, h)
		}
	}
	if !v.now {
		return v
	}
	nodes := hosts(has)
	for _, w := range want {
		if w.node != nil && !slices.Contains(nodes, hostPath(w.node)) {
			if owner := c.owners[hostPath(w.node)]; owner.LPU != nil {
				v.lacks = appendNew(v.lacks, owner.Name)
			}
		}
	}
	v.rest = restOf(has, want, c.unchecked.given(name))
	return v
}

// ownNodes reports of a node whether it is one that the device of a name may give.
func (c *comparison) ownNodes(name string, now bool) func(given) bool {
	if now {
		allowed := c.management.given(name)
		return func(h given) bool {
			g := byKey(allowed, h.key)
			return g != nil && hostPath(g.node) == hostPath(h.node)
		}
	}
	lpus := lpusNamed(c.inv, name)
	return func(h given) bool {
		owner := c.owners[hostPath(h.node)]
		return h.node.Path == hostPath(h.node) && owner.LPU != nil &&
			slices.ContainsFunc(lpus, func(l discovery.LPU) bool { return l.Address == owner.Address })
	}
}

// numbersFit reports whether a node of an LPU has the numbers that a spec gives it. They
// need not be in a spec.
func (c *comparison) numbersFit(n *specs.DeviceNode) bool {
	is := c.owners[hostPath(n)].node
	return int64(is.Major) == n.Major && int64(is.Minor) == n.Minor
}

// restOf is what differs besides nodes. A mount that this machine does not have is a
// finding of its own.
func restOf(has, want, unchecked []given) (rest []difference) {
	for _, h := range has {
		w := byKey(want, h.key)
		switch {
		case w != nil && w.text != h.text:
			rest = append(rest, difference{h.at, fmt.Sprintf("would get %s by a spec made now, and the file says %s", w.text, h.text)})
		case w == nil && h.node == nil && byKey(unchecked, h.key) == nil:
			rest = append(rest, difference{h.at, "would not get " + h.text + " by a spec made now"})
		}
	}
	for _, w := range want {
		if w.node == nil && byKey(has, w.key) == nil {
			rest = append(rest, difference{"", "would get " + w.text + " by a spec made now"})
		}
	}
	return rest
}

// hosts are the nodes on the host, sorted.
func hosts(all []given) (paths []string) {
	for _, g := range all {
		if g.node != nil {
			paths = append(paths, hostPath(g.node))
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// describe names a node, its path in the container where that differs, and the LPU that
// it belongs to.
func (c *comparison) describe(n *specs.DeviceNode) string {
	text := hostPath(n)
	if n.Path != text {
		text += " as " + n.Path
	}
	if owner := c.owners[hostPath(n)]; owner.LPU != nil {
		text += ", the node of " + owner.Name
	}
	return text
}

// lpusNamed are the LPUs for which a device stands by its name: those with these indices
// or this PCI address. A name of another form, perhaps that of another release of lpuctl,
// may stand for any.
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

// ourName reports whether a device name has the form of ours.
func ourName(name string) bool {
	return strings.HasPrefix(name, "lpu") || strings.HasPrefix(name, addressPrefix) || name == AllDevice
}

func sameName(name string) func(specs.Device) bool {
	return func(d specs.Device) bool { return d.Name == name }
}

// Drift is how the devices of our file differ from those of a spec made now, each list
// sorted as the spec is. What is compared is what a container really gets: the edits of
// the whole spec and those of the device.
type Drift struct {
	// Wrong are devices with a node that is not one of their LPUs'. A container could get
	// another card with them.
	Wrong []string
	// Dangling are devices with a node that is not one of their LPUs', but is not there
	// either. No container starts with them.
	Dangling []string
	// Missing are devices that the spec in place does not have, or has without some of
	// their nodes.
	Missing []string
	// Tables are devices with another ring table than they should have, or without it. A
	// program in a container could use cables with them that are not there.
	Tables []string
	// Other are devices of which something else differs, such as a mount, a variable or
	// an annotation, and devices that a spec made now does not have, but whose nodes are
	// those of LPUs.
	Other []string
}

// Any reports whether there is a difference.
func (d *Drift) Any() bool { return len(d.All()) > 0 }

// All are the devices that differ.
func (d *Drift) All() []string {
	return slices.Concat(d.Wrong, d.Dangling, d.Missing, d.Tables, d.Other)
}

// Names reports whether there is a name that does not lead to the nodes of its LPUs.
func (d *Drift) Names() bool { return len(d.Wrong)+len(d.Dangling)+len(d.Missing) > 0 }

// String says what differs, for the log.
func (d *Drift) String() string {
	var texts []string
	for _, part := range []struct {
		what  string
		names []string
	}{
		{"wrong nodes", d.Wrong}, {"nodes that are gone", d.Dangling}, {"missing", d.Missing},
		{"ring tables", d.Tables}, {"other differences", d.Other},
	} {
		if len(part.names) > 0 {
			texts = append(texts, part.what+": "+some(part.names))
		}
	}
	return strings.Join(texts, "; ")
}

// Drift compares the file with the spec of an inventory, which is nil if no LPU has a
// node. The error says that the file cannot be read, or that no runtime would take it:
// then every device is missing.
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
	return newComparison(inv, want, f.exists).drift(have), err
}

// exists reports whether there is a device node, as far as /dev can be seen.
func (f File) exists(path string) bool { return !f.Root.Exists("/dev") || f.Root.Exists(path) }

// drift compares a whole spec in place.
func (c *comparison) drift(have *specs.Spec) (d Drift) {
	there := newMade(have)
	for _, w := range c.want.Devices {
		if i, has := there.at[w.Name]; has {
			c.sort(&d, have, i, maps.Equal(have.Devices[i].Annotations, w.Annotations))
		} else {
			d.Missing = append(d.Missing, w.Name)
		}
	}
	for i, h := range have.Devices {
		if _, now := c.want.at[h.Name]; !now {
			c.sort(&d, have, i, false)
		}
	}
	return d
}

// sort puts one device that differs into its list. alike: its annotations are the same.
func (c *comparison) sort(d *Drift, have *specs.Spec, i int, alike bool) {
	v, name := c.judge(have, i), have.Devices[i].Name
	bad := slices.Concat(v.foreign, v.numbers)
	switch {
	case slices.ContainsFunc(bad, func(g given) bool { return c.exists(hostPath(g.node)) }):
		d.Wrong = append(d.Wrong, name)
	case len(bad) > 0:
		d.Dangling = append(d.Dangling, name)
	case len(v.lacks) > 0:
		d.Missing = append(d.Missing, name)
	case tableOf(have.Devices[i]) != c.want.table(name):
		d.Tables = append(d.Tables, name)
	case len(v.rest) > 0 || !alike:
		d.Other = append(d.Other, name)
	}
}
