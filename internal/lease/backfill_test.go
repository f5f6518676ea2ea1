package lease

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/long"
)

// A fourfold is a book of a node with four LPUs, on which time passes from one declared end to the next: each lease ends at its time, and
// one that has gone first as late as its end is enforced. If there is a hook, it takes all of its time after one that has gone first, and
// less or none after others.
type fourfold struct {
	*Book
	first  map[Conn]bool                 // they have gone first
	starts map[Conn]time.Duration        // of the wishes that were granted
	clean  map[pci.Address]time.Duration // when the hook ends on LPUs on which it has to run, and has not failed
}

// newFourfold is one without leases. hookLimit is the time of the hook; 0: there is none.
func newFourfold(limits Limits, hookLimit time.Duration) *fourfold {
	f := &fourfold{NewBook(), map[Conn]bool{}, map[Conn]time.Duration{}, map[pci.Address]time.Duration{}}
	f.Limits, f.hooks, f.hookLimit = limits, hookLimit > 0, hookLimit
	f.see(0, false)
	return f
}

// see shows the node, on which no process has an LPU without a lease, and returns who was granted something.
func (f *fourfold) see(now time.Duration, backfill bool) (granted []Conn) {
	v := (&glimpse{began: now, pool: 0xf}).view()
	v.Limits, v.Backfill = f.Limits, backfill
	f.See(now, v)
	return f.granted(now)
}

func (f *fourfold) granted(now time.Duration) (granted []Conn) {
	out, _ := f.Outbox()
	for _, m := range out {
		if m.Granted != nil {
			granted = append(granted, m.Conn)
			f.starts[m.Conn] = now
		}
	}
	return granted
}

// copied is another one in the same state, of whose queue only the first wishes are left.
func (f *fourfold) copied(waiting int) *fourfold {
	b := *f.Book
	b.open, b.ended, b.line = map[Conn]*entry{}, map[pci.Address]*end{}, newLine()
	b.line.era = f.line.era + uint64(len(f.leases)) + 1000
	b.reservations = slices.Clone(f.reservations)
	b.out, b.steps = nil, nil
	for a, e := range f.ended {
		c := *e
		b.ended[a] = &c
	}
	copies := func(of []*entry) (copies []*entry) {
		for _, e := range of {
			c := *e
			c.claims = claims{}
			copies = append(copies, &c)
			b.open[c.conn] = &c
		}
		return copies
	}
	b.leases, b.queue = copies(f.leases), copies(f.queue[:waiting])
	for _, e := range b.queue {
		b.line.of[e.UID]++
	}
	return &fourfold{&b, maps.Clone(f.first), maps.Clone(f.starts), maps.Clone(f.clean)}
}

// ends is when a lease ends; 0: never.
func (f *fourfold) ends(e *entry) time.Duration {
	if f.first[e.conn] {
		return e.Until + endsWithin
	}
	return e.Until
}

// drop ends a lease, after which the hook runs if there is one.
func (f *fourfold) drop(now time.Duration, e *entry) {
	takes := time.Duration(e.conn%2) * f.hookLimit / 3
	if f.first[e.conn] {
		takes = f.hookLimit
	}
	for _, l := range e.LPUs {
		if f.hooks {
			f.clean[l.Address] = now + takes
		}
	}
	f.Drop(now, e.conn)
}

// pass lets time pass until nothing ends any more, or until stop says so. before is called before each look.
func (f *fourfold) pass(backfill bool, before func(now time.Duration), after func(granted []Conn)) {
	for {
		next := never
		for _, e := range f.leases {
			if end := f.ends(e); end != 0 {
				next = min(next, end)
			}
		}
		for _, r := range f.reservations {
			next = min(next, r.Until)
		}
		for _, at := range f.clean {
			next = min(next, at)
		}
		if next == never {
			return
		}
		for _, e := range slices.Clone(f.leases) {
			if f.ends(e) == next {
				f.drop(next, e)
			}
		}
		for a, at := range f.clean {
			if at == next {
				delete(f.clean, a)
				f.Cleaned(next, f.ended[a], "")
			}
		}
		f.granted(next)
		f.Expire(next)
		f.granted(next)
		before(next + 1)
		after(f.see(next+1, backfill))
	}
}

// startsOf are the starts of the first wishes in the queue if, from a look on that may let some go first, none goes first.
func (f *fourfold) startsOf(waiting int, now time.Duration, first map[Conn]bool) map[Conn]time.Duration {
	p := f.copied(waiting)
	if first != nil {
		p.first = first
	}
	p.see(now, first != nil)
	p.pass(false, func(time.Duration) {}, func([]Conn) {})
	return p.starts
}

