package cdi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// DefaultKind is the CDI kind of LPUs: vendor and class.
const DefaultKind = "hyperaccel.ai/lpu"

// AllDevice is the name of the device that stands for every LPU.
const AllDevice = "all"

// ErrNoDevices says that no LPU can be handed out, so that there is no spec: CDI refuses one without devices.
var ErrNoDevices = errors.New("no LPU has a device node, so there is nothing to put into a CDI spec")

// Options of Spec; the zero value is what a host should have.
type Options struct {
	Kind    string // "": DefaultKind
	Version string // cdiVersion to force, such as "0.6.0"; "": the lowest that holds the content
	// Devices restricts the spec to these device names or PCI addresses; empty: all families.
	Devices         []string
	Management      bool // hand out the management function's node too
	UncheckedMounts bool // mounts whether or not the host has them, for when the host cannot be seen
	Annotations     bool // annotate each device with address, model and serial (needs cdiVersion 0.6.0)
}

// Spec makes the CDI specification of an inventory. The findings say what was left out and why: an LPU
// without a node that is known to be its own (ID "left-out"), a mount this host does not have
// ("mount-left-out"). The error is ErrNoDevices if nothing is left, or says which option does not fit.
func Spec(inv *discovery.Inventory, o Options) (*specs.Spec, finding.List, error) {
	kind := cmp.Or(o.Kind, DefaultKind)
	if err := ValidateKind(kind); err != nil {
		return nil, nil, err
	}
	lpus, findings := withNodes(inv.LPUs)
	findings = append(findings, missingMounts(lpus, o)...)
	if len(lpus) == 0 {
		return nil, findings, ErrNoDevices
	}
	b := builder{Options: o, sharedVersion: sharedDriverVersion(lpus)}
	devices, err := selectDevices(b.devices(inv, lpus), o.Devices)
	if err != nil {
		return nil, findings, err
	}
	spec := &specs.Spec{Kind: kind, Devices: devices}
	if b.sharedVersion != "" {
		spec.ContainerEdits.Env = []string{"LPU_DRIVER_VERSION=" + b.sharedVersion}
	}
	return spec, findings, setVersion(spec, o.Version)
}

// ValidateKind checks the two halves of a kind as the CDI library does, and refuses the one-letter names
// on which releases of it up to 1.1.0 panic.
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

// withNodes returns the LPUs that can be handed out, and a finding for each that cannot.
func withNodes(all []discovery.LPU) (lpus []discovery.LPU, leftOut finding.List) {
	for _, l := range all {
		if len(l.Nodes) > 0 {
			lpus = append(lpus, l)
			continue
		}
		why, remedy := "it has no device node", "see lpuctl describe "+l.Name
		if reason := l.Reasons.FirstError(); reason != nil {
			why, remedy = reason.Message, reason.Remedy
		}
		leftOut.Add(finding.LeftOut, l.Name, "left out of the spec: "+why, remedy)
	}
	return lpus, leftOut
}

func missingMounts(lpus []discovery.LPU, o Options) (findings finding.List) {
	if o.UncheckedMounts {
		return nil
	}
	seen := map[string]bool{}
	for _, l := range lpus {
		for _, m := range l.Mounts {
			if m.Present || seen[m.HostPath] {
				continue
			}
			seen[m.HostPath] = true
			findings.Add(finding.MountLeftOut, l.Model, "containers do not get it: this host does not have it", "").At(m.HostPath, 0)
		}
	}
	return findings
}

// sharedDriverVersion is the driver version of all LPUs, or "" where they differ.
func sharedDriverVersion(lpus []discovery.LPU) string {
	for _, l := range lpus[1:] {
		if l.DriverVersion != lpus[0].DriverVersion {
			return ""
		}
	}
	return lpus[0].DriverVersion
}

// builder makes devices. Its order of devices and edits is fixed, so that equal inventories give equal bytes.
type builder struct {
	Options
	sharedVersion string
}

// devices makes the families of names: lpuN, pci-ADDRESS, and the sets, of which all is the last.
func (b builder) devices(inv *discovery.Inventory, lpus []discovery.LPU) []specs.Device {
	var named, byAddress []specs.Device
	for _, l := range lpus {
		index := strconv.Itoa(l.Index)
		named = append(named, b.device(l.Name, []discovery.LPU{l}, "LPU_DEVICE_INDEX="+index, "LPU_VISIBLE_DEVICES="+index))
		byAddress = append(byAddress, b.device(AddressName(l.Address), []discovery.LPU{l}))
	}
	devices := slices.Concat(named, byAddress)
	f := inv.Fabric()
	for _, arc := range sets(inv, f) {
		devices = append(devices, b.device(SetName(arc), arc, listVariables(arc, true, true)...))
	}
	everyone, pieces := f.Order(cardsWithNode(inv, func(*discovery.LPU) bool { return true }))
	return append(devices, b.device(AllDevice, pick(inv, everyone), listVariables(pick(inv, everyone), pieces == 1, f.Cabled())...))
}

