package discovery

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/stall"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// reason adds a finding about the LPU. The table of findings (pkg/finding) gives its
// severity, and its remedy if remedy is empty.
func (l *LPU) reason(id finding.ID, message, remedy string) {
	l.Reasons.Add(id, l.Name, message, remedy)
	l.conclude()
}

// conclude says what the reasons make of the LPU: an error makes it unusable.
func (l *LPU) conclude() { l.Usable, l.Health = !l.Reasons.HasErrors(), health.StateOf(l.Reasons) }

// addressRemedies writes the address and the driver of the LPU into remedies that hold
// for any card.
func (l *LPU) addressRemedies() {
	l.Reasons = slices.Clone(l.Reasons) // a read that hangs may still hold them
	names := []string{"ADDRESS", l.Address.String()}
	if l.Driver != "" {
		names = append(names, "DRIVER", l.Driver)
	}
	for i := range l.Reasons {
		if l.Driver == "xocl" && l.Reasons[i].ID == finding.BadState {
			l.Reasons[i].Remedy = finding.RuleOf(finding.NotCalibrated).Remedy // the reset that XRT has
		}
		l.Reasons[i].Remedy = strings.NewReplacer(names...).Replace(l.Reasons[i].Remedy)
	}
}

// stalled adds the reason that a read of the LPU timed out.
func (l *LPU) stalled(err error) { l.reason(finding.ReadStalled, err.Error(), "") }

// The stages of readCard. DriverStage is the first in which the driver answers.
const (
	kernelStage = iota
	DriverStage
)

// StageOf names a stage of a card among the reads that have not ended.
func StageOf(a pci.Address, stage int) string { return fmt.Sprint("card ", a, stage) }

// readCard reads one LPU, each stage within the deadline of a card: first what the
// kernel's core answers, then what the driver answers, then the configuration space if
// nothing else shows whether the card answers, last the sensors of a card that answers.
// If one of them hangs, what was read before is still reported.
func (s *scan) readCard(ctx context.Context, index int, f function) LPU {
	lpu := s.newLPU(ctx, index, f)
	if !f.readable() {
		return lpu
	}
	err := s.readFirst(ctx, &lpu, &f)
	if err == nil {
		err = s.readRest(ctx, &lpu, f)
	}
	s.finish(&lpu, err)
	return lpu
}

// newLPU is an LPU before it is read.
func (s *scan) newLPU(ctx context.Context, index int, f function) LPU {
	lpu := LPU{Name: fmt.Sprint("lpu", index), Index: index, Address: f.address, Nodes: []Node{}, Reasons: finding.List{}}
	if f.model != nil {
		lpu.Model = f.model.Name
		lpu.equip(f.model)
	}
	if !f.readable() {
		s.missing(ctx, &lpu, f)
		return lpu
	}
	lpu.Serial = f.before.Serial
	lpu.conclude()
	return lpu
}

// equip gives an LPU what its model says of its kind.
func (l *LPU) equip(m *Model) {
	l.Equipment = Equipment{m.Mounts, m.Env, m.place, m.MemoryGiB, m.UsableSizes}
}

// readFirst reads what the kernel's core answers, which does not sleep.
func (s *scan) readFirst(ctx context.Context, lpu *LPU, f *function) error {
	f.tree = s.tree
	f.names = sync.OnceValues(func() ([]string, error) { return s.tree.Names(f.address.Dir()) })
	err := s.stage(ctx, kernelStage, s.readKernel, lpu, *f)
	f.devices = s.devicesOf(*f)
	return err
}

// readRest reads in this process what may sleep in the kernel.
func (s *scan) readRest(ctx context.Context, lpu *LPU, f function) (err error) {
	for i, read := range []stage{s.readDriver, s.probe, s.readSensors} {
		if err == nil {
			err = s.stage(ctx, DriverStage+i, read, lpu, f)
		}
	}
	return err
}

// stage is a part of readCard. It returns the LPU as far as it was read then.
type stage func(lpu LPU, f function) LPU

