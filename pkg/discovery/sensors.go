package discovery

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// answers reports whether the driver can ask the card, by what was read so far. If it
// cannot, a read waits in the driver for a timeout, and until then no process can unbind
// the driver.
func (l *LPU) answers() bool {
	return l.Driver != "" && l.Driver != "vfio-pci" && !l.Reading.AllOnes && !l.Reading.Asleep() && !l.Reading.PowerLost() &&
		!l.Reasons.Has(finding.Offline) && !l.Reasons.Has(finding.NotReady)
}

// readSensors reads what the driver may have to ask the card for, if the card can answer.
func (s *scan) readSensors(lpu LPU, f function) LPU {
	if s.Unsensed {
		return lpu
	}
	if !lpu.answers() {
		return lpu
	}
	if last := f.before.Sensed; last != nil && (last.Device == 0 || last.Device == lpu.Reading.Device) {
		lpu.Reading.Sensors = last.Sensors
	} else {
		lpu.Reading.Sensors = f.sense(lpu)
	}
	if sensors := lpu.Reading.Sensors; sensors != nil {
		lpu.Temperatures, lpu.Watts, lpu.LimitWatts = sensors.Temperatures, sensors.Watts, sensors.LimitWatts
	}
	return lpu
}

// sense reads the sensors of a card.
func (f *function) sense(lpu LPU) *health.Sensors {
	sensors := &health.Sensors{}
	aside := attributes{lpu.Name, &sensors.Unread}
	function := lpu.Address.Dir()
	f.model.driver().sense(f, &lpu, sensors, aside)
	chips, err := f.tree.Names(path.Join(function, "hwmon"))
	aside.optional("", err)
	f.below(path.Join(function, "hwmon"), chips, "hwmon", func(dir *host.Dir) { readHwmon(dir, sensors, aside) })
	return sensors
}

// below opens each directory in another one whose name begins with a prefix, in the order
// of the names of all that is there.
func (f *function) below(parent string, names []string, prefix string, read func(*host.Dir)) {
	slices.Sort(names)
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		if dir, err := f.tree.Dir(path.Join(parent, name)); err == nil { // else it has gone meanwhile
			read(dir)
			dir.Close()
		}
	}
}

// readHwmon reads temperatures and power of a sensor chip
// (Documentation/hwmon/sysfs-interface.rst): thousandths of a degree, and microwatts.
func readHwmon(dir *host.Dir, sensors *health.Sensors, a attributes) {
	names, err := dir.Names()
	a.optional("", err)
	// temp2 before temp10.
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	for _, name := range names {
		sensor, isInput := strings.CutSuffix(name, "_input")
		switch {
		case !isInput:
		case strings.HasPrefix(sensor, "temp"):
			// All are read whatever the first one says, because they may be read together
			// (Apart).
			now, ok := a.number(dir, name)
			critical, _ := a.number(dir, sensor+"_crit")
			most, _ := a.number(dir, sensor+"_max")
			label := cmp.Or(a.optional(dir.Line(sensor+"_label")), sensor)
			if !ok {
				continue
			}
			sensors.Temperatures = append(sensors.Temperatures, health.Temperature{
				Label: label, Celsius: float64(now) / 1000, Critical: float64(critical) / 1000, Max: float64(most) / 1000,
			})
		case strings.HasPrefix(sensor, "power") && sensors.Watts == nil:
			now, critical, most := a.count(dir, name), a.count(dir, sensor+"_crit"), a.count(dir, sensor+"_max")
			if now != nil {
				sensors.Watts, sensors.LimitWatts = inWatts(now), inWatts(cmp.Or(critical, most))
			}
		}
	}
}

// inWatts returns microwatts as watts; nil for nil.
func inWatts(n *uint64) *float64 {
	if n == nil {
		return nil
	}
	watts := float64(*n) / 1e6
	return &watts
}