// AddressName is the device name that survives renumbering: "pci-0000-b1-00.1". A colon would be legal in
// CDI but not in the annotations by which Kubernetes may pass the name.
func AddressName(a discovery.Address) string {
	return "pci-" + strings.ReplaceAll(a.String(), ":", "-")
}

func (b builder) device(name string, lpus []discovery.LPU, variables ...string) specs.Device {
	d := specs.Device{Name: name}
	edits := &d.ContainerEdits
	for _, l := range lpus {
		for _, n := range b.nodes(l) {
			edits.DeviceNodes = append(edits.DeviceNodes, &specs.DeviceNode{Path: n.Path, Permissions: "rw"})
		}
		for _, m := range l.Mounts {
			if m.Present || b.UncheckedMounts {
				addMount(edits, m)
			}
		}
		for _, variable := range l.Env {
			addOnce(&edits.Env, variable)
		}
	}
	if version := sharedDriverVersion(lpus); b.sharedVersion == "" && version != "" {
		edits.Env = append(edits.Env, "LPU_DRIVER_VERSION="+version)
	}
	edits.Env = append(edits.Env, variables...)
	if b.Annotations && len(lpus) == 1 {
		d.Annotations = annotations(lpus[0])
	}
	return d
}

func (b builder) nodes(l discovery.LPU) []discovery.Node {
	if b.Management && l.Management != nil {
		return slices.Concat(l.Nodes, l.Management.Nodes)
	}
	return l.Nodes
}

func addOnce(list *[]string, s string) {
	if !slices.Contains(*list, s) {
		*list = append(*list, s)
	}
}

func addMount(edits *specs.ContainerEdits, m discovery.Mount) {
	to := cmp.Or(m.ContainerPath, m.HostPath)
	if slices.ContainsFunc(edits.Mounts, func(have *specs.Mount) bool { return have.ContainerPath == to }) {
		return
	}
	edits.Mounts = append(edits.Mounts, &specs.Mount{
		HostPath: m.HostPath, ContainerPath: to, Options: []string{"ro", "nosuid", "nodev", "bind"},
	})
}

func annotations(l discovery.LPU) map[string]string {
	const prefix = "lpuctl.hyperaccel.ai/"
	a := map[string]string{prefix + "address": l.Address.String(), prefix + "model": l.Model}
	if l.Serial != "" {
		a[prefix+"serial"] = l.Serial
	}
	return a
}

// selectDevices keeps the devices that were asked for, in the spec's own order.
func selectDevices(devices []specs.Device, wanted []string) ([]specs.Device, error) {
	if len(wanted) == 0 {
		return devices, nil
	}
	names := map[string]bool{}
	for _, w := range wanted {
		if a, err := discovery.ParseAddress(w); err == nil {
			w = AddressName(a)
		}
		if !slices.ContainsFunc(devices, func(d specs.Device) bool { return d.Name == w }) {
			return nil, fmt.Errorf("no device %q: there are LPUs (%s), the same by PCI address, arcs (lpu0-1) and %s", w, devices[0].Name, AllDevice)
		}
		names[w] = true
	}
	return slices.DeleteFunc(devices, func(d specs.Device) bool { return !names[d.Name] }), nil
}

// setVersion states the lowest cdiVersion that holds the content, because a runtime refuses a file that is
// newer than itself; or the one asked for. The path on the host is left out unless the version asked for
// has the field (0.5.0): it is the same as in the container.
func setVersion(spec *specs.Spec, version string) error {
	if version == "" {
		lowest, err := specs.MinimumRequiredVersion(spec)
		spec.Version = lowest
		return err
	}
	spec.Version = strings.TrimPrefix(version, "v")
	if err := specs.ValidateVersion(spec); err != nil {
		return fmt.Errorf("cdiVersion %s does not do: %w", version, err)
	}
	setHostPaths(spec, func(n *specs.DeviceNode) string { return n.Path })
	if specs.ValidateVersion(spec) != nil {
		setHostPaths(spec, func(*specs.DeviceNode) string { return "" })
	}
	return nil
}

func setHostPaths(spec *specs.Spec, hostPath func(*specs.DeviceNode) string) {
	for _, d := range spec.Devices {
		for _, n := range d.ContainerEdits.DeviceNodes {
			n.HostPath = hostPath(n)
		}
	}
}

// Marshal is the spec as it stands in its file: indented JSON.
func Marshal(spec *specs.Spec) ([]byte, error) {
	data, err := json.MarshalIndent(spec, "", "  ")
	return append(data, '\n'), err
}
