package lease

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Peek reads a record of this boot as anybody may; an empty one if there is none, or if it is of another boot. The arbiter alone puts a
// file aside that cannot be used: then the error says why.
func (f File) Peek(boot string) (*Record, error) {
	data, err := wholefile.Read(f.Path, recordLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return &Record{}, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := ParseRecord(data, f.kind)
	if err == nil && r.Boot != boot {
		return &Record{}, nil
	}
	return r, err
}

// Mark returns a copy of an inventory that says which LPUs are leased and reserved, at a time since boot.
func Mark(inv *discovery.Inventory, leases, reservations *Record, now time.Duration) *discovery.Inventory {
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
	for _, e := range leases.Leases {
		h := &discovery.Holder{ID: e.ID, UID: e.UID, User: e.User, Until: e.Until, Command: cmp.Or(e.Wish.Command, e.Command)}
		if e.Grant != nil { // else it waits
			mark(e.LPUs, func(l *discovery.LPU) { l.Leased = h })
		}
	}
	for _, r := range reservations.Reservations {
		h := &discovery.Holder{ID: r.ID, UID: r.UID, User: r.User, Until: r.Until, Reason: r.Reason}
		if r.Until > now {
			mark(r.LPUs, func(l *discovery.LPU) { l.Reserved = h })
		}
	}
	return &marked
}
