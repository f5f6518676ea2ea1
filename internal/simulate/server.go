package simulate

import (
	"fmt"
	"slices"

	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// server is a simulated machine in memory.
type server struct {
	Node
	*Profile
	functions  []*function
	cards      []*card
	nextNumber int // the lowest number that no class device of the LPUs' class has yet
	groups     int // IOMMU groups so far
	wide       int // PCI domains of five digits so far
	foreign    int // foreign accelerators so far
}

// card is an LPU card. The driver probes the cards in an order of its own, not in that of
// their addresses.
type card struct {
	server    *server
	index     int // position in ascending order of PCI addresses, before the faults
	probe     int // position in probe order, which the numbers that drivers give follow
	address   pci.Address
	functions []*function
	unplugged bool
	unbound   binding // that Unbind took from the LPU
}

// lpu is the function that is the LPU, node the class device that its node comes from.
func (c *card) lpu() *function { return c.functions[len(c.functions)-1] }
func (c *card) node() *child   { return c.lpu().children[0] }

// nodes returns the class devices of the LPU, or those that it had before it was unbound.
func (c *card) nodes() []*child {
	if c.lpu().driver == "" {
		return c.unbound.nodes()
	}
	return c.lpu().nodes()
}

// sound is the condition of a card without a fault.
var sound = condition{runtimeStatus: "active"} //nolint:gochecknoglobals // never changed; Go has no constant structs

// each changes the functions of the card.
func (c *card) each(change func(*function)) {
	for _, f := range c.functions {
		change(f)
	}
}

// serial is the card's serial number. No real card has one of this form.
func (c *card) serial() string { return fmt.Sprintf("XFL1SIM%04dA", c.index) }

// at is the address of function 0 of a device.
func at(domain, bus, device int) pci.Address {
	return pci.Address{Domain: uint32(domain), Bus: uint8(bus), Device: uint8(device)}
}

// below is the address of function 0 of a device on the bus below a bridge.
func (f *function) below(device int) pci.Address {
	return at(int(f.address.Domain), int(f.secondary), device)
}

// add puts the functions of one device, from function 0 on, below a bridge (nil: a host
// bridge). They get an IOMMU group of their own.
func (s *server) add(parent *function, address pci.Address, functions ...*function) {
	above := fmt.Sprintf("sys/devices/pci%04x:%02x", address.Domain, address.Bus)
	if parent != nil {
		above = parent.dir
	}
	for i, f := range functions {
		f.parent, f.address, f.group = parent, address.Sibling(address.Function+uint8(i)), s.groups
		f.dir = above + "/" + f.address.String()
		// With two nodes, the second has the buses from 80 on.
		f.profile, f.numa = s.Profile, min(int(address.Bus)/0x80, len(s.cpus)-2)
		f.several = len(functions) > 1
	}
	s.groups++
	s.functions = append(s.functions, functions...)
}

// addBelowRootPort adds a device, and a root port that leads to its bus.
func (s *server) addBelowRootPort(address pci.Address, bus int, device ...*function) {
	port := s.rootPort(address, bus, device[0].link)
	s.add(port, port.below(0), device...)
}

// system adds the chipset, a network card and a disk, which every server has.
func (s *server) system() {
	s.add(nil, at(0, 0, 0), &function{ids: ids{0x8086, 0x2020, 0x8086, 0, 0x060000, 7}})
	s.add(nil, at(0, 0, 0x17), &function{ids: ids{0x8086, 0xa182, 0x1028, 0x0716, 0x010601, 9}, binding: binding{driver: "ahci"}})
	s.add(nil, at(0, 0, 0x1f), &function{ids: ids{0x8086, 0xa1c1, 0x1028, 0x0716, 0x060100, 9}})
	s.addBelowRootPort(at(0, 0, 0x1c), 1, nic(2)...)
	s.addBelowRootPort(at(0, 0, 0x1d), 2, nvme()...)
}

// graphics adds a GPU. Its driver is loaded before that of the LPUs, so it has the first
// DRM minors.
func (s *server) graphics(i int) {
	bus := 0x20 + 0x80*i
	s.addBelowRootPort(at(0, bus, 0), bus+1, &function{
		ids:  ids{0x10de, s.gpu, 0x10de, 0x1533, 0x030200, 0xa1},
		link: link{4, 16, 4, 16},
		aer:  true, binding: binding{driver: "nvidia", children: drmDevices(i)},
	})
}

// block adds up to eight LPUs in a PCI domain of their own: two switches of four on a
// host bridge each, or without switches all on one host bridge.
func (s *server) block(domain, lpus int) {
	var ports []*function
	if s.switched {
		for i := 0; i < lpus; i += 4 {
			ports = append(ports, s.switchPorts(domain, 0x40+0x10*i, min(4, lpus-i))...)
		}
	} else {
		for i := range lpus {
			ports = append(ports, s.rootPort(at(domain, 0x40, i), 0x41+i, s.link))
		}
	}
	half := min(4, (lpus+1)/2) // probed last, as in the tree that was captured from a real kernel
	if s.inOrder {
		half = 0
	}
	for i, port := range ports {
		c := &card{server: s, index: 8*domain + i, probe: 8*domain + (i+lpus-half)%lpus}
		if slices.Contains(s.Faults, Fault{wideDomain, c.index}) {
			port.link.gen, port.link.width = 1, 0 // the link of an empty slot
			port = s.rootPort(at(0x10000+s.wide, 0, 0), 1, s.link)
			s.wide++
			s.groups-- // the port shares the card's IOMMU group, so that no other group gets another number
		}
		s.plug(c, port)
	}
}

// plug puts a card into the slot below a port, with its link, its class devices and its
// place in the list of cards.
func (s *server) plug(c *card, port *function) {
	port.slot = 10 + c.index
	c.address = port.below(0)
	c.functions = s.card(c)
	for _, f := range c.functions {
		f.link, f.aer, f.condition = s.link, true, sound
	}
	s.add(port, c.address, c.functions...)
	c.lpu().children = append(s.nodesOf(c, s.gpus+c.probe), c.lpu().children...)
	if c.index < len(s.Numbers) {
		c.node().numbers = s.Numbers[c.index]
	}
	s.cards = append(s.cards, c)
}

// nodesOf makes the class devices of a card with a number. The LPU's node is that of the
// first.
func (s *server) nodesOf(c *card, number int) []*child {
	children := drmDevices(number)
	if s.class != "drm" {
		children = []*child{classDevice(s.class, s.class, number, s.major, number)}
	}
	if s.tells != nil {
		children[0].attributes = s.tells(c)
	}
	return children
}
