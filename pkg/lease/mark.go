package lease

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Peek reads a record as anybody may; nil if there is none. The arbiter alone puts a file aside that cannot be used: here the error says
// why.
func (f File) Peek() (*Record, error) {
	data, err := wholefile.Read(f.Path, recordLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := ParseRecord(data, f.kind)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	return r, nil
}

// Mark returns a copy of an inventory that says which LPUs of the machine under root are leased and reserved at a moment. A record of
// another boot says nothing. That a container has ended which a lease lasted as long as is found here: the arbiter may have ended before.
func Mark(root host.Root, inv *discovery.Inventory, leases, reservations *Record, now host.Moment) *discovery.Inventory {
	if leases == nil || leases.Boot != now.Boot {
		leases = &Record{}
	}
	if reservations == nil || reservations.Boot != now.Boot {
		reservations = &Record{}
	}
	marked := *inv
	marked.LPUs = slices.Clone(inv.LPUs)
	mark := func(lpus []LPU, set func(*discovery.LPU)) {
		for i := range marked.LPUs {
			l := &marked.LPUs[i]
			if slices.ContainsFunc(lpus, func(of LPU) bool { return of.Address == l.Address }) {
				set(l)
			}
		}
	}
	ended := leases.endedContainers(root)
	for _, e := range leases.Leases {
		h := &discovery.Holder{ID: e.ID, UID: e.UID, User: e.User, Until: e.Until, Command: cmp.Or(e.Wish.Command, e.Command)}
		over := e.Gone && ended[e.Container]
		if e.Grant != nil && !over { // without a grant it waits
			mark(e.LPUs, func(l *discovery.LPU) { l.Leased = h })
		}
	}
	for _, r := range reservations.Reservations {
		h := &discovery.Holder{ID: r.ID, UID: r.UID, User: r.User, Until: r.Until, Reason: r.Reason}
		if r.Until > now.SinceBoot {
			mark(r.LPUs, func(l *discovery.LPU) { l.Reserved = h })
		}
	}
	return &marked
}

// endedContainers are those that have ended of the containers that leases last as long as. None has, as far as is known, if this user
// does not see all processes (proc(5), hidepid).
func (r *Record) endedContainers(root host.Root) map[string]bool {
	ended := map[string]bool{}
	for _, e := range r.Leases {
		if e.Gone {
			ended[e.Container] = true
		}
	}
	if len(ended) == 0 {
		return nil
	}
	t, err := root.Open()
	if err != nil {
		return nil
	}
	defer t.Close()
	first, err := t.Dir("proc/1")
	if err != nil {
		return nil
	}
	defer first.Close()
	if _, err := first.Text("cgroup"); err != nil {
		return nil
	}
	for id := range running(t, slices.Collect(maps.Keys(ended))) {
		delete(ended, id)
	}
	return ended
}
