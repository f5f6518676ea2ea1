package discovery

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// allOnes is current_link_width of a function that does not answer: six bits of ones
// (PCI_EXP_LNKSTA_NLW of linux/pci_regs.h).
const allOnes = 63

// readVitals reads what shows whether the card is alive, as far as that is not up to its
// driver. A card that is asleep is not woken.
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
	l.Reading.Enabled, _ = l.attributes().number(dir, "enable")
	l.attributes().errors(dir, &l.Reading)
}

// readPower reads what the kernel says of the function's power. Neither attribute wakes
// the card.
func (l *LPU) readPower(dir *host.Dir) {
	l.PowerState = l.attributes().optional(dir.Line("power_state")) // since Linux 5.13
	l.Reading.PowerState = l.PowerState
	l.Reading.RuntimeStatus = l.attributes().optional(dir.Line("power/runtime_status"))
}

// readLink reads the four link attributes. Speed is text such as "8.0 GT/s PCIe", "8
// GT/s" before Linux 5.6 or "Unknown speed" (drivers/pci/probe.c, pci_speed_string);
// width 0, 63 and 255 mean unreadable. It reports whether the function has such
// attributes.
func (l *LPU) readLink(dir *host.Dir) bool {
	width, there := l.attributes().number(dir, "current_link_width")
	if there && width == allOnes {
		l.Reading.AllOnes = true
		return true // the other attributes are ones too
	}
	current, most := l.attributes().link(dir, "current"), l.attributes().link(dir, "max")
	if current != (health.Link{}) || most != (health.Link{}) {
		l.Link = &Link{current.SpeedGTs, current.Width, most.SpeedGTs, most.Width}
	}
	l.Reading.Link, l.Reading.MaxLink = current, most
	return there
}

// link reads the speed and the width of a link: those that it has ("current"), or the
// best that it could have ("max").
func (a attributes) link(dir *host.Dir, which string) (found health.Link) {
	number, _, _ := strings.Cut(a.optional(dir.Line(which+"_link_speed")), " ")
	if v, _ := strconv.ParseFloat(number, 64); v > 0 && v < 1e4 {
		found.SpeedGTs = v
	}
	if n, _ := a.number(dir, which+"_link_width"); n > 0 && n <= 32 {
		found.Width = n
	}
	return found
}

// limitLink lowers what the link could be to what the port above can. A port that does
// not say it limits nothing.
func (s *scan) limitLink(l *LPU, port pci.Address) {
	dir, err := s.tree.Dir(port.Dir())
	if err != nil {
		return
	}
	defer dir.Close()
	of := attributes{}.link(dir, "max") // what cannot be read of the port is no warning about the card
	most := &l.Reading.MaxLink
	if of.SpeedGTs > 0 {
		most.SpeedGTs = min(most.SpeedGTs, of.SpeedGTs)
	}
	if of.Width > 0 {
		most.Width = min(most.Width, of.Width)
	}
}

// errors reads the counters of Advanced Error Reporting
// (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats). Functions without this
// capability have none.
func (a attributes) errors(dir *host.Dir, r *health.Reading) {
	total := func(name, key string) *uint64 {
		text := a.optional(dir.Text(name))
		for line := range strings.SplitSeq(text, "\n") {
			if value, ok := strings.CutPrefix(line, key+" "); ok {
				return a.parse(dir, name, value)
			}
		}
		return nil
	}
	r.AERCorrectable = total("aer_dev_correctable", "TOTAL_ERR_COR")
	r.AERNonFatal = total("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL")
	r.AERFatal = total("aer_dev_fatal", "TOTAL_ERR_FATAL")
}

// portsAbove are the ports above LPUs, each once.
func portsAbove(lpus []LPU) (ports []pci.Address) {
	for i := range lpus {
		ports = append(ports, lpus[i].Reading.Ports...)
	}
	slices.SortFunc(ports, pci.Address.Compare)
	return slices.Compact(ports)
}

// readPorts reads what ports have counted. A root port counts too what is reported by all
// below it, such as a fatal error of an LPU that can report nothing else any more
// (aer_rootport_total_err_*).
func (s *scan) readPorts(ports []pci.Address) map[pci.Address]health.Reading {
	all := map[pci.Address]health.Reading{}
	for _, port := range ports {
		dir, err := s.tree.Dir(port.Dir())
		if err != nil {
			continue
		}
		var a attributes
		var r health.Reading
		a.errors(dir, &r)
		r.AERCorrectable = sum(r.AERCorrectable, a.count(dir, "aer_rootport_total_err_cor"))
		r.AERNonFatal = sum(r.AERNonFatal, a.count(dir, "aer_rootport_total_err_nonfatal"))
		r.AERFatal = sum(r.AERFatal, a.count(dir, "aer_rootport_total_err_fatal"))
		dir.Close()
		all[port] = r
	}
	return all
}

// sum adds two counters, of which either may be absent.
func sum(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	total := *a + *b
	return &total
}
