package cdi

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/nearest"
	"github.com/hyperaccel/lpuctl/internal/strictyaml"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// specMax is far more than a spec needs: 512 LPUs take 5 MiB.
const specMax = 32 << 20 // bytes

// Validator tells whether containers will get what spec files promise. Its findings are listed in docs/findings.md.
type Validator struct {
	Root string // under which nodes, mounts and hooks are looked for
	Host bool   // hold files against the machine; else they are judged by what they say
	Kind string // ours
	// Inventory is what is in the machine, against which devices of our kind are held; nil: that is left out.
	Inventory *discovery.Inventory
	Targets   []Target
	// Devices that a container asks for, by qualified name or by that in our kind.
	Devices []string
}

// Target is a consumer of specs at a version: podman 4.3.1.
type Target struct {
	Consumer, Release string
	// Newest is the highest cdiVersion it loads; "": it knows no CDI.
	Newest string
}

// olderThan compares two cdiVersions.
func olderThan(a, b string) bool {
	var x, y [3]int
	_, _ = fmt.Sscanf(a, "%d.%d.%d", &x[0], &x[1], &x[2])
	_, _ = fmt.Sscanf(b, "%d.%d.%d", &y[0], &y[1], &y[2])
	return slices.Compare(x[:], y[:]) < 0
}

// document is one spec file as far as it could be read.
type document struct {
	path     string
	data     []byte
	spec     *specs.Spec // nil: no runtime can read it
	lines    *strictyaml.Document
	findings finding.List
}

// File checks one file, whatever its kind.
func (v *Validator) File(path string) finding.List {
	d := v.read(path)
	if d.spec != nil {
		v.check(d)
	}
	return d.findings
}

// check checks what a file says.
func (v *Validator) check(d *document) {
	v.checkHead(d)
	v.checkEdits(d, "containerEdits", &d.spec.ContainerEdits)
	for i := range d.spec.Devices {
		v.checkEdits(d, fmt.Sprintf("devices.%d.containerEdits", i), &d.spec.Devices[i].ContainerEdits)
	}
	if v.Host {
		if v.Inventory != nil && d.spec.Kind == v.Kind {
			v.checkHardware(d)
		}
		d.mergeRepeated()
	}
	d.collisions()
}

// Dirs checks the files that runtimes read from directories under the root, the last of which has the highest priority.
// Findings about files of other kinds are notes, because their makers have to mend them, unless such a file stops every runtime.
func (v *Validator) Dirs(dirs []string) (finding.List, error) {
	paths, err := resolveDirs(v.Root, dirs)
	if err != nil {
		return nil, err
	}
	return v.DirsAsTyped(paths...)
}

// DirsAsTyped is Dirs for directories that are not below the root.
func (v *Validator) DirsAsTyped(dirs ...string) (all finding.List, err error) {
	var served []*document // of our kind, those of lower priority first
	for _, dir := range dirs {
		files, err := specFiles(dir, ".json", ".yaml", ".yml")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, path := range files {
			if filepath.Ext(path) == ".yml" {
				all.Add(finding.SpecYML, filepath.Base(path), "runtimes do not read it: only .json and .yaml", "").At(path, 0)
				continue
			}
			d := v.read(path)
			if d.spec == nil || d.spec.Kind != v.Kind {
				v.foreign(d)
			} else {
				v.member(d, served)
				served = append(served, d)
			}
			all = append(all, d.findings...)
		}
	}
	return append(all, v.checkServed(dirs, served)...), nil
}

// checkServed looks for what no file defines.
func (v *Validator) checkServed(dirs []string, served []*document) (findings finding.List) {
	if len(served) == 0 {
		if len(v.specNow(false).Devices)+len(v.Devices) > 0 {
			where := strings.Join(dirs, ", ")
			findings.Add(finding.NoSpec, v.Kind, "no file in "+where+" defines devices of this kind: no runtime can resolve one", "")
		}
		return findings
	}
	defined := map[string][]string{}
	for _, d := range served {
		maps.Copy(defined, nodesByName(d.spec))
	}
	names := slices.Sorted(maps.Keys(defined))
	for _, name := range v.Devices {
		if bare := strings.TrimPrefix(name, v.Kind+"="); !slices.Contains(names, bare) {
			f := findings.Add(finding.DeviceUnknown, name, "no file defines it; there are "+some(names), "")
			if meant := nearest.Word(bare, names); meant != "" {
				f.Remedy = "did you mean " + meant + "?"
			}
		}
	}
	return findings
}

// foreign judges a file that defines no device of ours: what is wrong with it is a note, unless it was meant to be ours.
func (v *Validator) foreign(d *document) {
	ours := strings.HasPrefix(filepath.Base(d.path), fileName(v.Kind)+".") || d.spec == nil && bytes.Contains(d.data, []byte(v.Kind))
	for i := range d.findings {
		if id := d.findings[i].ID; !ours && id != finding.SpecHangs && id != finding.SpecCrashes {
			d.findings[i].Severity = finding.Note
		}
	}
	if d.spec != nil {
		d.checkOldKind(v.specNow(false))
	}
}

