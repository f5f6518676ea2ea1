package cdi

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// checkTargets checks the cdiVersion of a file against the targets.
func (v *Validator) checkTargets(d *document) {
	lowest, _ := specs.MinimumRequiredVersion(d.spec)
	for _, t := range v.Targets {
		most := fmt.Sprintf("%s loads cdiVersion %s at most, ", t, t.Newest)
		switch {
		case t.Newest == "":
			d.add(finding.Target, "cdiVersion", t.String()+" knows no CDI", "use a newer release")
		case isOlder(t.Newest, lowest):
			d.add(finding.Target, "cdiVersion", most+"and what this file uses came with "+lowest, "use a newer release, or leave out what needs it")
		case isOlder(t.Newest, d.spec.Version):
			d.add(finding.Target, "cdiVersion", most+"not "+d.spec.Version, "write cdiVersion "+lowest+", which is enough for this file")
		}
	}
}

// checkEdits finds what the CDI library accepts and should not and, on the host, what
// does not fit this machine.
func (v *Validator) checkEdits(d *document, at string, e *specs.ContainerEdits, host bool) {
	d.checkEnv(at, e.Env)
	nodes := map[string]bool{}
	for i, n := range e.DeviceNodes {
		here := fmt.Sprintf("%s.deviceNodes.%d", at, i)
		d.absolute(here+".path", n.Path)
		d.absolute(here+".hostPath", n.HostPath)
		if nodes[n.Path] {
			d.add(finding.DuplicateNode, here, n.Path+" is here twice: the last silently wins", "")
		}
		nodes[n.Path] = true
		if host {
			v.checkNode(d, here, n)
		}
	}
	for i, m := range e.Mounts {
		here := fmt.Sprintf("%s.mounts.%d", at, i)
		bind := m.Type == "" || m.Type == "bind"
		if bind {
			d.absolute(here+".hostPath", m.HostPath)
		}
		d.absolute(here+".containerPath", m.ContainerPath)
		if host && (bind || slices.Contains(m.Options, "bind")) {
			v.checkMount(d, here, m)
		}
	}
	for i, h := range e.Hooks {
		here := fmt.Sprintf("%s.hooks.%d", at, i)
		d.absolute(here+".path", h.Path)
		if h.Timeout != nil && *h.Timeout <= 0 {
			d.add(finding.HookTimeout, here+".timeout", "low-level runtimes refuse a timeout of 0", "")
		}
		if host {
			v.checkHook(d, here, h)
		}
	}
}

func (d *document) checkEnv(at string, env []string) {
	seen := map[string]string{}
	for i, variable := range env {
		key, _, _ := strings.Cut(variable, "=")
		here := fmt.Sprintf("%s.env.%d", at, i)
		if before, again := seen[key]; again && before != variable {
			d.add(finding.DuplicateEnv, here, key+" is set twice: the last silently wins", "")
		}
		seen[key] = variable
		if key == "PATH" || key == "LD_LIBRARY_PATH" {
			d.add(finding.ImageEnv, here, key+" replaces what the image says", "")
		}
	}
}

func (d *document) absolute(at, path string) {
	if path != "" && !filepath.IsAbs(path) {
		d.add(finding.RelativePath, at, fmt.Sprintf("%q is not an absolute path: the container does not start", path), "")
	}
}

// setting is the value that a device gives a variable.
type setting struct {
	device int
	value  string
}

// collisions finds variables that two devices of a file set differently: a container with
// both gets the value of the one that is injected last. Where one device covers all that
// set the variable, that one is to be used, and nothing is wrong with the file.
func (d *document) collisions() {
	all := map[string][]setting{} // of each variable
	var keys []string
	for i, device := range d.spec.Devices {
		for _, variable := range device.ContainerEdits.Env {
			key, value, _ := strings.Cut(variable, "=")
			if all[key] == nil {
				keys = append(keys, key)
			}
			before := slices.DeleteFunc(all[key], func(s setting) bool { return s.device == i })
			all[key] = append(before, setting{i, value})
		}
	}
	for _, key := range keys {
		settings := all[key]
		other := slices.IndexFunc(settings, func(s setting) bool { return s.value != settings[0].value })
		if other < 0 || d.covered(settings) {
			continue
		}
		a, b := d.spec.Devices[settings[0].device].Name, d.spec.Devices[settings[other].device].Name
		message := fmt.Sprintf("a container with %s and %s gets the %s of the last one only", a, b, key)
		d.add(finding.EnvCollision, fmt.Sprintf("devices.%d", settings[other].device), message, "")
	}
}

// covered reports whether one device has all nodes of the devices that set a variable.
func (d *document) covered(settings []setting) bool {
	var wanted []string
	for _, s := range settings {
		wanted = append(wanted, nodePaths(d.spec.Devices[s.device])...)
	}
	return len(wanted) > 0 && slices.ContainsFunc(d.spec.Devices, func(device specs.Device) bool {
		has := nodePaths(device)
		return !slices.ContainsFunc(wanted, func(path string) bool { return !slices.Contains(has, path) })
	})
}