func (s *scan) stage(ctx context.Context, number int, read stage, lpu *LPU, f function) error {
	before := *lpu
	after, err := stall.Within(ctx, s.reads, StageOf(f.address, number), s.CardDeadline, func() (LPU, error) { return read(before, f), nil })
	if err == nil {
		*lpu = after
	}
	return err
}

// finish says what follows of what was read, and of the error by which the reading ended.
func (s *scan) finish(lpu *LPU, err error) {
	if err != nil {
		lpu.stalled(err)
	}
	// If it left the bus meanwhile, whatever else was read does not count.
	if len(lpu.Reasons) > 0 && !s.tree.Exists(lpu.Address.Dir()) {
		lpu.Reasons = nil
		lpu.reason(finding.Gone, fmt.Sprintf("the card at %s left the bus", lpu.Address), "")
		return
	}
	lpu.Reasons = append(slices.Clip(lpu.Reasons), lpu.Reading.Findings(lpu.Name, s.Policy)...)
	lpu.addressRemedies()
	lpu.conclude()
}

// probe reads the configuration space of a function, which may sleep for a minute. A
// watcher has read it already. A scan that reads it in its own process does so only where
// the link does not show whether the card answers.
func (s *scan) probe(lpu LPU, f function) LPU {
	if lpu.Reading.Asleep() || lpu.Reading.AllOnes {
		return lpu
	}
	known := f.before.Probe
	if s.Memory == nil && (!lpu.Reading.Linked || f.apart && lpu.Driver != "" && !lpu.Reading.PowerLost()) {
		known, _ = probeIn(f.tree, lpu.Address)
	}
	if known.Device == lpu.Reading.Device {
		lpu.Reading.AllOnes, lpu.Reading.Command = known.Dead && !lpu.Reading.Linked, known.Command
	}
	if known.Hangs {
		lpu.stalled(fmt.Errorf("%w: its configuration space is not read", stall.ErrStalled))
	}
	return lpu
}

// missing adds the reason why an LPU that should be there was not found.
func (s *scan) missing(ctx context.Context, l *LPU, f function) {
	l.Absent = f.err == nil
	if f.err != nil {
		l.stalled(f.err)
		return
	}
	id, says, remedy := finding.Absent, "which the ring table names", ""
	if f.known {
		id, says = finding.Gone, "where one was before"
	}
	what := "card"
	for management := range s.managements {
		if management.SameCard(f.address) {
			var golden string
			golden, remedy = s.lostFunction(ctx, management)
			what, says = "LPU function", says+"; the card's management function "+management.String()+" is there"+golden
		}
	}
	l.reason(id, fmt.Sprintf("there is no %s at %s, %s", what, f.address, says), remedy)
}

// readKernel reads what the PCI core and the device model of the kernel know, and the
// device nodes.
func (s *scan) readKernel(lpu LPU, f function) LPU {
	dir, err := s.tree.Dir(lpu.Address.Dir())
	if err != nil {
		lpu.reason(finding.Gone, err.Error(), "the card left the bus during the scan, or this user may not read it: run lpuctl again, as root")
		return lpu
	}
	defer dir.Close()
	if f.err != nil {
		lpu.attributes().warn(f.err)
	}
	id := identity{dir: dir, ids: f.ids}
	lpu.Vendor, lpu.Device, lpu.Subvendor, lpu.Subdevice = id.get(idVendor), id.get(idDevice), id.get(idSubvendor), id.get(idSubdevice)
	lpu.Driver, _ = dir.LinkName("driver")
	lpu.DriverVersion = s.driverVersion(lpu.Driver)
	if n, ok := lpu.attributes().number(dir, "numa_node"); ok && n >= 0 {
		lpu.NUMANode = &n
	}
	if group, err := dir.LinkName("iommu_group"); err == nil {
		if n, err := strconv.Atoi(group); err == nil {
			lpu.IOMMUGroup = &n
		}
	}
	if name, err := dir.LinkName("physfn"); err == nil {
		if a, err := pci.Parse(name); err == nil {
			lpu.Physical = &a
		}
	}
	var ports []pci.Address
	lpu.PCIeRoot, ports = pciPath(s.tree, lpu.Address)
	lpu.Reading.Ports = ports[:max(0, len(ports)-1)] // the last is the function itself
	if n := len(ports); n >= 4 {
		lpu.Switch = &ports[n-3]
	}
	lpu.readVitals(dir)
	if n := len(ports); n >= 2 && lpu.Link != nil {
		s.limitLink(&lpu, ports[n-2])
	}
	lpu.judgeDriver(dir, s.patient(), f)
	s.readNodes(&lpu, f.model)
	s.readManagement(&lpu, f.model)
	return lpu
}

