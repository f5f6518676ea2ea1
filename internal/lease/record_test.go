package lease

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// full is a book with a lease, one of a container without a connection, a wish that waits and two reservations.
func full(t *testing.T) *Book {
	t.Helper()
	b := NewBook()
	b.See(10, (&glimpse{began: 5, pool: 0xff, containers: map[string]bool{strings.Repeat("a", 64): true}}).view())
	bob := Peer{UID: 1000, User: "bob", Via: 100000, PID: 7, Command: "lpuctl"}
	b.Wish(20, 1, bob, Wish{Selection: Selection{Count: 2}, For: 100})
	b.Wish(30, 2, bob, Wish{Selection: Selection{Count: 2}})
	b.Bind(2, strings.Repeat("a", 64))
	b.Drop(40, 2)
	b.Reserve(50, 3, bob, Reserve{Selection{Count: 1}, 500, "a demo"})
	b.Reserve(50, 4, Peer{}, Reserve{Selection{Count: 1}, 60, "a test"})
	b.Wish(60, 5, bob, Wish{Selection: Selection{Count: 8}, Wait: true})
	b.Outbox()
	if l := b.List(60); len(l.Leases) != 2 || len(l.Reservations) != 2 || len(l.Waiting) != 1 {
		t.Fatalf("%+v", l)
	}
	return b
}

// TestRecordsAreKept: what was written is read again, and holds as far as somebody holds it.
func TestRecordsAreKept(t *testing.T) {
	dir := t.TempDir()
	b := full(t)
	files := []File{LeasesIn(filepath.Join(dir, "run")), ReservationsIn(filepath.Join(dir, "var/lib"))}
	leases, reservations := b.Records("this", 5)
	for i, r := range []*Record{leases, reservations} {
		if err := files[i].Write(r); err != nil {
			t.Fatal(err)
		}
	}
	j := journalOf(files[0])
	if err := j.write(nil, b.queue, "this", 5); err != nil {
		t.Fatal(err)
	}
	queue, _, lost, err := j.read("this")
	if err != nil || len(lost) > 0 {
		t.Fatalf("%v, %v", lost, err)
	}
	var read [2]*Record
	for i, f := range files {
		r, findings, err := f.Read("this")
		if err != nil || len(findings) > 0 {
			t.Fatalf("%v, %v", findings, err)
		}
		read[i] = r
	}
	again := NewBook()
	ended := again.Restore(70, read[0], read[1], queue, func(c Conn) bool { return c != 1 })
	if len(ended) != 1 || ended[0].ID != finding.LeaseEnded {
		t.Errorf("ended: %v", ended)
	}
	b.Drop(70, 1)
	if diff := cmp.Diff(b.List(70), again.List(70), cmpopts.IgnoreFields(List{}, "Pool")); diff != "" {
		t.Error(diff)
	}
	if l := again.List(111); len(l.Reservations) != 1 {
		t.Errorf("a reservation that has ended is kept: %+v", l.Reservations)
	}
	// Nothing is handed out before somebody has looked at the node.
	again.Wish(80, 6, Peer{}, Wish{Selection: Selection{Count: 1}, Wait: true})
	if len(again.List(80).Leases) > 1 {
		t.Error("an LPU was leased of a node that nobody has seen")
	}
	again.Reserve(90, 7, Peer{UID: 1}, Reserve{Selection{Count: 1}, 10, "x"})
	if again.last != 2 {
		t.Errorf("numbers go on after %d", again.last)
	}
}

// TestRestoredHoldersAreTold: the arbiter may have ended between the record and the answer.
func TestRestoredHoldersAreTold(t *testing.T) {
	leases, reservations := full(t).Records("this", 5)
	again := NewBook()
	again.Restore(70, leases, reservations, nil, func(Conn) bool { return true })
	out, _ := again.Outbox()
	if len(out) != 1 || out[0].Conn != 1 || out[0].Granted == nil || out[0].Granted.ID != "l1" {
		t.Errorf("%+v", out)
	}
}

