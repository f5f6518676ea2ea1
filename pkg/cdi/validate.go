package cdi

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/strictyaml"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// SpecMax is how many bytes of a spec are read: far more than it needs, 512 LPUs take 5 MiB.
const SpecMax = 32 << 20

// Validator reports whether containers will get what spec files promise. Its findings are
// listed in docs/findings.md.
type Validator struct {
	Root host.Root // under which nodes, mounts and hooks are looked for
	Host bool      // hold files against the machine; else they are judged by what they say
	Kind string    // ours
	// Own is the file that lpuctl writes for Kind, as [Locate] finds it; "": any of that
	// name.
	Own string
	// Orders are those in which the runtimes of this machine read directories; none: as
	// the CDI library reads those that are checked.
	Orders []Order
	// Inventory is what is in the machine, against which devices of our kind are held;
	// nil: that is left out.
	Inventory *discovery.Inventory
	// Targets are the consumers that matter; none: all of them.
	Targets []Target
	// Claims are the uids of the claims that the DRA driver has recorded as prepared;
	// nil: that is not known.
	Claims []string
	// Devices that a container asks for, as a runtime gets their names.
	Devices []string
}

// document is one spec file as far as it could be read.
type document struct {
	path     string
	data     []byte
	spec     *specs.Spec // nil: no runtime that matters can read it
	old      *specs.Spec // as libraries before newLibrary read it; nil: they refuse it
	claim    *Claim      // that the spec is of, as checkClaim finds it; nil: of none
	lines    *strictyaml.Value
	renewal  string // the remedy where the file is out of date
	shortage error  // why it could not be read that is no fault of the file; nil if there is none
	findings finding.List
}

// name is the subject of findings about the file as a whole.
func (d *document) name() string { return filepath.Base(d.path) }

// File checks one file, whatever its kind.
func (v *Validator) File(path string) finding.List {
	d := v.read(path)
	if filepath.Ext(path) == ".yml" {
		d.add(finding.SpecYML, "", notRead, "")
	}
	if d.spec != nil {
		if d.spec.Kind == v.Kind {
			d.renewal = "lpuctl cdi generate --output " + path
		}
		r := readAlone(d)
		v.check(d, r)
		v.checkHardware(r)
		if d.spec.Kind == ClaimKind {
			v.checkClaim(d)
		}
	}
	return d.findings
}

// check checks what a file says, and whether the machine has what a container gets by it.
func (v *Validator) check(d *document, r *reading) {
	v.checkTargets(d)
	i, any := -1, slices.ContainsFunc(r.readers, func(reader *reader) bool { return reader.uses(d) })
	for at, edits := range allEdits(d.spec) {
		v.checkEdits(d, at, edits, v.Host && any && (i < 0 || r.surely(place{d, d.spec, i})))
		i++
	}
	if v.Host {
		d.mergeRepeated()
	}
	d.collisions()
}

// some names the first of many.
func some(names []string) string {
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}

// add adds a finding. at is the path of the value in the document, such as
// devices.3.containerEdits; "" is the file as a whole.
func (d *document) add(id finding.ID, at, message, remedy string) *finding.Finding {
	line, subject := 0, d.name()
	if at != "" {
		line = d.lines.LineOf(at)
	}
	var i int
	if found, _ := fmt.Sscanf(at, "devices.%d", &i); found == 1 && d.spec != nil {
		subject = d.spec.Devices[i].Name
	}
	return d.findings.Add(id, subject, message, remedy).At(d.path, line)
}

// inPlaceOfOwn returns what is to be done about something in the place of our own spec
// that is no file. cdi refresh leaves it as it is.
func inPlaceOfOwn(path, message, remedy string) (string, string) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return message, remedy
	case info.Mode()&fs.ModeSymlink != 0:
		return "a symbolic link, by which there is no file that can be read: " + message, "rm " + path + "; lpuctl cdi refresh"
	case info.IsDir():
		return "a directory, which lpuctl does not replace", "if it is empty: rm -d " + path + "; lpuctl cdi refresh"
	}
	return message, remedy
}

