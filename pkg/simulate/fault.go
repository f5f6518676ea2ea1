package simulate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Fault is something wrong with one LPU, or beside it.
type Fault struct {
	Name  string // one of FaultKinds
	Index int    // the LPU's index in ascending order of PCI addresses, as it is before any fault
}

// ParseFault reads NAME@INDEX, such as "unbound@3".
func ParseFault(text string) (Fault, error) {
	name, number, _ := strings.Cut(text, "@")
	if _, err := faultNamed(name); err != nil {
		return Fault{}, err
	}
	index, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return Fault{}, fmt.Errorf("fault %q: expected NAME@INDEX, such as %s@3", text, name)
	}
	return Fault{name, int(index)}, nil
}

// String is the form that ParseFault reads.
func (f Fault) String() string { return fmt.Sprintf("%s@%d", f.Name, f.Index) }

// FaultKind is a kind of fault, with what it does to a card. A card has at most one fault for each part.
type FaultKind struct {
	Name, Summary string

	part  string
	bound bool                 // changes what is there only while the LPU's driver is bound
	apply func(*server, *card) // nil: block sees to it, since names below the card hold its address
}

// FaultKinds lists the kinds.
func FaultKinds() []FaultKind {
	return []FaultKind{
		{"no-modalias", "the modalias file is missing", "modalias", false, odd("modalias", absent)},
		{"numa-unknown", "numa_node is -1", "numa_node", false, func(_ *server, c *card) { c.lpu().numa = -1 }},
		{"unreadable", "numa_node cannot be read: it is a directory", "numa_node", false, odd("numa_node", directory)},
		{"fifo", "numa_node is a FIFO, on which a careless reader hangs", "numa_node", false, odd("numa_node", fifo)},
		{"unbound", "no driver is bound", "driver", false, rebind("")},
		{"vfio", "bound to vfio-pci, for a virtual machine", "driver", false, rebind("vfio-pci")},
		{"node-missing", "the node is missing in dev", "node", true, func(_ *server, c *card) { c.node().missing = true }},
		{"node-mismatch", "the node in dev has other device numbers", "node", true, func(_ *server, c *card) { c.node().stale = true }},
		{"two-nodes", "two class devices of the class that the node comes from", "second node", true, addSecondNode},
		{goldenImage, "the card runs its golden image (XRT only)", "shell", true, flashGoldenImage},
		{wideDomain, "the card sits in a PCI domain of five digits", "address", false, nil},
		{"foreign", "an accelerator of another vendor beside the LPU", "neighbour", false, addForeign},
	}
}

// The kinds that more than their own line is about.
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
			return fmt.Errorf("fault %s: the node has LPUs 0 to %d", f, lpus-1)
		case f.Name == goldenImage && !slices.Contains(p.modules, "xocl"):
			return fmt.Errorf("fault %s: the LPUs of profile %s have no XRT shell", f, p.Name)
		}
		for _, other := range faults[:i] {
			with, _ := faultNamed(other.Name) // known: it has been in f's place
			if f.Index == other.Index && (kind.part == with.part || kind.bound && with.part == "driver" || with.bound && kind.part == "driver") {
				return fmt.Errorf("fault %s: cannot go together with %s", f, other)
			}
		}
	}
	return nil
}

// apply lets the faults happen, in the order of their kinds: the order in which they were given does not matter.
func (s *server) apply(faults []Fault) {
	for _, kind := range FaultKinds() {
		for _, c := range s.cards {
			if kind.apply != nil && slices.Contains(faults, Fault{kind.Name, c.index}) {
				kind.apply(s, c)
			}
		}
	}
}

func odd(attribute string, o oddity) func(*server, *card) {
	return func(_ *server, c *card) {
		if c.lpu().odd == nil {
			c.lpu().odd = map[string]oddity{}
		}
		c.lpu().odd[attribute] = o
	}
}

// rebind takes the LPU from its driver, and with it all that the driver made, and gives it to another.
func rebind(driver string) func(*server, *card) {
	return func(_ *server, c *card) {
		c.lpu().driver, c.lpu().extra, c.lpu().children = driver, nil, nil
	}
}

func addSecondNode(s *server, c *card) {
	c.lpu().children = append(c.lpu().children, s.nodesOf(c, s.nextNumber)...)
	s.nextNumber++
}

func flashGoldenImage(_ *server, c *card) {
	c.functions[0].extra["recovery"] = "1"
	for _, f := range c.functions {
		for _, child := range f.children {
			for name, text := range child.attributes {
				child.attributes[name] = strings.Replace(text, shell, recoveryShell, 1)
			}
		}
	}
}

// addForeign puts a Rebellions card at a root port of the same host bridge.
func addForeign(s *server, c *card) {
	top := c.lpu()
	for top.parent != nil {
		top = top.parent
	}
	slot, root := c.index%8, top.address
	bus := int(root.Bus) + 0x10 + slot
	accelerator := &function{
		ids:    ids{0x1eff, 0x0003, 0x1eff, 0x0003, 0x120000, 0},
		link:   link{5, 16, 5, 16},
		driver: "rebellions", children: numbered("rebellions", "rbln", 509, s.foreign, nil),
	}
	s.foreign++
	s.add(s.rootPort(at(root.Domain, int(root.Bus), 8+slot, 0), bus, accelerator.link), at(root.Domain, bus, 0, 0), accelerator)
}
