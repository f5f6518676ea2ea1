package simulate

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Fault is one thing that is wrong with an LPU of the simulated node, or with what is
// beside it.
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

// FaultKind is a kind of fault, with what it does to a card. A card has at most one fault
// for each part, and none for what belongs to a faulty part.
type FaultKind struct {
	Name    string // as in Fault.Name
	Summary string // one line for people

	// Of the card, as a path: "driver/node" is there only while the LPU's driver is bound.
	part string
	// nil: [server.block] sees to it, because the paths of all that is below the card hold
	// its address.
	happen func(*card)
	shown  []string // the classes of LPUs whose drivers show it; nil: all
}

// FaultKinds lists the kinds in the order in which faults happen.
func FaultKinds() []FaultKind {
	xrt, telling := []string{"drm"}, []string{"drm", "ha"}
	return []FaultKind{
		{"no-modalias", "the modalias file is missing", "modalias", replaceAttribute("modalias", func(*tree, string) {}), nil},
		{"numa-unknown", "numa_node is -1", "numa_node", func(c *card) { c.lpu().numa = -1 }, nil},
		{"unreadable", "numa_node cannot be read: it is a directory", "numa_node", replaceAttribute("numa_node", (*tree).dir), nil},
		{"fifo", "numa_node is a FIFO, on which a careless reader hangs", "numa_node", replaceAttribute("numa_node", (*tree).fifo), nil},
		{"all-ones", "the card answers nothing: it reads as all ones", "link", mute(true), nil},
		{"link-x4", "the link has 4 lanes", "link", trainLink(0, 4), nil},
		{"power-lost", "the card has no power, and the kernel calls it active", "power", losePower, nil},
		{"asleep", "the kernel has put the card to sleep", "power", setPower("D3hot", "suspended"), nil},
		{"aer-correctable", "PCI errors were corrected, by the counter", "aer/correctable", countErrors("correctable", 7), nil},
		{"aer-nonfatal", "PCI errors were not fatal and not corrected, by the counter", "aer/nonfatal", countErrors("nonfatal", 7), nil},
		{"aer-fatal", "PCI errors were fatal, by the counter", "aer/fatal", countErrors("fatal", 7), nil},
		{"unbound", "no driver is bound", "driver", rebind(""), nil},
		{"vfio", "bound to vfio-pci, for a virtual machine", "driver", rebind("vfio-pci"), nil},
		{"reset-behind-driver", "the card was reset, and its driver does not know", "driver/command", resetBehindDriver, nil},
		{"node-missing", "the node is missing in dev", "driver/node", func(c *card) { c.node().missing = true }, nil},
		{"node-mismatch", "the node in dev has other device numbers", "driver/node", func(c *card) { c.node().stale = true }, nil},
		{"two-nodes", "two class devices of the class that the node comes from", "driver/second node", addSecondNode, nil},
		{"recovery", "the card runs its golden image", "driver/shell", flashGoldenImage, xrt},
		{"bad-state", "the driver calls the card's state bad", "driver/state", set("device_bad_state=1", "ha/state=failed"), telling},
		{"firewall", "the card's firewall has tripped", "driver/firewall", set("firewall.u/status=2", "firewall.u/level=0"), xrt},
		{"not-calibrated", "the card's memory is not calibrated", "driver/mig", set("mig_calibration=0x0"), xrt},
		{"ecc", "memory errors were not corrected, by the counter", "driver/ecc",
			set("mig.u/ecc_ue_cnt=1", "ha/errors_uncorrectable=1"), telling},
		{"hot", "a sensor shows more than its critical temperature", "driver/sensors", set("hwmon/temp1_input=101000"), telling},
		{"no-host-memory", "the card has no memory of the host", "driver/host memory", set("host_mem_size=0"), xrt},
		{wideDomain, "the card sits in a PCI domain of five digits", "address", nil, nil},
		{"foreign", "an accelerator of another vendor beside the LPU", "neighbour", addForeign, nil},
	}
}

// wideDomain is a kind that has rules of its own.
const wideDomain = "wide-domain"

func faultNamed(name string) (FaultKind, error) {
	return find("fault", name, FaultKinds(), func(k FaultKind) string { return k.Name })
}

// checkFaults checks that each fault is possible on this node and that no two contradict
// each other.
func checkFaults(p *Profile, lpus int, faults []Fault) error {
	for i, f := range faults {
		kind, err := faultNamed(f.Name)
		switch {
		case err != nil:
			return err
		case f.Index < 0 || f.Index >= lpus:
			return invalid(fmt.Sprintf("give an index from 0 to %d, or more LPUs", lpus-1), "fault %s: there is no LPU %d", f, f.Index)
		case kind.shown != nil && !slices.Contains(kind.shown, p.class):
			return invalid("choose profile "+strings.Join(kind.profiles(), " or "), "fault %s: LPUs of profile %s do not show it", f, p.Name)
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

// profiles are the names of the profiles whose LPUs show a fault.
func (k FaultKind) profiles() (names []string) {
	for _, p := range Profiles() {
		if slices.Contains(k.shown, p.class) {
			names = append(names, p.Name)
		}
	}
	return names
}

// apply lets the faults happen in the order of their kinds, so that the same faults in
// another order give the same tree.
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

// rebind unbinds the LPU from its driver, which takes away all that the driver made, and
// binds it to another one.
func rebind(driver string) func(*card) {
	return func(c *card) { c.lpu().binding = binding{driver: driver, override: driver} }
}

// mute makes the card answer nothing, or answer again.
func mute(ones bool) func(*card) {
	return func(c *card) { c.each(func(f *function) { f.mute = ones }) }
}

// setPower sets what the kernel says of the power.
func setPower(state, status string) func(*card) {
	return func(c *card) { c.each(func(f *function) { f.powerState, f.runtimeStatus = state, status }) }
}

func losePower(c *card) {
	mute(true)(c)
	setPower("D3cold", "active")(c)
}

// trainLink changes the link of the card, which is that of the port above too. Generation
// 0 or width 0: as it is.
func trainLink(generation, width uint16) func(*card) {
	return func(c *card) {
		for _, f := range append([]*function{c.lpu().parent}, c.functions...) {
			f.link.gen, f.link.width = cmp.Or(generation, f.link.gen), cmp.Or(width, f.link.width)
		}
	}
}

// countErrors adds to a counter of errors that the LPU has on the PCI bus.
func countErrors(kind string, n uint64) func(*card) {
	return func(c *card) {
		f := c.lpu()
		if f.errors == nil {
			f.errors = map[string]uint64{}
		}
		f.errors[kind] += n
	}
}

func resetBehindDriver(c *card) { c.lpu().disabled = true }

// set gives attributes that the driver made other values, NAME=TEXT, as far as the LPU
// has them.
func set(values ...string) func(*card) {
	return func(c *card) {
		for _, value := range values {
			name, text, _ := strings.Cut(value, "=")
			c.lpu().set(name, text)
		}
	}
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