// check lets time pass with wishes that go first. Each time when some do, it wants those that are ahead of one to start no later than
// they would if none did. Who comes after it is not there then: what these get may matter to the ones ahead where a limit or a reservation
// keeps them from being fulfilled, and so from holding others back. It returns how many have gone first.
func (f *fourfold) check(t *testing.T, what string) (first int) {
	t.Helper()
	var before *fourfold
	look := func(time.Duration) { before = f.copied(len(f.queue)) }
	looked := func(granted []Conn) {
		if len(granted) == 0 {
			return
		}
		now := f.Began
		without := before.copied(len(before.queue)).see(now, false)
		for _, conn := range granted {
			if f.first[conn] = f.open[conn].Until != 0 && !slices.Contains(without, conn); f.first[conn] {
				first++
			}
		}
		for i, e := range before.queue {
			if !f.first[e.conn] {
				continue
			}
			promised, with := before.startsOf(i+1, now, nil), before.startsOf(i+1, now, f.first)
			for _, ahead := range before.queue[:i] {
				at, starts := promised[ahead.conn]
				if late, does := with[ahead.conn]; starts && (!does || late > at) {
					t.Errorf("%s\n%d goes first at %v, and %d starts at %v and not at %v", what, e.conn, now, ahead.conn, late, at)
				}
			}
		}
	}
	look(0)
	looked(f.see(f.Began+1, true))
	f.pass(true, look, looked)
	return first
}

// wanted are wishes on four LPUs.
func wanted() (wishes []Wish) {
	for _, s := range []Selection{
		{Count: 1}, {Count: 2}, {Count: 4}, {Count: 2, Must: lpusOf(1)}, {Count: 2, Place: allocate.Place{Near: allocate.SameNUMA}},
	} {
		for _, hours := range []time.Duration{0, 1, 3} {
			wishes = append(wishes, Wish{Selection: s, For: hours * time.Hour, Wait: true})
		}
	}
	return wishes
}

// numbers takes a number apart into digits of a mixed base.
type numbers int

func (n *numbers) next(base int) int {
	digit := int(*n) % base
	*n /= numbers(base)
	return digit
}

// TestBackfillDelaysNobody ahead: all combinations of leases on four LPUs and three wishes of as many users; some of them, with every
// second time a fourth wish, where LPUCTL_LONG is not set.
func TestBackfillDelaysNobody(t *testing.T) {
	delaysNobody(t, 0, 211, []time.Duration{-1, 0, 2 * time.Hour, 4 * time.Hour}) // free, no end
}

// TestBackfillBesideHooks: the same where a hook runs on LPUs that were given back, or has failed on them. One that takes all of its time
// after a lease of an hour keeps the LPU for longer than an hour and a half.
func TestBackfillBesideHooks(t *testing.T) {
	delaysNobody(t, 45*time.Minute, 1511, []time.Duration{-1, 0, 90 * time.Minute, 4 * time.Hour, hookRuns, hookFailed})
}

// States of an LPU that was given back, beside the ends of leases.
const (
	hookRuns   time.Duration = -2 // until the first half of the first hour is over
	hookFailed time.Duration = -3
)

// delaysNobody tries combinations of LPUs in some states and wishes: one of so many, a prime, so that each kind meets each other.
func delaysNobody(t *testing.T, hookLimit time.Duration, oneOf int, ends []time.Duration) {
	t.Helper()
	wishes := wanted()
	first, tried := 0, 0
	for i := range len(ends) * len(ends) * len(ends) * len(ends) * len(wishes) * len(wishes) * len(wishes) {
		if !long.Takes(i, oneOf) {
			continue
		}
		n := numbers(i)
		f := newFourfold(Limits{}, hookLimit)
		what := f.lease(ends, &n)
		for k := range 3 {
			what += f.wish(10+k, wishes[n.next(len(wishes))])
		}
		if i%2 == 0 {
			what += f.wish(13, wishes[i/2%len(wishes)])
		}
		queue := slices.Clone(f.queue)
		strict := f.startsOf(len(queue), f.Began+1, nil)
		first += f.check(t, what)
		for _, e := range queue { // as far as no one ahead of it has gone first, which those behind have to live with
			if at, starts := f.starts[e.conn]; f.first[e.conn] {
				break
			} else if want := strict[e.conn]; want != 0 && (!starts || at > want) {
				t.Errorf("%s\n%d starts at %v and not at %v", what, e.conn, at, want)
			}
		}
		if tried++; t.Failed() {
			return
		}
	}
	t.Logf("%d cases, in which %d wishes went first", tried, first)
	if first*100 < tried {
		t.Error("few have gone first")
	}
}

