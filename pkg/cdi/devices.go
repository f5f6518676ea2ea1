package cdi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// devices are the devices of a spec, and the edits that they have in common.
type devices struct {
	common Edits
	list   []device
}

// device is one name, the LPUs that it stands for in ring order, and what a container gets with it besides the common edits.
type device struct {
	Edits

	name        string
	lpus        []discovery.LPU
	annotations map[string]string
}

// devicesOf makes the families of names: lpuN, pci-ADDRESS, and the sets, of which all is the last. The order is fixed, so
// that equal inventories give equal bytes.
func devicesOf(inv *discovery.Inventory, lpus []discovery.LPU, o Options) devices {
	d := devices{}
	if version := sharedDriverVersion(lpus); version != "" {
		d.common.Env = []Variable{{DriverVersion, version, "driver " + lpus[0].Driver}}
	}
	for _, l := range lpus {
		index := strconv.Itoa(l.Index)
		d.add(o, l.Name, []discovery.LPU{l}, Variable{"LPU_DEVICE_INDEX", index, "name " + l.Name}, Variable{"LPU_VISIBLE_DEVICES", index, "name " + l.Name})
	}
	for _, l := range lpus {
		d.add(o, AddressName(l.Address), []discovery.LPU{l})
	}
	f := inv.Fabric()
	for _, arc := range sets(inv, f) {
		d.add(o, SetName(arc), arc, listVariables(arc, true, true)...)
	}
	everyone, variables := Container(inv, f, cardsWithNode(inv, func(*discovery.LPU) bool { return true }))
	d.add(o, AllDevice, everyone, variables...)
	return d
}

func (d *devices) add(o Options, name string, lpus []discovery.LPU, variables ...Variable) {
	e := EditsOf(lpus, o)
	e.Env = slices.DeleteFunc(append(e.Env, variables...), func(v Variable) bool { return slices.Contains(d.common.Env, v) })
	made := device{Edits: e, name: name, lpus: lpus}
	if o.Annotations && len(lpus) == 1 {
		made.annotations = annotations(lpus[0])
	}
	d.list = append(d.list, made)
}

// AddressName is the device name that survives renumbering: "pci-0000-b1-00.1". A colon would be legal in
// CDI but not in the annotations by which Kubernetes may pass the name.
func AddressName(a discovery.Address) string {
	return "pci-" + strings.ReplaceAll(a.String(), ":", "-")
}

func annotations(l discovery.LPU) map[string]string {
	const prefix = "lpuctl.hyperaccel.ai/"
	a := map[string]string{prefix + "address": l.Address.String(), prefix + "model": l.Model}
	if l.Serial != "" {
		a[prefix+"serial"] = l.Serial
	}
	return a
}

// DeviceNames are the devices of an inventory's spec that people mean: by device name or, as [discovery.Inventory.Resolve] reads
// them, by LPU. A PCI address means the device by address. The error is Resolve's, or says why the spec has no such device.
func DeviceNames(inv *discovery.Inventory, o Options, words []string) ([]string, error) {
	lpus, _ := withNodes(inv.LPUs)
	d := devicesOf(inv, lpus, o)
	return d.names(inv, o.kind(), words)
}

func (d *devices) names(inv *discovery.Inventory, kind string, words []string) (names []string, err error) {
	for _, list := range words {
		for word := range strings.SplitSeq(list, ",") {
			name := strings.TrimPrefix(strings.TrimSpace(word), kind+"=")
			if d.find(name) == nil {
				if name, err = d.nameOf(inv, kind, word); err != nil {
					return nil, err
				}
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// nameOf is the device of the LPUs that a word means.
func (d *devices) nameOf(inv *discovery.Inventory, kind, word string) (string, error) {
	cards, err := inv.Resolve(kind, word)
	if err != nil {
		return "", err
	}
	l := inv.LPUs[cards[0]]
	name := NameOf(inv, cards)
	if len(cards) == 1 && strings.Contains(word, ":") {
		name = AddressName(l.Address)
	}
	switch {
	case d.find(name) != nil:
		return name, nil
	case len(cards) > 1:
		return "", fmt.Errorf("no single CDI device covers %s: they are no neighbours on a ring, or one has no device node", word)
	case l.Reasons.FirstError() != nil:
		return "", fmt.Errorf("%s is left out of the spec: %s", l.Name, l.Reasons.FirstError().Message)
	}
	return "", fmt.Errorf("%s is left out of the spec: it has no device node", l.Name)
}

// find is the device of a name; nil if there is none.
func (d *devices) find(name string) *device {
	if i := slices.IndexFunc(d.list, func(c device) bool { return c.name == name }); i >= 0 {
		return &d.list[i]
	}
	return nil
}

// selected is the devices of these names, in the spec's own order; all without a name.
func (d *devices) selected(names []string) []device {
	return slices.DeleteFunc(d.list, func(c device) bool { return len(names) > 0 && !slices.Contains(names, c.name) })
}