// driverVersion returns the version of the driver's module (MODULE_VERSION). It is read
// once in a scan.
func (s *scan) driverVersion(driver string) string {
	if driver == "" {
		return ""
	}
	version, known := s.versions.Load(driver)
	if !known {
		version, _ = s.tree.Line(path.Join(pciDrivers, driver, "module/version"))
		s.versions.Store(driver, version)
	}
	return version.(string)
}

// pciPath returns the host bridge of a function, and the functions from the root port
// down to it. Its source is the device path, such as
// /sys/devices/pci0000:40/0000:40:00.0/0000:41:00.0/0000:42:00.0/0000:43:00.1: host
// bridge, root port, upstream port of a switch, its downstream port, the function.
// Without a switch there is only the root port between. Intel VMD is a function with a
// host bridge of its own below it:
// /sys/devices/pci0000:64/0000:64:00.5/pci10000:00/10000:00:02.0/...
func pciPath(t *host.Tree, a pci.Address) (root string, ports []pci.Address) {
	real, err := t.Follow(a.Dir())
	if err != nil {
		return "", nil // the function left the bus
	}
	for element := range strings.SplitSeq(real, "/") {
		if strings.HasPrefix(element, "pci") {
			root, ports = cmp.Or(root, element), nil
		}
		if port, err := pci.Parse(element); err == nil {
			ports = append(ports, port)
		}
	}
	return root, ports
}

// remake returns the commands by which the kernel makes a node again. A file that is not
// the node stays if it is not removed.
func (l *LPU) remake(n *Node, id finding.ID) string {
	if l.Driver == "" || id == finding.NodeForeign {
		return ""
	}
	remove := ""
	switch {
	case id == finding.NodeMismatch && n.Directory: // as Docker makes one for a volume
		remove = "rm -d " + n.Path + "; "
	case id == finding.NodeMismatch:
		remove = "rm " + n.Path + "; "
	}
	return "in a container, hand the node in; else rebind the driver, which ends what uses the card: " + remove + l.rebind()
}

// rebind returns the commands that take the function from its driver and give it back.
func (l *LPU) rebind() string {
	return fmt.Sprintf("echo %[1]s > /%[2]s/%[3]s/unbind; echo %[1]s > /%[2]s/%[3]s/bind", l.Address, pciDrivers, l.Driver)
}

// driverOverride is the only driver that the kernel binds, if one is set
// (Documentation/ABI/testing/sysfs-bus-pci); without a value it reads "(null)". The
// kernel locks the device for it, and holds this lock while it resets the device or a
// driver takes long to let it go. Who waits for it cannot be killed. So it is read only
// where no driver is bound and neither is under way: then the power state is unknown, or
// else the function answers and nothing has it enabled, as a driver that lets it go has
// until then.
func (l *LPU) driverOverride(dir *host.Dir, patient *host.Tree) string {
	if l.Driver != "" {
		return ""
	}
	if l.PowerState != "" && l.PowerState != "unknown" {
		if enabled, known := l.attributes().number(dir, "enable"); !known || enabled > 0 || l.Reading.AllOnes {
			return ""
		}
	}
	return l.attributes().optional(patient.Line(path.Join(l.Address.Dir(), "driver_override")))
}

