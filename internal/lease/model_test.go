package lease

import (
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/long"
)

// size is how many LPUs the node of the model has: one ring, four NUMA nodes of two, two sockets, two switches.
const size = 8

// set has a bit for each LPU.
type set uint

func (s set) has(lpu int) bool { return s&(1<<lpu) != 0 }
func (s set) count() int       { return bits.OnesCount(uint(s)) }

func setOf(lpus []LPU) (s set) {
	for _, l := range lpus {
		s |= 1 << (l.Address.Bus - 0x40)
	}
	return s
}

func address(lpu int) pci.Address {
	return pci.Address{Bus: 0x40 + uint8(lpu), Function: 1}
}

// model says in the plainest way what a book must do: it tries all sets of LPUs.
type model struct {
	t      *testing.T
	rand   *rand.Rand
	book   *Book
	now    time.Duration
	limits Limits
	step   string

	open      set             // in truth: a process has the node open
	linger    map[Conn]set    // LPUs that processes of a lease that has ended have open yet
	wrong     set             // in truth: cordoned or unhealthy
	pool      set             // in truth
	container map[string]bool // in truth: it runs

	seen  glimpse   // what the book was shown last
	early []glimpse // looks that the book was not shown yet

	asked    []*modelled // those who have a lease or wait, in their order
	reserved []*kept
	ended    [size]time.Duration
	last     Conn
	overTold map[Conn]bool
	places   map[Conn]Place

	*tally
}

// tally counts what happened.
type tally struct{ grants, waits, passed, refused, expired, bound int }

type glimpse struct {
	began           time.Duration
	open, off, pool set
	containers      map[string]bool
}

type modelled struct {
	conn      Conn
	uid       int
	wish      Wish
	must      set
	lpus      set // 0: it waits
	until     time.Duration
	container string
	gone      bool
}

type kept struct {
	id    string
	uid   int
	lpus  set
	until time.Duration
}

// TestModel lets a book and the model do the same, and wants the same of both after each step.
func TestModel(t *testing.T) {
	r := long.Rand(t)
	var all tally
	for range long.Rounds(t, 10) {
		m := &model{
			t: t, rand: r, book: NewBook(), now: time.Hour, pool: 1<<size - 1, linger: map[Conn]set{},
			container: map[string]bool{}, overTold: map[Conn]bool{}, places: map[Conn]Place{}, tally: &all,
		}
		for range 1000 {
			m.play()
		}
	}
	t.Logf("%+v", all)
	if all.grants < 300 || all.waits < 300 || all.passed < 30 || all.refused < 300 || all.expired < 50 || all.bound < 20 {
		t.Error("too little of something happened")
	}
}

// play does one step.
func (m *model) play() {
	m.now += time.Duration(1 + m.rand.IntN(1000))
	steps := []struct {
		weight int
		do     func()
	}{
		{34, m.playWish}, {26, m.playDrop}, {3, m.playBind}, {5, m.playReserve}, {3, m.playRelease}, {3, m.playExtend},
		{8, m.playTime}, {24, m.playLook}, {10, m.playShow}, {14, m.playWorld}, {1, m.playLimits},
	}
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	n := m.rand.IntN(total)
	for _, s := range steps {
		if n -= s.weight; n < 0 {
			s.do()
			break
		}
	}
	m.compare()
}

func (m *model) fatal(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s: "+format, append([]any{m.step}, args...)...)
}

// feasible are all sets of LPUs that fulfil a selection.
func feasible(s *Selection, must, from set) (all []set) {
	for x := set(1); x < 1<<size; x++ {
		if x&^from == 0 && x.count() == s.Count && must&^x == 0 && together(s, x) && (!s.Connected || adjacent(x)) {
			all = append(all, x)
		}
	}
	return all
}

func together(s *Selection, x set) bool {
	for lpu := range size {
		if x.has(lpu) && group(s, lpu) != group(s, bits.TrailingZeros(uint(x))) || x.has(lpu) && group(s, lpu) < 0 {
			return false
		}
	}
	return true
}

