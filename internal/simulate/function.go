package simulate

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// ids tell a PCI function's kind: vendor, device, subsystem, class (24 bits, the last 8
// the programming interface) and revision.
type ids struct {
	vendor, device, subvendor, subdevice uint16
	class                                uint32
	revision                             uint8
}

// link is a PCI Express link: generations 1 to 5 and lanes, now and at most. Zero: no PCI
// Express.
type link struct{ gen, width, maxGen, maxWidth uint16 }

// condition is how a function does.
type condition struct {
	powerState    string            // while a driver is bound; "": D0
	runtimeStatus string            // "": the tree does not tell
	mute          bool              // it answers nothing: reads of it give all ones
	disabled      bool              // it was reset, and its driver does not know
	errors        map[string]uint64 // on the PCI bus, by kind: correctable, nonfatal, fatal
}

// function is a PCI function.
type function struct {
	ids
	address pci.Address
	dir     string    // in sys
	parent  *function // the bridge above it; nil on the bus of a host bridge
	port    uint16    // its kind
	link    link
	profile *Profile // of its server
	numa    int      // -1: unknown
	group   int      // IOMMU group
	binding
	condition
	aer bool // reports errors (Advanced Error Reporting)
	vpd []byte

	secondary, subordinate uint8     // buses below a bridge; secondary 0: not a bridge
	several                bool      // its device has other functions
	slot                   int       // physical slot below a port; 0: none
	physfn                 *function // of a virtual function
	vf                     int       // its number among those of physfn
	vfs                    int       // how many a physical function has

	replace []func(*tree) // what faults do to its attributes
	hidden  []string      // attributes that cannot be read, see [Machine.Hide]
}

// binding is the driver of a function, and what it makes there.
type binding struct {
	driver   string
	override string   // the only driver that may be bound; "": any
	children []*child // devices below the function
	extra    string   // attributes, as lines NAME=TEXT
}

// nodes returns those of the devices that have nodes in dev.
func (b *binding) nodes() []*child {
	return slices.DeleteFunc(slices.Clone(b.children), func(c *child) bool { return !c.hasNode() })
}

func (f *function) modalias() string {
	return fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X",
		f.vendor, f.device, f.subvendor, f.subdevice, f.class>>16, f.class>>8&0xff, f.class&0xff)
}

func (f *function) uevent() string {
	return fmt.Sprintf("PCI_CLASS=%04X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\nPCI_SLOT_NAME=%s\nMODALIAS=%s",
		f.class, f.vendor, f.device, f.subvendor, f.subdevice, f.address, f.modalias())
}

// near are the processors near the function.
func (f *function) near() cpus { return f.profile.cpus[f.numa+1] }

// attributes are the attributes of one line that the PCI core makes
// (Documentation/ABI/testing/sysfs-bus-pci).
func (f *function) attributes() string {
	near := f.near()
	text := fmt.Sprintf(coreAttributes, f.vendor, f.device, f.subvendor, f.subdevice, f.class, f.revision, f.modalias(),
		f.numa, near.mask, near.list, cmp.Or(f.override, "(null)"))
	text += f.driverAttributes() + f.linkAttributes()
	if f.vfs > 0 {
		text += fmt.Sprintf("sriov_totalvfs=%d\nsriov_numvfs=%d\n", vfsPerNIC, f.vfs)
	}
	return text
}

// driverAttributes are those of the core that change when a driver is bound.
func (f *function) driverAttributes() string {
	text := ""
	if f.runtimeStatus != "" {
		text = "power/runtime_status=" + f.runtimeStatus + "\n"
	}
	if f.driver == "" {
		return text + fmt.Sprintf(driverAttributes, 0, 0, "unknown", 32)
	}
	return text + fmt.Sprintf(driverAttributes, f.irq(), 1, cmp.Or(f.powerState, "D0"), 64)
}

func (f *function) linkAttributes() string {
	l := f.link
	if l.maxWidth == 0 {
		return ""
	}
	now, most := speeds[l.gen], speeds[l.maxGen]
	if f.mute {
		// This is as Linux 6.1 reads all ones.
		now, most, l.width, l.maxWidth = speeds[0], "64.0 GT/s PCIe", 63, 63
	}
	return fmt.Sprintf(linkAttributes, now, most, l.width, l.maxWidth)
}

// Formats of attributes, as lines NAME=TEXT.
const (
	coreAttributes = `vendor=0x%04x
device=0x%04x
subsystem_vendor=0x%04x
subsystem_device=0x%04x
class=0x%06x
revision=0x%02x
modalias=%s
numa_node=%d
local_cpus=%s
local_cpulist=%s
driver_override=%s
msi_bus=1
ari_enabled=0
broken_parity_status=0
d3cold_allowed=0
`
	driverAttributes = `irq=%d
enable=%d
power_state=%s
dma_mask_bits=%d
consistent_dma_mask_bits=%[4]d
`
	linkAttributes = `current_link_speed=%s
max_link_speed=%s
current_link_width=%d
max_link_width=%d
reset_method=bus
`
)

