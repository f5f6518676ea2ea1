package simulate

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Fault is one thing that is wrong with an LPU of the simulated node, or with what is beside it.
type Fault struct {
	Name  string // one of FaultKinds
	Index int    // the LPU's index in ascending order of PCI addresses, as it is before any fault
}

// ParseFault reads NAME@INDEX, such as "unbound@3". The error is an *InvalidError.
func ParseFault(text string) (Fault, error) {
	name, number, _ := strings.Cut(text, "@")
	if _, err := faultNamed(name); err != nil {
		return Fault{}, err
	}
	index, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return Fault{}, invalid("name the LPU by its index, such as "+name+"@3", "fault %q is not NAME@INDEX", text)
	}
	return Fault{name, int(index)}, nil
}

// String is the form that ParseFault reads.
func (f Fault) String() string { return fmt.Sprintf("%s@%d", f.Name, f.Index) }

// FaultKind is a kind of fault, with what it does to a card. A card has at most one fault for each part,
// and none for what belongs to a faulty part.
type FaultKind struct {
	Name    string // as in Fault.Name
	Summary string // one line for people

	part   string      // of the card, as a path: "driver/node" is there only while the LPU's driver is bound
	happen func(*card) // nil: [server.block] sees to it, because the paths of all that is below the card hold its address
}

// FaultKinds lists the kinds in the order in which faults happen.
func FaultKinds() []FaultKind {
	return []FaultKind{
		{"no-modalias", "the modalias file is missing", "modalias", replaceAttribute("modalias", func(*tree, string) {})},
		{"numa-unknown", "numa_node is -1", "numa_node", func(c *card) { c.lpu().numa = -1 }},
		{"unreadable", "numa_node cannot be read: it is a directory", "numa_node", replaceAttribute("numa_node", (*tree).dir)},
		{"fifo", "numa_node is a FIFO, on which a careless reader hangs", "numa_node", replaceAttribute("numa_node", (*tree).fifo)},
		{"unbound", "no driver is bound", "driver", rebind("")},
		{"vfio", "bound to vfio-pci, for a virtual machine", "driver", rebind("vfio-pci")},
		{"node-missing", "the node is missing in dev", "driver/node", func(c *card) { c.node().missing = true }},
		{"node-mismatch", "the node in dev has other device numbers", "driver/node", func(c *card) { c.node().stale = true }},
		{"two-nodes", "two class devices of the class that the node comes from", "driver/second node", addSecondNode},
		{goldenImage, "the card runs its golden image (XRT only)", "driver/shell", flashGoldenImage},
		{wideDomain, "the card sits in a PCI domain of five digits", "address", nil},
		{"foreign", "an accelerator of another vendor beside the LPU", "neighbour", addForeign},
	}
}

// The kinds that have rules of their own.
const (
	goldenImage = "recovery"
	wideDomain  = "wide-domain"
)

func faultNamed(name string) (FaultKind, error) {
	return find("fault", name, FaultKinds(), func(k FaultKind) string { return k.Name })
}

// checkFaults checks that each fault is possible on this node and that no two contradict each other.
func checkFaults(p *Profile, lpus int, faults []Fault) error {
	for i, f := range faults {
		kind, err := faultNamed(f.Name)
		switch {
		case err != nil:
			return err
		case f.Index < 0 || f.Index >= lpus:
			return invalid(fmt.Sprintf("give an index from 0 to %d, or more LPUs", lpus-1), "fault %s: there is no LPU %d", f, f.Index)
		case f.Name == goldenImage && p.class != "drm":
			return invalid("choose profile orion or edge", "fault %s: the LPUs of profile %s have no XRT shell", f, p.Name)
		}
		for _, other := range faults[:i] {
			with, _ := faultNamed(other.Name) // no error: the loop has checked it before
			if f.Index == other.Index && (strings.HasPrefix(kind.part, with.part) || strings.HasPrefix(with.part, kind.part)) {
				return invalid("leave one of them out, or give it another LPU", "one LPU cannot have both %s and %s", other, f)
			}
		}
	}
	return nil
}

// apply lets the faults happen in the order of their kinds, so that the same faults in another order give the same tree.
func (s *server) apply() {
	for _, kind := range FaultKinds() {
		for _, c := range s.cards {
			if kind.happen != nil && slices.Contains(s.Faults, Fault{kind.Name, c.index}) {
				kind.happen(c)
			}
		}
	}
}

// replaceAttribute puts something else where the file of an attribute was.
func replaceAttribute(name string, with func(t *tree, p string)) func(*card) {
	return func(c *card) {
		f := c.lpu()
		f.replace = append(f.replace, func(t *tree) {
			p := f.dir + "/" + name
			t.do(p, os.Remove)
			with(t, p)
		})
	}
}

// rebind unbinds the LPU from its driver, which takes away all that the driver made, and binds it to another one.
func rebind(driver string) func(*card) {
	return func(c *card) { c.lpu().binding = binding{driver: driver, override: driver} }
}

func addSecondNode(c *card) {
	s := c.server
	c.lpu().children = append(c.lpu().children, s.nodesOf(c, s.nextNumber)...)
	s.nextNumber++
}

// addForeign puts a Rebellions card at a root port of the same host bridge.
func addForeign(c *card) {
	s, top := c.server, c.lpu()
	for top.parent != nil {
		top = top.parent
	}
	slot, number, address := c.index%8, s.foreign, top.address
	s.foreign++
	s.software += rebellionsFiles
	address.Device = uint8(8 + slot)
	s.addBelowRootPort(address, int(address.Bus)+0x10+slot, &function{
		ids:     ids{0x1eff, 0x0003, 0x1eff, 0x0003, 0x120000, 0},
		link:    link{5, 16, 5, 16},
		binding: binding{driver: "rebellions", children: []*child{classDevice("rebellions", "rbln", number, 509, number)}},
	})
}
