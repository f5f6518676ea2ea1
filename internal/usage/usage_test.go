package usage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var lpu0, lpu1 = LPU{"0000:43:00.1", "lpu0"}, LPU{"0000:44:00.1", "lpu1"}

// noon is a moment at which the machine has run for so long.
func noon(boot time.Duration) Clock {
	return Clock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), boot}
}

func (c Clock) after(d time.Duration) Clock { return Clock{c.Wall.Add(d), c.Boot + d} }

func lease(id string, uid int, since time.Duration, lpus ...LPU) Holding {
	return Holding{ID: id, UID: uid, User: fmt.Sprint("user", uid), LPUs: lpus, Since: since}
}

// keeps writes what a meter has measured.
func keeps(t *testing.T, j *Journal, m *Meter, now Clock) {
	t.Helper()
	if err := j.Append(m.Changed(), m.Program(), now.Wall); err != nil {
		t.Fatal(err)
	}
	m.Written(now)
}

// report is what root is told of all time.
func report(t *testing.T, j *Journal, now Clock) *Report {
	t.Helper()
	r, err := j.Reports([]Ask{{Query: Query{Since: now.Wall.Add(-1e5 * time.Hour), Until: now.Wall.Add(1e5 * time.Hour)}}}, nil, now.Wall)
	if err != nil {
		t.Fatal(err)
	}
	return r[0]
}

func journalIn(t *testing.T) *Journal {
	return &Journal{Dir: filepath.Join(t.TempDir(), "usage"), Keep: 90 * 24 * time.Hour}
}

// isSum wants a sum of a user, in hours of leases and of open nodes.
func isSum(t *testing.T, r *Report, uid, leases int, leased, open float64) User {
	t.Helper()
	for _, u := range r.Users {
		if u.UID == uid {
			if u.Leases != leases || u.Leased != leased || u.Open != open {
				t.Errorf("user %d: %+v, want %d leases of %g h, %g open", uid, u, leases, leased, open)
			}
			return u
		}
	}
	t.Errorf("user %d has nothing: %+v", uid, r)
	return User{}
}

// TestWhatIsMeasured: leases, hours, open nodes and waits, over the ends of hours.
func TestWhatIsMeasured(t *testing.T) {
	now := noon(time.Hour)
	m := NewMeter("this boot", now)
	m.Wait("l1", 1000, "user1000", now.Boot-30*time.Second)
	m.Wait("l2", 1000, "user1000", now.Boot-10*time.Second)
	m.Waited(now, "l1")
	m.Begin(now, lease("l1", 1000, now.Boot, lpu0, lpu1))
	open := func(address string) bool { return address == lpu0.Address }
	saw := func(d time.Duration, open func(string) bool) {
		now = now.after(d)
		m.Saw(now, now.Boot, open)
	}
	// Half a minute counts half, and from then on all of it, for an hour and a half.
	saw(time.Minute, open)
	for range 89 {
		saw(time.Minute, open)
	}
	m.Waited(now, "l2")
	m.Waited(now, "l2")
	if m.End(now, func(id string) bool { return id == "l1" }) || !m.End(now, func(string) bool { return false }) || m.Measures() {
		t.Error("it does not know which leases last")
	}
	j := journalIn(t)
	keeps(t, j, m, now)
	r := report(t, j, now)
	u := isSum(t, r, 1000, 1, 3, 1.5-0.5/60)
	if u.Waits != 2 || u.MeanWait != (30+10+5400)/2 || u.LongestWait != 10+5400 || u.Name != "user1000" {
		t.Errorf("%+v", u)
	}
	want := []LPUPart{{lpu0, Sum{1, 1.5, 1.5 - 0.5/60}}, {lpu1, Sum{1, 1.5, 0}}}
	if diff := cmp.Diff(want, u.LPUs); diff != "" {
		t.Error(diff)
	}
	// Of each hour there are rows of its own.
	ask := func(by int, since, until time.Duration, user string) *Report {
		t.Helper()
		at := noon(0).Wall
		r, err := j.Reports([]Ask{{Query{Since: at.Add(since), Until: at.Add(until), User: user}, by}}, nil, now.Wall)
		if err != nil {
			t.Fatal(err)
		}
		return r[0]
	}
	isSum(t, ask(0, time.Hour, 2*time.Hour, ""), 1000, 0, 1, 0.5)
	isSum(t, ask(0, time.Minute, time.Hour, "user1000"), 1000, 1, 2, 1-0.5/60)
	isSum(t, ask(1000, 0, time.Hour, "1000"), 1000, 1, 2, 1-0.5/60)
	for _, none := range []*Report{
		ask(0, -time.Hour, 0, ""), ask(0, 2*time.Hour, 3*time.Hour, ""), ask(1001, 0, time.Hour, ""), ask(0, 0, time.Hour, "x"),
	} {
		if len(none.Users) > 0 {
			t.Errorf("%+v", none)
		}
	}
}

