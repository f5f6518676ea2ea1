package cdi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/strictyaml"
	"github.com/hyperaccel/lpuctl/internal/versions"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// newLibrary is the release of the CDI library that reads a spec otherwise than all
// before it, which turned YAML into JSON first: it wants every key in its exact case, and
// knows the permissions "none". It is also the library that lpuctl is built with.
const newLibrary = "1.1.1"

// Target is a consumer of specs at a version: podman 4.3.1.
type Target struct {
	Consumer, Release string
	// Newest is the highest cdiVersion it loads; "": it knows no CDI.
	Newest string
	// Library is the release of the CDI library that it was built with; "": that of
	// Newest.
	Library string
}

// isOlder reports whether a release, or a cdiVersion, is before another.
func isOlder(release, than string) bool { return versions.Parse(release).Before(than) }

// isBefore reports whether the target has a library before a release of it. A library
// without a name is that of its cdiVersion.
func (t Target) isBefore(release string) bool { return isOlder(t.library(), release) }

func (t Target) String() string { return t.Consumer + " " + t.Release }

// onlyBefore reports whether each target has a library before a release of it, so that
// what the release refuses does not matter.
func (v *Validator) onlyBefore(release string) bool {
	return len(v.Targets) > 0 && !slices.ContainsFunc(v.Targets, func(t Target) bool { return !t.isBefore(release) })
}

// old reports what releases with an old library will do otherwise: of all of them if no
// target is named, else as an error for each target that has one.
func (v *Validator) old(findings *finding.List, id finding.ID, subject, will, remedy string) *finding.Finding {
	f := &finding.Finding{} // of no runtime: it is in no list
	remedy = cmp.Or(remedy, finding.RuleOf(id).Remedy)
	if len(v.Targets) == 0 {
		f = findings.Add(id, subject, "runtimes with a CDI library up to 1.1.0 will "+will, remedy)
	}
	for _, t := range v.Targets {
		if t.Newest != "" && t.isBefore(newLibrary) {
			ofTarget := finding.Target
			if finding.RuleOf(id).Severity == finding.Error {
				ofTarget = id
			}
			f = findings.Add(ofTarget, subject, t.String()+" will "+will, remedy)
		}
	}
	return f
}

// parseOld parses a spec as libraries before newLibrary do.
func parseOld(data []byte) (*specs.Spec, error) {
	var spec specs.Spec
	if err := yaml.UnmarshalStrict(data, &spec); err != nil {
		return nil, err
	}
	return &spec, nil
}

// judgeOld keeps what libraries before newLibrary make of a file, if they take it.
func (v *Validator) judgeOld(d *document, spec *specs.Spec, err error) {
	if err != nil || len(withoutPermissions(spec)) > 0 {
		return
	}
	err = survive(func() (err error) {
		_, err = v.refusal(spec)
		return err
	})
	if err == nil {
		d.old = spec
	}
}

// parseAny parses a spec that some release of the library takes.
func parseAny(data []byte) (*specs.Spec, error) {
	spec, err := parse(data)
	if err != nil {
		if old, oldErr := parseOld(data); oldErr == nil {
			return old, nil
		}
	}
	return spec, err
}

// checkOld finds what libraries before newLibrary make of a file that newLibrary takes:
// spec, or err.
func (v *Validator) checkOld(d *document, faults strictyaml.Faults, spec *specs.Spec, err error) {
	if vendor, class := parser.ParseQualifier(d.spec.Kind); len(vendor) == 1 || len(class) == 1 {
		will := fmt.Sprintf("crash on the kind %q", d.spec.Kind)
		v.old(&d.findings, finding.OneLetterName, d.name(), will, "").At(d.path, d.lines.LineOf("kind"))
	}
	const refuse = "refuse the whole file: "
	if err != nil {
		message := refuse + strings.Join(strings.Fields(err.Error()), " ")
		line, _ := strictyaml.Place(err)
		v.old(&d.findings, finding.OlderLibrary, d.name(), message, "").At(d.path, line)
		return
	}
	for _, at := range withoutPermissions(spec) {
		const remedy = `leave permissions out, or write "r", "w" or "rw"`
		v.old(&d.findings, finding.OlderLibrary, d.name(), refuse+`it has the permissions "none"`, remedy).At(d.path, d.lines.LineOf(at))
	}
	if reflect.DeepEqual(spec, d.spec) {
		return
	}
	for _, f := range faults {
		if f.Kind == strictyaml.Loose {
			v.old(&d.findings, finding.OlderLibrary, d.name(), "read another value than newer ones: "+f.Message, f.Remedy).At(d.path, f.Line)
		}
	}
}

// withoutPermissions are the places of nodes with the permissions "none".
func withoutPermissions(spec *specs.Spec) (places []string) {
	for at, edits := range allEdits(spec) {
		for i, n := range edits.DeviceNodes {
			if n != nil && n.Permissions == cdi.NoPermissions {
				places = append(places, fmt.Sprintf("%s.deviceNodes.%d.permissions", at, i))
			}
		}
	}
	return places
}

// refusal is the first thing in a parsed spec that the libraries that matter do not take,
// and its place.
func (v *Validator) refusal(spec *specs.Spec) (at string, err error) {
	if err := specs.ValidateVersion(spec); err != nil {
		return "cdiVersion", err
	}
	vendor, class := parser.ParseQualifier(spec.Kind)
	if err := errors.Join(parser.ValidateVendorName(vendor), parser.ValidateClassName(class)); err != nil {
		return "kind", err
	}
	for at, edits := range allEdits(spec) {
		if err := (&cdi.ContainerEdits{ContainerEdits: edits}).Validate(); err != nil {
			return at, err
		}
	}
	if len(spec.Devices) == 0 && !v.onlyBefore("1.0.0") {
		return "devices", errors.New("it has no devices")
	}
	seen := map[string]bool{}
	for i, device := range spec.Devices {
		at, err := "devices."+strconv.Itoa(i), parser.ValidateDeviceName(device.Name)
		switch edits, _ := json.Marshal(device.ContainerEdits); {
		case err != nil:
			return at, err
		case string(edits) == "{}":
			return at, fmt.Errorf("the device %q gives a container nothing", device.Name)
		case seen[device.Name]:
			return at, fmt.Errorf("the device %q is defined twice", device.Name)
		}
		seen[device.Name] = true
	}
	return "", nil
}

// allEdits are the edits of a spec, the common ones first, by their places in the
// document.
func allEdits(spec *specs.Spec) iter.Seq2[string, *specs.ContainerEdits] {
	return func(yield func(string, *specs.ContainerEdits) bool) {
		more := yield("containerEdits", &spec.ContainerEdits)
		for i := 0; more && i < len(spec.Devices); i++ {
			more = yield(fmt.Sprintf("devices.%d.containerEdits", i), &spec.Devices[i].ContainerEdits)
		}
	}
}
