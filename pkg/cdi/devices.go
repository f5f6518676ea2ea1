package cdi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// devices are the devices of a spec, and the edits that they have in common.
type devices struct {
	Options

	inv    *discovery.Inventory
	common Edits
	list   []device
}

// device is one name, the LPUs that it covers in ring order, and what a container gets
// with it besides the common edits.
type device struct {
	Edits

	name        string
	cards       []int // positions in the inventory
	annotations map[string]string
}

// devicesOf makes the families of names: lpuN, pci-ADDRESS, and the sets, of which all is
// the last. The order is fixed, so that equal inventories give equal bytes. The error is
// ErrNoDevices if no LPU has a node.
func devicesOf(inv *discovery.Inventory, o Options) (*devices, error) {
	cards := cardsWithNode(inv)
	if len(cards) == 0 {
		return nil, ErrNoDevices
	}
	d := &devices{Options: o, inv: inv, common: Edits{Env: driverVersion(pick(inv, cards))}}
	for _, card := range cards {
		l := pick(inv, []int{card})
		index, source := strconv.Itoa(l[0].Index), "name "+l[0].Name
		d.add(l[0].Name, []int{card}, EditsOf(inv, []int{card}, o), append(driverVersion(l),
			Variable{deviceIndex, index, source}, Variable{visibleDevices, index, source}, Variable{ringOrder, "0", "the only LPU"})...)
	}
	for _, card := range cards {
		// Says nothing of the LPUs as a whole, so that several can be combined, and so
		// that what Allocate says counts: CDI's would win.
		d.add(AddressName(inv.LPUs[card].Address), []int{card}, PartOf(inv, []int{card}, o))
	}
	f := inv.Cabled()
	for _, arc := range sets(inv, f) {
		lpus := pick(inv, arc)
		d.add(setName(lpus), arc, EditsOf(inv, arc, o), listVariables(lpus, true, true)...)
	}
	everyone, pieces := f.Order(cards)
	lpus := pick(inv, everyone)
	d.add(AllDevice, everyone, EditsOf(inv, everyone, o), listVariables(lpus, pieces == 1, f.Cabled())...)
	return d, nil
}

// add adds a device of the LPUs at the positions cards.
func (d *devices) add(name string, cards []int, e Edits, variables ...Variable) {
	made := device{Edits: e, name: name, cards: cards}
	made.Env = append(made.Env, d.besidesCommon(variables)...)
	if d.Annotations && len(cards) == 1 {
		made.annotations = annotations(d.inv.LPUs[cards[0]])
	}
	d.list = append(d.list, made)
}

// besidesCommon are the variables that the common edits do not set.
func (d *devices) besidesCommon(variables []Variable) []Variable {
	return slices.DeleteFunc(variables, func(v Variable) bool {
		return slices.ContainsFunc(d.common.Env, func(c Variable) bool { return c.Name == v.Name })
	})
}

const addressPrefix = "pci-"

// AddressName is the device name that survives renumbering: "pci-0000-b1-00.1". A colon
// would be legal in CDI but not in the annotations by which Kubernetes may pass the name.
func AddressName(a pci.Address) string {
	return addressPrefix + strings.ReplaceAll(a.String(), ":", "-")
}

// ParseAddressName is the PCI address in a name that AddressName has made. Any other name
// is an error.
func ParseAddressName(name string) (pci.Address, error) {
	a, err := pci.Parse(strings.Replace(strings.TrimPrefix(name, addressPrefix), "-", ":", 2))
	if err == nil && AddressName(a) != name {
		err = fmt.Errorf("%q is not the name of a device by PCI address", name)
	}
	return a, err
}

func annotations(l discovery.LPU) map[string]string {
	const prefix = "lpuctl.hyperaccel.ai/"
	a := map[string]string{prefix + "address": l.Address.String(), prefix + "model": l.Model}
	if l.Serial != "" {
		a[prefix+"serial"] = l.Serial
	}
	return a
}

// NameOf is the device in the inventory's spec that covers the LPUs at these positions
// and no other: one LPU, a set, or all; "" if there is none.
func NameOf(inv *discovery.Inventory, cards []int) string {
	d, err := devicesOf(inv, Options{})
	if err != nil {
		return ""
	}
	return d.covering(cards)
}

// covering is the device of just these LPUs; "" if there is none.
func (d *devices) covering(cards []int) string {
	wanted := slices.Sorted(slices.Values(cards))
	for _, c := range d.list {
		if slices.Equal(slices.Sorted(slices.Values(c.cards)), wanted) {
			return c.name
		}
	}
	return ""
}

// names are the devices that words mean, each once: by device name or, as
// [discovery.Inventory.Resolve] reads them, by LPU. A PCI address means the device by
// address. The error is Resolve's, or says why the spec has no such device.
func (d *devices) names(words []string) (names []string, err error) {
	for _, list := range words {
		for word := range strings.SplitSeq(list, ",") {
			name := strings.TrimPrefix(strings.TrimSpace(word), d.kind()+"=")
			if d.find(name) == nil {
				if name, err = d.nameOf(word); err != nil {
					return nil, err
				}
			}
			names = appendNew(names, name)
		}
	}
	return names, nil
}

// nameOf is the device of the LPUs that a word means.
func (d *devices) nameOf(word string) (string, error) {
	cards, err := d.inv.Resolve(d.kind(), word)
	if err != nil {
		return "", err
	}
	l := d.inv.LPUs[cards[0]]
	name := d.covering(cards)
	switch {
	case name != "" && len(cards) == 1 && strings.Contains(word, ":"):
		return AddressName(l.Address), nil
	case name != "":
		return name, nil
	case len(cards) > 1:
		return "", fmt.Errorf("no single CDI device covers %s: they are no neighbours on a ring, or one has no device node", word)
	}
	return "", &leftOutError{l.Name, whyLeftOut(l)}
}

// leftOutError says that a device was asked for of an LPU that has none.
type leftOutError struct {
	name string
	why  finding.Finding
}

func (e *leftOutError) Error() string { return e.name + " is left out of the spec: " + e.why.Message }

// Remedy says what to do about it.
func (e *leftOutError) Remedy() string { return e.why.Remedy }

// find is the device of a name; nil if there is none.
func (d *devices) find(name string) *device {
	if i := slices.IndexFunc(d.list, func(c device) bool { return c.name == name }); i >= 0 {
		return &d.list[i]
	}
	return nil
}
