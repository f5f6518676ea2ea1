package cdi

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Faults are the devices of our kind with which a container gets a node that is not its
// LPU's, by all files that are read in some orders. Without any, the directory of the
// file is all that is read. If our file is the only one, see [File.Drift].
func (f File) Faults(inv *discovery.Inventory, orders []Order) (finding.List, error) {
	if f.IsAlone(orders) {
		return nil, nil
	}
	v := Validator{Root: f.Root, Host: true, Kind: f.kind, Own: f.Path, Inventory: inv, Orders: orders}
	r, err := v.readBelow([]string{f.dir})
	if err != nil {
		return nil, err
	}
	return v.checkHardware(r), nil
}

// IsAlone reports whether runtimes read no other file than this one: then there is
// nothing that it has to be held against, which takes long.
func (f File) IsAlone(orders []Order) bool {
	for _, dir := range f.Dirs(orders) {
		files, err := specFiles(dir, ".json", ".yaml")
		if host.IsShortage(err) || slices.ContainsFunc(files, func(path string) bool { return path != f.Path }) {
			return false
		}
	}
	return true
}

// Dirs are the directory of the file and those that are read in some orders, as they lead
// to.
func (f File) Dirs(orders []Order) []string {
	dirs := []string{filepath.Dir(f.Path)}
	for _, order := range orders {
		more, _ := resolveDirs(f.Root, order.Dirs)
		dirs = appendNew(dirs, more...)
	}
	return dirs
}

// effectively holds the devices of one file against what a spec made now would give a
// container.
type effectively struct {
	*comparison

	v     *Validator
	r     *reading
	d     *document
	found []common
}

// common is one difference that several devices of a file have.
type common struct {
	difference

	id    finding.ID
	names []string
}

// now compares with a spec made now. What a user may have asked for when the spec was
// made is no difference.
func (v *Validator) now() *comparison {
	exists := func(path string) bool { return v.seesDev() && v.Root.Exists(path) }
	c := newComparison(v.Inventory, v.specNow(Options{}), exists)
	c.management, c.unchecked = newMade(v.specNow(Options{Management: true})), newMade(v.specNow(Options{UncheckedMounts: true}))
	return c
}

// checkHardware holds each device of ours that a container can get against a spec made
// now, whichever file serves it.
func (v *Validator) checkHardware(r *reading) (faults finding.List) {
	if !v.Host || v.Inventory == nil {
		return nil
	}
	c := v.now()
	for _, d := range r.documents {
		e := effectively{comparison: c, v: v, r: r, d: d}
		faults = append(faults, e.checkFile()...)
		for _, f := range e.found {
			message := some(f.names) + " " + f.text
			if f.id == finding.StaleDevice {
				message = f.text + " " + some(f.names)
			}
			d.add(f.id, f.at, message, d.renewal)
		}
	}
	return faults
}

func (e *effectively) checkFile() (faults finding.List) {
	for _, spec := range e.d.versions() {
		if spec.Kind != e.v.Kind {
			continue
		}
		serves := false
		for i, device := range spec.Devices {
			readers := e.r.serving(place{e.d, spec, i})
			serves = serves || len(readers) > 0
			if _, now := e.want.at[device.Name]; len(readers) == 0 || !now && !ourName(device.Name) {
				continue // a name of another's making leads where they want
			}
			if wrong := e.checkDevice(spec, i, readers); wrong != "" {
				faults.Add(finding.NodeWrong, device.Name, wrong, e.d.renewal).At(e.d.path, 0)
			}
		}
		if serves {
			e.commonNodes(spec)
		}
	}
	return faults
}

