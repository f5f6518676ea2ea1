package discovery

import (
	"fmt"
	"strconv"
	"strings"
)

// idAttributes are the sysfs attributes that identify a PCI function (Documentation/ABI/testing/sysfs-bus-pci
// and Documentation/PCI/sysfs-pci.rst): each "0x" and hexadecimal digits. The kernel answers them from memory.
var idAttributes = [...]string{"vendor", "device", "subsystem_vendor", "subsystem_device", "class"} //nolint:gochecknoglobals // never changed; Go has no constant arrays

const (
	idVendor = iota
	idDevice
	idSubvendor
	idSubdevice
	idClass
)

// identity reads the ids of one function as they are asked for: most functions of a machine are told
// apart from an LPU by their vendor alone.
type identity struct {
	dir    *directory
	values [len(idAttributes)]uint32
	known  [len(idAttributes)]bool
	err    error // the first id that was asked for and could not be read
}

func (id *identity) get(attribute int) (uint32, bool) {
	if id.known[attribute] {
		return id.values[attribute], true
	}
	text, err := id.dir.line(idAttributes[attribute])
	if err == nil {
		var v uint64
		if v, err = strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 32); err != nil {
			err = id.dir.fault(idAttributes[attribute], fmt.Errorf("%.20q is not a hexadecimal number", text))
		}
		id.values[attribute] = uint32(v)
	}
	if err != nil {
		if id.err == nil {
			id.err = err
		}
		return 0, false
	}
	id.known[attribute] = true
	return id.values[attribute], true
}

// text is an id as LPU shows it: four digits, or "" when it cannot be read.
func (id *identity) text(attribute int) string {
	v, ok := id.get(attribute)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%04x", v)
}

// entry is a Match with its numbers parsed.
type entry struct {
	ids   [idSubdevice + 1]*uint16
	class *classMatch
}

func compileEntry(m Match) entry {
	var e entry
	for i, text := range []string{m.Vendor, m.Device, m.Subvendor, m.Subdevice} {
		if v, err := parseID(text); err == nil {
			e.ids[i] = &v
		}
	}
	if c, err := parseClass(m.Class); err == nil {
		e.class = &c
	}
	return e
}

func (e entry) matches(id *identity) bool {
	for i, want := range e.ids {
		if want == nil {
			continue
		}
		if v, ok := id.get(i); !ok || v != uint32(*want) {
			return false
		}
	}
	if e.class != nil {
		if v, ok := id.get(idClass); !ok || v>>e.class.shift != e.class.value {
			return false
		}
	}
	return true
}

// function is a PCI function as its ids tell it.
type function struct {
	address Address
	ids     [idSubdevice + 1]string // read for LPUs only
	model   *compiledModel          // whose LPU it is; nil: of none
	also    *compiledModel          // another row of the same rank that matches too
	manages *compiledModel          // whose management function it is
	err     error                   // why it cannot be told
}

func (s *scan) identifyOne(a Address) function {
	f := function{address: a}
	dir, err := s.tree.open(pciDevices + "/" + a.String())
	if err != nil {
		f.err = err
		return f
	}
	defer dir.close()
	id := &identity{dir: dir}
	f.model, f.also = s.match(id)
	if f.model == nil {
		f.manages = s.matchManagement(id, a)
		f.err = id.err
		return f
	}
	for i := range f.ids {
		f.ids[i] = id.text(i)
	}
	return f
}

// match finds the model of a function. The operator's rows stand before the built-in ones and win over
// them; two rows of the same rank that match are both returned.
func (s *scan) match(id *identity) (model, also *compiledModel) {
	for _, m := range s.models {
		if model != nil && m.operator != model.operator {
			break
		}
		for _, e := range m.entries {
			if !e.matches(id) {
				continue
			}
			if model != nil {
				return model, m
			}
			model = m
			break
		}
	}
	return model, nil
}

func (s *scan) matchManagement(id *identity, a Address) *compiledModel {
	for _, m := range s.models {
		if m.Management == nil || a.Function != m.Management.Function {
			continue
		}
		want, err := parseID(m.Management.Device)
		if err != nil {
			continue
		}
		for _, e := range m.entries {
			if e.ids[idVendor] == nil {
				continue
			}
			ofVendor := entry{ids: [4]*uint16{idVendor: e.ids[idVendor], idDevice: &want}}
			if ofVendor.matches(id) {
				return m
			}
		}
	}
	return nil
}
