package discovery

import (
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// driver is what is known of a driver of LPUs. Each has a file of its own, such as driver_xocl.go.
type driver interface {
	// read reads the state of a card.
	read(f *function, lpu *LPU, dir *host.Dir)
	// ask reads what the driver may ask the card for.
	ask(f *function, lpu *LPU, dir *host.Dir)
	// sense reads the sensors that are the driver's own.
	sense(f *function, lpu *LPU, sensors *health.Sensors, a attributes)
}

// generic is a driver of which nothing is known.
type generic struct{}

func (generic) read(*function, *LPU, *host.Dir)                    {}
func (generic) ask(*function, *LPU, *host.Dir)                     {}
func (generic) sense(*function, *LPU, *health.Sensors, attributes) {}

// driver returns the driver that the model's health profile names.
func (m *Model) driver() driver {
	switch m.Health {
	case healthXocl:
		return xocl{}
	case healthHA:
		return ha{}
	}
	return generic{}
}

// DriverStates returns the attributes by which the drivers of LPUs say how a card with
// these nodes is, without asking it. They are paths relative to sys/bus/pci/devices/ADDRESS.
func DriverStates(nodes []Node) []string { return append(xocl{}.states(nodes), ha{}.states(nodes)...) }

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
	return withDir(lpu, f, func(lpu *LPU, dir *host.Dir) { f.model.driver().read(&f, lpu, dir) })
}

// askDriver reads what the driver may ask the card for, if the card can answer by what
// was read so far.
func (s *scan) askDriver(lpu LPU, f function) LPU {
	return withDir(lpu, f, func(lpu *LPU, dir *host.Dir) {
		f.model.driver().ask(&f, lpu, dir)
		if lpu.Serial == "" {
			// PCI core, since Linux 6.19 and for root only: the Device Serial Number
			// capability.
			lpu.Serial, _ = dir.Line("serial_number")
		}
	})
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