// TestJunkIsPutAside: what cannot be used is kept beside and said, and the arbiter starts with nothing.
func TestJunkIsPutAside(t *testing.T) {
	leases, reservations := full(t).Records("this", 5)
	leases.Header, reservations.Header = statefile.NewHeader(leasesKind), statefile.NewHeader(reservationsKind)
	write := func(r *Record, change func(*Record)) string {
		other := *r
		change(&other)
		data, err := json.Marshal(other)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for name, c := range map[string]struct {
		text string
		id   finding.ID
	}{
		"junk":          {"\x00\x01", finding.LeaseRecords},
		"empty":         {"", finding.LeaseRecords},
		"newer":         {write(leases, func(r *Record) { r.APIVersion = "lpuctl.hyperaccel.ai/v9" }), finding.LeaseRecords},
		"newer key":     {strings.Replace(write(leases, func(*Record) {}), `"boot"`, `"later":1,"boot"`, 1), finding.LeaseRecords},
		"another kind":  {write(reservations, func(*Record) {}), finding.LeaseRecords},
		"another boot":  {write(leases, func(r *Record) { r.Boot = "before" }), finding.LeaseEnded},
		"an LPU twice":  {write(leases, func(r *Record) { r.Leases = append(r.Leases, sameLPUs(*r.Leases[0])) }), finding.LeaseRecords},
		"an id twice":   {write(leases, func(r *Record) { r.Leases = append(r.Leases, r.Leases[1]) }), finding.LeaseRecords},
		"too high":      {write(leases, func(r *Record) { r.Last = 1 }), finding.LeaseRecords},
		"two documents": {write(leases, func(*Record) {}) + "{}", finding.LeaseRecords},
		"too large":     {strings.Repeat(" ", recordLimit+1), finding.LeaseRecords},
	} {
		t.Run(name, func(t *testing.T) {
			f := LeasesIn(t.TempDir())
			if err := os.WriteFile(f.Path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			r, findings, err := f.Read("this")
			if err != nil || len(r.Leases) > 0 || len(findings) != 1 || findings[0].ID != c.id {
				t.Fatalf("%+v, %v, %v", r, findings, err)
			}
			kept, err := os.ReadFile(f.Path + ".bad")
			if err != nil || string(kept) != c.text {
				t.Errorf("it is not kept: %v", err)
			}
			if r, findings, err := f.Read("this"); err != nil || r == nil || len(findings) > 0 {
				t.Errorf("then: %v, %v", findings, err)
			}
		})
	}
}

func sameLPUs(e entry) *entry {
	e.ID = "l4"
	return &e
}

// TestNothingIsPromisedUnwritten: what cannot be written down is taken back.
func TestNothingIsPromisedUnwritten(t *testing.T) {
	b := full(t)
	before := b.List(65)
	b.Drop(65, 5)
	b.Wish(66, 6, Peer{UID: 5}, Wish{Selection: Selection{Count: 1}})
	b.Reserve(66, 7, Peer{UID: 5}, Reserve{Selection{Count: 1}, 10, "x"})
	b.Extend(66, 8, 1000, "r1", time.Hour)
	b.Release(66, 9, 0, "r2")
	b.Bind(1, strings.Repeat("a", 64))
	out, changed := b.Outbox()
	if !changed.Leases || !changed.Reservations {
		t.Errorf("%+v", changed)
	}
	out = Unwritten(out, os.ErrPermission)
	for _, m := range out {
		if m.Refused == nil || m.Refused.ID != finding.LeaseUnrecorded {
			t.Errorf("%d is told %+v", m.Conn, m.Answer)
		}
	}
	if len(out) != 5 {
		t.Errorf("%d answers", len(out))
	}
	before.Waiting = []Waiter{}
	if diff := cmp.Diff(before, b.List(66)); diff != "" {
		t.Error(diff)
	}
}

func TestFilesOfTheReleaseBefore(t *testing.T) {
	plant.Rewritten(t, LeasesIn("").File, "testdata/leases.json")
	plant.Rewritten(t, ReservationsIn("").File, "testdata/reservations.json")
}

func FuzzParseRecord(f *testing.F) {
	b := NewBook()
	b.See(10, (&glimpse{began: 5, pool: 0xff}).view())
	b.Wish(20, 1, Peer{UID: 1}, Wish{Selection: Selection{Count: 2}, For: 100})
	b.Wish(20, 2, Peer{UID: 1}, Wish{Selection: Selection{Count: 8}, Wait: true})
	b.Reserve(50, 3, Peer{}, Reserve{Selection{Count: 1}, 500, "a demo"})
	leases, reservations := b.Records("this", 5)
	for r, file := range map[*Record]File{leases: LeasesIn(""), reservations: ReservationsIn("")} {
		data, err := file.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, f := range []File{LeasesIn(""), ReservationsIn("")} {
			r, err := f.Parse(data)
			if err != nil {
				continue
			}
			other := *r
			other.Leases, other.Reservations = nil, nil
			b := NewBook()
			b.Restore(70, r, &other, nil, func(Conn) bool { return true })
			b.Restore(70, &other, r, nil, func(Conn) bool { return true })
			b.See(80, (&glimpse{began: 75, pool: 0xff}).view())
			held := map[pci.Address]bool{}
			for _, l := range b.List(90).Leases {
				for _, lpu := range l.LPUs {
					if held[lpu.Address] {
						t.Fatalf("two have %s", lpu.Address)
					}
					held[lpu.Address] = true
				}
			}
			again, _ := b.Records("this", 1<<50)
			data, err := LeasesIn("").Marshal(again)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := LeasesIn("").Parse(data); err != nil {
				t.Fatalf("what is written cannot be read: %v", err)
			}
		}
	})
}
