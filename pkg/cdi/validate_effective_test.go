package cdi_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

var bothDirs = []string{"/etc/cdi", cdi.DefaultSpecDir}

// refreshed is a simulated server with its spec in place, and a validator for it.
func refreshed(t *testing.T, faults ...string) (own string, v *cdi.Validator) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "node")
	n := simulate.Node{Profile: "orion", LPUs: 4}
	for _, text := range faults {
		fault, err := simulate.ParseFault(text)
		if err != nil {
			t.Fatal(err)
		}
		n.Faults = append(n.Faults, fault)
	}
	if _, err := n.Write(root); err != nil {
		t.Fatal(err)
	}
	inv, err := discovery.Scan(t.Context(), root, discovery.Options{Management: true})
	if err != nil {
		t.Fatal(err)
	}
	file, err := cdi.Locate(root, cdi.DefaultSpecDir, cdi.DefaultKind)
	if err != nil {
		t.Fatal(err)
	}
	if err := unwritten(cdi.SpecAndTables(host.Root(root), inv, cdi.Options{})); err != nil {
		t.Fatal(err)
	}
	v = &cdi.Validator{Host: true, Root: host.Root(root), Kind: cdi.DefaultKind, Inventory: inv, Own: file.Path}
	if spec, _, err := cdi.Spec(inv, cdi.Options{}); err == nil {
		putInPlace(t, file, spec)
	}
	return file.Path, v
}

// putInPlace writes a spec as refresh does.
func putInPlace(t *testing.T, file cdi.File, spec *specs.Spec) {
	t.Helper()
	held, err := file.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	if err := held.Write(spec); err != nil {
		t.Fatal(err)
	}
}

// change edits a spec in place.
func change(t *testing.T, path string, edit func(*specs.Spec)) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		t.Fatal(err)
	}
	edit(&spec)
	if data, err = cdi.Marshal(&spec); err != nil {
		t.Fatal(err)
	}
	put(t, path, string(data))
}

func device(s *specs.Spec, name string) *specs.ContainerEdits {
	i := slices.IndexFunc(s.Devices, func(d specs.Device) bool { return d.Name == name })
	return &s.Devices[i].ContainerEdits
}

// lineOf is the line, from 1, of the first line of a file that contains a text.
func lineOf(t *testing.T, path, text string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(data), text)
	if !found {
		t.Fatalf("%s has no %s", path, text)
	}
	return 1 + strings.Count(before, "\n")
}

