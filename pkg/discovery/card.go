package discovery

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// reason adds why the LPU is not usable, or a warning, as the table of findings says. Without a remedy it has the table's.
func (l *LPU) reason(id finding.ID, message, remedy string) {
	if l.Reasons.Add(id, l.Name, message, remedy).Severity == finding.Error {
		l.Usable, l.Health = false, Unhealthy
	}
}

// stalled adds that reading the LPU was given up on: its state is unknown.
func (l *LPU) stalled(err error) {
	l.reason(finding.ReadStalled, err.Error(), "")
	l.Health = HealthUnknown
}

// readCard reads one LPU within the card's deadline: first what the kernel's core answers, then what its
// driver answers, so that a driver that hangs leaves node and place known.
func (s *scan) readCard(ctx context.Context, c candidate, managements map[Address]*compiledModel) LPU {
	ctx, cancel := context.WithTimeout(ctx, s.CardDeadline)
	defer cancel()
	lpu := LPU{
		Name: c.name, Index: c.index, Model: c.model.Name, Address: c.address,
		Vendor: c.ids[idVendor], Device: c.ids[idDevice], Subvendor: c.ids[idSubvendor], Subdevice: c.ids[idSubdevice],
		Nodes: []Node{}, Reasons: finding.List{}, Mounts: c.model.present, Env: c.model.Env,
		Usable: true, Health: Healthy, Serial: s.known[c.address],
	}
	for what, read := range []func(LPU) LPU{
		func(l LPU) LPU { return s.readKernel(l, c, managements) },
		func(l LPU) LPU { return s.readDriver(l, c.model) },
	} {
		before := lpu
		after, err := within(ctx, s.readers, fmt.Sprint("card ", c.address, what), s.CardDeadline, func() (LPU, error) { return read(before), nil })
		if err != nil {
			lpu.stalled(err)
			break
		}
		lpu = after
	}
	return lpu
}

// readKernel reads what the PCI core and the device model know, and the nodes.
func (s *scan) readKernel(lpu LPU, c candidate, managements map[Address]*compiledModel) LPU {
	dir, err := s.tree.Dir(pciDevices + "/" + lpu.Address.String())
	if err != nil {
		lpu.reason(finding.Gone, err.Error(), "the card left the bus during the scan: run lpuctl again")
		return lpu
	}
	defer dir.Close()
	r := attributes{dir, &lpu}
	if c.err != nil {
		r.warn(c.err)
	}
	if lpu.Vendor == "" { // known by a class device, so nobody has asked for its ids
		id := &identity{dir: dir}
		lpu.Vendor, lpu.Device = id.text(idVendor), id.text(idDevice)
		lpu.Subvendor, lpu.Subdevice = id.text(idSubvendor), id.text(idSubdevice)
	}
	lpu.Driver, _ = dir.LinkName("driver")
	lpu.DriverVersion = s.driverVersion(lpu.Driver)
	if n, ok := r.number("numa_node"); ok && n >= 0 {
		lpu.NUMANode = &n
	}
	if group, err := dir.LinkName("iommu_group"); err == nil {
		if n, err := strconv.Atoi(group); err == nil {
			lpu.IOMMUGroup = &n
		}
	}
	lpu.Link = r.link()
	var ports []Address
	lpu.PCIeRoot, ports = pciPath(s.tree, lpu.Address)
	if n := len(ports); n >= 4 {
		lpu.Switch = &ports[n-3]
	}
	s.judgeBus(&lpu, dir)
	s.judgeDriver(&lpu, c)
	s.readNodes(&lpu, c.model)
	s.readManagement(&lpu, c.model, managements)
	return lpu
}

// attributes reads optional attributes of an LPU: one that is absent says nothing, one that is there and
// cannot be read is a warning.
type attributes struct {
	dir *host.Dir
	lpu *LPU
}

func (r attributes) text(name string) (string, bool) {
	text, err := r.dir.Line(name)
	if err != nil {
		if !host.IsAbsent(err) {
			r.warn(err)
		}
		return "", false
	}
	return text, true
}

func (r attributes) warn(err error) {
	r.lpu.reason(finding.UnreadableAttribute, err.Error(), "")
}

func (r attributes) number(name string) (int, bool) {
	text, ok := r.text(name)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 0, 32)
	if err != nil {
		r.warn(r.dir.Fault(name, fmt.Errorf("%.20q is not a number", text)))
		return 0, false
	}
	return int(n), true
}

// link reads the four link attributes. Speed is text such as "8.0 GT/s PCIe", "8 GT/s" before Linux 5.6
// or "Unknown speed" (drivers/pci/probe.c, pci_speed_string); width 0, 63 and 255 mean unreadable.
func (r attributes) link() *Link {
	speed := func(name string) float64 {
		text, _ := r.text(name)
		number, _, _ := strings.Cut(text, " ")
		v, err := strconv.ParseFloat(number, 64)
		if err != nil || !(v > 0 && v < 1e4) {
			return 0
		}
		return v
	}
	width := func(name string) int {
		n, _ := r.number(name)
		if n < 0 || n > 32 {
			return 0
		}
		return n
	}
	l := Link{
		SpeedGTs: speed("current_link_speed"), Width: width("current_link_width"),
		MaxSpeedGTs: speed("max_link_speed"), MaxWidth: width("max_link_width"),
	}
	if l == (Link{}) {
		return nil
	}
	return &l
}