// read reads a file as runtimes do, and more strictly: spec is set if the CDI library
// takes it.
func (v *Validator) read(path string) *document {
	d := &document{path: path, renewal: "make the file anew with the program that wrote it"}
	info, statErr := os.Stat(path)
	if statErr == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		d.add(finding.SpecHangs, "", "it is a FIFO: every runtime that reads this directory waits for somebody to write into it", "rm "+path)
		return d
	}
	data, err := wholefile.Read(path, SpecMax)
	if host.IsShortage(err) {
		d.shortage = err
	}
	if err != nil {
		message, remedy := host.Reason(err).Error(), "make it a readable file, or remove it"
		if v.isOwn(path) {
			message, remedy = inPlaceOfOwn(path, message, remedy)
		}
		d.add(finding.SpecUnreadable, "", message, remedy)
		return d
	}
	if statErr == nil && info.Mode()&0o004 == 0 {
		message := "only some users may read it (mode %04o): podman and docker without root will not find its devices"
		d.add(finding.SpecMode, "", fmt.Sprintf(message, info.Mode().Perm()), "chmod 0644 "+path)
	}
	d.data = data
	if len(bytes.TrimSpace(data)) == 0 {
		d.add(finding.SpecRefused, "", "it is empty: runtimes refuse it", "rm "+path)
		return d
	}
	v.judge(d)
	return d
}

// judge asks the CDI library, whose word counts. What strictyaml finds gives its reasons
// a place.
func (v *Validator) judge(d *document) {
	var strict specs.Spec
	lines, faults := strictyaml.Decode(d.data, &strict)
	d.lines = lines
	old, oldErr := parseOld(d.data)
	spec, err := parse(d.data)
	v.judgeOld(d, old, oldErr)
	if err != nil && oldErr == nil && v.onlyBefore(newLibrary) {
		spec, err = old, nil
	}
	d.faults(faults, err, oldErr == nil)
	if err != nil || d.findings.HasErrors() {
		return
	}
	at := ""
	err = survive(func() (err error) {
		if at, err = v.refusal(spec); err == nil && !v.onlyBefore(newLibrary) {
			_, err = cdi.ReadSpec(d.path, 0)
		}
		return err
	})
	switch {
	case errors.Is(err, ErrCrash):
		d.add(finding.SpecCrashes, "", err.Error(), "rm "+d.path)
	case at == "cdiVersion":
		d.wrongVersion(spec, err)
	case err != nil:
		d.add(finding.SpecRefused, at, err.Error(), "")
	default:
		d.spec = spec
		if reflect.DeepEqual(d.old, spec) {
			d.old = spec
		}
		v.checkOld(d, faults, old, oldErr)
	}
}

// faults adds the faults for which the library refuses the file, or runtimes crash, and
// those that leave something unread. err is that of the library, and old says whether
// older libraries take the file.
func (d *document) faults(faults strictyaml.Faults, err error, old bool) {
	refuse := ": runtimes refuse the whole file"
	if old {
		refuse = ": runtimes with a CDI library from " + newLibrary + " on refuse the whole file"
	}
	for _, f := range faults {
		id, so := finding.SpecSyntax, ""
		switch {
		case f.Kind == strictyaml.Null:
			id, so = finding.SpecCrashes, ": every runtime that reads the file crashes"
		case f.Kind == strictyaml.Second:
			id, so = finding.SpecSecond, ", which runtimes do not read"
		case err == nil || f.Kind.Strict():
			continue
		case f.Kind == strictyaml.Unknown:
			id, so = finding.SpecUnknownKey, refuse
		}
		d.add(id, "", f.Message+so, f.Remedy).Line = f.Line
	}
	if err != nil && !d.findings.HasErrors() {
		d.add(finding.SpecRefused, "", err.Error(), "").Line, _ = strictyaml.Place(err)
	}
}

// wrongVersion explains a cdiVersion that the library does not take.
func (d *document) wrongVersion(spec *specs.Spec, err error) {
	lowest, _ := specs.MinimumRequiredVersion(spec)
	at, message := "cdiVersion", fmt.Sprintf("it says cdiVersion %q and uses what came with %s", spec.Version, lowest)
	switch {
	case spec.Version == "":
		at, message = "", "it states no cdiVersion"
	// The library says this of a version that it does not know.
	case strings.HasPrefix(err.Error(), "invalid version"):
		message = fmt.Sprintf("cdiVersion %q is not known", spec.Version)
	}
	d.add(finding.SpecVersion, at, message+": runtimes refuse the whole file", "write cdiVersion "+lowest)
}