// TestWhatAContainerGets: a spec in place is compared as a whole with the one that would be made now. Each case yields just one
// finding, at its place, and the remedy makes it go away.
func TestWhatAContainerGets(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(s *specs.Spec, nodes []string)
		id      finding.ID
		message string // part of it; NODE2 is the node of lpu2
		line    string // text of the line, or of the line below
	}{
		"the node of another card under the path of its own": {
			func(s *specs.Spec, nodes []string) {
				s.Version = "0.5.0"
				device(s, "lpu0").DeviceNodes[0].HostPath = nodes[2]
			}, "node-wrong", "lpu0 must give NODE0, and the file gives NODE2 as NODE0, the node of lpu2", `"path"`,
		},
		"the node of another card": {
			func(s *specs.Spec, nodes []string) { device(s, "pci-0000-43-00.1").DeviceNodes[0].Path = nodes[2] },
			"node-wrong", "pci-0000-43-00.1 must give NODE0, and the file gives NODE2, the node of lpu2", "",
		},
		"no node": {
			func(s *specs.Spec, _ []string) { device(s, "lpu1").DeviceNodes = nil }, "node-wrong", "the file gives no node", "",
		},
		"one node more": {
			func(s *specs.Spec, nodes []string) {
				e := device(s, "lpu0")
				e.DeviceNodes = append(e.DeviceNodes, &specs.DeviceNode{Path: nodes[3], Permissions: "rw"})
			}, "node-wrong", "NODE3, the node of lpu3", "NODE3",
		},
		"a node for everybody": {
			func(s *specs.Spec, nodes []string) {
				s.ContainerEdits.DeviceNodes = []*specs.DeviceNode{{Path: nodes[1], Permissions: "rw"}}
			}, "common-node", "every container with a device of this file gets NODE1, the node of lpu1", "",
		},
		"a set that is cut": {
			func(s *specs.Spec, _ []string) { e := device(s, "all"); e.DeviceNodes = e.DeviceNodes[:1] },
			"set-wrong", "all lacks the node of lpu1, lpu2, lpu3", `"name": "all"`,
		},
		"a set with another card": {
			func(s *specs.Spec, nodes []string) { device(s, "lpu0-1").DeviceNodes[1].Path = nodes[3] },
			"set-wrong", "lpu0-1 lacks the node of lpu1, and has NODE3, the node of lpu3", "",
		},
		"a variable of yesterday": {
			func(s *specs.Spec, _ []string) { s.ContainerEdits.Env[0] = "LPU_DRIVER_VERSION=1" },
			"spec-drift", "and 15 more would get LPU_DRIVER_VERSION=2.", "LPU_DRIVER_VERSION=1",
		},
		"a variable that is lacking": {
			func(s *specs.Spec, _ []string) { e := device(s, "all"); e.Env = e.Env[:len(e.Env)-1] },
			"spec-drift", "all would get NUM_LPU_DEVICES=4", `"name": "all"`,
		},
		"a variable too many": {
			func(s *specs.Spec, _ []string) { e := device(s, "lpu2"); e.Env = append(e.Env, "FOO=bar") },
			"spec-drift", "lpu2 would not get FOO=bar", "FOO=bar",
		},
		"a list of other LPUs": {
			func(s *specs.Spec, _ []string) {
				e := device(s, "lpu0-1")
				i := slices.Index(e.Env, "LPU_VISIBLE_DEVICES=0,1")
				e.Env[i] = "LPU_VISIBLE_DEVICES=0,3"
			}, "spec-drift", "lpu0-1 would get LPU_VISIBLE_DEVICES=0,1 by a spec made now, and the file says LPU_VISIBLE_DEVICES=0,3", "DEVICES=0,3",
		},
		"a mount of something else": {
			func(s *specs.Spec, _ []string) { device(s, "lpu2").Mounts[0].HostPath = "/etc" },
			"spec-drift", "and the file says the mount of /etc at", `"/etc"`,
		},
		"a mount that is lacking": {
			func(s *specs.Spec, _ []string) { e := device(s, "lpu2"); e.Mounts = e.Mounts[1:] }, "spec-drift", "would get the mount of /opt/", "",
		},
		"other numbers": {
			func(s *specs.Spec, _ []string) {
				n := device(s, "lpu3").DeviceNodes[0]
				n.Type, n.Major, n.Minor = "c", 1, 3
			}, "node-numbers", " 1:3", "",
		},
		"less that a container may do": {
			func(s *specs.Spec, _ []string) { device(s, "lpu3").DeviceNodes[0].Permissions = "r" },
			"spec-drift", `"permissions":"r"`, "",
		},
		"a group": {
			func(s *specs.Spec, _ []string) { s.Version = "0.7.0"; device(s, "lpu3").AdditionalGIDs = []uint32{44} },
			"spec-drift", `would not get {"additionalGids":[44]}`, "",
		},
		"a set that is not defined": {
			func(s *specs.Spec, _ []string) {
				s.Devices = slices.DeleteFunc(s.Devices, func(d specs.Device) bool { return d.Name == "lpu0-1" })
			}, "device-missing", "no spec file defines lpu0-1, and a spec made now would", "",
		},
		"a device that is gone, with the node of another card": {
			func(s *specs.Spec, _ []string) {
				s.Devices = append(s.Devices, specs.Device{Name: "lpu7", ContainerEdits: *device(s, "lpu0")})
			}, "node-wrong", "lpu7 gives a container NODE0, the node of lpu0, and a spec made now would not have it", "",
		},
		"a set that is none": {
			func(s *specs.Spec, _ []string) {
				s.Devices = append(s.Devices, specs.Device{Name: "lpu1-0", ContainerEdits: *device(s, "lpu0")})
			}, "stale-device", "a spec made now would not have lpu1-0", `"name": "lpu1-0"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			own, v := refreshed(t)
			var nodes []string
			for _, l := range v.Inventory.LPUs {
				nodes = append(nodes, l.Nodes[0].Path)
			}
			named := strings.NewReplacer("NODE0", nodes[0], "NODE1", nodes[1], "NODE2", nodes[2], "NODE3", nodes[3])
			good, err := os.ReadFile(own)
			if err != nil {
				t.Fatal(err)
			}
			change(t, own, func(s *specs.Spec) { c.edit(s, nodes) })
			findings, err := v.Dirs(bothDirs)
			if err != nil || len(findings) != 1 || findings[0].ID != c.id || !strings.Contains(findings[0].Message, named.Replace(c.message)) {
				t.Fatalf("%v %v", findings, err)
			}
			f := findings[0]
			if line := lineOf(t, own, named.Replace(c.line)); c.line != "" && (f.File != own || f.Line != line && f.Line != line-1) {
				t.Errorf("%s:%d, want the line of %s, %d", f.File, f.Line, c.line, line)
			}
			if f.Remedy != "lpuctl cdi refresh" {
				t.Errorf("remedy %q", f.Remedy)
			}
			put(t, own, string(good)) // which is what the remedy does
			if findings, err := v.Dirs(bothDirs); err != nil || len(findings) > 0 {
				t.Errorf("afterwards: %v %v", findings, err)
			}
		})
	}
}

// TestSwappedNodes: sets do not repeat what is wrong with their LPUs.
func TestSwappedNodes(t *testing.T) {
	own, v := refreshed(t)
	data, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	a, b := v.Inventory.LPUs[0].Nodes[0].Path, v.Inventory.LPUs[1].Nodes[0].Path
	put(t, own, strings.NewReplacer(a, b, b, a).Replace(string(data)))
	findings, err := v.Dirs(bothDirs)
	if err != nil || !slices.Equal(idsOf(findings), []string{"node-wrong", "node-wrong"}) {
		t.Errorf("%v %v", findings, err)
	}
}

// TestSetOfAnotherFile: where another file serves the LPUs of a set, and rightly, what is wrong with the set is said.
func TestSetOfAnotherFile(t *testing.T) {
	own, v := refreshed(t)
	data, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	a, b := v.Inventory.LPUs[0].Nodes[0].Path, v.Inventory.LPUs[1].Nodes[0].Path
	put(t, filepath.Join(string(v.Root), "etc/cdi/old.json"), strings.ReplaceAll(string(data), a, b))
	change(t, own, func(s *specs.Spec) {
		s.Devices = slices.DeleteFunc(s.Devices, func(d specs.Device) bool { return d.Name == "all" })
	})
	findings, err := v.Dirs(bothDirs)
	if err != nil || !slices.Equal(idsOf(findings), []string{"other-file", "duplicate-node", "set-wrong", "shadowed"}) {
		t.Errorf("%v %v", findings, err)
	}
}

// TestOptionsAreNoDrift: what a user asked for when the spec was made is not wrong.
func TestOptionsAreNoDrift(t *testing.T) {
	for _, o := range []cdi.Options{{Management: true}, {Annotations: true}, {Version: "0.6.0"}, {UncheckedMounts: true}} {
		own, v := refreshed(t)
		spec, _, err := cdi.Spec(v.Inventory, o)
		if err != nil {
			t.Fatal(err)
		}
		data, err := cdi.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		put(t, own, string(data))
		if findings, err := v.Dirs(bothDirs); err != nil || len(findings) > 0 {
			t.Errorf("%+v: %v %v", o, findings, err)
		}
	}
}

// TestPartialSpec: each LPU with a node that no file defines is an error, and so is no file at all.
func TestPartialSpec(t *testing.T) {
	own, v := refreshed(t, "unbound@3", "recovery@2")
	change(t, own, func(s *specs.Spec) { s.Devices = s.Devices[:1] })
	findings, err := v.Dirs(bothDirs)
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	for _, f := range findings {
		if f.ID == finding.DeviceMissing && f.Severity == finding.Error && f.Remedy == "lpuctl cdi refresh" {
			missing = append(missing, f.Subject)
		}
	}
	if !slices.Equal(missing, []string{"lpu1", "lpu2"}) { // lpu2 cannot compute, and is in the spec all the same; lpu3 has no node
		t.Errorf("missing %v of %v", missing, findings)
	}
	_, v = refreshed(t)
	change(t, v.Own, func(s *specs.Spec) { s.Devices = s.Devices[1:] })
	findings, err = v.Dirs(bothDirs)
	if err != nil || !slices.Equal(idsOf(findings), []string{"device-missing"}) || !strings.Contains(findings[0].Message, "defines lpu0") {
		t.Errorf("one name of lpu0: %v %v", findings, err)
	}
	change(t, v.Own, func(s *specs.Spec) { // by hand, without names by address
		s.Devices = slices.DeleteFunc(s.Devices, func(d specs.Device) bool { return strings.HasPrefix(d.Name, "pci-") })
		s.Devices = append(s.Devices, specs.Device{Name: "lpu0", ContainerEdits: *device(s, "all")})
		device(s, "lpu0").DeviceNodes = device(s, "lpu0").DeviceNodes[:1]
	})
	if findings, err = v.Dirs(bothDirs); err != nil || findings.HasErrors() {
		t.Errorf("no names by address: %v %v", findings, err)
	}
	if err := os.Remove(v.Own); err != nil {
		t.Fatal(err)
	}
	if findings, err := v.Dirs(bothDirs); err != nil || findings[0].ID != finding.NoSpec {
		t.Errorf("%v %v", findings, err)
	}
}

// TestNoLPUHasANode: without a node there is no spec, and the reasons of the LPUs say why.
func TestNoLPUHasANode(t *testing.T) {
	_, v := refreshed(t, "unbound@0", "unbound@1", "vfio@2", "unbound@3")
	findings, err := v.Dirs(bothDirs)
	want := []string{"no-spec", "left-out", "left-out", "left-out", "left-out"}
	if err != nil || !slices.Equal(idsOf(findings), want) || !findings.HasErrors() {
		t.Fatalf("%v %v", findings, err)
	}
	if !strings.Contains(findings[1].Message, "no driver is bound") || !strings.Contains(findings[1].Remedy, "xocl") {
		t.Errorf("%+v", findings[1])
	}
}

// TestFactoryImage: the spec is as it should be, and a container gets a card that computes nothing.
func TestFactoryImage(t *testing.T) {
	_, v := refreshed(t, "recovery@1")
	findings, err := v.Dirs(bothDirs)
	if err != nil || !slices.Equal(idsOf(findings), []string{"factory-image"}) || findings[0].Severity != finding.Warning ||
		findings[0].Subject != "lpu1" || !strings.Contains(findings[0].Remedy, "flash") {
		t.Errorf("%v %v", findings, err)
	}
}

// TestWhyUnknown: the reason of the LPU that is meant comes first, then names.
func TestWhyUnknown(t *testing.T) {
	_, v := refreshed(t, "unbound@2")
	for name, want := range map[string]string{
		"lpu2":                   "lpu2 is in no spec: no driver is bound",
		"hyperaccel.ai/lpu=lpu2": "lpu2 is in no spec: no driver is bound",
		"2":                      "lpu2 is in no spec: no driver is bound",
		"pci-0000-45-00.1":       "lpu2 is in no spec: no driver is bound",
		"lpu1-2":                 "lpu2 is in no spec: no driver is bound",
		"lpu1-3":                 "lpu2 is in no spec: no driver is bound",
		"lpu9":                   "no file defines it; there are",
	} {
		v.Devices = []string{name}
		findings, err := v.Dirs(bothDirs)
		if err != nil || len(findings) != 1 || findings[0].ID != finding.DeviceUnknown || !strings.HasPrefix(findings[0].Message, want) {
			t.Errorf("%s: %v %v", name, findings, err)
		} else if strings.Contains(want, "driver") && !strings.Contains(findings[0].Remedy, "modprobe xocl") {
			t.Errorf("%s: remedy %q", name, findings[0].Remedy)
		}
	}
}

// TestRange: the name of a set lists its members; what looks like a range of LPUs is answered with that.
func TestRange(t *testing.T) {
	own, v := refreshed(t)
	for name, want := range map[string]string{
		"lpu0-3": "did you mean hyperaccel.ai/lpu=lpu0-1-2-3? The name of a set lists its members",
		"lpu1-3": "did you mean hyperaccel.ai/lpu=lpu1-2-3? The name of a set lists its members",
		"lpu1-9": "see lpuctl cdi list for every name",
		"lpuO":   "did you mean hyperaccel.ai/lpu=lpu0?",
	} {
		v.Devices = []string{name}
		findings, err := v.Dirs(bothDirs)
		if err != nil || len(findings) != 1 || findings[0].Remedy != want {
			t.Errorf("%s: %+v %v", name, findings, err)
		}
	}
	change(t, own, func(s *specs.Spec) { s.Devices = s.Devices[:4] })
	v.Devices = []string{"lpu0-3"}
	findings, err := v.Dirs(bothDirs)
	said := func(f finding.Finding) bool {
		return f.Message == "no file defines it, and a spec made now would have lpu0-1-2-3"
	}
	if err != nil || !slices.ContainsFunc(findings, said) {
		t.Errorf("%v %v", findings, err)
	}
}

// TestLinkedNode: runtimes look at a node without following a link, and do not start the container.
func TestLinkedNode(t *testing.T) {
	root, v := machine(t)
	if err := os.MkdirAll(filepath.Join(root, "dev/by-path"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../dri/renderD134", filepath.Join(root, "dev/by-path/card")); err != nil {
		t.Fatal(err)
	}
	text := "cdiVersion: 0.5.0\nkind: example.com/gpu\ndevices: [{name: a, containerEdits: {deviceNodes: [{path: /dev/by-path/card}]}}]\n"
	findings := v.File(put(t, filepath.Join(t.TempDir(), "spec.yaml"), text))
	if !slices.Equal(idsOf(findings), []string{"node-not-device"}) || !strings.Contains(findings[0].Message, "symbolic link") {
		t.Errorf("%v", findings)
	}
}