// writeErrors writes the counters of Advanced Error Reporting.
func (f *function) writeErrors(t *tree) {
	const uncorrectable = "Undefined DLP SDES TLP FCP CmpltTO CmpltAbrt UnxCmplt RxOF MalfTLP ECRC UnsupReq ACSViol UncorrIntErr " +
		"BlockedTLP AtomicOpBlocked TLPBlockedErr PoisonTLPBlocked DMWrReqBlocked IDECheck MisIDETLP PCRC_CHECK TLPXlatBlocked TOTAL_ERR_"
	for kind, counters := range map[string]string{
		"correctable": "RxErr BadTLP BadDLLP Rollover Timeout NonFatalErr CorrIntErr HeaderOF TOTAL_ERR_COR",
		"fatal":       uncorrectable + "FATAL",
		"nonfatal":    uncorrectable + "NONFATAL",
	} {
		var lines []string
		for counter := range strings.FieldsSeq(counters) {
			n := uint64(0)
			// These are the one that counts here, and the total.
			if counter == "BadTLP" || counter == "DLP" || strings.HasPrefix(counter, "TOTAL") {
				n = f.errors[kind]
			}
			lines = append(lines, fmt.Sprint(counter, " ", n))
		}
		t.text(f.dir+"/aer_dev_"+kind, strings.Join(lines, "\n"))
	}
}

// speeds are those of links by generation, as drivers/pci/probe.c, pci_speed_string
// spells them.
var speeds = [...]string{ //nolint:gochecknoglobals // never changed; Go has no constant arrays or maps
	"Unknown", "2.5 GT/s PCIe", "5.0 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe",
}

func (f *function) irq() int { return 16 + int(f.address.Bus) }

func (f *function) write(t *tree) {
	dir := f.dir
	writeDriver(t, f.driver)
	// Before the entry of the bus, as the kernel does (drivers/base/core.c, device_add).
	t.attributes(dir, f.attributes())
	t.text(dir+"/resource", f.resource())
	t.bytes(dir+"/config", f.config(), 0o644)
	if f.vpd != nil {
		t.bytes(dir+"/vpd", f.vpd, 0o600)
	}
	if f.aer {
		f.writeErrors(t)
	}
	for _, replace := range f.replace {
		replace(t)
	}
	t.link(dir+"/iommu", iommu)
	t.links(dir, "iommu_group", f.iommuGroup(), "devices/"+f.address.String())
	t.busDevice(dir, "pci", f.driver, f.uevent())
	if f.physfn != nil {
		t.links(dir, "physfn", f.physfn.dir, fmt.Sprint("virtfn", f.vf))
	}
	if f.secondary > 0 {
		writeBus(t, dir, fmt.Sprintf("%04x:%02x", f.address.Domain, f.secondary), f.near())
		f.writeServices(t, dir)
	}
	if f.slot > 0 {
		f.writeSlot(t)
	}
	f.writeOfDriver(t)
}

// set changes an attribute that the driver made: its name, with that of the device that
// has it before a slash ("mig.u/ecc_ue_cnt"). It returns the path of the attribute; "" if
// there is none.
func (f *function) set(name, text string) (file string) {
	dir, attributes := f.dir, &f.extra
	if owner, attribute, below := strings.Cut(name, "/"); below {
		i := slices.IndexFunc(f.children, func(c *child) bool { return c.kind() == owner })
		if i < 0 {
			return ""
		}
		name, dir, attributes = attribute, path.Join(f.dir, f.children[i].class, f.children[i].name), &f.children[i].attributes
	}
	lines := strings.Split(*attributes, "\n")
	i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, name+"=") })
	if i < 0 {
		return ""
	}
	lines[i] = name + "=" + text
	*attributes = strings.Join(lines, "\n")
	return dir + "/" + name
}

func (f *function) iommuGroup() string { return fmt.Sprint("sys/kernel/iommu_groups/", f.group) }

// writeOfDriver writes what the bound driver makes.
func (f *function) writeOfDriver(t *tree) {
	t.attributes(f.dir, f.extra)
	for _, c := range f.children {
		c.write(t, f.dir)
	}
}

// removeOfDriver takes away what the bound driver made.
func (f *function) removeOfDriver(t *tree) {
	for _, c := range f.children {
		c.remove(t, f.dir)
	}
	for line := range strings.Lines(f.extra) {
		name, _, _ := strings.Cut(line, "=")
		t.remove(f.dir + "/" + name)
	}
}

// remove takes the function off the bus.
func (f *function) remove(t *tree) {
	f.removeOfDriver(t)
	name := f.address.String()
	t.remove("sys/bus/pci/devices/"+name, f.iommuGroup()+"/devices/"+name, driverLink(f.driver, name), f.dir)
}

// driverLink is the link from a PCI driver to one of its functions.
func driverLink(driver, name string) string { return "sys/bus/pci/drivers/" + driver + "/" + name }