// group is the number of what LPUs must have in common; -1 if the LPU cannot be taken.
func group(s *Selection, lpu int) int {
	switch s.Place.Near {
	case allocate.SameNUMA:
		if s.Place.NUMANode != nil && *s.Place.NUMANode != lpu/2 {
			return -1
		}
		return lpu / 2
	case allocate.SameSocket, allocate.SameSwitch:
		return lpu / 4
	}
	return 0
}

// adjacent tells whether LPUs follow each other on the ring.
func adjacent(x set) bool {
	for start := range size {
		arc := set(0)
		for i := range x.count() {
			arc |= 1 << ((start + i) % size)
		}
		if arc == x {
			return true
		}
	}
	return false
}

func (m *model) reservedBy(is func(uid int) bool) (s set) {
	for _, r := range m.reserved {
		if is(r.uid) {
			s |= r.lpus
		}
	}
	return s
}

func (m *model) leased(is func(uid int) bool) (s set) {
	for _, e := range m.asked {
		if is(e.uid) {
			s |= e.lpus
		}
	}
	return s
}

func everybody(int) bool { return true }

func (m *model) own(uid int) set    { return m.reservedBy(func(u int) bool { return u == uid }) }
func (m *model) others(uid int) set { return m.reservedBy(func(u int) bool { return u != uid }) }
func (m *model) holds(uid int) set  { return m.leased(func(u int) bool { return u == uid }) }

func (m *model) overLimit(uid, more int) bool {
	for _, e := range m.asked {
		if uid != 0 && e.uid == uid && e.lpus != 0 && e.until != 0 && e.until <= m.now {
			return true
		}
	}
	return uid != 0 && m.limits.LPUs > 0 && (m.own(uid)|m.holds(uid)).count()+more > m.limits.LPUs
}

func (m *model) offered() set { return m.seen.pool &^ m.seen.off }

// possible is what a wish could get if nobody else had a lease or used an LPU.
func (m *model) possible(uid int, s *Selection, must set) (p set) {
	all := feasible(s, must, m.offered()&^m.others(uid)&^m.holds(uid))
	byGroup := map[int]set{}
	for _, x := range all {
		byGroup[group(s, bits.TrailingZeros(uint(x)))] |= x
	}
	for _, x := range byGroup {
		kept := (x & m.own(uid)).count()
		if !m.overLimit(uid, max(0, s.Count-kept)) {
			p |= x
		}
	}
	return p
}

// free is what a wish can get now, if looks that began after the time fresh have shown who uses the LPUs.
func (m *model) free(uid int, fresh time.Duration) (f set) {
	for lpu := range size {
		if m.ended[lpu] == 0 || m.ended[lpu] < fresh {
			f |= 1 << lpu
		}
	}
	return f & m.offered() &^ m.seen.open &^ m.leased(everybody) &^ m.others(uid)
}

// best is how many of the user's own LPUs a wish can get, and whether it can get any.
func (m *model) best(uid int, s *Selection, must, from set) (own int, can bool) {
	for _, x := range feasible(s, must, from) {
		own, can = max(own, (x&m.own(uid)).count()), true
	}
	return own, can && !m.overLimit(uid, s.Count-own)
}

func (m *model) blocked() (b set) {
	for _, e := range m.asked {
		if e.lpus == 0 {
			b |= m.possible(e.uid, &e.wish.Selection, e.must)
		}
	}
	return b
}

// expire ends reservations, and says whose time is over.
func (m *model) expire(got *[]Message) {
	before := len(m.reserved)
	m.reserved = slices.DeleteFunc(m.reserved, func(r *kept) bool { return r.until <= m.now })
	m.expired += before - len(m.reserved)
	for _, e := range m.asked {
		if e.lpus != 0 && e.until != 0 && e.until <= m.now && !m.overTold[e.conn] {
			m.overTold[e.conn] = true
			m.expired++
			if e.gone {
				continue
			}
			m.take(got, e.conn, func(a *Answer) bool { return a.Over != nil }, "that its time is over")
		}
	}
}

