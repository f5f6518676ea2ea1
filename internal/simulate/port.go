package simulate

import (
	"fmt"

	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Values of Device/Port Type in the PCI Express capability. That of an endpoint is 0.
const (
	rootPort   = 4
	upstream   = 5
	downstream = 6
)

// bridge adds a PCI Express port.
func (s *server) bridge(parent *function, kind uint16, address pci.Address, secondary, subordinate int, l link) *function {
	f := &function{
		ids:  ids{vendor: 0x1000, device: 0xc010, class: 0x060400, revision: 0xb0}, // PEX880xx switch
		port: kind, link: l, aer: true,
		secondary: uint8(secondary), subordinate: uint8(subordinate),
		binding: binding{
			driver: "pcieport", extra: fmt.Sprintf("secondary_bus_number=%d\nsubordinate_bus_number=%d", secondary, subordinate),
		},
	}
	if kind == rootPort {
		f.vendor, f.device, f.revision = 0x8086, 0x347a, 4
		f.extra += "\naer_rootport_total_err_cor=0\naer_rootport_total_err_fatal=0\naer_rootport_total_err_nonfatal=0"
	}
	s.add(parent, address, f)
	return f
}

// rootPort adds a root port for one slot.
func (s *server) rootPort(address pci.Address, secondary int, device link) *function {
	return s.bridge(nil, rootPort, address, secondary, secondary, portLink(device))
}

// portLink is the link of a port to a device. Ports have 16 lanes and generation 4, or
// the later generation of the device.
func portLink(device link) link {
	return link{device.gen, device.width, max(4, device.maxGen), 16}
}

// switchPorts adds a switch below a root port and returns its downstream ports.
func (s *server) switchPorts(domain, bus, lpus int) []*function {
	last := bus + 2 + lpus
	l := portLink(s.link)
	up := l
	up.gen = l.maxGen
	root := s.bridge(nil, rootPort, at(domain, bus, 0), bus+1, last, up)
	top := s.bridge(root, upstream, root.below(0), bus+2, last, up)
	var ports []*function
	for i := range lpus {
		ports = append(ports, s.bridge(top, downstream, top.below(i), bus+3+i, bus+3+i, l))
	}
	return ports
}

// services are those of PCI Express ports, by the kind of the port: the driver by the
// number of the service.
var services = map[uint16]map[int]string{ //nolint:gochecknoglobals // never changed; Go has no constant arrays or maps
	rootPort:   {0x01: "pcie_pme", 0x02: "aer", 0x04: "pciehp", 0x10: ""},
	upstream:   {0x02: ""},
	downstream: {0x02: "", 0x04: "pciehp"},
}

// writeServices writes the services of a PCI Express port, each with its driver
// (drivers/pci/pcie/portdrv.c). Their names begin with the port's address.
func (f *function) writeServices(t *tree, dir string) {
	for number, driver := range services[f.port] {
		t.busDevice(fmt.Sprintf("%s/%s:pcie%x%02x", dir, f.address, f.port&3, number), "pci_express", driver, "")
	}
}

// writeBus writes the class device of a PCI bus below its bridge.
func writeBus(t *tree, bridge, bus string, near cpus) {
	t.classDevice(bridge, "pci_bus", bus, "")
	t.attributes(bridge+"/pci_bus/"+bus, fmt.Sprintf("cpuaffinity=%s\ncpulistaffinity=%s", near.mask, near.list))
}

// writeSlot writes the physical slot below a port (drivers/pci/slot.c); its address has
// no function.
func (f *function) writeSlot(t *tree) {
	dir := fmt.Sprint("sys/bus/pci/slots/", f.slot)
	t.attributes(dir, fmt.Sprintf(slotAttributes, f.address.Domain, f.secondary, speeds[f.link.gen], speeds[f.link.maxGen]))
	t.link(dir+"/module", "sys/module/pciehp")
	t.dir("sys/module/pciehp")
}

const slotAttributes = `address=%04x:%02x:00
adapter=1
attention=0
power=1
cur_bus_speed=%s
max_bus_speed=%s`
