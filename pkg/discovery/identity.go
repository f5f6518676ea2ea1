package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/stall"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// idAttributes are the sysfs attributes that identify a PCI function
// (Documentation/ABI/testing/sysfs-bus-pci and Documentation/PCI/sysfs-pci.rst): each
// "0x" and hexadecimal digits. The kernel answers them from memory.
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

// idSet has one id for each of idAttributes: hexadecimal digits without 0x, in lower
// case. "" is an id that was not read.
type idSet [len(idAttributes)]string

// identity reads the ids of one function when they are needed: for most functions of a
// machine the vendor alone says that they are no LPU.
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

// matches reports whether a function has all ids of the entry. Of a class with four
// digits the programming interface, the last two digits in sysfs, does not count.
func (m *Match) matches(id *identity) bool {
	for attribute, want := range m.ids() {
		if want != "" && !strings.HasPrefix(id.get(attribute), want) {
			return false
		}
	}
	return m.Subsystem == ""
}

// function is a PCI function with the result of matching its ids, or the address of an
// LPU that should be there.
type function struct {
	address pci.Address
	ids     idSet  // the ids that were read
	model   *Model // the model of the LPU; nil: it is no LPU
	also    *Model // another row of the same rank that matches too
	manages *Model // the model of the card that this function manages
	err     error  // the reason why one of its ids cannot be read

	known  bool  // an earlier scan saw the LPU, this one does not
	before Known // what a watcher knows of it

	// The paths of the class devices that its node can be of, once they are known.
	devices []string
	tree    *host.Tree               // through which the LPU is read
	names   func() ([]string, error) // what is in its directory
	apart   bool                     // that reads in another process
}

// readable reports whether there is a card to be read.
func (f *function) readable() bool { return f.model != nil && !errors.Is(f.err, stall.ErrStalled) }

// decided reports whether it is known what the function is.
func (f *function) decided() bool { return f.err == nil || f.model != nil || f.manages != nil }

func (s *scan) identifyOne(a pci.Address) function {
	f := function{address: a}
	dir, err := s.tree.Dir(a.Dir())
	if err != nil {
		f.err = err
		return f
	}
	defer dir.Close()
	id := &identity{dir: dir}
	s.matchFunction(&f, id)
	if id.err != nil {
		f.err = id.err
		id.complete()
		s.matchFunction(&f, id)
		if id.err == nil && f.model == nil {
			f.err = nil // it is known to be no LPU
		}
	}
	f.ids = id.ids
	return f
}

func (s *scan) matchFunction(f *function, id *identity) {
	f.model, f.also = s.match(id)
	if f.model == nil {
		f.manages = s.matchManagement(id, f.address)
	}
}

// complete takes the ids that cannot be read from modalias, and else from uevent, which
// have all of them too. uevent comes last, because some kernels answer it under the
// device's lock, and then it waits for a driver that hangs.
func (id *identity) complete() {
	id.err = nil
	modalias, err := id.dir.Line("modalias")
	others := idsOfModalias(modalias)
	if err != nil || others == (idSet{}) {
		uevent, _ := id.dir.Text("uevent")
		others = idsOfUevent(uevent)
	}
	for attribute, digits := range others {
		id.ids[attribute] = cmp.Or(id.ids[attribute], digits)
	}
}

// idsOfModalias parses "pci:v000010EEd0000505Dsv000010EEsd0000000Ebc12sc00i00"
// (drivers/pci/pci-sysfs.c, modalias_show). If it is anything else, no id is known.
func idsOfModalias(text string) idSet {
	var vendor, device, subvendor, subdevice, base, sub, programming uint32
	n, err := fmt.Sscanf(text, "pci:v%8Xd%8Xsv%8Xsd%8Xbc%2Xsc%2Xi%2X", &vendor, &device, &subvendor, &subdevice, &base, &sub, &programming)
	if err != nil || n != 7 || max(vendor, device, subvendor, subdevice) > 0xffff {
		return idSet{}
	}
	return idSet{
		fmt.Sprintf("%04x", vendor), fmt.Sprintf("%04x", device), fmt.Sprintf("%04x", subvendor), fmt.Sprintf("%04x", subdevice),
		fmt.Sprintf("%02x%02x%02x", base, sub, programming),
	}
}

// idsOfUevent parses the lines PCI_CLASS=120000, PCI_ID=10EE:505D and
// PCI_SUBSYS_ID=10EE:000E of uevent (drivers/pci/pci-driver.c, pci_uevent). The class has
// no zeros in front.
func idsOfUevent(text string) (ids idSet) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		first, second, _ := strings.Cut(value, ":")
		switch key {
		case "PCI_CLASS":
			ids[idClass] = padded(value, 6)
		case "PCI_ID":
			ids[idVendor], ids[idDevice] = padded(first, 4), padded(second, 4)
		case "PCI_SUBSYS_ID":
			ids[idSubvendor], ids[idSubdevice] = padded(first, 4), padded(second, 4)
		}
	}
	return ids
}

// padded returns a hexadecimal number with that many digits, in lower case; "" if it is
// none.
func padded(text string, digits int) string {
	n, err := strconv.ParseUint(text, 16, 4*digits)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%0*x", digits, n)
}

// match finds the model of a function. The operator's rows come before the built-in rows
// and win over them. If two rows of the same rank match, it returns both.
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

// matchManagement finds the model of the card that this function manages. Its vendor is
// the vendor of the LPU.
func (s *scan) matchManagement(id *identity, a pci.Address) *Model {
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

// identify reads the ids of every function. It does so in one goroutine, which is
// fastest. If a read hangs, it reads each function in its own goroutine, to find out
// which one hangs.
func (s *scan) identify(ctx context.Context, addresses []pci.Address) []function {
	all, err := stall.Within(ctx, s.reads, "ids", s.CardDeadline, func() ([]function, error) {
		functions := make([]function, len(addresses))
		for i, a := range addresses {
			functions[i] = s.identifyOne(a)
		}
		return functions, nil
	})
	if err == nil {
		return all
	}
	functions := make([]function, len(addresses))
	stall.InParallel(len(addresses), func(i int) {
		a := addresses[i]
		f, err := stall.Within(ctx, s.reads, "ids of "+a.String(), s.CardDeadline, func() (function, error) { return s.identifyOne(a), nil })
		if err != nil {
			f = function{address: a, err: err}
		}
		functions[i] = f
	})
	return functions
}

// modelByClass finds the model of an LPU by its class device instead of its ids.
func (s *scan) modelByClass(ctx context.Context, a pci.Address) *Model {
	for _, m := range s.models {
		for _, match := range m.Match {
			if s.class(ctx, match.Subsystem)[a] != nil {
				return m
			}
		}
	}
	return nil
}