// take takes the one answer for a connection that fits out of those that the book has given.
func (m *model) take(got *[]Message, conn Conn, fits func(*Answer) bool, what string) Answer {
	m.t.Helper()
	i := slices.IndexFunc(*got, func(x Message) bool { return x.Conn == conn && fits(&x.Answer) })
	if i < 0 {
		m.fatal("connection %d is not told %s, but %s", conn, what, tell(*got))
	}
	a := (*got)[i].Answer
	*got = slices.Delete(*got, i, i+1)
	return a
}

func tell(got []Message) (text string) {
	for _, x := range got {
		text += fmt.Sprintf("%d: %+v %+v %+v; ", x.Conn, x.Granted, x.Waiting, x.Refused)
	}
	return text
}

// grant checks what somebody was given, and gives it.
func (m *model) grant(e *modelled, g *Grant, blocked set) {
	m.t.Helper()
	x := setOf(g.LPUs)
	from := m.free(e.uid, m.seen.began) &^ blocked
	own, can := m.best(e.uid, &e.wish.Selection, e.must, from)
	switch {
	case !can || !slices.Contains(feasible(&e.wish.Selection, e.must, from), x):
		m.fatal("%+v got %08b, free for it are %08b", e.wish, x, from)
	case (x & m.own(e.uid)).count() != own:
		m.fatal("%+v got %08b, and of its own reservation %08b it could have had %d", e.wish, x, m.own(e.uid), own)
	case *g.Connected != adjacent(x):
		m.fatal("%08b: connected is %v", x, *g.Connected)
	}
	for conn, open := range m.linger {
		if open&x != 0 {
			m.fatal("%08b given away, and processes of lease %d have %08b open", x, conn, open)
		}
	}
	if want := m.until(e); g.Until != want {
		m.fatal("until %d, want %d", g.Until, want)
	}
	if e.wish.DryRun {
		return
	}
	if m.blocked() != 0 {
		m.passed++
	}
	e.lpus, e.until = x, g.Until
	m.grants++
}

func (m *model) until(e *modelled) time.Duration {
	limit := e.wish.For
	if most := m.limits.Time; e.uid != 0 && most != 0 && (limit == 0 || limit > most) {
		limit = most
	}
	if limit == 0 {
		return 0
	}
	return m.now + limit
}

// serve gives to those who wait.
func (m *model) serve(got *[]Message) {
	m.t.Helper()
	blocked := set(0)
	for _, e := range m.asked {
		if e.lpus != 0 {
			continue
		}
		if _, can := m.best(e.uid, &e.wish.Selection, e.must, m.free(e.uid, m.seen.began)&^blocked); can {
			m.grant(e, m.take(got, e.conn, func(a *Answer) bool { return a.Granted != nil }, "that its wish is fulfilled").Granted, blocked)
			continue
		}
		blocked |= m.possible(e.uid, &e.wish.Selection, e.must)
	}
}

func (m *model) end(e *modelled) {
	m.asked = slices.DeleteFunc(m.asked, func(other *modelled) bool { return other == e })
	for lpu := range size {
		if e.lpus.has(lpu) {
			m.ended[lpu] = m.now
		}
	}
	if left := e.lpus & m.open; left != 0 && m.rand.IntN(2) == 0 {
		m.linger[e.conn] = left
	}
	m.open &^= e.lpus &^ m.linger[e.conn]
}

func (m *model) selection() (s Selection, must set) {
	s.Count = 1 + m.rand.IntN(3)
	if m.rand.IntN(6) == 0 {
		s.Count = 1 + m.rand.IntN(size+1)
	}
	for range m.rand.IntN(2) * m.rand.IntN(2) * m.rand.IntN(s.Count+1) {
		if lpu := m.rand.IntN(size); !must.has(lpu) {
			must |= 1 << lpu
			s.Must = append(s.Must, address(lpu))
		}
	}
	if m.rand.IntN(2) == 0 {
		s.Place.Near = []allocate.Near{allocate.SameSwitch, allocate.SameSocket, allocate.SameNUMA}[m.rand.IntN(3)]
	}
	if node := m.rand.IntN(6); s.Place.Near == allocate.SameNUMA && node < 4 {
		s.Place.NUMANode = &node
	}
	s.Connected = m.rand.IntN(3) == 0
	return s, must
}

