package cdi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/versions"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// DefaultKind is the CDI kind of LPUs: vendor and class.
const DefaultKind = "hyperaccel.ai/lpu"

// AllDevice is the name of the device that covers every LPU.
const AllDevice = "all"

// ErrNoDevices says that no LPU can be handed out, so that there is no spec: CDI refuses
// one without devices.
var ErrNoDevices = errors.New("no LPU has a device node, so there is nothing to put into a CDI spec")

// Options of Spec; the zero value is what a host should have.
type Options struct {
	Kind    string // "": DefaultKind
	Version string // cdiVersion to force, such as "0.6.0"; "": the lowest that holds the content
	// Devices restricts the spec to these, which are named as for [Explain]; empty: all
	// families.
	Devices         []string
	Management      bool // hand out the management function's node too
	UncheckedMounts bool // mounts whether or not the host has them, for when the host cannot be seen
	// TablesIn is the root under which a ring table must be in place to be named, for
	// when not all can be written; "": all are named.
	TablesIn    host.Root
	Annotations bool // annotate each device with address, model and serial (needs cdiVersion 0.6.0)
}

func (o *Options) kind() string { return cmp.Or(o.Kind, DefaultKind) }

// Spec makes the CDI specification of an inventory. The findings say what was left out
// and why: an LPU without a node that is known to be its own (ID "left-out"), a mount
// this host does not have ("mount-left-out"). The error is ErrNoDevices if nothing is
// left, or says which option does not fit.
func Spec(inv *discovery.Inventory, o Options) (*specs.Spec, finding.List, error) {
	d, err := devicesOf(inv, o)
	return specOf(inv, o, d, err)
}

// specOf makes the spec of devices, unless there are none, as err says.
func specOf(inv *discovery.Inventory, o Options, d *devices, err error) (*specs.Spec, finding.List, error) {
	kind := o.kind()
	if err := ValidateKind(kind); err != nil {
		return nil, nil, err
	}
	findings := leftOut(inv, o)
	if err != nil {
		return nil, findings, err
	}
	names, err := d.names(o.Devices)
	if err != nil {
		return nil, findings, err
	}
	spec := &specs.Spec{Kind: kind, ContainerEdits: d.common.container()}
	for _, c := range d.list {
		if len(names) == 0 || slices.Contains(names, c.name) {
			spec.Devices = append(spec.Devices, specs.Device{Name: c.name, Annotations: c.annotations, ContainerEdits: c.container()})
		}
	}
	return spec, findings, setVersion(spec, o.Version)
}

// ValidateKind checks the two halves of a kind as the CDI library does, and refuses the
// one-letter names on which releases of it up to 1.1.0 panic.
func ValidateKind(kind string) error {
	vendor, class := parser.ParseQualifier(kind)
	err := errors.Join(parser.ValidateVendorName(vendor), parser.ValidateClassName(class))
	if err == nil && (len(vendor) < 2 || len(class) < 2) {
		err = errors.New("vendor and class need at least two letters")
	}
	if err != nil {
		return fmt.Errorf("CDI kind %q: %w (expected a form like %s)", kind, err, DefaultKind)
	}
	return nil
}

// leftOut finds the LPUs that cannot be handed out, and the mounts of the others that
// this host does not have.
func leftOut(inv *discovery.Inventory, o Options) (findings finding.List) {
	for _, l := range inv.LPUs {
		if len(l.Nodes) == 0 {
			why := whyLeftOut(l)
			findings.Add(finding.LeftOut, l.Name, "left out of the spec: "+why.Message, why.Remedy)
		}
	}
	seen := map[string]bool{}
	for _, l := range pick(inv, cardsWithNode(inv)) {
		for _, m := range l.Mounts {
			if !m.Present && !o.UncheckedMounts && !seen[m.HostPath] {
				seen[m.HostPath] = true
				findings.Add(finding.MountLeftOut, l.Model, "containers do not get it: this host does not have it", "").At(m.HostPath, 0)
			}
		}
	}
	for _, l := range pick(inv, cardsWithNode(inv)) {
		if why := l.RingTable.Unfit; why != "" && !seen[why] {
			seen[why] = true
			findings.Add(finding.RingTableLeftOut, l.Model, "containers get no ring table of their own: "+why, "").At(l.RingTable.Path, 0)
		}
	}
	return findings
}

// whyLeftOut has the message and the remedy of an LPU that has no device node known to be
// its own.
func whyLeftOut(l discovery.LPU) finding.Finding {
	if reason := l.Reasons.FirstError(); reason != nil {
		return *reason
	}
	return finding.Finding{Message: "it has no device node", Remedy: "see lpuctl describe " + l.Name}
}

// setVersion states the lowest cdiVersion that holds the content, because a runtime
// refuses a file that is newer than itself; or the one asked for. The path on the host is
// left out unless the version asked for has the field (0.5.0): it is the same as in the
// container.
func setVersion(spec *specs.Spec, version string) error {
	lowest, err := specs.MinimumRequiredVersion(spec)
	if spec.Version = lowest; version == "" || err != nil {
		return err
	}
	spec.Version = strings.TrimPrefix(version, "v")
	wanted := versions.Parse(spec.Version)
	switch err := specs.ValidateVersion(spec); {
	case err != nil && wanted.Known() && wanted.Before(lowest):
		return fmt.Errorf("cdiVersion %s is too low: at least %s is needed", version, lowest)
	case err != nil:
		return fmt.Errorf("cdiVersion %s: %w", version, err)
	}
	if wanted.Before("0.5.0") {
		return nil
	}
	for _, d := range spec.Devices {
		for _, n := range d.ContainerEdits.DeviceNodes {
			n.HostPath = n.Path
		}
	}
	return nil
}

// Marshal is the spec as it stands in its file: indented JSON.
func Marshal(spec *specs.Spec) ([]byte, error) {
	data, err := json.MarshalIndent(spec, "", "  ")
	return append(data, '\n'), err
}
