package cdi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// given is one thing that a container gets with a device, and the place in the document that says so.
type given struct {
	key  string // what it takes the place of: the same variable, or the same path in the container
	text string // for people
	at   string
	node *specs.DeviceNode // nil: it is no node
}

// hostPath is the node on the host.
func hostPath(n *specs.DeviceNode) string { return cmp.Or(n.HostPath, n.Path) }

// effective is what a container gets with a device of a spec: the common edits and the device's own, merged as the CDI library
// does, in which the last of a key counts.
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

// comparison holds the devices of a file against those of a spec made now.
type comparison struct {
	v          *Validator
	d          *document
	now        *devices
	spec       *specs.Spec // made now
	management *specs.Spec // made now with the nodes of the management functions
	unchecked  *specs.Spec // made now with the mounts that this machine does not have
	owners     map[string]*discovery.LPU
	serves     func(name string) bool // whether a container gets the device of a name by this file
	found      []difference
}

// difference is one that several devices of a file may have.
type difference struct {
	id       finding.ID
	at, text string
	names    []string
}

// checkHardware holds devices of ours against what a spec made now would give a container. A device that another file serves is
// left out.
func (v *Validator) checkHardware(d *document, serves func(name string) bool) {
	if !v.Host || v.Inventory == nil || d.spec.Kind != v.Kind {
		return
	}
	c := comparison{
		v: v, d: d, serves: serves, now: v.devicesNow(), owners: ownersOf(v.Inventory),
		spec: v.specNow(Options{}), management: v.specNow(Options{Management: true}), unchecked: v.specNow(Options{UncheckedMounts: true}),
	}
	c.commonNodes()
	for i, device := range d.spec.Devices {
		switch {
		case !serves(device.Name):
		case c.now.find(device.Name) != nil:
			c.compare(i)
		case ourName(device.Name):
			c.add(finding.StaleDevice, i, "", "a spec made now would not have")
		}
	}
	for _, f := range c.found {
		message := some(f.names) + " " + f.text
		if f.id == finding.StaleDevice {
			message = f.text + " " + some(f.names)
		}
		d.add(f.id, f.at, message, d.renewal)
	}
}

// ownersOf are the LPUs of nodes, by path.
func ownersOf(inv *discovery.Inventory) map[string]*discovery.LPU {
	owners := map[string]*discovery.LPU{}
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		for _, n := range nodesOf(*l, Options{Management: true}) {
			owners[n.Path] = l
		}
	}
	return owners
}

// add adds a difference of a device. at is its place; "" is the device.
func (c *comparison) add(id finding.ID, i int, at, text string) {
	name := c.d.spec.Devices[i].Name
	for j := range c.found {
		if f := &c.found[j]; f.id == id && f.text == text {
			f.names = append(f.names, name)
			return
		}
	}
	c.found = append(c.found, difference{id, cmp.Or(at, fmt.Sprintf("devices.%d", i)), text, []string{name}})
}

// commonNodes finds nodes that every container gets: a spec of ours has none.
func (c *comparison) commonNodes() {
	for i, n := range c.d.spec.ContainerEdits.DeviceNodes {
		message := fmt.Sprintf("every container with a device of this file gets %s", c.describe(n))
		c.d.add(finding.CommonNode, fmt.Sprintf("containerEdits.deviceNodes.%d", i), message, c.d.renewal)
	}
}

// describe names a node, its path in the container where that differs, and the LPU that it belongs to.
func (c *comparison) describe(n *specs.DeviceNode) string {
	text := hostPath(n)
	if n.Path != text {
		text += " as " + n.Path
	}
	if owner := c.owners[hostPath(n)]; owner != nil {
		text += ", the node of " + owner.Name
	}
	return text
}

// compare compares one device as a whole.
func (c *comparison) compare(i int) {
	device := c.now.find(c.d.spec.Devices[i].Name)
	have, want := effective(c.d.spec, i), givenWith(c.spec, device.name)
	c.compareNodes(i, device, have, want)
	absent := givenWith(c.unchecked, device.name) // a mount that this machine does not have is a finding of its own
	for _, h := range have {
		w := byKey(want, h.key)
		switch {
		case w != nil && w.text != h.text:
			c.add(finding.SpecDrift, i, h.at, fmt.Sprintf("would get %s by a spec made now, and the file says %s", w.text, h.text))
		case w == nil && h.node == nil && byKey(absent, h.key) == nil:
			c.add(finding.SpecDrift, i, h.at, "would not get "+h.text+" by a spec made now")
		}
	}
	for _, w := range want {
		if w.node == nil && byKey(have, w.key) == nil {
			c.add(finding.SpecDrift, i, "", "would get "+w.text+" by a spec made now")
		}
	}
}