// someUID picks a user, often one who has reserved LPUs.
func (m *model) someUID() int {
	if len(m.reserved) > 0 && m.rand.IntN(3) == 0 {
		return m.reserved[m.rand.IntN(len(m.reserved))].uid
	}
	return []int{0, 1000, 1001, 1002, 1003}[m.rand.IntN(5)]
}

// never tells whether no wish can be fulfilled, and if it is the limit that says so.
func (m *model) never(uid int, s *Selection, must set, limit time.Duration) finding.ID {
	switch {
	case uid != 0 && m.limits.LPUs > 0 && s.Count > m.limits.LPUs, uid != 0 && m.limits.Time > 0 && limit > m.limits.Time:
		return finding.LeaseLimit
	case len(feasible(s, must, m.seen.pool)) == 0:
		return finding.LeaseImpossible
	}
	return ""
}

func (m *model) refuse(got *[]Message, conn Conn, id finding.ID) {
	m.t.Helper()
	a := m.take(got, conn, func(a *Answer) bool { return a.Refused != nil }, "that it is refused")
	if id != "" && a.Refused.ID != id {
		m.fatal("refused with %s, want %s: %s", a.Refused.ID, id, a.Refused.Message)
	}
	m.refused++
}

func (m *model) playWish() {
	m.last++
	e := &modelled{conn: m.last, uid: m.someUID()}
	e.wish.Selection, e.must = m.selection()
	e.wish.Wait, e.wish.DryRun = m.rand.IntN(2) == 0, m.rand.IntN(10) == 0
	e.wish.For = time.Duration(m.rand.IntN(2) * m.rand.IntN(3) * m.rand.IntN(20000))
	m.step = fmt.Sprintf("wish %d of %d: %+v", e.conn, e.uid, e.wish)
	settled := m.book.Wish(m.now, e.conn, Peer{UID: e.uid}, e.wish)
	got := m.said()
	m.expire(&got)
	if id := m.never(e.uid, &e.wish.Selection, e.must, e.wish.For); id != "" {
		m.refuse(&got, e.conn, id)
		m.rest(got)
		return
	}
	blocked := m.blocked()
	_, can := m.best(e.uid, &e.wish.Selection, e.must, m.free(e.uid, m.seen.began)&^blocked)
	_, could := m.best(e.uid, &e.wish.Selection, e.must, m.free(e.uid, m.now)&^blocked)
	switch {
	case settled != (can || !could || e.wish.Wait):
		m.fatal("settled is %v", settled)
	case !settled:
	case can:
		m.grant(e, m.take(&got, e.conn, func(a *Answer) bool { return a.Granted != nil }, "that its wish is fulfilled").Granted, blocked)
		if !e.wish.DryRun {
			m.asked = append(m.asked, e)
		}
	case e.wish.Wait && !e.wish.DryRun:
		m.asked = append(m.asked, e)
		m.waits++
	default:
		m.refuse(&got, e.conn, "")
	}
	m.rest(got)
}

func (m *model) playDrop() {
	m.step = "drop"
	if len(m.asked) == 0 {
		return
	}
	e := m.asked[m.rand.IntN(len(m.asked))]
	if e.gone {
		return
	}
	m.step = fmt.Sprintf("drop %d", e.conn)
	m.book.Drop(m.now, e.conn)
	got := m.said()
	if e.container != "" {
		e.gone = true
	} else {
		m.expireUnless(e, &got)
		m.end(e)
		m.serve(&got)
	}
	m.rest(got)
}

// expireUnless is expire without those who are gone.
func (m *model) expireUnless(gone *modelled, got *[]Message) {
	m.overTold[gone.conn] = true
	m.expire(got)
}