// judgeDriver compares the driver with those of the model.
func (l *LPU) judgeDriver(dir *host.Dir, patient *host.Tree, f function) {
	m := f.model
	if f.also != nil {
		l.reason(finding.AmbiguousModel, fmt.Sprintf("models %s and %s both match it", m.Name, f.also.Name), "")
	}
	only := ""
	if override := l.driverOverride(dir, patient); override != "" && override != "(null)" && !slices.Contains(m.Drivers, override) {
		only = "; driver_override lets only " + override + " have it"
	}
	needs, driver, modprobe := "", "", ""
	if len(m.Drivers) > 0 {
		needs, driver = fmt.Sprintf(" (it needs %s)", strings.Join(m.Drivers, " or ")), " "+m.Drivers[0]
		modprobe = "modprobe" + driver + "; "
	}
	device := "/" + l.Address.Dir()
	probe := fmt.Sprintf("%secho %s > /sys/bus/pci/drivers_probe", modprobe, l.Address)
	insist := fmt.Sprintf("echo%s > %s/driver_override; ", driver, device)
	unbind := fmt.Sprintf("echo %s > %s/driver/unbind; ", l.Address, device)
	switch {
	case l.Driver == "vfio-pci":
		l.reason(finding.PassedThrough, "it is given to a virtual machine (driver vfio-pci)", "to take it back: "+insist+unbind+probe)
	case l.Driver == "" && only != "":
		l.reason(finding.NoDriver, "no driver is bound to it"+needs+only, insist+probe)
	case l.Driver == "" && len(m.Drivers) > 0:
		l.reason(finding.NoDriver, "no driver is bound to it"+needs, probe)
	case len(m.Drivers) > 0 && !slices.Contains(m.Drivers, l.Driver):
		l.reason(finding.WrongDriver, "driver "+l.Driver+" is bound to it"+needs, insist+unbind+probe)
	}
}

func (s *scan) readNodes(lpu *LPU, m *Model) {
	nodes, err := s.nodes(m.Nodes, lpu)
	unlisted := slices.IndexFunc(m.Nodes, func(rule string) bool {
		subsystem, _ := classOf(rule)
		return s.unlisted[subsystem] != nil
	})
	switch {
	case err != nil:
		lpu.reason(finding.BadNode, err.Error(), "reload the driver; check the model's node rules (lpuctl config show)")
	case len(nodes) == 0 && !lpu.Usable:
		// Without a driver there is no node either; one reason with one remedy is enough.
	case len(nodes) == 0 && unlisted >= 0:
		subsystem, _ := classOf(m.Nodes[unlisted])
		err := s.unlisted[subsystem]
		lpu.reason(finding.NoNode, fmt.Sprintf("its device node is not known, because devices of class %s cannot be listed: %v", subsystem, err),
			cmp.Or(classRemedy(err), finding.RuleOf(finding.UnreadableClass).Remedy))
	case len(m.Nodes) == 0:
		lpu.reason(finding.NoNode, fmt.Sprintf("model %s does not say where its device node is", m.Name),
			"give it nodes in the config file, such as class:NAME")
	case len(nodes) == 0:
		lpu.reason(finding.NoNode, fmt.Sprintf("the driver made no device node (looked for %s)", strings.Join(m.Nodes, ", ")),
			"see dmesg for the driver's complaint; reload the driver")
	}
	lpu.Nodes = s.verified(lpu, nodes)
}

func (s *scan) readManagement(lpu *LPU, m *Model) {
	if m.Management == nil {
		return
	}
	a := lpu.Address.Sibling(m.Management.Function)
	if s.managements[a] == nil {
		return // normal in a virtual machine to which only the user function is passed through
	}
	lpu.Management = &Management{Address: a}
	if !s.Management {
		return
	}
	// A fault of these nodes does not concern the LPU, because a container gets them only
	// on request.
	aside := &LPU{Address: a}
	if nodes, err := s.nodes(m.Management.Nodes, aside); err == nil && len(nodes) > 0 {
		lpu.Management.Nodes = s.verified(aside, nodes)
	}
}
