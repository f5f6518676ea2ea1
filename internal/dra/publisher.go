package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Publisher decides over time what the slices of a node are. What has been published
// stays while a claim may have it: a device of a former cabling stays for ten minutes,
// and as long as a prepared claim has it, tainted and with its counters. A taint goes on
// at once, and comes off a minute after its cause.
//
// Every slice that is written has the scheduler try all waiting pods again. So there are
// at most four writes in a minute; what changes after that goes into one write, when the
// first of the four is a minute ago.
//
// Its methods may be called at the same time. Options may be changed by the caller of
// Look.
type Publisher struct {
	Options
	// Path is the file that outlives the process, as a path of this machine; "": there is
	// none.
	Path      string
	Now       func() time.Time // the clock; nil: time.Now
	NoExecute bool             // pods that have an unhealthy LPU are evicted
	// Held returns why an LPU must not be given away though it is healthy, such as that the
	// device plugin's pods have it; "": it may be. nil: each may be. It is not called under
	// a lock of the Publisher, and neither is Prepared.
	Held func(pci.Address) string
	// Leased reports whether a user has leased an LPU, or has reserved it; nil: no user
	// has. It is called as Held is.
	Leased func(pci.Address) bool
	// Prepared returns the devices of all prepared claims, with their LPUs. nil: there
	// are none.
	Prepared func() map[string][]pci.Address

	mu        sync.Mutex
	state     *state // nil: Path was not read yet
	published []resourceapi.ResourceSliceSpec
	kept      string      // what is in Path of what must be there before slices are written
	writes    []time.Time // of the last minute
	rest      *rest       // nil: something is left to be done
}

// rest is what the latest look was at, if it left nothing to be done, and until when that
// is so; zero: as long as nothing changes.
type rest struct {
	looked
	prepared map[string][]pci.Address
	singles  bool
	until    time.Time
}

// same reports whether another look is at the same.
func (r *rest) same(other *rest) bool {
	return SameDevices(r.snap, other.snap) && r.singles == other.singles &&
		slices.Equal(r.held, other.held) && slices.Equal(r.leased, other.leased) &&
		maps.EqualFunc(r.prepared, other.prepared, slices.Equal[[]pci.Address])
}

// SameDevices reports whether a snapshot was only taken again: a node at rest has one
// inventory, and its devices at one place.
func SameDevices(a, b *node.Snapshot) bool {
	return a.Inventory == b.Inventory && a.Settled == b.Settled && len(a.Devices) == len(b.Devices) &&
		(len(a.Devices) == 0 || &a.Devices[0] == &b.Devices[0])
}

const (
	writesMax  = 4 // in writesFor
	writesFor  = time.Minute
	retryAfter = 10 * time.Second
)