func (m *model) playBind() {
	m.step = "bind"
	if len(m.asked) == 0 {
		return
	}
	e := m.asked[m.rand.IntN(len(m.asked))]
	if e.gone || e.container != "" {
		return
	}
	id := fmt.Sprintf("%064x", m.rand.IntN(4))
	m.step = fmt.Sprintf("bind %d to %s", e.conn, id)
	m.book.Bind(e.conn, id)
	got := m.said()
	switch {
	case e.lpus == 0:
		m.refuse(&got, e.conn, finding.LeaseRequest)
	case !m.seen.containers[id]:
		m.refuse(&got, e.conn, finding.LeaseNoContainer)
	default:
		m.take(&got, e.conn, func(a *Answer) bool { return a.Done != nil }, "that it is bound")
		e.container = id
		m.bound++
	}
	m.rest(got)
}

func (m *model) playReserve() {
	m.last++
	uid := m.someUID()
	s, must := m.selection()
	r := Reserve{Selection: s, For: time.Duration(1 + m.rand.IntN(20000)), Reason: "a test"}
	m.step = fmt.Sprintf("reserve of %d: %+v", uid, r)
	settled := m.book.Reserve(m.now, m.last, Peer{UID: uid}, r)
	got := m.said()
	m.expire(&got)
	from := func(fresh time.Duration) set { return m.free(uid, fresh) &^ m.blocked() &^ m.reservedBy(everybody) }
	can := len(feasible(&s, must, from(m.seen.began))) > 0
	could := len(feasible(&s, must, from(m.now))) > 0
	id := m.never(uid, &s, must, r.For)
	switch {
	case id != "":
		m.refuse(&got, m.last, id)
	case m.overLimit(uid, s.Count):
		m.refuse(&got, m.last, finding.LeaseLimit)
	case settled != (can || !could):
		m.fatal("settled is %v", settled)
	case can:
		a := m.take(&got, m.last, func(a *Answer) bool { return a.Reserved != nil }, "that LPUs are reserved").Reserved
		x := setOf(a.LPUs)
		if !slices.Contains(feasible(&s, must, from(m.seen.began)), x) || a.Until != m.now+r.For {
			m.fatal("reserved are %08b until %d; free are %08b", x, a.Until, from(m.seen.began))
		}
		m.reserved = append(m.reserved, &kept{a.ID, uid, x, a.Until})
	case settled:
		m.refuse(&got, m.last, "")
	}
	m.rest(got)
}

// some picks a reservation and a user, mostly the one whose it is.
func (m *model) some() (*kept, int) {
	if len(m.reserved) == 0 {
		return nil, 0
	}
	r := m.reserved[m.rand.IntN(len(m.reserved))]
	if m.rand.IntN(3) == 0 {
		return r, m.someUID()
	}
	return r, r.uid
}

func (m *model) playRelease() {
	r, uid := m.some()
	m.step = fmt.Sprintf("release %+v by %d", r, uid)
	if r == nil {
		return
	}
	m.last++
	m.book.Release(m.now, m.last, uid, r.id)
	got := m.said()
	m.expire(&got)
	switch {
	case r.until <= m.now || uid != 0 && uid != r.uid:
		m.refuse(&got, m.last, finding.LeaseUnknown)
	default:
		m.take(&got, m.last, func(a *Answer) bool { return a.Done != nil }, "that it is released")
		m.reserved = slices.DeleteFunc(m.reserved, func(other *kept) bool { return other == r })
		m.serve(&got)
	}
	m.rest(got)
}