// givenWith is what a container gets with the device of a name; nothing if the spec has none.
func givenWith(spec *specs.Spec, name string) []given {
	i := slices.IndexFunc(spec.Devices, sameName(name))
	if i < 0 {
		return nil
	}
	return effective(spec, i)
}

func byKey(all []given, key string) *given {
	if i := slices.IndexFunc(all, func(g given) bool { return g.key == key }); i >= 0 {
		return &all[i]
	}
	return nil
}

// hosts are the nodes on the host, sorted.
func hosts(all []given) (paths []string) {
	for _, g := range all {
		if g.node != nil {
			paths = append(paths, hostPath(g.node))
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(paths)))
}

// compareNodes finds that a device gives the nodes of other LPUs than its own, or gives one under the path of another.
func (c *comparison) compareNodes(i int, device *device, have, want []given) {
	allowed := givenWith(c.management, device.name)
	var foreign, says, lacks []string
	at, nodes := "", hosts(have)
	for _, h := range have {
		if h.node == nil || strings.HasPrefix(h.at, "containerEdits") {
			continue // common nodes are a finding of their own
		}
		says = append(says, c.describe(h.node))
		if g := byKey(allowed, h.key); g == nil || hostPath(g.node) != hostPath(h.node) {
			foreign, at = append(foreign, c.describe(h.node)), cmp.Or(at, h.at)
		}
		c.compareNumbers(i, h)
	}
	for _, l := range pick(c.v.Inventory, device.cards) {
		if slices.ContainsFunc(l.Nodes, func(n discovery.Node) bool { return !slices.Contains(nodes, n.Path) }) {
			lacks = append(lacks, l.Name)
		}
	}
	switch {
	case len(foreign)+len(lacks) == 0:
	case len(device.cards) == 1:
		now := strings.Join(hosts(want), ", ")
		c.add(finding.NodeWrong, i, at, fmt.Sprintf("must give %s, and the file gives %s", now, cmp.Or(strings.Join(says, "; "), "no node")))
	case !slices.Equal(nodes, c.membersHave(device)):
		var wrong []string
		if len(lacks) > 0 {
			wrong = append(wrong, "lacks the node of "+some(lacks))
		}
		if len(foreign) > 0 {
			wrong = append(wrong, "has "+some(foreign))
		}
		c.add(finding.SetWrong, i, at, strings.Join(wrong, ", and "))
	}
}

// membersHave are the nodes that the file gives the LPUs of a set one by one: what is wrong with them is not said again of the set.
func (c *comparison) membersHave(set *device) []string {
	var all []given
	for _, l := range pick(c.v.Inventory, set.cards) {
		if c.serves(l.Name) {
			all = append(all, givenWith(c.d.spec, l.Name)...)
		}
	}
	return hosts(all)
}

// compareNumbers finds other numbers than the kernel's, where the node itself cannot be seen.
func (c *comparison) compareNumbers(i int, h given) {
	owner := c.owners[hostPath(h.node)]
	if owner == nil || c.v.seesDev() || h.node.Major == 0 && h.node.Minor == 0 {
		return
	}
	for _, n := range nodesOf(*owner, Options{Management: true}) {
		if n.Path == hostPath(h.node) && (int64(n.Major) != h.node.Major || int64(n.Minor) != h.node.Minor) {
			text := fmt.Sprintf("gets %d:%d for %s, which is %d:%d", h.node.Major, h.node.Minor, n.Path, n.Major, n.Minor)
			c.add(finding.NodeNumbers, i, h.at, text)
		}
	}
}

// specNow is the spec that would be made now; one without devices where there is none.
func (v *Validator) specNow(o Options) *specs.Spec {
	if v.Inventory != nil {
		o.Kind = v.Kind
		if spec, _, err := Spec(v.Inventory, o); err == nil {
			return spec
		}
	}
	return &specs.Spec{}
}

// ourName tells whether a device name has the form of ours.
func ourName(name string) bool {
	return strings.HasPrefix(name, "lpu") || strings.HasPrefix(name, addressPrefix) || name == AllDevice
}
