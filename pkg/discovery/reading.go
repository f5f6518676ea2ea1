package discovery

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// allOnes is current_link_width of a function that does not answer: six bits of ones (PCI_EXP_LNKSTA_NLW of linux/pci_regs.h).
const allOnes = 63

// readVitals reads what tells whether the card is alive, as far as that is not up to its driver. A card that is asleep is not woken.
func (l *LPU) readVitals(dir *host.Dir) {
	l.Reading.Device, l.Reading.Driver = dir.Inode(), l.Driver
	l.readPower(dir)
	if l.Reading.Asleep() {
		return
	}
	l.Reading.Linked = l.readLink(dir)
	if l.Reading.AllOnes {
		return // its counters are ones too
	}
	l.Reading.Enabled, _ = l.number(dir, "enable")
	l.readErrors(dir)
}

// readPower reads what the kernel says of the function's power. Neither attribute wakes the card.
func (l *LPU) readPower(dir *host.Dir) {
	l.PowerState = l.optional(dir.Line("power_state")) // since Linux 5.13
	l.Reading.PowerState = l.PowerState
	l.Reading.RuntimeStatus = l.optional(dir.Line("power/runtime_status"))
}

// readLink reads the four link attributes. Speed is text such as "8.0 GT/s PCIe", "8 GT/s" before Linux 5.6
// or "Unknown speed" (drivers/pci/probe.c, pci_speed_string); width 0, 63 and 255 mean unreadable. It tells whether the function has
// such attributes.
func (l *LPU) readLink(dir *host.Dir) bool {
	width, there := l.number(dir, "current_link_width")
	if there && width == allOnes {
		l.Reading.AllOnes = true
		return true // the other attributes are ones too
	}
	current, most := link(l, dir, "current"), link(l, dir, "max")
	if current != (health.Link{}) || most != (health.Link{}) {
		l.Link = &Link{current.SpeedGTs, current.Width, most.SpeedGTs, most.Width}
	}
	l.Reading.Link, l.Reading.MaxLink = current, most
	return there
}

// link reads the speed and the width of a link: those that it has ("current"), or the best that it could have ("max").
func link(l *LPU, dir *host.Dir, which string) (found health.Link) {
	number, _, _ := strings.Cut(l.optional(dir.Line(which+"_link_speed")), " ")
	if v, _ := strconv.ParseFloat(number, 64); v > 0 && v < 1e4 {
		found.SpeedGTs = v
	}
	if n, _ := l.number(dir, which+"_link_width"); n > 0 && n <= 32 {
		found.Width = n
	}
	return found
}

// limitLink lowers what the link could be to what the port above can. A port that does not say it limits nothing.
func (s *scan) limitLink(l *LPU, port Address) {
	dir, err := s.tree.Dir(path.Join(pciDevices, port.String()))
	if err != nil {
		return
	}
	defer dir.Close()
	of := link(&LPU{}, dir, "max") // what cannot be read of the port is no warning about the card
	most := &l.Reading.MaxLink
	if of.SpeedGTs > 0 {
		most.SpeedGTs = min(most.SpeedGTs, of.SpeedGTs)
	}
	if of.Width > 0 {
		most.Width = min(most.Width, of.Width)
	}
}

// readErrors reads the counters of Advanced Error Reporting (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats). Functions
// without this capability have none.
func (l *LPU) readErrors(dir *host.Dir) {
	total := func(name, key string) *uint64 {
		text := l.optional(dir.Text(name))
		for line := range strings.SplitSeq(text, "\n") {
			if value, ok := strings.CutPrefix(line, key+" "); ok {
				return l.count(dir, name, value)
			}
		}
		return nil
	}
	l.Reading.AERCorrectable = total("aer_dev_correctable", "TOTAL_ERR_COR")
	l.Reading.AERNonFatal = total("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL")
	l.Reading.AERFatal = total("aer_dev_fatal", "TOTAL_ERR_FATAL")
}

// portsAbove are the ports above LPUs, each once.
func portsAbove(lpus []LPU) (ports []string) {
	for i := range lpus {
		ports = append(ports, lpus[i].Reading.Ports...)
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// readPorts reads what ports have counted. A root port counts too what is reported by all below it, such as a fatal error of an LPU
// that can report nothing else any more (aer_rootport_total_err_*).
func (s *scan) readPorts(ports []string) map[string]health.Reading {
	all := map[string]health.Reading{}
	for _, port := range ports {
		dir, err := s.tree.Dir(path.Join(pciDevices, port))
		if err != nil {
			continue
		}
		var p LPU // what cannot be read of a port is no warning about a card
		p.readErrors(dir)
		r := &p.Reading
		r.AERCorrectable = sum(r.AERCorrectable, p.optionalCount(dir, "aer_rootport_total_err_cor"))
		r.AERNonFatal = sum(r.AERNonFatal, p.optionalCount(dir, "aer_rootport_total_err_nonfatal"))
		r.AERFatal = sum(r.AERFatal, p.optionalCount(dir, "aer_rootport_total_err_fatal"))
		dir.Close()
		all[port] = p.Reading
	}
	return all
}

// optionalCount reads an attribute that not every card has, a number from 0 on; nil without one.
func (l *LPU) optionalCount(dir *host.Dir, name string) *uint64 {
	text := l.optional(dir.Line(name))
	if text == "" {
		return nil
	}
	return l.count(dir, name, text)
}

// sum adds two counters, of which either may be absent.
func sum(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	total := *a + *b
	return &total
}

// count is the value of a counter; nil, with a warning, if it is not a number.
func (l *LPU) count(dir *host.Dir, name, text string) *uint64 {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 0, 64)
	if err != nil {
		l.warn(dir.Fault(name, fmt.Errorf("%.20q is not a number", text)))
		return nil
	}
	return &n
}
