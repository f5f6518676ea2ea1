package lease

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// aLine is a book of a node with eight LPUs, of which one user has four, with so many wishes of as many users. All of them differ, and
// none can get the other four.
func aLine(t testing.TB, many int) *Book {
	t.Helper()
	return aLineOn(t, many, (&glimpse{began: 5, pool: 0xff}).view(), allocate.Anywhere)
}

func aLineOn(t testing.TB, many int, v View, near allocate.Near) *Book {
	t.Helper()
	b := NewBook()
	b.See(10, v)
	b.Wish(20, 1, Peer{UID: 1}, Wish{Selection: Selection{Count: 4, Must: lpusOf(0, 1, 2, 3)}, For: time.Hour})
	for i := range many {
		s := Selection{Count: 1 + i%4, Must: lpusOf(i % 4), Place: allocate.Place{Near: near}}
		if !b.Wish(30, Conn(100+i), Peer{UID: 1000 + i}, Wish{Selection: s, Wait: true}) {
			t.Fatal("it takes another look")
		}
	}
	for b.Tell(40, many) {
	}
	if b.Outbox(); len(b.queue) != many {
		t.Fatalf("%d wait", len(b.queue))
	}
	return b
}

func lpusOf(cards ...int) (addresses []pci.Address) {
	for _, card := range cards {
		addresses = append(addresses, address(card))
	}
	return addresses
}

// change is one: a wish that is fulfilled and ends, one that waits and is given up, and a look that shows what the one before did.
func change(b *Book, now time.Duration, conn Conn) {
	b.Wish(now, conn, Peer{UID: 2}, Wish{Selection: Selection{Count: 1, Must: lpusOf(7)}})
	b.Drop(now, conn)
	b.Wish(now, conn+1, Peer{UID: 2}, Wish{Selection: Selection{Count: 4, Must: lpusOf(0)}, Wait: true})
	b.Drop(now, conn+1)
	v := b.View
	v.Began = now
	b.See(now, v)
	b.Tell(now, batch)
	b.Outbox()
	b.takeSteps()
}

// TestAChangeCostsTheSame with a thousand wishes in the queue as with twenty: in what it allocates, which is a figure of its own on every
// machine. Where the wishes could use the other four LPUs too, the first ones say all. Where not, all of the queue is gone through.
func TestAChangeCostsTheSame(t *testing.T) {
	for _, near := range []allocate.Near{allocate.Anywhere, allocate.SameSwitch} {
		cost := func(many int) float64 {
			b, conn := aLineOn(t, many, (&glimpse{began: 5, pool: 0xff}).view(), near), Conn(10_000)
			change(b, time.Duration(conn), conn)
			for b.Tell(time.Duration(conn), batch) {
			}
			return testing.AllocsPerRun(20, func() {
				conn += 2
				change(b, time.Duration(conn), conn)
			})
		}
		if few, many := cost(20), cost(1000); many > 1.1*few {
			t.Errorf("near %q: with twenty it allocates %v times, with a thousand %v", near, few, many)
		}
	}
}

// BenchmarkChange is what a change costs the book.
func BenchmarkChange(b *testing.B) {
	for _, many := range []int{10, 1000} {
		b.Run(fmt.Sprintf("waiting=%d", many), func(b *testing.B) {
			line, conn := aLine(b, many), Conn(10_000)
			b.ReportAllocs()
			for b.Loop() {
				conn += 2
				change(line, time.Duration(conn), conn)
			}
		})
	}
}

// TestTheQueueIsFull: for a user, and for all but root.
func TestTheQueueIsFull(t *testing.T) {
	b := NewBook()
	v := (&glimpse{began: 5, pool: 0xff}).view()
	v.Limits = Limits{Waiting: 2, AllWaiting: 4}
	b.See(10, v)
	b.Wish(20, 1, Peer{}, Wish{Selection: Selection{Count: 8}})
	b.Outbox()
	w := Wish{Selection: Selection{Count: 1}, Wait: true}
	for i, c := range []struct {
		uid int
		id  finding.ID // "": it waits
	}{{7, ""}, {7, ""}, {7, finding.LeaseLimit}, {8, ""}, {0, ""}, {8, finding.LeaseBusy}, {9, finding.LeaseBusy}, {0, ""}} {
		b.Wish(30, Conn(10+i), Peer{UID: c.uid}, w)
		out, _ := b.Outbox()
		if len(out) != 1 || (out[0].Waiting != nil) != (c.id == "") || c.id != "" && out[0].Refused.ID != c.id {
			t.Errorf("wish %d: %+v", i, out)
		}
		if r := out[0].Refused; r != nil && strings.Contains(r.Remedy, "no-lease") {
			t.Errorf("wish %d: %s", i, r.Remedy)
		}
	}
	for _, conn := range []Conn{10, 14, 17} {
		b.Drop(40, conn)
	}
	b.Outbox()
	b.Wish(50, 20, Peer{UID: 7}, w)
	if out, _ := b.Outbox(); len(out) != 1 || out[0].Waiting == nil {
		t.Errorf("there is room again: %+v", out)
	}
}

