package discovery

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// readDriver reads the attributes that the LPU's own driver answers, as the health
// profile says. The driver may have to ask the card, so each of these reads can hang.
func (s *scan) readDriver(lpu LPU, f function) LPU { return s.askDriver(s.readState(lpu, f), f) }

// withDir reads more of an LPU, which answers, in its directory of sysfs.
func withDir(lpu LPU, f function, read func(*LPU, *host.Dir)) LPU {
	if !lpu.answers() {
		return lpu
	}
	dir, err := f.tree.Dir(lpu.Address.Dir())
	if err != nil {
		return lpu
	}
	defer dir.Close()
	read(&lpu, dir)
	return lpu
}

// readState reads what the driver says of the card without asking it.
func (s *scan) readState(lpu LPU, f function) LPU {
	return withDir(lpu, f, func(lpu *LPU, dir *host.Dir) {
		switch f.model.Health {
		case healthXocl:
			f.readXocl(lpu, dir)
		case healthHA:
			f.readHA(lpu)
		}
	})
}

// askDriver reads what the driver may ask the card for, if the card can answer by what
// was read so far.
func (s *scan) askDriver(lpu LPU, f function) LPU {
	return withDir(lpu, f, func(lpu *LPU, dir *host.Dir) {
		if f.model.Health == healthXocl {
			bad, _ := lpu.attributes().number(dir, "device_bad_state")
			lpu.Reading.BadState = bad != 0
			lpu.Reading.HostMemory = lpu.attributes().count(dir, "host_mem_size")
			if lpu.Serial == "" {
				lpu.Serial = f.subdevice(lpu, "xmc.u.", "serial_num")
			}
		}
		if lpu.Serial == "" {
			// PCI core, since Linux 6.19 and for root only: the Device Serial Number
			// capability.
			lpu.Serial, _ = dir.Line("serial_number")
		}
	})
}

// readXocl reads the state of a card under XRT's driver. Sensors and serial number go
// through the management function, and wait for a timeout if that is not ready. So ready
// is read first. None of this was seen on a card: HW-13 to HW-19 of docs/hardware.md.
func (f *function) readXocl(lpu *LPU, dir *host.Dir) {
	remedy := "if it stays so: xbutil reset --device " + lpu.Address.String() + ", or power-cycle the server"
	if offline := lpu.attributes().optional(dir.Line("dev_offline")); offline != "" && offline != "0" {
		lpu.reason(finding.Offline,
			"the driver holds the card offline (dev_offline is "+offline+"): a reset is under way, or its firewall tripped", remedy)
	}
	ready, known := lpu.attributes().number(dir, "ready")
	if known && ready == 0 {
		lpu.reason(finding.NotReady, "the card's management side does not answer (ready is 0)",
			"check that xclmgmt is loaded and bound to the card's management function; "+remedy)
	}
	lpu.Shell = f.subdevice(lpu, "rom.u.", "VBNV")
	if f.inRecovery(lpu) {
		lpu.reason(finding.RecoveryShell, "the card runs its factory image ("+lpu.Shell+")",
			flashShell(lpu.Address.Sibling(0))+", then power-cycle the server")
	}
}

// subdevice reads an attribute of a sub-device that XRT's driver has made of a card. The
// names of their directories (rom.u.N, xmc.u.N) end with a number that changes with each
// reset, so they are found by prefix.
func (f *function) subdevice(lpu *LPU, prefix, attribute string) string {
	names, err := f.names()
	if err != nil {
		lpu.attributes().warn(err)
		return ""
	}
	i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, prefix) })
	if i < 0 {
		return ""
	}
	return lpu.attributes().optional(f.tree.Line(path.Join(lpu.Address.Dir(), names[i], attribute)))
}

// inRecovery reports whether a card runs its factory image: the name of the shell says
// so, or the attribute recovery of the management function, which xclmgmt makes. Such a
// card has the driver and the node of an LPU, but not its logic.
func (f *function) inRecovery(lpu *LPU) bool {
	name := strings.ToLower(lpu.Shell)
	if strings.Contains(name, "recovery") || strings.Contains(name, "golden") {
		return true
	}
	return lpu.Management != nil && runsGolden(f.tree, lpu.Management.Address)
}

// runsGolden reports whether xclmgmt says that the card runs its factory (golden) image.
func runsGolden(t *host.Tree, management pci.Address) bool {
	recovery, _ := t.Line(path.Join(management.Dir(), "recovery"))
	return recovery == "1"
}

// flashShell is how the LPU shell is flashed through the management function.
func flashShell(management pci.Address) string {
	return "flash the LPU shell: xbmgmt program --base --device " + management.String()
}

// readHA reads what docs/health.md asks of the driver of a Bertha: attributes of the
// class device.
func (f *function) readHA(lpu *LPU) {
	dir := f.classDevice()
	if dir == nil {
		return
	}
	defer dir.Close()
	lpu.Serial = lpu.attributes().optional(dir.Line("serial"))
	switch state := lpu.attributes().optional(dir.Line("state")); state {
	case "", "ok":
	case "resetting":
		lpu.reason(finding.Offline, "its driver resets it (state is resetting)", "")
	case "failed":
		lpu.Reading.BadState = true
	default:
		lpu.attributes().warn(dir.Fault("state", fmt.Errorf("%.20q is none of ok, resetting and failed", state)))
	}
}

// devicesOf are the paths of the class devices that an LPU can have its node from.
func (s *scan) devicesOf(f function) (devices []string) {
	for _, rule := range f.model.Nodes {
		subsystem, _ := classOf(rule)
		devices = append(devices, s.classes[subsystem][f.address]...)
	}
	return devices
}

// classDevice opens the directory of the class device that an LPU has its node from; nil
// if it has none. The caller closes it.
func (f *function) classDevice() *host.Dir {
	for _, device := range f.devices {
		if dir, err := f.tree.Dir(device); err == nil {
			return dir
		}
	}
	return nil
}