func (m *model) playExtend() {
	r, uid := m.some()
	by := time.Duration(1 + m.rand.IntN(10000))
	m.step = fmt.Sprintf("extend %+v by %d", r, uid)
	if r == nil {
		return
	}
	m.last++
	m.book.Extend(m.now, m.last, uid, r.id, by)
	got := m.said()
	m.expire(&got)
	switch {
	case r.until <= m.now || uid != 0 && uid != r.uid:
		m.refuse(&got, m.last, finding.LeaseUnknown)
	case uid != 0 && m.limits.Time > 0 && r.until+by-m.now > m.limits.Time:
		m.refuse(&got, m.last, finding.LeaseLimit)
	default:
		r.until += by
		m.take(&got, m.last, func(a *Answer) bool { return a.Reserved != nil && a.Reserved.Until == r.until }, "that it is extended")
	}
	m.rest(got)
}

// playTime lets time pass, at times exactly to when something expires.
func (m *model) playTime() {
	m.now += time.Duration(m.rand.IntN(5000))
	if next := m.book.Next(); next > m.now && m.rand.IntN(2) == 0 {
		m.now = next
	}
	m.step = fmt.Sprintf("at %d", m.now)
	m.book.Expire(m.now)
	got := m.said()
	before := len(m.reserved)
	m.expire(&got)
	if len(m.reserved) < before {
		m.serve(&got)
	}
	m.rest(got)
	for _, r := range m.reserved {
		if next := m.book.Next(); next == 0 || next > r.until {
			m.fatal("next to expire is %d, and a reservation ends at %d", next, r.until)
		}
	}
}

// playLook looks at the node, and shows it to the book later.
func (m *model) playLook() {
	m.step = "look"
	g := glimpse{m.now, m.open, m.wrong, m.pool, map[string]bool{}}
	for _, open := range m.linger {
		g.open |= open
	}
	maps.Copy(g.containers, m.container)
	m.early = append(m.early, g)
	if m.rand.IntN(3) > 0 {
		m.playShow()
	}
}

func (m *model) playShow() {
	if len(m.early) == 0 {
		return
	}
	m.seen, m.early = m.early[0], m.early[1:]
	m.step = fmt.Sprintf("show %+v", m.seen)
	v := m.seen.view()
	v.Limits = m.limits
	m.book.See(m.now, v)
	got := m.said()
	m.endGone()
	m.expire(&got)
	m.serve(&got)
	m.rest(got)
}

// endGone ends the leases of those who are gone and whose container does not run.
func (m *model) endGone() {
	for _, e := range slices.Clone(m.asked) {
		if e.gone && !m.seen.containers[e.container] {
			m.end(e)
		}
	}
}

func (g *glimpse) view() View {
	inv := &discovery.Inventory{RingTable: &discovery.TableRef{}}
	loop := discovery.Ring{ID: "ring0", Closed: true}
	groups := map[string][]Group{}
	for id, runs := range g.containers { // whether it runs or not, a stranger has a group with its id
		if groups[id] = []Group{{Path: "/stranger/" + id, owner: 4242}}; runs {
			groups[id] = append(groups[id], Group{Path: "/" + id, Inode: 1})
		}
	}
	v := View{Began: g.began, Inventory: inv, Sockets: map[int]int{}, Containers: groups, Pool: []pci.Address{}}
	for i := range size {
		node, above := i/2, pci.Address{Bus: uint8(i / 4)}
		l := discovery.LPU{
			Name: fmt.Sprintf("lpu%d", i), Index: i, Address: address(i), Usable: true, Health: discovery.Healthy,
			Place: discovery.Place{NUMANode: &node, Switch: &above},
		}
		if g.open.has(i) {
			l.Users = []discovery.User{{PID: 7, Command: "x"}}
		}
		switch {
		case !g.off.has(i):
		case i%4 == 0:
			l.Cordoned = &health.Cordon{}
		case i%4 == 1:
			l.Usable = false
		case i%4 == 2:
			l.Health = discovery.Unhealthy
		default:
			l.Usable, l.Absent = false, false
		}
		if g.pool.has(i) {
			v.Pool = append(v.Pool, l.Address)
		}
		v.Sockets[node] = i / 4
		inv.LPUs = append(inv.LPUs, l)
		loop.Members = append(loop.Members, l.Name)
	}
	inv.Rings = []discovery.Ring{loop}
	return v
}