// Look returns the slices to write if they are others than before, else nil: nothing is
// written while it is not settled how healthy the LPUs are. If there are no LPUs, there
// are no slices, which is not nil. Again is when to look again though the node does not
// change; 0: there is no need to.
//
// What must outlive the process is in the file before the slices are returned. If it
// cannot be written, there are no slices, unless only taints change: then there are
// slices and an error.
func (p *Publisher) Look(s *node.Snapshot) (specs []resourceapi.ResourceSliceSpec, again time.Duration, err error) {
	if s.Inventory == nil || !s.Settled {
		return nil, 0, nil
	}
	now := p.ask(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err = p.load(); p.state == nil {
		return nil, retryAfter, err
	}
	at := p.now()
	if r := p.rest; r != nil && r.same(now) && (r.until.IsZero() || at.Before(r.until)) {
		r.looked = now.looked // the older snapshot can go
		return nil, max(0, r.until.Sub(at)), err
	}
	p.rest = nil
	n := p.state.next(s.Inventory, &p.Options, now.prepared, at)
	n.noExecute = p.NoExecute
	n.Causes = lingering(n.causes(now.looked), p.state.Causes, at)
	p.state, again = n, n.again(at)
	specs = n.slices(&p.Options)
	if p.published != nil && equality.Semantic.DeepEqual(specs, p.published) {
		p.rest = now
		if again > 0 {
			p.rest.until = at.Add(again)
		}
		return nil, again, err
	}
	if wait := p.budget(at); wait > 0 {
		return nil, wait, err
	}
	if vital, failed := p.keep(n); failed != nil {
		err = errors.Join(err, failed)
		if vital {
			return nil, retryAfter, err
		}
	}
	p.writes, p.published = append(p.writes, at), specs
	return specs, again, err
}

// ask asks what prepared claims have, and which LPUs are not to be given away. Without
// counters nothing but a taint keeps the LPUs of a device from others.
func (p *Publisher) ask(s *node.Snapshot) *rest {
	r := &rest{looked: looked{inv: s.Inventory, snap: s}, singles: p.Singles}
	if p.Prepared != nil {
		r.prepared = p.Prepared()
	}
	for _, members := range r.prepared {
		if p.Singles && len(members) > 1 {
			r.held = append(r.held, members...)
		}
	}
	for i := range s.Inventory.LPUs {
		a := s.Inventory.LPUs[i].Address
		if p.Held != nil && p.Held(a) != "" {
			r.held = append(r.held, a)
		}
		if p.Leased != nil && p.Leased(a) {
			r.leased = append(r.leased, a)
		}
	}
	return r
}

func (p *Publisher) now() time.Time {
	if p.Now == nil {
		return time.Now()
	}
	return p.Now()
}

// budget is how long the next write has to wait; 0: it need not.
func (p *Publisher) budget(at time.Time) time.Duration {
	p.writes = slices.DeleteFunc(p.writes, func(w time.Time) bool { return at.Sub(w).Abs() >= writesFor })
	if len(p.writes) < writesMax {
		return 0
	}
	return p.writes[0].Add(writesFor).Sub(at)
}

// Slices are the slices that Look returned last; nil before.
func (p *Publisher) Slices() []resourceapi.ResourceSliceSpec {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.published
}

// Members are the LPUs of a device in the order in which they are connected. The error
// wraps [claim.ErrUnknown] or [claim.ErrRecabled].
func (p *Publisher) Members(name string) ([]pci.Address, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.load(); p.state == nil {
		return nil, err
	}
	i := slices.IndexFunc(p.state.Devices, func(d published) bool { return d.Name == name })
	switch {
	case i < 0:
		return nil, fmt.Errorf("device %s: %w", name, claim.ErrUnknown)
	case p.state.Devices[i].former():
		return nil, fmt.Errorf("device %s: %w", name, claim.ErrRecabled)
	}
	return p.state.inOrder(p.state.Devices[i].Members), nil
}

// load reads the file once. One that cannot be understood is put aside, and the error
// says so; then all is as at the first start, but for what prepared claims have. If it
// cannot be read there is no state, because devices would disappear for which there may
// be claims.
func (p *Publisher) load() error {
	if p.state != nil {
		return nil
	}
	s, err := p.file().Read()
	e, _ := errors.AsType[*statefile.Error](err)
	switch {
	case s != nil:
		p.state, p.kept = s, s.vital()
		return nil
	case e != nil && !e.Unusable:
		return fmt.Errorf("it is not known what was published before: %w", err)
	}
	p.state = &state{}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w, and devices of a former cabling are forgotten", p.file().PutAside(err))
}

func (p *Publisher) file() statefile.File[state] {
	return statefile.File[state]{
		Path: p.Path, Kind: "DRASlices",
		Limit: 16 << 20, // a ring of 32 with all sizes has less than one million bytes
	}
}

// vital is what must be in the file before slices are written.
func (s *state) vital() string {
	kept := *s
	kept.Header, kept.Causes, kept.Layout.LPUs = statefile.Header{}, nil, nil
	text, _ := json.Marshal(kept) // it has no value that cannot be marshalled
	return string(text)
}

// keep writes the file. vital: without it the slices must not be written.
func (p *Publisher) keep(s *state) (vital bool, err error) {
	err = p.file().Write(s)
	text := s.vital()
	if err != nil {
		return text != p.kept, err
	}
	p.kept = text
	return false, nil
}

// inOrder are the LPUs of a device in the order in which they are connected: all of a
// ring with one dead cable begins behind that.
func (s *state) inOrder(members []pci.Address) []pci.Address {
	for _, r := range s.Layout.Rings {
		if !r.whole(members) || r.Members[0] != members[0] {
			continue
		}
		for _, c := range s.Causes {
			at := slices.Index(members, c.LPU)
			if c.Key != TaintLink || !c.Ended.IsZero() || at < 0 {
				continue
			}
			if after := (at + 1) % len(members); members[after] == c.Next {
				at = after
			}
			return slices.Concat(members[at:], members[:at])
		}
	}
	return slices.Clone(members)
}