// TestNothingIsKnownOfASleep: a machine that slept was not looked at.
func TestNothingIsKnownOfASleep(t *testing.T) {
	now := noon(time.Hour)
	m := NewMeter("this boot", now)
	m.Begin(now, lease("l1", 1, now.Boot, lpu0))
	always := func(string) bool { return true }
	m.Saw(now.after(time.Minute), now.Boot+time.Minute, always)
	m.Saw(now.after(time.Hour), now.Boot+time.Hour, always)
	m.Saw(now.after(time.Hour), now.Boot+time.Minute, always) // a look that took long is no step back
	now = now.after(time.Hour)
	m.End(now, func(string) bool { return false })
	j := journalIn(t)
	keeps(t, j, m, now)
	isSum(t, report(t, j, now), 1, 1, 1, 0.5/60)
}

// TestTheClockIsSetBack: no time is lost or counted twice, and what is recorded of the hour before stays.
func TestTheClockIsSetBack(t *testing.T) {
	now := noon(time.Hour)
	m, j := NewMeter("this boot", now), journalIn(t)
	m.Begin(now, lease("l1", 1, now.Boot, lpu0))
	for range 4 { // forwards an hour and back again
		now = now.after(time.Hour)
		m.Advance(now)
		keeps(t, j, m, now)
		now.Wall = now.Wall.Add(-time.Hour)
		m.Advance(now.after(time.Second))
		keeps(t, j, m, now)
	}
	m.End(now, func(string) bool { return false })
	keeps(t, j, m, now)
	isSum(t, report(t, j, noon(0)), 1, 1, 4+1./3600, 0)
}

// TestAnArbiterIsKilled: the next one goes on where the journal ends, with half a line at its end.
func TestAnArbiterIsKilled(t *testing.T) {
	now, j := noon(time.Hour), journalIn(t)
	m := NewMeter("this boot", now)
	m.Begin(now, lease("l1", 1, now.Boot, lpu0, lpu1))
	now = now.after(30 * time.Minute)
	m.Advance(now)
	keeps(t, j, m, now)
	now = now.after(15 * time.Minute) // it is killed, and l2 is written down as a lease only
	f, err := os.OpenFile(j.file(0), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"hour":"2026-03-01T12:00:00Z","uid":1,"lpu":"0000:43:`)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	next, resumed := &Journal{Dir: j.Dir, Keep: j.Keep}, NewMeter("this boot", now)
	until, unread, err := next.Resume("this boot", now.Wall)
	if err != nil || unread != 1 {
		t.Fatalf("%d lines, %v", unread, err)
	}
	resumed.Resume(now, lease("l1", 1, time.Hour, lpu0, lpu1), until[Lease{1, lpu0.Address}])
	resumed.Resume(now, lease("l2", 2, now.Boot-15*time.Minute, LPU{"0000:45:00.1", "lpu2"}), until[Lease{2, "0000:45:00.1"}])
	keeps(t, next, resumed, now)
	r := report(t, next, now)
	isSum(t, r, 1, 1, 1.5, 0)
	isSum(t, r, 2, 1, 0.25, 0)
	if r.Unread != 0 { // it was taken away, so that the next line is whole
		t.Errorf("%d lines cannot be read", r.Unread)
	}
	if until, _, err := next.Resume("another boot", now.Wall); err != nil || len(until) > 0 {
		t.Errorf("%v, %v", until, err)
	}
	next.lines.Close()
}

// TestAFullDisk: what cannot be written is written later, also after half of it was.
func TestAFullDisk(t *testing.T) {
	now, j := noon(time.Hour), journalIn(t)
	m := NewMeter("this boot", now)
	m.Begin(now, lease("l1", 1, now.Boot, lpu0))
	keeps(t, j, m, now)
	for _, room := range []int{0, 10, 400} {
		j.lines.Write = func(f *os.File, text []byte) (int, error) {
			n, err := f.Write(text[:min(room, len(text))])
			return n, errors.Join(err, unix.ENOSPC)
		}
		now = now.after(time.Hour)
		m.Advance(now)
		rows := m.Changed()
		if err := j.Append(rows, m.Program(), now.Wall); !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		m.Again(now, rows)
	}
	j.lines.Write = nil
	keeps(t, j, m, now)
	r := report(t, j, now)
	isSum(t, r, 1, 1, 3, 0)
	if r.Unread != 0 {
		t.Errorf("%d lines cannot be read", r.Unread)
	}
	// It does not keep rows for ever that cannot be written.
	now = now.after(2 * mostRows * time.Hour)
	m.Advance(now)
	m.Again(now, m.Changed())
	if len(m.rows) > 1 {
		t.Errorf("%d rows are kept", len(m.rows))
	}
}

// TestTheJournalIsBounded: who leases all the time fills it no faster than others, and nothing that is kept is lost by that. It is
// root's alone.
func TestTheJournalIsBounded(t *testing.T) {
	now, j := noon(time.Hour), journalIn(t)
	m := NewMeter("this boot", now)
	m.Begin(now, lease("l1", 1, now.Boot, lpu1))
	m.End(now, func(string) bool { return false })
	keeps(t, j, m, now)
	const many = 600
	j.limit = 64 << 10
	for i := range many {
		id := fmt.Sprint("l", 2+i)
		m.Begin(now, lease(id, 2, now.Boot, lpu0))
		keeps(t, j, m, now)
		now = now.after(time.Second)
		m.End(now, func(string) bool { return false })
		keeps(t, j, m, now)
	}
	info, err := os.Stat(j.file(0))
	if err != nil || info.Size() > j.limit || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if dir, err := os.Stat(j.Dir); err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", dir, err)
	}
	if _, err := os.Stat(j.file(1)); err == nil {
		t.Error("one user who leases all the time has filled a file")
	}
	r := report(t, j, now)
	isSum(t, r, 1, 1, 0, 0)
	isSum(t, r, 2, many, float64(many)/3600, 0)
}