// member checks one file of our kind. before are those before it in its directory and in directories of lower priority.
func (v *Validator) member(d *document, before []*document) {
	v.check(d)
	if own := fileName(v.Kind); strings.TrimSuffix(filepath.Base(d.path), filepath.Ext(d.path)) != own {
		d.add(finding.OtherFile, "", "another file of our kind: lpuctl cdi refresh writes "+own+".json and leaves this one as it is",
			"if it is a leftover: rm "+d.path)
	}
	for _, other := range before {
		names := sharedNames(d.spec, other.spec)
		switch {
		case len(names) == 0:
		case filepath.Dir(other.path) == filepath.Dir(d.path):
			message := fmt.Sprintf("%s and %s both define %s: runtimes hand out neither", other.path, d.path, some(names))
			d.add(finding.SpecConflict, "", message, "")
		default:
			message := fmt.Sprintf("%s defines %s too, and is not used for them", other.path, some(names))
			d.add(finding.Shadowed, "", message, "if it is a leftover: rm "+other.path)
		}
	}
}

// some names the first of many.
func some(names []string) string {
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}

// add adds a finding. at is the path of the value in the document, such as devices.3.containerEdits; "" is the file as a whole.
func (d *document) add(id finding.ID, at, message, remedy string) *finding.Finding {
	line, subject := 0, filepath.Base(d.path)
	if at != "" && d.lines != nil {
		line = d.lines.Line(at)
	}
	var i int
	if found, _ := fmt.Sscanf(at, "devices.%d", &i); found == 1 && d.spec != nil {
		subject = d.spec.Devices[i].Name
	}
	return d.findings.Add(id, subject, message, remedy).At(d.path, line)
}

// read reads a file as runtimes do, and more strictly: spec is set if the CDI library takes it.
func (v *Validator) read(path string) *document {
	d := &document{path: path}
	info, statErr := os.Stat(path)
	if statErr == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		d.add(finding.SpecHangs, "", "it is a FIFO: every runtime that reads this directory waits for somebody to write into it", "remove it")
		return d
	}
	data, err := wholefile.Read(path, specMax)
	if err != nil {
		d.add(finding.SpecUnreadable, "", host.Reason(err).Error(), "make it a readable file, or remove it")
		return d
	}
	if statErr == nil && info.Mode()&0o004 == 0 {
		message := "only some users may read it (mode %04o): podman and docker without root will not find its devices"
		d.add(finding.SpecMode, "", fmt.Sprintf(message, info.Mode().Perm()), "chmod 0644 "+path)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		d.add(finding.SpecRefused, "", "it is empty: runtimes refuse it", "if it is ours: lpuctl cdi refresh; else remove it")
		return d
	}
	var strict specs.Spec
	lines, faults := strictyaml.Decode(data, &strict)
	d.lines, d.data = lines, data
	for _, f := range faults {
		d.fault(f)
	}
	// The library says what counts; what it does not take is no spec, whatever else was found.
	err = survive(func() error {
		spec, err := cdi.ReadSpec(path, 0)
		if err == nil {
			d.spec = spec.Spec
		}
		return err
	})
	switch {
	case d.findings.HasErrors():
	case errors.Is(err, ErrCrash):
		d.add(finding.SpecCrashes, "", err.Error(), "remove it")
	case err != nil:
		d.refused(&strict, err)
	}
	return d
}

func (d *document) fault(f strictyaml.Fault) {
	id, consequence := finding.SpecSyntax, ""
	switch f.Kind {
	case strictyaml.Unknown:
		id, consequence = finding.SpecUnknownKey, ": runtimes refuse the whole file"
	case strictyaml.Second:
		id, consequence = finding.SpecSecond, ", which runtimes do not read"
	case strictyaml.Null:
		id, consequence = finding.SpecCrashes, ": every runtime that reads the file crashes"
	case strictyaml.Duplicate, strictyaml.Syntax, strictyaml.Type:
	}
	d.add(id, "", f.Message+consequence, f.Remedy).Line = f.Line
}

// refused explains what the library does not take.
func (d *document) refused(spec *specs.Spec, err error) {
	lowest, _ := specs.MinimumRequiredVersion(spec)
	at, message := "cdiVersion", fmt.Sprintf("cdiVersion %q is not known", spec.Version)
	switch {
	case spec.Version == "":
		at, message = "", "it states no cdiVersion: runtimes refuse the whole file"
	case specs.ValidateVersion(spec) == nil:
		d.add(finding.SpecRefused, firstRefused(spec), err.Error(), "")
		return
	case olderThan(spec.Version, lowest):
		message = fmt.Sprintf("it says cdiVersion %q and uses what came with %s: runtimes refuse the whole file", spec.Version, lowest)
	}
	d.add(finding.SpecVersion, at, message, "write cdiVersion "+lowest)
}

// firstRefused is the place of the first device that makes the library refuse a spec.
func firstRefused(spec *specs.Spec) string {
	seen := map[string]bool{}
	for i, device := range spec.Devices {
		edits := cdi.ContainerEdits{ContainerEdits: &device.ContainerEdits}
		if seen[device.Name] || edits.Validate() != nil {
			return "devices." + strconv.Itoa(i)
		}
		seen[device.Name] = true
	}
	return ""
}
