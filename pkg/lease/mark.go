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

// Mark returns a copy of an inventory that says which LPUs of the machine under root are leased and
// reserved at a moment.
func Mark(root host.Root, inv *discovery.Inventory, leases, reservations *Record, now host.Moment) *discovery.Inventory {
	leased, reserved := Holders(root, leases, reservations, now)
	marked := *inv
	marked.LPUs = slices.Clone(inv.LPUs)
	for i := range marked.LPUs {
		l := &marked.LPUs[i]
		if h := leased[l.Address]; h != nil {
			l.Leased = h
		}
		if h := reserved[l.Address]; h != nil {
			l.Reserved = h
		}
	}
	return &marked
}

// Holders returns who has leased and who has reserved which LPUs of the machine under root at a
// moment. A record of another boot says nothing. That a container has ended which a lease lasted as
// long as is found here: the arbiter may have ended before.
func Holders(
	root host.Root, leases, reservations *Record, now host.Moment,
) (leased, reserved map[discovery.Address]*discovery.Holder) {
	if leases == nil || leases.Boot != now.Boot {
		leases = &Record{}
	}
	if reservations == nil || reservations.Boot != now.Boot {
		reservations = &Record{}
	}
	leased, reserved = map[discovery.Address]*discovery.Holder{}, map[discovery.Address]*discovery.Holder{}
	ended := leases.endedContainers(root)
	for _, e := range leases.Leases {
		over := e.Gone && ended[e.Container]
		if e.Grant == nil || over { // without a grant it waits
			continue
		}
		for _, l := range e.LPUs {
			leased[l.Address] = &discovery.Holder{
				ID: e.ID, UID: e.UID, User: e.User, Until: e.Until, Command: cmp.Or(e.Wish.Command, e.Command),
			}
		}
	}
	for _, r := range reservations.Reservations {
		if r.Until <= now.SinceBoot {
			continue
		}
		for _, l := range r.LPUs {
			reserved[l.Address] = &discovery.Holder{ID: r.ID, UID: r.UID, User: r.User, Until: r.Until, Reason: r.Reason}
		}
	}
	return leased, reserved
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
