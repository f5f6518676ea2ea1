package simulate

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// ids tell a PCI function's kind: vendor, device, subsystem, class (24 bits, the last 8 the programming
// interface) and revision.
type ids struct {
	vendor, device, subvendor, subdevice uint16
	class                                uint32
	revision                             uint8
}

// link is a PCI Express link: generations 1 to 5 and lanes, now and at most. Zero: no PCI Express.
type link struct{ gen, width, maxGen, maxWidth int }

// oddity is what stands in place of an attribute's file.
type oddity int

const (
	ordinary oddity = iota
	absent
	directory
	fifo
)

// function is a PCI function.
type function struct {
	ids
	address discovery.Address
	parent  *function // the bridge above it; nil on the bus of a host bridge
	port    portKind
	link    link
	numa    int // -1: unknown
	group   int // IOMMU group
	driver  string
	aer     bool // reports errors (Advanced Error Reporting)
	vpd     []byte

	secondary, subordinate uint8     // buses below a bridge; secondary 0: not a bridge
	several                bool      // its device has other functions
	slot                   int       // physical slot below a port; 0: none
	physfn                 *function // of a virtual function
	vf                     int       // its number among those of physfn
	vfs                    int       // how many a physical function has

	children []*child          // devices below it
	extra    map[string]string // attributes that the driver makes
	odd      map[string]oddity
}

// host is the directory of the host bridge above f, path the one of f itself.
func (f *function) host() string {
	for f.parent != nil {
		f = f.parent
	}
	return fmt.Sprintf("sys/devices/pci%04x:%02x", f.address.Domain, f.address.Bus)
}

func (f *function) path() string {
	if f.parent != nil {
		return f.parent.path() + "/" + f.address.String()
	}
	return f.host() + "/" + f.address.String()
}

func (f *function) modalias() string {
	return fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X",
		f.vendor, f.device, f.subvendor, f.subdevice, f.class>>16, f.class>>8&0xff, f.class&0xff)
}

func (f *function) uevent() string {
	driver := ""
	if f.driver != "" {
		driver = "DRIVER=" + f.driver + "\n"
	}
	return driver + fmt.Sprintf("PCI_CLASS=%04X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\nPCI_SLOT_NAME=%s\nMODALIAS=%s",
		f.class, f.vendor, f.device, f.subvendor, f.subdevice, f.address, f.modalias())
}

// attributes are the text attributes of the PCI core (Documentation/ABI/testing/sysfs-bus-pci) and of the driver.
func (f *function) attributes(near cpus) map[string]string {
	a := map[string]string{
		"vendor": hex16(f.vendor), "device": hex16(f.device),
		"subsystem_vendor": hex16(f.subvendor), "subsystem_device": hex16(f.subdevice),
		"class": fmt.Sprintf("0x%06x", f.class), "revision": fmt.Sprintf("0x%02x", f.revision),
		"modalias": f.modalias(), "uevent": f.uevent(), "resource": f.resource(),
		"numa_node": strconv.Itoa(f.numa), "local_cpus": near.mask, "local_cpulist": near.list,
		"irq": "0", "enable": "0", "power_state": "unknown",
		"dma_mask_bits": "32", "consistent_dma_mask_bits": "32",
		"msi_bus": "1", "ari_enabled": "0", "broken_parity_status": "0", "d3cold_allowed": "0",
	}
	if f.driver != "" {
		a["irq"], a["enable"], a["power_state"] = strconv.Itoa(f.irq()), "1", "D0"
		a["dma_mask_bits"], a["consistent_dma_mask_bits"] = "64", "64"
	}
	if f.link.maxWidth > 0 {
		a["current_link_speed"], a["max_link_speed"] = speed(f.link.gen), speed(f.link.maxGen)
		a["current_link_width"], a["max_link_width"] = strconv.Itoa(f.link.width), strconv.Itoa(f.link.maxWidth)
		a["reset_method"] = "bus"
	}
	if f.secondary > 0 {
		a["secondary_bus_number"], a["subordinate_bus_number"] = fmt.Sprint(f.secondary), fmt.Sprint(f.subordinate)
	}
	if f.vfs > 0 {
		a["sriov_totalvfs"], a["sriov_numvfs"] = strconv.Itoa(vfsPerNIC), strconv.Itoa(f.vfs)
	}
	if f.aer {
		a["aer_dev_correctable"] = noErrors("RxErr BadTLP BadDLLP Rollover Timeout NonFatalErr CorrIntErr HeaderOF TOTAL_ERR_COR")
		a["aer_dev_fatal"] = noErrors(uncorrectable + " TOTAL_ERR_FATAL")
		a["aer_dev_nonfatal"] = noErrors(uncorrectable + " TOTAL_ERR_NONFATAL")
	}
	if f.port == rootPort {
		for _, kind := range []string{"cor", "fatal", "nonfatal"} {
			a["aer_rootport_total_err_"+kind] = "0"
		}
	}
	maps.Copy(a, f.extra)
	return a
}

const uncorrectable = "Undefined DLP SDES TLP FCP CmpltTO CmpltAbrt UnxCmplt RxOF MalfTLP ECRC UnsupReq ACSViol UncorrIntErr " +
	"BlockedTLP AtomicOpBlocked TLPBlockedErr PoisonTLPBlocked DMWrReqBlocked IDECheck MisIDETLP PCRC_CHECK TLPXlatBlocked"

// noErrors is an aer_dev_* file in which every counter is 0.
func noErrors(names string) string { return strings.ReplaceAll(names, " ", " 0\n") + " 0" }

func hex16(v uint16) string { return fmt.Sprintf("0x%04x", v) }

// speed is a link speed as drivers/pci/probe.c, pci_speed_string spells it.
func speed(gen int) string {
	return [...]string{"Unknown", "2.5 GT/s PCIe", "5.0 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe"}[gen]
}

func (f *function) irq() int { return 16 + int(f.address.Bus) }

func (f *function) write(t *tree, near cpus) {
	dir, name := f.path(), f.address.String()
	for attribute, text := range f.attributes(near) {
		p := dir + "/" + attribute
		switch f.odd[attribute] {
		case ordinary:
			t.text(p, text)
		case directory:
			t.dir(p)
		case fifo:
			t.fifo(p)
		case absent:
		}
	}
	t.bytes(dir+"/config", f.config(), 0o644)
	if f.vpd != nil {
		t.bytes(dir+"/vpd", f.vpd, 0o600)
	}
	t.link(dir+"/subsystem", "sys/bus/pci")
	t.link("sys/bus/pci/devices/"+name, dir)
	t.link(dir+"/iommu", iommu)
	group := fmt.Sprint("sys/kernel/iommu_groups/", f.group)
	t.link(dir+"/iommu_group", group)
	t.link(group+"/devices/"+name, dir)
	if f.driver != "" {
		t.link(dir+"/driver", "sys/bus/pci/drivers/"+f.driver)
		t.link("sys/bus/pci/drivers/"+f.driver+"/"+name, dir)
	}
	if f.physfn != nil {
		t.link(dir+"/physfn", f.physfn.path())
		t.link(fmt.Sprint(f.physfn.path(), "/virtfn", f.vf), dir)
	}
	if f.secondary > 0 {
		writeBus(t, dir, fmt.Sprintf("%04x:%02x", f.address.Domain, f.secondary), near)
		f.writeServices(t, dir)
	}
	for _, c := range f.children {
		c.write(t, dir)
	}
}
