package cdi

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// checkContent finds what the CDI library accepts and should not.
func (v *Validator) checkContent(d *document) {
	vendor, class := parser.ParseQualifier(d.spec.Kind)
	if len(vendor) == 1 || len(class) == 1 {
		d.add("one-letter-name", "kind", fmt.Sprintf("runtimes with a CDI library up to 1.1.0 crash on the kind %q", d.spec.Kind), "give vendor and class two letters or more")
	}
	d.checkEdits("containerEdits", &d.spec.ContainerEdits)
	for i := range d.spec.Devices {
		d.checkEdits(fmt.Sprintf("devices.%d.containerEdits", i), &d.spec.Devices[i].ContainerEdits)
	}
	lowest, err := specs.MinimumRequiredVersion(d.spec)
	for _, t := range v.Targets {
		switch {
		case t.Newest == "":
			d.add("target", "cdiVersion", fmt.Sprintf("%s %s knows no CDI", t.Consumer, t.Release), "use a newer release")
		case err == nil && olderThan(t.Newest, lowest):
			d.add("target", "cdiVersion", fmt.Sprintf("%s %s loads cdiVersion %s at most, and what this file uses came with %s", t.Consumer, t.Release, t.Newest, lowest), "use a newer release, or leave out what needs it")
		case olderThan(t.Newest, d.spec.Version):
			d.add("target", "cdiVersion", fmt.Sprintf("%s %s loads cdiVersion %s at most, not %s", t.Consumer, t.Release, t.Newest, d.spec.Version), "write cdiVersion "+lowest+", which is enough for this file")
		}
	}
}

func (d *document) checkEdits(at string, e *specs.ContainerEdits) {
	d.checkPaths(at, e)
	seen := map[string]string{}
	for i, variable := range e.Env {
		key, _, _ := strings.Cut(variable, "=")
		here := fmt.Sprintf("%s.env.%d", at, i)
		if before, again := seen[key]; again && before != variable {
			d.warn("duplicate-env", here, fmt.Sprintf("%s is set twice: the last silently wins", key), "keep one of them")
		}
		seen[key] = variable
		if key == "PATH" || key == "LD_LIBRARY_PATH" {
			d.warn("image-env", here, key+" replaces what the image says", "leave it to the image; mount libraries where the loader looks")
		}
	}
	nodes := map[string]bool{}
	for i, n := range e.DeviceNodes {
		if nodes[n.Path] {
			d.warn("duplicate-node", fmt.Sprintf("%s.deviceNodes.%d", at, i), n.Path+" stands here twice: the last silently wins", "keep one of them")
		}
		nodes[n.Path] = true
	}
	for i, h := range e.Hooks {
		if h.Timeout != nil && *h.Timeout <= 0 {
			d.add("hook-timeout", fmt.Sprintf("%s.hooks.%d.timeout", at, i), "low-level runtimes refuse a timeout of 0", "leave it out, or write seconds")
		}
	}
}

func (d *document) checkPaths(at string, e *specs.ContainerEdits) {
	relative := func(where, path string) {
		if path != "" && !filepath.IsAbs(path) {
			d.add("relative-path", at+"."+where, fmt.Sprintf("%q is not an absolute path: the container does not start", path), "write it from / on")
		}
	}
	for i, n := range e.DeviceNodes {
		relative(fmt.Sprintf("deviceNodes.%d.path", i), n.Path)
		relative(fmt.Sprintf("deviceNodes.%d.hostPath", i), n.HostPath)
	}
	for i, m := range e.Mounts {
		if m.Type == "" || m.Type == "bind" {
			relative(fmt.Sprintf("mounts.%d.hostPath", i), m.HostPath)
		}
		relative(fmt.Sprintf("mounts.%d.containerPath", i), m.ContainerPath)
	}
	for i, h := range e.Hooks {
		relative(fmt.Sprintf("hooks.%d.path", i), h.Path)
	}
}

// pairsMax bounds the search for two devices that collide and that nothing stands for.
const pairsMax = 1_000_000

