package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// The kinds of records, each in a file of its own.
const (
	leasesKind       = "Leases"       // of who is connected: no longer true after a boot
	reservationsKind = "Reservations" // promised for a time
)

const recordLimit = 4 << 20 // bytes; a lease with eight LPUs has about a thousand

// Record is what the arbiter must not forget. Times are since the boot.
type Record struct {
	APIVersion   string        `json:"apiVersion"` // discovery.APIVersion
	Kind         string        `json:"kind"`       // "Leases" or "Reservations"
	Boot         string        `json:"boot"`       // host.Moment
	Last         uint64        `json:"last"`       // number of the latest connection or reservation: numbers are not used twice
	Leases       []*entry      `json:"leases,omitempty"`
	Reservations []Reservation `json:"reservations,omitempty"`
}

// ParseRecord reads a record of a kind. The error says why it cannot be used.
func ParseRecord(data []byte, kind string) (*Record, error) {
	var r Record
	if err := decode(data, recordLimit, &r); err != nil {
		return nil, err
	}
	if r.APIVersion != discovery.APIVersion || r.Kind != kind {
		return nil, fmt.Errorf("apiVersion %.40q, kind %.40q; expected %s, %s", r.APIVersion, r.Kind, discovery.APIVersion, kind)
	}
	if r.Boot == "" {
		return nil, errors.New("it does not say of which boot it is")
	}
	return &r, r.check()
}

// check finds what no arbiter writes.
func (r *Record) check() error {
	ids, leased, reserved := map[uint64]bool{}, map[discovery.Address]bool{}, map[discovery.Address]bool{}
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
	return nil
}

func (r *Record) checkEntry(id, letter string, p Peer, ids map[uint64]bool) error {
	n, err := number(id, letter)
	if err != nil || n > r.Last || ids[n] || p.UID < 0 || p.PID < 0 {
		return fmt.Errorf("%.40q by uid %d: not an id of this record, or there twice, or not of a user", id, p.UID)
	}
	ids[n] = true
	return nil
}

func checkTwice(lpus []LPU, taken map[discovery.Address]bool) error {
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

// Records are what a book must not forget. last is the number of the latest connection.
func (b *Book) Records(boot string, last Conn) (leases, reservations *Record) {
	return &Record{APIVersion: discovery.APIVersion, Kind: leasesKind, Boot: boot, Last: uint64(last), Leases: b.entries},
		&Record{APIVersion: discovery.APIVersion, Kind: reservationsKind, Boot: boot, Last: b.last, Reservations: b.reservations}
}

// Restore takes up what is recorded: the leases and wishes whose connections are open yet, or whose container may run yet, and the
// reservations whose time is not over. The findings say what has ended. Those who have a lease are told so again, because the arbiter
// may have ended before it could tell them.
func (b *Book) Restore(now time.Duration, leases, reservations *Record, open func(Conn) bool) (ended finding.List) {
	for _, e := range leases.Leases {
		switch {
		case e.Gone:
			b.entries = append(b.entries, e)
		case open(e.conn):
			b.entries = append(b.entries, e)
			if e.Grant != nil {
				b.send(e.conn, Answer{Granted: e.Grant})
			}
		default:
			b.end(now, &entry{Lease: e.Lease, Grant: e.Grant})
			ended.Add(finding.LeaseEnded, e.ID, "nobody holds the lease of "+e.String()+" any more", "")
		}
	}
	b.reservations, b.last = slices.Clone(reservations.Reservations), reservations.Last
	b.expire(now)
	return ended
}

// File is where a record is kept.
type File struct{ Path, kind string }

// LeasesIn is the file with the leases in a directory that is empty after a boot.
func LeasesIn(dir string) File { return File{filepath.Join(dir, "leases.json"), leasesKind} }

// ReservationsIn is the file with the reservations in the directory with what lpuctl must not forget.
func ReservationsIn(dir string) File {
	return File{filepath.Join(dir, "leases.json"), reservationsKind}
}

// Read reads the record of this boot; an empty one if there is none. A file that cannot be used is put aside as PATH.bad, so that
// nothing is lost, and a finding says so, as it does of reservations of an earlier boot. The error is that it cannot be put aside.
func (f File) Read(boot string) (*Record, finding.List, error) {
	empty := &Record{Boot: boot}
	data, err := wholefile.Read(f.Path, recordLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil, nil
	}
	if err != nil && !errors.Is(err, wholefile.ErrTooLarge) {
		return nil, nil, err
	}
	var r *Record
	if err == nil {
		r, err = ParseRecord(data, f.kind)
	}
	var findings finding.List
	aside := f.Path + ".bad"
	switch {
	case err != nil:
		findings.Add(finding.LeaseRecords, f.Path, strings.TrimPrefix(err.Error(), f.Path+": ")+"; it is put aside as "+aside,
			"see in "+aside+" what was leased and reserved, and ask for it again")
	case r.Boot == boot:
		return r, nil, nil
	case len(r.Leases)+len(r.Reservations) == 0:
		return empty, nil, nil
	default:
		findings.Add(finding.LeaseEnded, f.Path, fmt.Sprintf(
			"%d leases and %d reservations of an earlier boot have ended; they are put aside in %s",
			len(r.Leases), len(r.Reservations), aside), "")
	}
	if err := wholefile.Refuse(f.Path); err != nil {
		return nil, nil, err
	}
	return empty, findings, os.Rename(f.Path, aside)
}

// Write replaces the record.
func (f File) Write(r *Record) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := wholefile.MakeDir(filepath.Dir(f.Path)); err != nil {
		return err
	}
	return wholefile.Replace(f.Path, append(data, '\n'))
}