// lease leases LPUs, each to a user of its own until one of the ends; -1: it is free. Or they were given back.
func (f *fourfold) lease(ends []time.Duration, n *numbers) (what string) {
	for card := range 4 {
		end, conn := ends[n.next(len(ends))], Conn(100+card)
		if end == -1 {
			continue
		}
		f.Wish(0, conn, Peer{UID: 100 + card}, Wish{Selection: Selection{Count: 1, Must: lpusOf(card)}, For: max(end, 0)})
		if what += fmt.Sprintf("lpu%d leased for %v; ", card, end); end >= 0 {
			continue
		}
		f.Drop(0, conn)
		if end == hookFailed {
			f.Cleaned(0, f.ended[address(card)], "it is broken")
		} else {
			f.clean[address(card)] = time.Duration(1+card%2) * 15 * time.Minute
		}
	}
	f.Outbox()
	return what
}

// wish has a user wait for something, or get it.
func (f *fourfold) wish(uid int, w Wish) string {
	conn := Conn(len(f.queue) + len(f.leases) + 1000)
	f.Wish(2, conn, Peer{UID: uid}, w)
	f.granted(2)
	return fmt.Sprintf("\nwish %d of %d: %+v", conn, uid, w)
}

// TestBackfillBesideReservations, limits and leases of users who wait for more: random cases.
func TestBackfillBesideReservations(t *testing.T) {
	r := long.Rand(t)
	wishes := wanted()
	first := 0
	for range long.Rounds(t, 4000) {
		f := newFourfold([]Limits{{}, {}, {LPUs: 2}, {LPUs: 3, Time: 3 * time.Hour}}[r.IntN(4)], time.Duration(r.IntN(2))*time.Hour)
		what := fmt.Sprintf("%+v, hook %v: ", f.Limits, f.hookLimit)
		uid := func() int { return []int{10, 11, 12, 13, 0}[r.IntN(5)] }
		for n := range r.IntN(3) {
			k := Reserve{Selection: Selection{Count: 1 + r.IntN(2)}, For: time.Duration(1+r.IntN(4)) * time.Hour, Reason: "a test"}
			by := uid()
			f.Reserve(1, Conn(n), Peer{UID: by}, k)
			what += fmt.Sprintf("%d reserves %+v; ", by, k)
		}
		for range 1 + r.IntN(3) {
			what += f.wish(uid(), Wish{Selection: Selection{Count: 1 + r.IntN(2)}, For: time.Duration(r.IntN(6)) * time.Hour})
		}
		for range 3 + r.IntN(3) {
			what += f.wish(uid(), wishes[r.IntN(len(wishes))])
		}
		if first += f.check(t, what); t.Failed() {
			return
		}
	}
	t.Logf("%d wishes went first", first)
	if first < 100 {
		t.Error("few have gone first")
	}
}

// TestWhoGoesFirst: user 1 has lpu0, others wait, and the last wish goes first or does not.
func TestWhoGoesFirst(t *testing.T) {
	const hour = time.Hour
	all, one := Selection{Count: 4}, Selection{Count: 1}
	must := func(cards ...int) Selection { return Selection{Count: len(cards), Must: lpusOf(cards...)} }
	type wish struct {
		uid int
		s   Selection
		For time.Duration
	}
	has, waits := wish{1, must(0), 10 * hour}, wish{2, all, 0}
	for _, c := range []struct {
		what  string
		all   []wish
		limit int
		want  bool
	}{
		{"it ends in time", []wish{has, waits, {3, one, hour}}, 0, true},
		{"it ends just in time", []wish{has, waits, {3, one, 10*hour - endsWithin - 2}}, 0, true},
		{"it ends too late", []wish{has, waits, {3, one, 10*hour - endsWithin + 1}}, 0, false},
		{"it has no end", []wish{has, waits, {3, one, 0}}, 0, false},
		{"the lease ahead has no end", []wish{{1, must(0), 0}, waits, {3, one, hour}}, 0, false},
		{"another lease has no end, for which no wish waits", []wish{has, {5, must(3), 0}, {2, must(0, 1), 0}, {3, must(1), hour}}, 0, true},
		{"one has gone first before, and ends earlier", []wish{has, waits, {3, one, hour}, {4, one, 2 * hour}}, 0, true},
		{"the user waits already", []wish{has, waits, {2, one, hour}}, 0, false},
		// The wish of user 4 waits for that of user 2, which may start when lpu0 is given back.
		{"a wish ahead waits for another", []wish{has, {2, must(0, 1), 0}, {4, must(1, 2), 0}, {3, must(2), 11 * hour}}, 0, false},
		{"what a user ahead has ends", []wish{{2, must(3), hour}, has, {2, must(1, 2), 0}, {4, must(0, 1), 0}, {3, must(1), 2 * hour}}, 2, false},
		{
			"what a user ahead has ends later",
			[]wish{{2, must(3), 9 * hour}, has, {2, must(1, 2), 0}, {4, must(0, 1), 0}, {3, must(1), 2 * hour}}, 2, true,
		},
	} {
		f := newFourfold(Limits{LPUs: c.limit}, 0)
		f.see(1, true)
		for i, w := range c.all {
			f.Wish(2, Conn(i+1), Peer{UID: w.uid}, Wish{Selection: w.s, For: w.For, Wait: true})
		}
		last := f.open[Conn(len(c.all))]
		if got := last.Grant != nil; got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
		if c.want { // and so it does where it waited already
			f.end(3, last)
			clear(f.ended)
			last.Grant, last.LPUs = nil, nil
			f.enter(last)
			f.wait(last)
			if f.see(4, true); last.Grant == nil {
				t.Errorf("%s, and does not where it waits", c.what)
			}
		}
	}
}