// setting is what a device sets a variable to.
type setting struct {
	device int
	value  string
}

// collisions finds variables that two devices of a file set differently: of a container that gets both, the one injected
// last wins, and nobody is told. Where another device stands for both, that is the one to use, and a note.
func (d *document) collisions() {
	settings := map[string][]setting{}
	var keys []string
	for i := range d.spec.Devices {
		for _, variable := range d.spec.Devices[i].ContainerEdits.Env {
			key, value, _ := strings.Cut(variable, "=")
			if settings[key] == nil {
				keys = append(keys, key)
			}
			settings[key] = append(settings[key], setting{i, value})
		}
	}
	nodes := make([]map[string]bool, len(d.spec.Devices))
	everything := map[string]bool{}
	for i := range d.spec.Devices {
		nodes[i] = map[string]bool{}
		for _, n := range d.spec.Devices[i].ContainerEdits.DeviceNodes {
			nodes[i][n.Path], everything[n.Path] = true, true
		}
	}
	coversAll := slices.ContainsFunc(nodes, func(of map[string]bool) bool { return len(of) == len(everything) && len(of) > 0 })
	var harmless []string // variables where another device stands for both
	example := ""
	for _, key := range keys {
		pair, found := firstPair(settings[key], nodes, coversAll)
		if !found || !d.orderMatters(key, pair) {
			continue
		}
		at, a, b := fmt.Sprintf("devices.%d", pair[1]), d.spec.Devices[pair[0]].Name, d.spec.Devices[pair[1]].Name
		if coversAll || covered(nodes, pair) {
			harmless = append(harmless, key)
			example = cmp.Or(example, a+" and "+b)
			continue
		}
		d.warn("env-collision", at, fmt.Sprintf("a container with %s and %s gets the %s of the last one only", a, b, key),
			"leave the variable out of devices that are meant to be combined, or define a device that stands for both")
	}
	if len(harmless) > 0 {
		d.tell(discovery.SeverityNote, "env-collision", "", fmt.Sprintf("of devices that are injected together, such as %s, the last one's %s wins", example, strings.Join(harmless, ", ")),
			"name the one device that stands for all that are wanted, not several")
	}
}

// firstPair is two devices that set a variable differently: two that nothing stands for, if there are such.
func firstPair(settings []setting, nodes []map[string]bool, coversAll bool) (first [2]int, found bool) {
	pairs := 0
	for i, a := range settings {
		for _, b := range settings[i+1:] {
			if pairs++; pairs > pairsMax {
				return first, found
			}
			pair := [2]int{a.device, b.device}
			switch {
			case a.value == b.value || a.device == b.device:
			case coversAll || !covered(nodes, pair):
				return pair, true
			case !found:
				first, found = pair, true
			}
		}
	}
	return first, found
}

// covered tells whether a device has all nodes of two.
func covered(nodes []map[string]bool, pair [2]int) bool {
	return slices.ContainsFunc(nodes, func(of map[string]bool) bool {
		for _, i := range pair {
			for path := range nodes[i] {
				if !of[path] {
					return false
				}
			}
		}
		return len(of) > 0
	})
}

// orderMatters injects two devices into a container in both orders, with the library that runtimes use, and tells whether
// a variable comes out differently. Nodes are left out, because to inject them they have to exist.
func (d *document) orderMatters(key string, pair [2]int) bool {
	inject := func(order ...int) string {
		container := &oci.Spec{}
		edits := &cdi.ContainerEdits{ContainerEdits: &specs.ContainerEdits{}}
		for _, i := range order {
			edits.Append(&cdi.ContainerEdits{ContainerEdits: &specs.ContainerEdits{Env: d.spec.Devices[i].ContainerEdits.Env}})
		}
		if edits.Apply(container) != nil || container.Process == nil {
			return ""
		}
		value := ""
		for _, variable := range container.Process.Env {
			if v, ok := strings.CutPrefix(variable, key+"="); ok {
				value = v
			}
		}
		return value
	}
	return inject(pair[0], pair[1]) != inject(pair[1], pair[0])
}
