package discovery

import (
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Probe is what a read of a configuration space found.
type Probe struct {
	Device  uint64  // inode of the function's directory
	Dead    bool    // it reads as all ones
	Command *uint16 // the command register; nil if it cannot be read
	Hangs   bool    // the next read has begun long ago
}

// settle is how long a command register with its memory switched off may be that of a
// reset that is just ending.
const settle = 300 * time.Millisecond

// ReadProbe reads the configuration space of one function under root. While the kernel
// resets the function that sleeps for up to a minute. It is not ok if the function is not
// there or is in a reset, or if there is a shortage.
func ReadProbe(root string, a pci.Address) (found Probe, ok bool) {
	found, ok = readProbe(root, a)
	if ok && health.MemoryOff(found.Command) {
		time.Sleep(settle)
		found, ok = readProbe(root, a)
	}
	return found, ok
}

func readProbe(root string, a pci.Address) (found Probe, ok bool) {
	t, err := host.Root(root).Open()
	if err != nil {
		return Probe{}, false
	}
	defer t.Close()
	return probeIn(t, a)
}

func probeIn(t *host.Tree, a pci.Address) (found Probe, ok bool) {
	dir, err := t.Dir(a.Dir())
	if err != nil {
		return Probe{}, false
	}
	defer dir.Close()
	if n, _ := (attributes{}).number(dir, "current_link_width"); n == allOnes {
		return Probe{}, false
	}
	found.Device = dir.Inode()
	found.Dead, found.Command = readConfig(dir)
	return found, t.Shortage() == nil
}

// readConfig reads the ids and the command register.
func readConfig(dir *host.Dir) (dead bool, command *uint16) {
	head, err := dir.Head("config", 8)
	if err != nil || len(head) < 8 {
		return false, nil
	}
	register := uint16(head[4]) | uint16(head[5])<<8
	return string(head[:4]) == "\xff\xff\xff\xff", &register
}