// checkDevice judges one device. It returns what is wrong if a container gets a node that
// is not its LPU's.
func (e *effectively) checkDevice(spec *specs.Spec, i int, readers []*reader) (wrong string) {
	v, name, whose := e.judge(spec, i), spec.Devices[i].Name, e.r.whose(readers)
	if !v.now {
		v.foreign = slices.DeleteFunc(v.foreign, func(g given) bool {
			return e.owners[hostPath(g.node)].LPU == nil && !e.exists(hostPath(g.node))
		})
	}
	text, at := e.wrongNodes(name, v)
	switch {
	case text == "":
	case !isSet(name):
		e.add(finding.NodeWrong, name, i, at, text+whose)
	case !slices.Equal(hosts(v.nodes), e.membersHave(name, readers[0])):
		e.add(finding.SetWrong, name, i, at, text+whose)
	}
	if len(v.foreign) > 0 {
		wrong = cmp.Or(text, "gives a container "+e.describe(v.foreign[0].node)) + whose
	}
	if !slices.ContainsFunc(readers, func(r *reader) bool { return r.sure }) {
		return wrong
	}
	if !v.now && len(v.foreign) == 0 {
		e.add(finding.StaleDevice, name, i, "", "a spec made now would not have")
	}
	if !e.v.seesDev() { // else see checkNode
		for _, g := range v.numbers {
			n, is := g.node, e.owners[hostPath(g.node)].node
			e.add(finding.NodeNumbers, name, i, g.at,
				fmt.Sprintf("gets %d:%d for %s, which is %d:%d", n.Major, n.Minor, is.Path, is.Major, is.Minor))
		}
	}
	for _, differs := range v.rest {
		e.add(finding.SpecDrift, name, i, differs.at, differs.text)
	}
	return wrong
}

// wrongNodes says which nodes a device gives by itself and should not, or lacks, and
// where; "" if they are right. Common nodes are a finding of their own.
func (e *effectively) wrongNodes(name string, v verdict) (text, at string) {
	var foreign, says []string
	for _, g := range v.nodes {
		if !strings.HasPrefix(g.at, "containerEdits") {
			says = append(says, e.describe(g.node))
		}
	}
	for _, g := range v.foreign {
		if !strings.HasPrefix(g.at, "containerEdits") {
			foreign, at = append(foreign, e.describe(g.node)), cmp.Or(at, g.at)
		}
	}
	switch {
	case len(foreign)+len(v.lacks) == 0:
		return "", ""
	case !v.now:
		return "gives a container " + strings.Join(foreign, "; ") + ", and a spec made now would not have it", at
	case !isSet(name):
		must := strings.Join(hosts(e.want.given(name)), ", ")
		return fmt.Sprintf("must give %s, and the file gives %s", must, cmp.Or(strings.Join(says, "; "), "no node")), at
	}
	var wrong []string
	if len(v.lacks) > 0 {
		wrong = append(wrong, "lacks the node of "+some(v.lacks))
	}
	if len(foreign) > 0 {
		wrong = append(wrong, "has "+some(foreign))
	}
	return strings.Join(wrong, ", and "), at
}

// isSet reports whether the name of a device of ours is that of several LPUs.
func isSet(name string) bool {
	return name == AllDevice || strings.HasPrefix(name, "lpu") && strings.Contains(name, "-")
}

// membersHave are the nodes that a container gets with the LPUs of a set one by one: what
// is wrong with them is not said again of the set.
func (e *effectively) membersHave(set string, by *reader) []string {
	var all []given
	for index := range strings.SplitSeq(strings.TrimPrefix(set, "lpu"), "-") {
		all = append(all, by.given(e.v.Kind+"=lpu"+index)...)
	}
	if set == AllDevice {
		for _, i := range cardsWithNode(e.inv) {
			all = append(all, by.given(e.v.Kind+"="+e.inv.LPUs[i].Name)...)
		}
	}
	return hosts(all)
}

// add adds a difference of a device. at is its place; "" is the device.
func (e *effectively) add(id finding.ID, name string, i int, at, text string) {
	for j := range e.found {
		if f := &e.found[j]; f.id == id && f.text == text {
			f.names = appendNew(f.names, name)
			return
		}
	}
	e.found = append(e.found, common{difference{cmp.Or(at, fmt.Sprintf("devices.%d", i)), text}, id, []string{name}})
}

// commonNodes finds nodes that every container gets: a spec of ours has none.
func (e *effectively) commonNodes(spec *specs.Spec) {
	for i, n := range spec.ContainerEdits.DeviceNodes {
		message := "every container with a device of this file gets " + e.describe(n)
		e.d.add(finding.CommonNode, fmt.Sprintf("containerEdits.deviceNodes.%d", i), message, e.d.renewal)
	}
}

// specNow is the spec that would be made now; one without devices where there is none.
func (v *Validator) specNow(o Options) *specs.Spec {
	o.Kind = v.Kind
	if spec, _, err := Spec(v.inventory(), o); err == nil {
		return spec
	}
	return &specs.Spec{}
}