// TestWhatTheHookKeeps: user 1 has lpu0, user 2 waits for it and for other LPUs, and a wish for lpu1 goes first or does not. lpu3 was given
// back.
func TestWhatTheHookKeeps(t *testing.T) {
	const hour = time.Hour
	fails := func(f *fourfold, e *end) { f.Cleaned(3, e, "it is broken") }
	for what, c := range map[string]struct {
		state func(f *fourfold, e *end) // of lpu3
		waits int
		ends  time.Duration
		want  bool
	}{
		"the hook has failed":             {fails, 3, hour, true},
		"the next hook ends just in time": {fails, 3, 9*hour - endsWithin - 5, true},
		"the next hook ends too late":     {fails, 3, 9*hour - endsWithin + 5, false},
		"the hook has still to run":       {func(*fourfold, *end) {}, 3, hour, false},
		"it runs again":                   {func(f *fourfold, e *end) { fails(f, e); f.Retry(77, true, e.Address) }, 3, hour, false},
		"it has run, and no look follows": {func(f *fourfold, e *end) { f.Cleaned(3, e, "") }, 3, hour, false},
		"a look shows that it is clean":   {func(f *fourfold, e *end) { f.Cleaned(3, e, ""); f.see(4, true) }, 4, hour, true},
	} {
		f := newFourfold(Limits{}, hour)
		f.see(1, true)
		one := func(card int) Selection { return Selection{Count: 1, Must: lpusOf(card)} }
		f.Wish(1, 1, Peer{UID: 1}, Wish{Selection: one(0), For: 10 * hour})
		f.Wish(1, 2, Peer{UID: 5}, Wish{Selection: one(3)})
		f.Drop(1, 2)
		f.see(3, true)
		for conn, s := range map[Conn]Selection{3: {Count: c.waits}, 4: one(0)} {
			f.Wish(3, conn, Peer{UID: 2}, Wish{Selection: s, Wait: true})
		}
		c.state(f, f.ended[address(3)])
		f.Wish(5, 5, Peer{UID: 3}, Wish{Selection: one(1), For: c.ends, Wait: true})
		if e := f.open[5]; e == nil || (e.Grant != nil) != c.want {
			t.Errorf("%s: it is not %v that it goes first", what, c.want)
		}
	}
}

// TestTheBookKnowsTheHook of its arbiter.
func TestTheBookKnowsTheHook(t *testing.T) {
	for _, hook := range []*Hook{nil, {Limit: time.Hour}} {
		a := &Arbiter{Hook: hook}
		if a.start(t.Context()); a.book.hooks != (hook != nil) || hook != nil && a.book.hookLimit != hook.Limit {
			t.Errorf("%v, %v", a.book.hooks, a.book.hookLimit)
		}
	}
}

// TestBackfillCostsTheSame with a thousand wishes in the queue as with two hundred, of which none ends in time.
func TestBackfillCostsTheSame(t *testing.T) {
	cost := func(many int) float64 {
		v := (&glimpse{began: 5, pool: 0xff}).view()
		v.Backfill, v.Limits.Time = true, 2*time.Hour
		b, conn := aLineOn(t, many, v, allocate.Anywhere), Conn(10_000)
		change(b, time.Duration(conn), conn)
		for b.Tell(time.Duration(conn), batch) {
		}
		looks := 0
		for _, e := range b.queue {
			e.era = 0 // it is found again what the wish could use, if that matters
		}
		change(b, time.Duration(conn), conn+2)
		for _, e := range b.queue {
			if e.era != 0 {
				looks++
			}
			b.couldUse(e)
		}
		if looks > 2*deepest {
			t.Errorf("with %d it looks at %d", many, looks)
		}
		conn += 2
		return testing.AllocsPerRun(20, func() {
			conn += 2
			change(b, time.Duration(conn), conn)
		})
	}
	if few, many := cost(200), cost(1000); many > 1.1*few {
		t.Errorf("with two hundred it allocates %v times, with a thousand %v", few, many)
	}
}
