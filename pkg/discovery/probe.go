package discovery

import (
	"maps"
	"sync"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/stall"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// prober reads the configuration space of LPUs beside the scans of a watcher. While the
// kernel resets a function, such a read sleeps for up to a minute, and not even SIGKILL
// ends it. So no scan waits for it, and it begins only if the link is plausible, which it
// is not during a reset.
type prober struct {
	mu    sync.Mutex
	found map[pci.Address]probe
	began map[pci.Address]*stall.Read // reads that have not ended yet
	fresh bool                      // something was found since the last known
}

// probe is what a read of the configuration space found.
type probe struct {
	device  uint64  // inode of the function's directory
	dead    bool    // it reads as all ones
	command *uint16 // the command register; nil if it cannot be read
	hangs   bool    // the next read has begun long ago
}

// start begins to read the LPUs of an inventory, each in a goroutine of its own, unless
// an earlier read of it hangs.
func (p *prober) start(root string, inv *Inventory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range inv.LPUs {
		_, hangs := p.began[l.Address]
		if hangs || l.Absent || l.Driver == "" || l.Reading.AllOnes || l.Reading.Asleep() || l.Reading.PowerLost() {
			continue
		}
		if p.began == nil {
			p.began = map[pci.Address]*stall.Read{}
		}
		u := &stall.Read{Began: time.Now()}
		p.began[l.Address] = u
		go u.Do(func() { p.read(root, l.Address) })
	}
}

// settle is how long a command register with its memory switched off may be that of a
// reset that is just ending.
const settle = 300 * time.Millisecond

// read reads one function, and notes what it found.
func (p *prober) read(root string, a pci.Address) {
	found, ok := readProbe(root, a)
	if ok && health.MemoryOff(found.command) {
		time.Sleep(settle)
		found, ok = readProbe(root, a)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.began, a)
	before, known := p.found[a]
	if !ok {
		return
	}
	if p.found == nil {
		p.found = map[pci.Address]probe{}
	}
	p.found[a] = found
	same := known && before.dead == found.dead && (before.command == nil) == (found.command == nil) &&
		(found.command == nil || *before.command == *found.command)
	p.fresh = p.fresh || !same
}

// readProbe reads one function. It is not ok if the function is not there or is in a
// reset, or if there is a shortage.
func readProbe(root string, a pci.Address) (found probe, ok bool) {
	t, err := host.Root(root).Open()
	if err != nil {
		return probe{}, false
	}
	defer t.Close()
	return probeIn(t, a)
}

func probeIn(t *host.Tree, a pci.Address) (found probe, ok bool) {
	dir, err := t.Dir(a.Dir())
	if err != nil {
		return probe{}, false
	}
	defer dir.Close()
	if n, _ := (attributes{}).number(dir, "current_link_width"); n == allOnes {
		return probe{}, false
	}
	found.device = dir.Inode()
	found.dead, found.command = readConfig(dir)
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

// forget forgets what was read of a function: an event says that it may have changed
// since.
func (p *prober) forget(a pci.Address) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.found, a)
}

// news reports whether a read has found something else than the one before.
func (p *prober) news() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fresh
}

// known is what is known by now. A read may hang that has gone on for longer than limit.
func (p *prober) known(limit time.Duration) map[pci.Address]probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fresh = false
	all := map[pci.Address]probe{}
	maps.Copy(all, p.found)
	for a, u := range p.began {
		if u.Hangs(limit) {
			found := all[a]
			found.hangs = true
			all[a] = found
		}
	}
	return all
}
