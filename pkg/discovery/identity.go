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
	dir    *host.Dir
	values [len(idAttributes)]uint32
	known  [len(idAttributes)]bool
	err    error // the first id that was asked for and could not be read
}

func (id *identity) get(attribute int) (uint32, bool) {
	if id.known[attribute] {
		return id.values[attribute], true
	}
	text, err := id.dir.Line(idAttributes[attribute])
	if err == nil {
		var v uint64
		if v, err = strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 32); err != nil {
			err = id.dir.Fault(idAttributes[attribute], fmt.Errorf("%.20q is not a hexadecimal number", text))
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

// wanted is a value that an id must have. Of a class of four digits the programming interface, the low 8 bits, is left out.
type wanted struct {
	attribute int
	value     uint32
	shift     int
}

// parseWanted reads four hexadecimal digits; of a class, four or six.
func parseWanted(attribute int, text string) (wanted, error) {
	value, err := strconv.ParseUint(text, 16, 32)
	w := wanted{attribute: attribute, value: uint32(value)}
	if attribute != idClass {
		if err != nil || len(text) != 4 {
			return w, fmt.Errorf("%q is not a PCI id (four hexadecimal digits in quotes, such as \"10ee\")", text)
		}
		return w, nil
	}
	if err != nil || len(text) != 4 && len(text) != 6 {
		return w, fmt.Errorf("%q is not a PCI class (four or six hexadecimal digits in quotes, such as \"1200\")", text)
	}
	if len(text) == 4 {
		w.shift = 8
	}
	return w, nil
}

// entry is a Match with its ids parsed, the vendor first: all are wanted.
type entry []wanted

func (e entry) matches(id *identity) bool {
	for _, w := range e {
		if v, ok := id.get(w.attribute); !ok || v>>w.shift != w.value {
			return false
		}
	}
	return true
}

func anyMatches(entries []entry, id *identity) bool {
	return slices.ContainsFunc(entries, func(e entry) bool { return e.matches(id) })
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
		switch {
		case model != nil && m.operator != model.operator:
			return model, nil
		case !anyMatches(m.entries, id):
		case model != nil:
			return model, m
		default:
			model = m
		}
	}
	return model, nil
}

func (s *scan) matchManagement(id *identity, a Address) *compiledModel {
	for _, m := range s.models {
		if m.Management != nil && a.Function == m.Management.Function && anyMatches(m.managers, id) {
			return m
		}
	}
	return nil
}
