package discovery

import (
	"path"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// xocl is XRT's driver of the user function of an Alveo card.
type xocl struct{}

// The attributes by which the driver says how the card is.
const (
	xoclOffline = "dev_offline"
	xoclReady   = "ready"
)

func (xocl) states([]Node) []string { return []string{xoclOffline, xoclReady} }

// read reads the state of a card under XRT's driver. Sensors and serial number go
// through the management function, and wait for a timeout if that is not ready. So ready
// is read first. None of this was seen on a card: HW-13 to HW-19 of docs/hardware.md.
func (xocl) read(f *function, lpu *LPU, dir *host.Dir) {
	remedy := "if it stays so, reset the card, and if that does not help, power-cycle the server: xbutil reset --device " +
		lpu.Address.String()
	if offline := lpu.attributes().optional(dir.Line(xoclOffline)); offline != "" && offline != "0" {
		lpu.reason(finding.Offline,
			"the driver holds the card offline (dev_offline is "+offline+"): a reset is under way, or its firewall tripped", remedy)
	}
	ready, known := lpu.attributes().number(dir, xoclReady)
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

func (xocl) ask(f *function, lpu *LPU, dir *host.Dir) {
	bad, _ := lpu.attributes().number(dir, "device_bad_state")
	lpu.Reading.BadState = bad != 0
	lpu.Reading.HostMemory = lpu.attributes().count(dir, "host_mem_size")
	if lpu.Serial == "" {
		lpu.Serial = f.subdevice(lpu, "xmc.u.", "serial_num")
	}
}

// sense reads what XRT's driver knows of the card's logic and memory. XRT's source
// contradicts what is assumed of the memory's errors: HW-23 of docs/hardware.md.
func (xocl) sense(f *function, lpu *LPU, sensors *health.Sensors, a attributes) {
	function := lpu.Address.Dir()
	if dir, err := f.tree.Dir(function); err == nil {
		defer dir.Close()
		// Lines of UUIDs; all zeros: there is no bitstream.
		sensors.Loaded = strings.Trim(a.optional(dir.Text("xclbinuuid")), "0-\n") != ""
		if n, ok := a.number(dir, "mig_calibration"); ok {
			calibrated := n != 0
			sensors.Calibrated = &calibrated
		}
	}
	names, err := f.names()
	a.optional("", err)
	f.below(function, slices.Clone(names), "firewall.u.", func(dir *host.Dir) {
		if status := a.count(dir, "status"); status != nil {
			sensors.Firewall |= *status
		}
	})
	f.below(function, slices.Clone(names), "mig.u.", func(dir *host.Dir) {
		sensors.ECC = sum(sensors.ECC, a.count(dir, "ecc_ue_cnt"))
	})
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
