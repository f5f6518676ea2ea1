package watch

import (
	"maps"
	"sync"
	"time"

	"github.com/hyperaccel/lpuctl/internal/stall"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// prober reads the configuration space of LPUs beside the scans of a watcher. While the
// kernel resets a function, such a read sleeps for up to a minute, and not even SIGKILL
// ends it. So no scan waits for it, and it begins only if the link is plausible, which it
// is not during a reset.
type prober struct {
	mu    sync.Mutex
	found map[pci.Address]discovery.Probe
	began map[pci.Address]*stall.Read // reads that have not ended yet
	fresh bool                        // something was found since the last known
}

// start begins to read the LPUs of an inventory, each in a goroutine of its own, unless
// an earlier read of it hangs.
func (p *prober) start(root string, inv *discovery.Inventory) {
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
		r := &stall.Read{Began: time.Now()}
		p.began[l.Address] = r
		go r.Do(func() { p.read(root, l.Address) })
	}
}

// read reads one function, and notes what it found.
func (p *prober) read(root string, a pci.Address) {
	found, ok := discovery.ReadProbe(root, a)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.began, a)
	before, known := p.found[a]
	if !ok {
		return
	}
	if p.found == nil {
		p.found = map[pci.Address]discovery.Probe{}
	}
	p.found[a] = found
	same := known && before.Dead == found.Dead && (before.Command == nil) == (found.Command == nil) &&
		(found.Command == nil || *before.Command == *found.Command)
	p.fresh = p.fresh || !same
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
func (p *prober) known(limit time.Duration) map[pci.Address]discovery.Probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fresh = false
	all := map[pci.Address]discovery.Probe{}
	maps.Copy(all, p.found)
	for a, r := range p.began {
		if r.Hangs(limit) {
			found := all[a]
			found.Hangs = true
			all[a] = found
		}
	}
	return all
}