// TestPlacesComeAFewAtATime: each who waits hears its newest place once, and nothing if it is the same.
func TestPlacesComeAFewAtATime(t *testing.T) {
	b := aLine(t, 100)
	for range 30 {
		b.Drop(50, b.queue[0].conn)
	}
	heard := map[Conn]int{}
	for turns := 1; ; turns++ {
		more := b.Tell(60, batch)
		out, _ := b.Outbox()
		for _, m := range out {
			if heard[m.Conn] != 0 {
				t.Errorf("%d hears twice", m.Conn)
			}
			heard[m.Conn] = m.Waiting.Place
		}
		if len(out) > batch {
			t.Errorf("%d at a time", len(out))
		}
		if !more {
			break
		}
	}
	for i, e := range b.queue {
		if heard[e.conn] != i+1 {
			t.Errorf("%d hears of place %d, and is at %d", e.conn, heard[e.conn], i+1)
		}
	}
	b.Drop(70, b.queue[len(b.queue)-1].conn)
	for b.Tell(80, batch) {
	}
	if out, _ := b.Outbox(); len(out) > 0 {
		t.Errorf("the last one has left, and others hear %+v", out)
	}
}

// TestTurns: of a user one piece of work is done before the next user's.
func TestTurns(t *testing.T) {
	q := newTurns()
	var done []int
	for _, uid := range []int{1, 1, 1, 2, 1, 3, 2} {
		q.add(uid, func() { done = append(done, uid) })
	}
	for n := 0; ; n++ {
		select {
		case <-q.ready:
		default:
			if n != 7 {
				t.Errorf("no more is ready after %d", n)
			}
		}
		do := q.next()
		if do == nil {
			break
		}
		do()
	}
	if want := []int{1, 2, 3, 1, 2, 1, 1}; !slices.Equal(done, want) || q.has(1) {
		t.Errorf("done in the order %v, want %v", done, want)
	}
}

// TestTheJournal: a change adds a line, however many wait, all of it is read again, and it does not grow for ever.
func TestTheJournal(t *testing.T) {
	j := journalOf(LeasesIn(t.TempDir()))
	b := aLine(t, 100)
	write := func() (grown int64) {
		t.Helper()
		before := j.Size()
		if err := j.write(b.takeSteps(), b.queue, "this", 1000); err != nil {
			t.Fatal(err)
		}
		return j.Size() - before
	}
	all := write()
	b.Drop(50, 150)
	if grown := write(); grown <= 0 || grown > all/100 || j.Lost() {
		t.Errorf("%d bytes for a change, %d for all", grown, all)
	}
	for conn := Conn(1000); conn < 2000; conn++ {
		b.Wish(60, conn, Peer{UID: 5}, Wish{Selection: Selection{Count: 4, Must: lpusOf(0)}, Wait: true})
		b.Drop(60, conn)
		write()
	}
	if j.Size() > 4*all {
		t.Errorf("%d bytes after a thousand changes, %d for all", j.Size(), all)
	}
	ids := func(queue []*entry) (ids []string) {
		for _, e := range queue {
			ids = append(ids, e.ID)
		}
		return ids
	}
	appendTo := func(text string) {
		t.Helper()
		f, err := os.OpenFile(j.Path, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	appendTo(`{"ended":"l100`) // the arbiter was killed while it wrote that
	if !j.Lost() {
		t.Error("another has written to it")
	}
	queue, last, said, err := j.read("this")
	if err != nil || len(said) > 0 || !slices.Equal(ids(queue), ids(b.queue)) || last != 1999 { // which has ended
		t.Errorf("%d, last %d, %v, %v", len(queue), last, said, err)
	}
	if queue, _, said, err := j.read("another"); err != nil || len(said) > 0 || len(queue) > 0 {
		t.Errorf("of another boot: %v, %v, %v", queue, said, err)
	}
	appendTo("\n")
	if queue, _, said, err := j.read("this"); err != nil || len(queue) > 0 || len(said) != 1 || said[0].ID != finding.LeaseRecords {
		t.Errorf("junk: %v, %v, %v", queue, said, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(j.Path), "queue.jsonl.bad")); err != nil {
		t.Error(err)
	}
	if queue, _, said, err := j.read("this"); err != nil || len(said) > 0 || len(queue) > 0 {
		t.Errorf("then: %v, %v, %v", queue, said, err)
	}
}
