package lease

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// The kinds of records, each in a file of its own.
const (
	leasesKind       = "Leases"       // of who is connected: no longer true after a boot
	reservationsKind = "Reservations" // promised for a time
)

const recordLimit = 4 << 20 // bytes; a lease with eight LPUs has about a thousand

// Record is what the arbiter must not forget. Times are since the boot.
type Record struct {
	statefile.Header
	Boot string `json:"boot"` // host.Moment
	// Last is the number of the latest connection or reservation: numbers are not used
	// twice.
	Last         uint64        `json:"last"`
	Leases       []*entry      `json:"leases,omitempty"`
	Reservations []Reservation `json:"reservations,omitempty"`
	Kept         []Kept        `json:"kept,omitempty"` // beside the leases
}

// check finds what no arbiter writes.
func (r *Record) check() error {
	if r.Boot == "" {
		return errors.New("it does not say of which boot it is")
	}
	ids, leased, reserved := map[uint64]bool{}, map[pci.Address]bool{}, map[pci.Address]bool{}
	for _, e := range r.Leases {
		if e == nil {
			return errors.New("an empty lease")
		}
		if err := errors.Join(r.checkEntry(e.ID, "l", e.Peer, ids), checkTwice(e.LPUs, leased), e.check()); err != nil {
			return err
		}
		number, _ := number(e.ID, "l")
		e.conn = Conn(number)
	}
	for _, k := range r.Reservations {
		if err := errors.Join(r.checkEntry(k.ID, "r", k.Peer, ids), checkTwice(k.LPUs, reserved), CheckReason(k.Reason)); err != nil {
			return err
		}
		if len(k.LPUs) == 0 || k.Until <= 0 {
			return fmt.Errorf("%s: half of a reservation", k.ID)
		}
	}
	kept := map[pci.Address]bool{}
	for _, k := range r.Kept {
		if err := errors.Join(k.check(), checkTwice([]LPU{k.LPU}, kept)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Record) checkEntry(id, letter string, p Peer, ids map[uint64]bool) error {
	n, err := number(id, letter)
	if err != nil || n > r.Last || ids[n] || p.UID < 0 || p.Via < 0 || p.PID < 0 {
		return fmt.Errorf("%.40q by uid %d: not an id of this record, or there twice, or not of a user", id, p.UID)
	}
	ids[n] = true
	return nil
}

func checkTwice(lpus []LPU, taken map[pci.Address]bool) error {
	for _, l := range lpus {
		if taken[l.Address] {
			return fmt.Errorf("%s is there twice", l.Address)
		}
		taken[l.Address] = true
	}
	return nil
}

func (e *entry) check() error {
	if (e.Grant == nil) != (len(e.LPUs) == 0) || e.Until < 0 || e.Gone && e.Container == "" {
		return fmt.Errorf("%s: half of a lease", e.ID)
	}
	return errors.Join(e.Wish.check(), checkCommand(e.Wish.Command))
}

// Records are what a book must not forget, but for the wishes that wait. last is the
// number of the latest connection.
func (b *Book) Records(boot string, last Conn) (leases, reservations *Record) {
	return &Record{Boot: boot, Last: uint64(last), Leases: b.leases, Kept: b.kept()},
		&Record{Boot: boot, Last: b.last, Reservations: b.reservations}
}

// Restore takes up what is recorded: the leases and wishes whose connections are open
// yet, or whose container may run yet, and the reservations whose time is not over. The
// findings say what has ended. Each open connection that has a lease gets its grant
// again, because the arbiter may have ended before it could send the grant. A wish that
// is among the leases too was granted.
func (b *Book) Restore(now time.Duration, leases, reservations *Record, queue []*entry, open func(Conn) bool) (ended finding.List) {
	b.restoreKept(leases.Kept)
	for _, e := range slices.Concat(leases.Leases, queue) {
		switch {
		case b.open[e.conn] != nil:
		case e.Gone:
			b.enter(e)
			delete(b.open, e.conn)
			b.hold(e)
		case open(e.conn) && e.Grant == nil:
			b.enter(e)
			b.wait(e)
		case open(e.conn):
			b.enter(e)
			b.hold(e)
			b.send(e.conn, Answer{Granted: e.Grant})
		default:
			b.end(now, &entry{Lease: e.Lease, Grant: e.Grant})
			ended.Add(finding.LeaseEnded, e.ID, "nobody holds the lease of "+e.String()+" any more", "")
		}
	}
	b.line.era++
	b.reservations, b.last = slices.Clone(reservations.Reservations), reservations.Last
	b.expire(now)
	return ended
}

// File is where a record is kept.
type File struct {
	statefile.File[Record]
}

func recordIn(dir, kind string) File {
	return File{statefile.File[Record]{
		Path: filepath.Join(dir, "leases.json"), Kind: kind, Indent: " ", Limit: recordLimit, Check: (*Record).check,
		Decode: func(data []byte, r any) error { return decode(data, recordLimit, r) },
	}}
}

// LeasesIn is the file with the leases in a directory that is empty after a boot.
func LeasesIn(dir string) File { return recordIn(dir, leasesKind) }

// ReservationsIn is the file with the reservations in the directory with what lpuctl must
// not forget.
func ReservationsIn(dir string) File { return recordIn(dir, reservationsKind) }

// Read reads the record of this boot; an empty one if there is none. A file that cannot
// be used is put aside as PATH.bad, so that nothing is lost, and a finding says so, as it
// does of reservations of an earlier boot. The error is that it cannot be put aside.
func (f File) Read(boot string) (*Record, finding.List, error) {
	empty := &Record{Boot: boot}
	r, err := f.File.Read()
	e, _ := errors.AsType[*statefile.Error](err)
	var findings finding.List
	switch {
	case e != nil && e.Unusable:
		findings.Add(finding.LeaseRecords, f.Path, e.Err.Error()+"; it is put aside as "+f.Aside(),
			"see in "+f.Aside()+" what was leased and reserved, and ask for it again")
	case err != nil:
		return nil, nil, err
	case r == nil, r.Boot != boot && len(r.Leases)+len(r.Reservations) == 0:
		return empty, nil, nil
	case r.Boot == boot:
		return r, nil, nil
	default:
		findings.Add(finding.LeaseEnded, f.Path, fmt.Sprintf(
			"%d leases and %d reservations of an earlier boot have ended; they are put aside in %s",
			len(r.Leases), len(r.Reservations), f.Aside()), "")
	}
	if err := wholefile.Refuse(f.Path); err != nil {
		return nil, nil, err
	}
	return empty, findings, os.Rename(f.Path, f.Aside())
}

// has reports whether the file says what a record does.
func (f File) has(r *Record) bool {
	want, err := f.Marshal(r)
	have, unread := wholefile.Read(f.Path, f.Limit)
	return err == nil && unread == nil && bytes.Equal(have, want)
}

// presence is what the arbiter shows while it keeps the records in the directory of the
// file. The lock is .arbiter.lock.
func (f File) presence() filelock.Presence {
	return filelock.Presence{Path: filepath.Join(filepath.Dir(f.Path), "arbiter")}
}
