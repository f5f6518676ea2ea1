package discovery

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// sensorPeriod is how often a watcher reads the sensors of a card.
const sensorPeriod = 10 * time.Second

// sensed is what a watcher remembers of a card's sensors.
type sensed struct {
	device  uint64          // [health.Reading.Device]; 0: not known
	at      time.Duration   // when they were read, since boot
	sensors *health.Sensors // nil: a read of the card did not end in time
}

// answers reports whether the driver can ask the card, by what was read so far. If it
// cannot, a read waits in the driver for a timeout, and until then no process can unbind
// the driver.
func (l *LPU) answers() bool {
	return l.Driver != "" && l.Driver != "vfio-pci" && !l.Reading.AllOnes && !l.Reading.Asleep() && !l.Reading.PowerLost() &&
		!l.Reasons.Has(finding.Offline) && !l.Reasons.Has(finding.NotReady)
}

// readSensors reads what the driver may have to ask the card for, if the card can answer.
func (s *scan) readSensors(lpu LPU, f function) LPU {
	if !lpu.answers() {
		return lpu
	}
	last, known := s.sensed[lpu.Address]
	if known && s.now-last.at < sensorPeriod && (last.device == 0 || last.device == lpu.Reading.Device) {
		lpu.Reading.Sensors = last.sensors
	} else {
		lpu.Reading.Sensors = f.sense(lpu)
	}
	if sensors := lpu.Reading.Sensors; sensors != nil {
		lpu.Temperatures, lpu.Watts = sensors.Temperatures, sensors.Watts
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
			label := cmp.Or(a.optional(dir.Line(sensor+"_label")), sensor)
			if !ok {
				continue
			}
			sensors.Temperatures = append(sensors.Temperatures, health.Temperature{
				Label: label, Celsius: float64(now) / 1000, Critical: float64(critical) / 1000,
			})
		case strings.HasPrefix(sensor, "power") && sensors.Watts == nil:
			if n := a.count(dir, name); n != nil {
				watts := float64(*n) / 1e6
				sensors.Watts = &watts
			}
		}
	}
}

// keepSensors remembers the sensors that were read, so that the next scans need not read
// them. Where a read did not end in time the card is left alone for as long. Sensors that
// show a fault are read at each scan, so that a fault that counts was read as often as
// the policy wants.
func (w *Watcher) keepSensors(inv *Inventory) {
	// This is another map, because a read that hangs may still hold the one before.
	all := map[pci.Address]sensed{}
	for _, l := range inv.LPUs {
		kept, known := w.options.sensed[l.Address]
		switch sensors := l.Reading.Sensors; {
		case l.Reasons.Has(finding.ReadStalled):
			kept = sensed{l.Reading.Device, w.options.now, nil}
		case known && kept.sensors == sensors: // it was not read again
		case sensors == nil, sensors.Findings("", w.options.Policy).HasErrors():
			continue
		default:
			kept = sensed{l.Reading.Device, w.options.now, sensors}
		}
		all[l.Address] = kept
	}
	w.options.sensed = all
}
