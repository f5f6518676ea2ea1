package cdi

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// checkContent finds what the CDI library accepts and should not.
func (v *Validator) checkContent(d *document) {
	vendor, class := parser.ParseQualifier(d.spec.Kind)
	if len(vendor) == 1 || len(class) == 1 {
		d.add(finding.OneLetterName, "kind", fmt.Sprintf("runtimes with a CDI library up to 1.1.0 crash on the kind %q", d.spec.Kind), "give vendor and class two letters or more")
	}
	d.checkEdits("containerEdits", &d.spec.ContainerEdits)
	for i := range d.spec.Devices {
		d.checkEdits(fmt.Sprintf("devices.%d.containerEdits", i), &d.spec.Devices[i].ContainerEdits)
	}
	lowest, err := specs.MinimumRequiredVersion(d.spec)
	for _, t := range v.Targets {
		switch {
		case t.Newest == "":
			d.add(finding.Target, "cdiVersion", fmt.Sprintf("%s %s knows no CDI", t.Consumer, t.Release), "use a newer release")
		case err == nil && olderThan(t.Newest, lowest):
			d.add(finding.Target, "cdiVersion", fmt.Sprintf("%s %s loads cdiVersion %s at most, and what this file uses came with %s", t.Consumer, t.Release, t.Newest, lowest), "use a newer release, or leave out what needs it")
		case olderThan(t.Newest, d.spec.Version):
			d.add(finding.Target, "cdiVersion", fmt.Sprintf("%s %s loads cdiVersion %s at most, not %s", t.Consumer, t.Release, t.Newest, d.spec.Version), "write cdiVersion "+lowest+", which is enough for this file")
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
			d.add(finding.DuplicateEnv, here, fmt.Sprintf("%s is set twice: the last silently wins", key), "keep one of them")
		}
		seen[key] = variable
		if key == "PATH" || key == "LD_LIBRARY_PATH" {
			d.add(finding.ImageEnv, here, key+" replaces what the image says", "leave it to the image; mount libraries where the loader looks")
		}
	}
	nodes := map[string]bool{}
	for i, n := range e.DeviceNodes {
		if nodes[n.Path] {
			d.add(finding.DuplicateNode, fmt.Sprintf("%s.deviceNodes.%d", at, i), n.Path+" stands here twice: the last silently wins", "keep one of them")
		}
		nodes[n.Path] = true
	}
	for i, h := range e.Hooks {
		if h.Timeout != nil && *h.Timeout <= 0 {
			d.add(finding.HookTimeout, fmt.Sprintf("%s.hooks.%d.timeout", at, i), "low-level runtimes refuse a timeout of 0", "leave it out, or write seconds")
		}
	}
}

func (d *document) checkPaths(at string, e *specs.ContainerEdits) {
	relative := func(where, path string) {
		if path != "" && !filepath.IsAbs(path) {
			d.add(finding.RelativePath, at+"."+where, fmt.Sprintf("%q is not an absolute path: the container does not start", path), "write it from / on")
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

// collisions finds variables that two devices of a file set differently: of a container that gets both, the one injected
// last wins, and nobody is told. Where another device stands for all that set it, that is the one to use, and a note.
func (d *document) collisions() {
	holders := map[string][]int{} // of each variable, the devices that set it
	values := make([]map[string]string, len(d.spec.Devices))
	var keys []string
	for i := range d.spec.Devices {
		values[i] = map[string]string{}
		for _, variable := range d.spec.Devices[i].ContainerEdits.Env {
			key, value, _ := strings.Cut(variable, "=")
			if holders[key] == nil {
				keys = append(keys, key)
			}
			if _, again := values[i][key]; !again {
				holders[key] = append(holders[key], i)
			}
			values[i][key] = value
		}
	}
	var harmless []string // variables where another device stands for all
	example := ""
	for _, key := range keys {
		first := holders[key][0]
		i := slices.IndexFunc(holders[key], func(device int) bool { return values[device][key] != values[first][key] })
		if i < 0 {
			continue
		}
		a, b := d.spec.Devices[first].Name, d.spec.Devices[holders[key][i]].Name
		if d.standsForAll(holders[key]) {
			harmless = append(harmless, key)
			example = cmp.Or(example, a+" and "+b)
			continue
		}
		d.add(finding.EnvCollision, fmt.Sprintf("devices.%d", holders[key][i]), fmt.Sprintf("a container with %s and %s gets the %s of the last one only", a, b, key),
			"leave the variable out of devices that are meant to be combined, or define a device that stands for both")
	}
	if len(harmless) > 0 {
		d.add(finding.EnvCollision, "", fmt.Sprintf("of devices that are injected together, such as %s, the last one's %s wins", example, strings.Join(harmless, ", ")),
			"name the one device that stands for all that are wanted, not several").Severity = finding.Note
	}
}

// standsForAll tells whether one device has all the nodes of some.
func (d *document) standsForAll(devices []int) bool {
	var wanted []string
	for _, i := range devices {
		wanted = append(wanted, nodePaths(d.spec.Devices[i])...)
	}
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	return len(wanted) > 0 && slices.ContainsFunc(d.spec.Devices, func(device specs.Device) bool {
		has := nodePaths(device)
		return !slices.ContainsFunc(wanted, func(path string) bool { return !slices.Contains(has, path) })
	})
}