// playWorld changes the node.
func (m *model) playWorld() {
	m.step = "the node changes"
	lpu := set(1) << m.rand.IntN(size)
	switch m.rand.IntN(18) {
	case 0, 1, 2: // a holder opens or closes a node
		m.open ^= lpu & m.leased(everybody)
	case 3: // somebody without a lease does
		m.open ^= lpu &^ m.leased(everybody)
	case 12, 13, 14, 15: // all such have ended
		m.open &= m.leased(everybody)
	case 4:
		m.wrong |= lpu
	case 5, 6, 11:
		m.wrong &^= lpu
	case 7:
		id := fmt.Sprintf("%064x", m.rand.IntN(4))
		m.container[id] = !m.container[id]
	case 8:
		if m.pool = 1<<size - 1; m.rand.IntN(4) == 0 {
			m.pool &^= lpu
		}
	case 9, 10, 16, 17: // what lingers ends
		clear(m.linger)
	}
}

func (m *model) playLimits() {
	m.limits = []Limits{{}, {}, {LPUs: 4}, {LPUs: 2, Time: 8000}, {Time: 15000}}[m.rand.IntN(5)]
	m.step = fmt.Sprintf("limits %+v", m.limits)
	v := m.book.View
	v.Limits = m.limits
	m.book.See(m.now, v)
	got := m.said()
	m.endGone()
	m.expire(&got)
	m.serve(&got)
	m.rest(got)
}

// said is what the book has said to clients, after all who wait got their places.
func (m *model) said() []Message {
	for m.book.Tell(m.now, 2) {
	}
	got, _ := m.book.Outbox()
	return got
}

// rest takes the places in the queue, and wants no other answer to be left.
func (m *model) rest(got []Message) {
	m.t.Helper()
	for _, x := range got {
		if x.Waiting == nil {
			m.fatal("unexpected: %s", tell([]Message{x}))
		}
		m.places[x.Conn] = *x.Waiting
	}
	place := 0
	for _, e := range m.asked {
		if e.lpus == 0 {
			place++
			if p := m.places[e.conn]; p.Place != place || p.Why == "" {
				m.fatal("connection %d is at place %d and was told %+v", e.conn, place, p)
			}
		}
	}
}

// compare wants the book to know what the model knows, and that no LPU has two holders.
func (m *model) compare() {
	m.t.Helper()
	var taken set
	var waiting []*modelled
	l := m.book.List(m.now)
	got := m.said()
	m.expire(&got)
	for _, e := range m.asked {
		if e.lpus == 0 {
			waiting = append(waiting, e)
			continue
		}
		i := slices.IndexFunc(l.Leases, func(l Lease) bool { return l.ID == fmt.Sprintf("l%d", e.conn) })
		if i < 0 || setOf(l.Leases[i].LPUs) != e.lpus || l.Leases[i].UID != e.uid || l.Leases[i].Container != e.container {
			m.fatal("the list %+v does not have %+v", l.Leases, e)
		}
		if taken&e.lpus != 0 {
			m.fatal("two holders of %08b", taken&e.lpus)
		}
		taken |= e.lpus
	}
	if len(l.Leases)+len(waiting) != len(m.asked) || len(l.Waiting) != len(waiting) || len(l.Reservations) != len(m.reserved) {
		m.fatal("listed are %d leases, %d waiting and %d reservations; want %d, %d and %d", len(l.Leases), len(l.Waiting),
			len(l.Reservations), len(m.asked)-len(waiting), len(waiting), len(m.reserved))
	}
	for i, e := range waiting {
		if l.Waiting[i].UID != e.uid || l.Waiting[i].Count != e.wish.Count {
			m.fatal("waiting are %+v", l.Waiting)
		}
	}
	for i, r := range m.reserved {
		if l.Reservations[i].ID != r.id || setOf(l.Reservations[i].LPUs) != r.lpus || l.Reservations[i].Until != r.until {
			m.fatal("reserved are %+v", l.Reservations)
		}
	}
}
