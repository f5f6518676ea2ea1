package discovery

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// readDriver reads the attributes that the LPU's own driver answers, as the health profile says. The driver may have to
// ask the card, so each of these reads can hang.
func (s *scan) readDriver(lpu LPU, f function) LPU {
	if !lpu.answers() {
		return lpu
	}
	dir, err := s.tree.Dir(pciDevices + "/" + lpu.Address.String())
	if err != nil {
		return lpu
	}
	defer dir.Close()
	switch f.model.Health {
	case healthXocl:
		s.readXocl(&lpu, dir)
	case healthHA:
		s.readHA(&lpu, f.model)
	}
	if lpu.Serial == "" {
		// PCI core, since Linux 6.19 and for root only: the Device Serial Number capability.
		lpu.Serial, _ = dir.Line("serial_number")
	}
	return lpu
}

// readXocl reads the state of a card under XRT's driver. The names of its sub-device directories (rom.u.N, xmc.u.N) end
// with a number that changes with each reset, so they are found by prefix. Sensors and serial number go through the
// management function, and wait for a timeout if that is not ready. So ready is read first.
func (s *scan) readXocl(lpu *LPU, dir *host.Dir) {
	remedy := "if it stays so: xbutil reset --device " + lpu.Address.String() + ", or power-cycle the server"
	if offline := lpu.optional(dir.Line("dev_offline")); offline != "" && offline != "0" {
		lpu.reason(finding.Offline,
			"the driver holds the card offline (dev_offline is "+offline+"): a reset is under way, or its firewall tripped", remedy)
	}
	ready, known := lpu.number(dir, "ready")
	if known && ready == 0 {
		lpu.reason(finding.NotReady, "the card's management side does not answer (ready is 0)",
			"check that xclmgmt is loaded and bound to the card's management function; "+remedy)
	}
	if lpu.answers() {
		bad, _ := lpu.number(dir, "device_bad_state")
		lpu.Reading.BadState = bad != 0
		lpu.Reading.HostMemory = lpu.optionalCount(dir, "host_mem_size")
	}
	names, err := dir.Names()
	if err != nil {
		lpu.warn(err)
		return
	}
	subdevice := func(prefix, attribute string) string {
		i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, prefix) })
		if i < 0 {
			return ""
		}
		return lpu.optional(s.tree.Line(path.Join(pciDevices, lpu.Address.String(), names[i], attribute)))
	}
	lpu.Shell = subdevice("rom.u.", "VBNV")
	if s.inRecovery(lpu) {
		lpu.reason(finding.RecoveryShell, "the card runs its factory image ("+lpu.Shell+")",
			flashShell(lpu.Address.Sibling(0))+", then power-cycle the server")
	}
	if lpu.Serial == "" && lpu.answers() {
		lpu.Serial = subdevice("xmc.u.", "serial_num")
	}
}

// inRecovery tells whether a card runs its factory image: the name of the shell says so, or the attribute recovery of the
// management function, which xclmgmt makes. Such a card has the driver and the node of an LPU, but not its logic.
func (s *scan) inRecovery(lpu *LPU) bool {
	name := strings.ToLower(lpu.Shell)
	if strings.Contains(name, "recovery") || strings.Contains(name, "golden") {
		return true
	}
	return lpu.Management != nil && s.runsGolden(lpu.Management.Address)
}

// runsGolden reports whether xclmgmt says that the card runs its factory (golden) image.
func (s *scan) runsGolden(management Address) bool {
	recovery, _ := s.tree.Line(path.Join(pciDevices, management.String(), "recovery"))
	return recovery == "1"
}

// flashShell is how the LPU shell is flashed through the management function.
func flashShell(management Address) string {
	return "flash the LPU shell: xbmgmt program --base --device " + management.String()
}

// readHA reads what docs/health.md asks of the driver of a Bertha: attributes of the class device.
func (s *scan) readHA(lpu *LPU, m *Model) {
	dir := s.classDevice(lpu, m)
	if dir == nil {
		return
	}
	defer dir.Close()
	lpu.Serial = lpu.optional(dir.Line("serial"))
	switch state := lpu.optional(dir.Line("state")); state {
	case "", "ok":
	case "resetting":
		lpu.reason(finding.Offline, "its driver resets it (state is resetting)", "")
	case "failed":
		lpu.Reading.BadState = true
	default:
		lpu.warn(dir.Fault("state", fmt.Errorf("%.20q is none of ok, resetting and failed", state)))
	}
}

// classDevice opens the directory of the class device that a model's LPU has its node from; nil if it has none. The caller closes it.
func (s *scan) classDevice(lpu *LPU, m *Model) *host.Dir {
	for _, rule := range m.Nodes {
		subsystem, _ := classOf(rule)
		for _, device := range s.classes[subsystem][lpu.Address] {
			if dir, err := s.tree.Dir(device); err == nil {
				return dir
			}
		}
	}
	return nil
}
