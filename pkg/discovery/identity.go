package discovery

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// idAttributes are the sysfs attributes that identify a PCI function (Documentation/ABI/testing/sysfs-bus-pci
// and Documentation/PCI/sysfs-pci.rst): each "0x" and hexadecimal digits. The kernel answers them from memory.
//
//nolint:gochecknoglobals // never changed; Go has no constant arrays
var idAttributes = [...]string{"vendor", "device", "subsystem_vendor", "subsystem_device", "class"}

const (
	idVendor = iota
	idDevice
	idSubvendor
	idSubdevice
	idClass
)

// idSet has one id for each of idAttributes: hexadecimal digits without 0x, in lower case. "" is an id that was not read.
type idSet [len(idAttributes)]string

// identity reads the ids of one function when they are needed: for most functions of a machine the vendor alone
// says that they are no LPU.
type identity struct {
	dir *host.Dir
	ids idSet
	err error // the first id that was needed and could not be read
}

// get returns one id; "" if it cannot be read.
func (id *identity) get(attribute int) string {
	if id.ids[attribute] == "" {
		digits, err := readID(id.dir, idAttributes[attribute])
		if err != nil && id.err == nil {
			id.err = err
		}
		id.ids[attribute] = digits
	}
	return id.ids[attribute]
}

func readID(dir *host.Dir, name string) (string, error) {
	text, err := dir.Line(name)
	if err != nil {
		return "", err
	}
	digits := strings.ToLower(strings.TrimPrefix(text, "0x"))
	if _, err := strconv.ParseUint(digits, 16, 32); err != nil {
		return "", dir.Fault(name, fmt.Errorf("%.20q is not a hexadecimal number", text))
	}
	return digits, nil
}

// matches tells whether a function has all ids of the entry. Of a class with four digits the programming interface,
// the last two digits in sysfs, does not count.
func (m *Match) matches(id *identity) bool {
	for attribute, want := range m.ids() {
		if want != "" && !strings.HasPrefix(id.get(attribute), strings.ToLower(want)) {
			return false
		}
	}
	return m.Subsystem == ""
}

// function is a PCI function with the result of matching its ids, or the address of an LPU that should be there.
type function struct {
	address Address
	ids     idSet  // the ids that were read
	model   *Model // the model of the LPU; nil: it is no LPU
	also    *Model // another row of the same rank that matches too
	manages *Model // the model of the card that this function manages
	err     error  // the reason why its ids cannot be read

	known bool // an earlier scan saw the LPU, this one does not
}

func (s *scan) identifyOne(a Address) function {
	f := function{address: a}
	dir, err := s.tree.Dir(pciDevices + "/" + a.String())
	if err != nil {
		f.err = err
		return f
	}
	defer dir.Close()
	id := &identity{dir: dir}
	f.model, f.also = s.match(id)
	if f.model == nil {
		f.manages = s.matchManagement(id, a)
		f.err = id.err
	}
	f.ids = id.ids
	return f
}

// match finds the model of a function. The operator's rows come before the built-in rows and win over them. If two
// rows of the same rank match, it returns both.
func (s *scan) match(id *identity) (model, also *Model) {
	for _, m := range s.models {
		switch {
		case model != nil && m.operator != model.operator:
			return model, nil
		case !slices.ContainsFunc(m.Match, func(e Match) bool { return e.matches(id) }):
		case model != nil:
			return model, m
		default:
			model = m
		}
	}
	return model, nil
}

// matchManagement finds the model of the card that this function manages. Its vendor is the vendor of the LPU.
func (s *scan) matchManagement(id *identity, a Address) *Model {
	for _, m := range s.models {
		if m.Management == nil || a.Function != m.Management.Function {
			continue
		}
		for _, e := range m.Match {
			manager := Match{Vendor: e.Vendor, Device: m.Management.Device}
			if e.Vendor != "" && manager.matches(id) {
				return m
			}
		}
	}
	return nil
}
