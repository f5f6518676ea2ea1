package lease

import (
	"cmp"
	"fmt"
	"log/slog"
	"path"
	"slices"

	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Peek reads a record as anybody may; nil if there is none. The arbiter alone puts a file
// aside that cannot be used: here the error says why, or that a record has been lost
// which the arbiter is about to write again.
func (f File) Peek() (*Record, error) {
	runs, _ := filelock.Present(f.presence().Path) // before: the record is there when it is shown
	r, err := f.File.Read()
	if err == nil && r == nil && runs {
		err = fmt.Errorf("%s is gone, and the arbiter runs", f.Path)
	}
	return r, err
}

// Arbiter reports whether the arbiter runs that writes these records. It is not asked,
// because that would start it. The error is that this user cannot see it.
func (f Files) Arbiter() (bool, error) { return filelock.Present(f.Leases.presence().Path) }

// Held returns which LPUs of the machine under root users have leased or reserved, and
// who: "lease l3 of alice(1000)". The arbiter is not asked, because that would start it.
// The error is that it cannot be known.
func Held(root host.Root, leases, reservations File) (map[pci.Address]string, error) {
	l, err := leases.Peek()
	if err != nil {
		return nil, err
	}
	r, err := reservations.Peek()
	if err != nil {
		return nil, err
	}
	leased, reserved := Holders(root, l, r, host.Now())
	by := map[pci.Address]string{}
	for _, k := range l.KeptAt(host.Now()) {
		by[k.Address] = "lease of " + k.String() + " that has ended; " + k.Reason()
	}
	for address, h := range reserved {
		by[address] = "reservation " + h.ID + " of " + h.String()
	}
	for address, h := range leased {
		by[address] = "lease " + h.ID + " of " + h.String()
	}
	return by, nil
}

// Mark returns a copy of an inventory that says which LPUs of the machine under root are
// leased and reserved at a moment.
func Mark(root host.Root, inv *discovery.Inventory, leases, reservations *Record, now host.Moment) *discovery.Inventory {
	leased, reserved := Holders(root, leases, reservations, now)
	marked := *inv
	marked.LPUs = slices.Clone(inv.LPUs)
	for i := range marked.LPUs {
		l := &marked.LPUs[i]
		l.Leased, l.Reserved = leased[l.Address], reserved[l.Address]
	}
	for _, k := range leases.KeptAt(now) {
		for i := range marked.LPUs {
			if l := &marked.LPUs[i]; l.Address == k.Address && l.Leased == nil {
				l.KeptBack = k.Reason()
				if f := k.Finding(); f != nil {
					l.Reasons = append(slices.Clip(l.Reasons), *f)
				}
			}
		}
	}
	return &marked
}

// KeptAt are the LPUs that are kept back at a moment. A record of another boot says nothing.
func (r *Record) KeptAt(now host.Moment) []Kept {
	if r == nil || r.Boot != now.Boot {
		return nil
	}
	return r.Kept
}

// Holders returns who has leased and who has reserved which LPUs of the machine under
// root at a moment. A record of another boot says nothing. That a container has ended
// which a lease lasted as long as is found here: the arbiter may have ended before.
func Holders(
	root host.Root, leases, reservations *Record, now host.Moment,
) (leased, reserved map[pci.Address]*discovery.Holder) {
	if leases == nil || leases.Boot != now.Boot {
		leases = &Record{}
	}
	if reservations == nil || reservations.Boot != now.Boot {
		reservations = &Record{}
	}
	leased, reserved = map[pci.Address]*discovery.Holder{}, map[pci.Address]*discovery.Holder{}
	ended := leases.ended(root)
	for _, e := range leases.Leases {
		if e.Grant == nil || ended[e] { // without a grant it waits
			continue
		}
		for _, l := range e.LPUs {
			leased[l.Address] = &discovery.Holder{
				ID: e.ID, UID: e.UID, User: e.User, Via: e.Via, Since: host.WallClock(e.Since), Until: host.WallClock(e.Until),
				Command: cmp.Or(e.Wish.Command, e.Command),
			}
		}
	}
	for _, r := range reservations.Reservations {
		if r.Until <= now.SinceBoot {
			continue
		}
		for _, l := range r.LPUs {
			reserved[l.Address] = &discovery.Holder{
				ID: r.ID, UID: r.UID, User: r.User, Via: r.Via, Since: host.WallClock(r.Since), Until: host.WallClock(r.Until), Reason: r.Reason,
			}
		}
	}
	return leased, reserved
}

// ended are the leases that have ended with their container. None has, as far as is
// known, if this user does not see all processes (proc(5), hidepid).
func (r *Record) ended(root host.Root) map[*entry]bool {
	var bound []*entry
	var ids []string
	for _, e := range r.Leases {
		if e.Gone {
			bound, ids = append(bound, e), append(ids, e.Container)
		}
	}
	if len(bound) == 0 {
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
	ended, seen := map[*entry]bool{}, groups(t, ids)
	for _, e := range bound {
		ended[e] = !runs(e.Groups, seen[e.Container])
	}
	return ended
}

// Files are where the arbiter of a node writes down what it gives.
type Files struct{ Leases, Reservations File }

// FilesOf returns the files of the machine under root, whose state directory is dir.
func FilesOf(root host.Root, dir string) (Files, error) {
	run, err := root.Resolve(path.Dir(Socket))
	return Files{LeasesIn(run), ReservationsIn(dir)}, err
}

// MarkNow is [Mark] with what the arbiter has written down. The arbiter is not asked,
// because that would start it. With an error, a record that cannot be read, it returns
// the inventory that was given.
func MarkNow(root host.Root, dir string, inv *discovery.Inventory) (*discovery.Inventory, error) {
	files, err := FilesOf(root, dir)
	var leases, reservations *Record
	if err == nil {
		leases, err = files.Leases.Peek()
	}
	if err == nil {
		reservations, err = files.Reservations.Peek()
	}
	if err != nil || leases == nil && reservations == nil {
		return inv, err
	}
	return Mark(root, inv, leases, reservations, host.Now()), nil
}

// MarkOrWarn is [MarkNow] that logs the error.
func MarkOrWarn(log *slog.Logger, root host.Root, dir string, inv *discovery.Inventory) *discovery.Inventory {
	marked, err := MarkNow(root, dir, inv)
	if err != nil {
		WarnUnread(log, err)
	}
	return marked
}

// unreadRemedy is what to do about a record of the arbiter that cannot be read.
const unreadRemedy = "start the arbiter again, which puts such a file aside: systemctl restart lpuctl-lease.service"

// UnreadError is that of a record that cannot be read.
type UnreadError struct{ Err error }

func (e UnreadError) Error() string { return e.Err.Error() }

// Remedy says how the record can be read again.
func (UnreadError) Remedy() string { return unreadRemedy }

// WarnUnread logs that a record of the arbiter cannot be read.
func WarnUnread(log *slog.Logger, err error) {
	log.Warn("who has leased LPUs is not known", "error", err, "remedy", unreadRemedy)
}