// driverVersion is what the driver's module says of itself (MODULE_VERSION).
func (s *scan) driverVersion(driver string) string {
	if driver == "" {
		return ""
	}
	if version, known := s.versions.Load(driver); known {
		return version.(string)
	}
	version := s.readDriverVersion(driver)
	s.versions.Store(driver, version)
	return version
}

func (s *scan) readDriverVersion(driver string) string {
	module, err := s.tree.Dir(path.Join(pciDrivers, driver, "module"))
	if err != nil {
		return ""
	}
	defer module.Close()
	version, _ := module.Line("version")
	return version
}

// pciPath reads the host bridge and the functions from the root port down to a function out of its device path, such as
// /sys/devices/pci0000:40/0000:40:00.0/0000:41:00.0/0000:42:00.0/0000:43:00.1: host bridge, root port,
// a switch's upstream port, its downstream port, the function. Without a switch only the root port is between.
func pciPath(t *host.Tree, a Address) (root string, path []Address) {
	dir, err := t.Dir(pciDevices)
	if err != nil {
		return "", nil
	}
	defer dir.Close()
	real, err := dir.Follow(pciDevices, a.String())
	if err != nil {
		return "", nil
	}
	for element := range strings.SplitSeq(real, "/") {
		if strings.HasPrefix(element, "pci") && root == "" {
			root = element
		}
		if port, err := ParseAddress(element); err == nil {
			path = append(path, port)
		}
	}
	return root, path
}

// judgeBus looks whether the function still answers: a device that fell off the bus reads as all ones
// while its cached ids stay. Only in D0, because reading the configuration space would wake the device.
func (s *scan) judgeBus(lpu *LPU, dir *host.Dir) {
	if state, err := dir.Line("power_state"); err == nil && state != "D0" && state != "unknown" {
		return
	}
	id, err := dir.Head("config", 4)
	if err == nil && bytes.Equal(id, []byte{0xff, 0xff, 0xff, 0xff}) {
		lpu.reason(finding.DeadBus, "the card does not answer on the PCI bus (configuration space reads all ones)", "")
	}
}

func (s *scan) judgeDriver(lpu *LPU, c candidate) {
	m, a := c.model, lpu.Address.String()
	if c.also != nil {
		lpu.reason(finding.AmbiguousModel, fmt.Sprintf("models %s and %s both match it", m.Name, c.also.Name), "")
	}
	switch want := strings.Join(m.Drivers, " or "); {
	case lpu.Driver == "vfio-pci":
		lpu.reason(finding.PassedThrough, "it is given to a virtual machine (driver vfio-pci)",
			fmt.Sprintf("to take it back: echo > /%[2]s/%[1]s/driver_override; echo %[1]s > /%[3]s/vfio-pci/unbind; echo %[1]s > /sys/bus/pci/drivers_probe",
				a, pciDevices, pciDrivers))
	case lpu.Driver == "" && len(m.Drivers) > 0:
		lpu.reason(finding.NoDriver, fmt.Sprintf("no driver is bound to it (it needs %s)", want),
			fmt.Sprintf("load the driver: modprobe %[1]s; if it is loaded: echo %[2]s > /%[3]s/%[1]s/bind", m.Drivers[0], a, pciDrivers))
	case len(m.Drivers) > 0 && !slices.Contains(m.Drivers, lpu.Driver):
		lpu.reason(finding.WrongDriver, fmt.Sprintf("driver %s is bound to it (it needs %s)", lpu.Driver, want),
			fmt.Sprintf("echo %[1]s > /%[2]s/%[3]s/unbind; modprobe %[4]s; echo %[1]s > /%[2]s/%[4]s/bind", a, pciDrivers, lpu.Driver, m.Drivers[0]))
	}
}

func (s *scan) readNodes(lpu *LPU, m *compiledModel) {
	nodes, err := s.nodes(m.nodes, lpu)
	switch {
	case err != nil:
		lpu.reason(finding.BadNode, err.Error(), "reload the driver; check the model's node rules (lpuctl config show)")
	case len(nodes) == 0 && !lpu.Usable: // without a driver there is no node either; one reason with one remedy is enough
	case len(m.nodes) == 0:
		lpu.reason(finding.NoNode, fmt.Sprintf("model %s does not say where its device node is", m.Name),
			"give it nodes in the config file, such as class:NAME")
	case len(nodes) == 0:
		lpu.reason(finding.NoNode, fmt.Sprintf("the driver made no device node (looked for %s)", strings.Join(m.Nodes, ", ")),
			"see dmesg for the driver's complaint; reload the driver")
	}
	lpu.Nodes = s.verified(lpu, nodes)
}

func (s *scan) readManagement(lpu *LPU, m *compiledModel, managements map[Address]*compiledModel) {
	if m.Management == nil {
		return
	}
	a := lpu.Address.Sibling(m.Management.Function)
	if managements[a] == nil {
		return // normal in a virtual machine that was given the user function
	}
	lpu.Management = &Management{Address: a}
	if !s.Management {
		return
	}
	// What is wrong with its nodes is nothing to the LPU: they are only ever handed out on demand.
	aside := &LPU{Address: a}
	if nodes, err := s.nodes(m.managementNodes, aside); err == nil && len(nodes) > 0 {
		lpu.Management.Nodes = s.verified(aside, nodes)
	}
}
