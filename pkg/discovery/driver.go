package discovery

import (
	"path"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// readDriver reads what the LPU's own driver answers, by health profile. The driver may have to ask the
// card, so any of these reads can hang.
func (s *scan) readDriver(lpu LPU, m *compiledModel) LPU {
	if lpu.Driver == "" || lpu.Driver == "vfio-pci" {
		return lpu
	}
	dir, err := s.tree.Dir(pciDevices + "/" + lpu.Address.String())
	if err != nil {
		return lpu
	}
	defer dir.Close()
	r := attributes{dir, &lpu}
	switch m.Health {
	case healthXocl:
		r.xocl(s.tree)
	case healthHA:
		s.readHASerial(&lpu, m)
	}
	if lpu.Serial == "" {
		// PCI core, since Linux 6.19 and for root only: the Device Serial Number capability.
		lpu.Serial, _ = dir.Line("serial_number")
	}
	return lpu
}

// xocl reads the state of a card under XRT's driver. Its sub-device directories (rom.u.N, xmc.u.N) carry
// a number that changes with each reset, so they are found by prefix. Sensors and serial number go
// through the management function and wait for a timeout when that is not ready: hence the order.
func (r attributes) xocl(t *host.Tree) {
	const resetRemedy = "if it stays so: xbutil reset --device ADDRESS, or power-cycle the server"
	remedy := strings.ReplaceAll(resetRemedy, "ADDRESS", r.lpu.Address.String())
	if offline, ok := r.text("dev_offline"); ok && offline != "0" {
		r.lpu.reason(finding.Offline, "the driver holds the card offline (dev_offline is "+offline+"): a reset is under way, or its firewall tripped", remedy)
	}
	ready, known := r.number("ready")
	if known && ready == 0 {
		r.lpu.reason(finding.NotReady, "the card's management side does not answer (ready is 0)",
			"check that xclmgmt is loaded and bound to the card's management function; "+remedy)
	}
	names, err := r.dir.Names()
	if err != nil {
		r.warn(err)
		return
	}
	r.shell(t, names)
	if r.lpu.Serial == "" && (!known || ready != 0) {
		r.lpu.Serial = r.subdevice(t, names, "xmc.u.", "serial_num")
	}
}

// shell reads the flashed shell's name. A card on its factory image has the driver and the node of an LPU,
// but none of its logic.
func (r attributes) shell(t *host.Tree, names []string) {
	r.lpu.Shell = r.subdevice(t, names, "rom.u.", "VBNV")
	name := strings.ToLower(r.lpu.Shell)
	if !strings.Contains(name, "recovery") && !strings.Contains(name, "golden") && !r.inRecovery(t) {
		return
	}
	r.lpu.reason(finding.RecoveryShell, "the card runs its factory image ("+r.lpu.Shell+")",
		"flash the LPU shell: xbmgmt program --base --device "+r.lpu.Address.Sibling(0).String()+", then power-cycle the server")
}

// inRecovery is what the management function says of the image (recovery, made by xclmgmt).
func (r attributes) inRecovery(t *host.Tree) bool {
	if r.lpu.Management == nil {
		return false
	}
	dir, err := t.Dir(pciDevices + "/" + r.lpu.Management.Address.String())
	if err != nil {
		return false
	}
	defer dir.Close()
	recovery, _ := dir.Line("recovery")
	return recovery == "1"
}

// subdevice reads an attribute of the one sub-device whose name starts with prefix; "" if there is none.
func (r attributes) subdevice(t *host.Tree, names []string, prefix, attribute string) string {
	i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, prefix) })
	if i < 0 {
		return ""
	}
	dir, err := t.Dir(path.Join(pciDevices, r.lpu.Address.String(), names[i]))
	if err != nil {
		r.warn(err)
		return ""
	}
	defer dir.Close()
	text, _ := attributes{dir, r.lpu}.text(attribute)
	return text
}

// readHASerial reads the serial attribute that Bertha's class device may carry.
func (s *scan) readHASerial(lpu *LPU, m *compiledModel) {
	for _, rule := range m.nodes {
		for _, d := range s.classes[rule.subsystem()][lpu.Address] {
			dir, err := s.tree.Dir(d.path)
			if err != nil {
				continue
			}
			lpu.Serial, _ = attributes{dir, lpu}.text("serial")
			dir.Close()
			return
		}
	}
}