// TestManyArbiters: one that is started for each lease adds to the same sums as those before.
func TestManyArbiters(t *testing.T) {
	now, j := noon(time.Hour), journalIn(t)
	j.limit = 64 << 10
	const many = 600
	for i := range many {
		m := NewMeter("this boot", now)
		m.Begin(now, lease(fmt.Sprint("l", i), 1, now.Boot, lpu0))
		now = now.after(time.Second)
		m.End(now, func(string) bool { return false })
		keeps(t, j, m, now)
	}
	if _, err := os.Stat(j.file(1)); err == nil {
		t.Error("they have filled a file")
	}
	isSum(t, report(t, j, now), 1, many, float64(many)/3600, 0)
}

// TestOldRowsAreRemoved: files become older ones, there are so many at most, and what is older than it is kept goes.
func TestOldRowsAreRemoved(t *testing.T) {
	now, j := noon(time.Hour), journalIn(t)
	hours := func(n, users int) {
		t.Helper()
		var rows []Row
		for range n {
			now = now.after(time.Hour)
			for uid := range users {
				rows = append(rows, Row{Hour: now.hour(now.Boot), UID: uid, Address: lpu0.Address, Name: "lpu0", Leased: 3600e3, Run: "an-other.1"})
			}
		}
		if err := j.Append(rows, "this-1.", now.Wall); err != nil {
			t.Fatal(err)
		}
	}
	j.limit = 32 << 10
	const many = 20 * (older + 3)
	for range many {
		hours(2, 10)
	}
	files, err := filepath.Glob(j.Dir + "/*")
	if err != nil || len(files) != older+1 {
		t.Errorf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Size() > 2*j.limit || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
	}
	before := report(t, j, now)
	if len(before.Users) != 10 || before.Users[0].Leased >= 2*many || before.Users[0].Leased < many {
		t.Errorf("%d users, %g hours", len(before.Users), before.Users[0].Leased)
	}
	// It is turned down to two days, and the files follow when something is written.
	j.Keep = 48 * time.Hour
	hours(1, 1)
	if r := report(t, j, now); r.Users[0].Leased > 49 {
		t.Errorf("%g hours are shown", r.Users[0].Leased)
	}
	if oldest := j.first(0); oldest.Before(now.Wall.Add(-73 * time.Hour)) {
		t.Errorf("the first row is of %s, now it is %s", oldest, now.Wall)
	}
	if files, _ := filepath.Glob(j.Dir + "/*"); len(files) > 2 {
		t.Errorf("%d files are left", len(files))
	}
	leftover := filepath.Join(j.Dir, ".usage.1.jsonl123")
	leave := func() error { return os.WriteFile(leftover, []byte("{"), 0o600) }
	err = leave()
	if _, _, failed := j.Resume("this", now.Wall); err != nil || failed != nil {
		t.Error(err, failed)
	}
	if _, err := os.Stat(leftover); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was not written to its end stays: %v", err)
	}
	if err := errors.Join(leave(), j.Forget(), j.Forget()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(j.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestAnotherFile: a file that is no journal is put aside, and a new one begins.
func TestAnotherFile(t *testing.T) {
	for name, text := range map[string]string{
		"junk": "\x00\x01\n", "newer": `{"apiVersion":"lpuctl.hyperaccel.ai/v9","kind":"Usage"}` + "\n",
		"large": strings.Repeat("x", 4*sizeLimit+1),
	} {
		now, j := noon(0), journalIn(t)
		if err := errors.Join(os.MkdirAll(j.Dir, 0o700), os.WriteFile(j.file(0), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := j.Resume("this", now.Wall); err == nil || !strings.Contains(err.Error(), "put aside") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(j.file(0) + ".bad"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		m := NewMeter("this", now)
		m.Begin(now, lease("l1", 1, now.Boot, lpu0))
		keeps(t, j, m, now)
		isSum(t, report(t, j, now), 1, 1, 0, 0)
	}
}

// TestNames: what could steer a terminal, or end a line, never gets into the journal.
func TestNames(t *testing.T) {
	now, j := noon(0), journalIn(t)
	m := NewMeter("this", now)
	h := lease("l1", 1, now.Boot, LPU{lpu0.Address, "lpu\x1b[2J0"})
	h.User = "bo\r\n\x00b\u202e\xff" + strings.Repeat("é", 100)
	m.Begin(now, h)
	keeps(t, j, m, now)
	data, err := os.ReadFile(j.file(0))
	if err != nil || bytes.ContainsAny(data, "\x1b\r\x00\u202e") || bytes.Count(data, []byte("\n")) != 3 {
		t.Errorf("%q, %v", data, err)
	}
	if u := isSum(t, report(t, j, now), 1, 1, 0, 0); u.Name != "bob"+strings.Repeat("é", 30) || u.LPUs[0].Name != "lpu[2J0" {
		t.Errorf("%+v", u)
	}
}

// TestCut: an answer has room for some users, and says that there are more.
func TestCut(t *testing.T) {
	r := &Report{}
	for uid := range 100 {
		u := User{UID: uid}
		for range 8 {
			u.LPUs = append(u.LPUs, LPUPart{LPU: lpu0})
		}
		r.Users = append(r.Users, u)
	}
	size := sizeOf(&r.Users[50])
	if r.Cut(10*size + 300); !r.More || len(r.Users) != 10 {
		t.Errorf("%d users", len(r.Users))
	}
	r.Users, r.More = r.Users[5:6], false
	if r.Cut(10*size + 300); r.More || len(r.Users) != 1 || len(r.Users[0].LPUs) != 8 {
		t.Errorf("%+v", r)
	}
	if r.Cut(size); len(r.Users) != 1 || len(r.Users[0].LPUs) >= 8 {
		t.Errorf("%+v", r)
	}
}

// FuzzParse: whatever is in a file, what is read of it was one that an arbiter can write, and is read again.
func FuzzParse(f *testing.F) {
	const head = `{"apiVersion":"lpuctl.hyperaccel.ai/v1alpha1","kind":"Usage"}` + "\n"
	f.Add([]byte(head + `{"hour":"2026-03-01T12:00:00Z","uid":1000,"user":"bob","lpu":"0000:43:00.1","name":"lpu0","leases":1,` +
		`"leased":3,"open":2,"run":"a-1.1","until":7}` + "\n" +
		`{"hour":"2026-03-01T12:00:00Z","uid":1000,"waits":1,"waited":5,"longest":5}` + "\n" + `{"hour":`))
	f.Add([]byte(head + `{"hour":"2026-03-01T12:30:00Z"}` + "\n" + `{"uid":-1}` + "\n\n" +
		`{"user":"\u001b"}` + "\n" + `{"leased":1e99}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var rows []*Row
		if _, err := parse(data, func(r *Row) { rows = append(rows, r) }); err != nil {
			return
		}
		j := &Journal{Dir: t.TempDir(), Keep: 1e6 * time.Hour}
		if err := os.WriteFile(j.file(0), data, 0o600); err != nil {
			t.Fatal(err)
		}
		now := noon(0)
		before := report(t, j, now)
		if _, err := j.rewrite(0, "a-1.", now.Wall); err != nil {
			t.Fatal(err)
		}
		after := report(t, j, now)
		before.Unread = after.Unread
		for _, r := range rows {
			if err := r.check(); err != nil {
				t.Errorf("%+v: %v", r, err)
			}
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Error(diff)
		}
	})
}
