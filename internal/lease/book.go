package lease

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// Limits are what one user may have. Root may have everything.
type Limits struct {
	LPUs int           // that are leased or reserved; 0: no limit
	Time time.Duration // of a lease, and of a reservation from now on; 0: no limit
}

// View is what a look at the node showed.
type View struct {
	// Began is when the look began, since boot. What ended later it may still show, and what
	// began later not yet.
	Began     time.Duration
	Inventory *discovery.Inventory // with the users of the LPUs and their cordons
	Sockets   map[int]int          // of [discovery.Sockets]
	Pool      []pci.Address        // the LPUs that can be leased; nil: all
	Limits    Limits               // of each user
	// Pods are the LPUs that pods of Kubernetes have, and by whom: "pod default/a,
	// container main". They need not have opened them yet.
	Pods         map[pci.Address]string
	Closed       string          // why no LPU can be leased; "": they can
	ClosedRemedy string          // what to do about that; "": set some apart
	Containers   map[string]bool // the ids of those that run
	// Unclear are processes of users whose leases have ended, which may use the LPUs of these
	// leases though no look finds that they have them open.
	Unclear []discovery.Unclear
}

// end is how the latest lease of an LPU ended.
type end struct {
	at    time.Duration
	uid   int
	clear bool // a look since then has shown no process of the user that may use it yet
}

// Conn is the number of a connection. It is never used twice.
type Conn uint64

// Message is an answer for a connection.
type Message struct {
	Conn Conn
	Answer
	undo func() // takes back what the answer promises; nil where that needs no record
}

// Book knows who has LPUs, who has reserved some and who waits. It does no input and
// output and has no clock: the time is passed to each method, since boot
// (host.SinceBoot), and never goes back. It is not safe for concurrent use.
type Book struct {
	View   // of the latest look
	fabric *ring.Fabric

	entries      []*entry // in the order in which they were asked for
	reservations []Reservation
	last         uint64              // number of the latest reservation
	ended        map[pci.Address]end // the latest lease of an LPU

	out     []Message
	changed Changes
}

// entry is a connection that has a lease or waits for one.
type entry struct {
	Lease
	Wish  Wish   `json:"wish"`
	Grant *Grant `json:"grant,omitempty"` // nil: it waits
	// Gone: the connection is closed, and the lease lasts until its container has ended.
	Gone bool `json:"gone,omitempty"`

	conn  Conn
	over  bool  // Over was sent to the holder, or the holder is gone
	place Place // that was sent to the waiter, without times
}

// Changes says which records are to be written.
type Changes struct{ Leases, Reservations bool }

// NewBook returns a book of a node that the arbiter has not looked at yet, so that
// nothing can be leased.
func NewBook() *Book {
	b := &Book{ended: map[pci.Address]end{}}
	b.look(View{Inventory: &discovery.Inventory{}})
	return b
}

// look takes the cabling whatever the health is: what is sick is not offered, and who
// waits for it may get it when it is well again.
func (b *Book) look(v View) { b.View, b.fabric = v, v.Inventory.Cabled() }

// Outbox returns the answers that the calls since the last Outbox have led to, and which
// records they have changed. Those are written before the answers are sent.
func (b *Book) Outbox() ([]Message, Changes) {
	out, changed := b.out, b.changed
	b.out, b.changed = nil, Changes{}
	return out, changed
}

func (b *Book) send(to Conn, a Answer) { b.promise(to, a, nil) }

func (b *Book) promise(to Conn, a Answer, undo func()) {
	b.out = append(b.out, Message{to, a, undo})
}

// Unwritten takes back what answers promise, because the records cannot be written, and
// returns refusals in their place. The latest answer is the last.
func Unwritten(answers []Message, why error) []Message {
	refused := refuse(finding.LeaseUnrecorded, "it cannot be written down: "+why.Error(), "free some space there, and ask again")
	return takenBack(answers, func(m Message) bool { return m.undo != nil }, refused)
}

// promised are the LPUs that the answer gives to a user who had not got them before.
func (m Message) promised() []LPU {
	switch {
	case m.undo != nil && m.Granted != nil:
		return m.Granted.LPUs
	case m.undo != nil && m.Reserved != nil:
		return m.Reserved.LPUs
	}
	return nil
}

// withdrawn takes back the LPUs that answers promise, because none can be leased any
// more, and returns refusals in their place.
func withdrawn(answers []Message, why, remedy string) []Message {
	return takenBack(answers, func(m Message) bool { return len(m.promised()) > 0 }, closed(why, remedy))
}

// takenBack takes back what some of the answers promise, the latest first, and returns a
// refusal in place of each.
func takenBack(answers []Message, some func(Message) bool, refused *Refusal) []Message {
	for i, m := range slices.Backward(answers) {
		if some(m) {
			m.undo()
			answers[i] = Message{Conn: m.Conn, Answer: Answer{Refused: refused}}
		}
	}
	return answers
}

// See takes a new look at the node.
func (b *Book) See(now time.Duration, v View) {
	b.look(v)
	for address, e := range b.ended {
		if e.at < v.Began && b.unclear(e.uid) == nil {
			e.clear = true
			b.ended[address] = e
		}
	}
	for _, e := range slices.Clone(b.entries) {
		if e.Gone && !v.Containers[e.Container] {
			b.end(now, e)
		}
	}
	b.serve(now)
}

// Wish asks for a lease. It returns false, and does nothing, if a look at the node that
// begins now might show more free LPUs, and the answer depends on that.
func (b *Book) Wish(now time.Duration, conn Conn, peer Peer, w Wish) bool {
	b.expire(now)
	peer.Command = cmp.Or(w.Command, peer.Command)
	e := &entry{Lease: Lease{ID: fmt.Sprintf("l%d", conn), Peer: peer, Since: now}, Wish: w, conn: conn}
	refused := b.never(e.UID, &w.Selection, w.For)
	if b.entry(conn) != nil {
		refused = refuse(finding.LeaseRequest, "this connection has a lease or waits for one", "ask for another over another connection")
	}
	if refused != nil {
		b.send(conn, Answer{Refused: refused})
		return true
	}
	blocked := b.blocked()
	d := b.choose(e.UID, &w.Selection, blocked, b.Began)
	switch {
	case d == nil && !w.Wait && b.choose(e.UID, &w.Selection, blocked, now) != nil:
		return false
	case d != nil && w.DryRun:
		b.send(conn, Answer{Granted: b.granted(now, e, d)})
	case d != nil:
		b.entries = append(b.entries, e)
		b.grant(now, e, d)
	case w.Wait && !w.DryRun:
		b.entries = append(b.entries, e)
		b.changed.Leases = true
		b.tell(now)
	default:
		b.send(conn, Answer{Refused: b.noneFree(now, e.UID, &w.Selection, blocked)})
	}
	return true
}

// Drop says that a connection is closed: its lease ends, or it waits no longer.
func (b *Book) Drop(now time.Duration, conn Conn) {
	e := b.entry(conn)
	switch {
	case e == nil:
	case e.Container != "":
		e.Gone, b.changed.Leases = true, true
	default:
		b.end(now, e)
		b.serve(now)
	}
}

// Bind makes the lease of a connection last until a container ends.
func (b *Book) Bind(conn Conn, container string) {
	e := b.entry(conn)
	switch {
	case e == nil || e.Grant == nil:
		b.refuse(conn, finding.LeaseRequest, "this connection has no lease", "ask for a lease first")
	case !b.Containers[container]:
		b.refuse(conn, finding.LeaseNoContainer, "no process of container "+container[:12]+" runs", "bind a lease while the container runs")
	default:
		e.Container, b.changed.Leases = container, true
		b.promise(conn, Answer{Done: &struct{}{}}, func() { e.Container = "" })
	}
}

// Reserve keeps LPUs that are free for a user. It returns false, and does nothing, where
// Wish does.
func (b *Book) Reserve(now time.Duration, conn Conn, peer Peer, r Reserve) bool {
	b.expire(now)
	refused := b.never(peer.UID, &r.Selection, r.For)
	if refused == nil && b.overLimit(peer.UID, r.Count) {
		refused = b.limitRefusal(peer.UID)
	}
	if refused != nil {
		b.send(conn, Answer{Refused: refused})
		return true
	}
	blocked := b.blocked()
	own, _ := b.reserved(peer.UID)
	maps.Copy(blocked, own)
	d := b.choose(peer.UID, &r.Selection, blocked, b.Began)
	if d == nil {
		if b.choose(peer.UID, &r.Selection, blocked, now) != nil {
			return false
		}
		b.send(conn, Answer{Refused: b.noneFree(now, peer.UID, &r.Selection, blocked)})
		return true
	}
	b.last++
	kept := Reservation{
		ID: fmt.Sprintf("r%d", b.last), Peer: peer, LPUs: b.lpus(d.Chosen), Reason: r.Reason, Since: now, Until: now + r.For,
	}
	b.keep(kept)
	b.changed.Reservations = true
	b.promise(conn, Answer{Reserved: &kept}, func() { b.unreserve(kept.ID) })
	b.tell(now)
	return true
}

// Release ends a reservation.
func (b *Book) Release(now time.Duration, conn Conn, uid int, id string) {
	b.expire(now)
	if r := b.reservation(conn, uid, id); r != nil {
		kept := *r
		b.unreserve(id)
		b.changed.Reservations = true
		b.promise(conn, Answer{Done: &struct{}{}}, func() { b.keep(kept) })
		b.serve(now)
	}
}

// Extend makes a reservation end later.
func (b *Book) Extend(now time.Duration, conn Conn, uid int, id string, by time.Duration) {
	b.expire(now)
	r := b.reservation(conn, uid, id)
	if r == nil {
		return
	}
	most := maxTime // of a user
	if b.Limits.Time > 0 {
		most = min(most, b.Limits.Time)
	}
	if left := r.Until + by - now; left > maxTime || uid != 0 && left > most {
		b.refuse(conn, finding.LeaseLimit, fmt.Sprintf("%s would then end in %s; a user may reserve for %s from now on", id,
			rounded(left), rounded(most)), "extend it by less")
		return
	}
	r.Until += by
	b.changed.Reservations = true
	kept := *r
	b.promise(conn, Answer{Reserved: &kept}, func() {
		b.unreserve(id)
		kept.Until -= by
		b.keep(kept)
	})
	b.tell(now)
}

// keep adds a reservation, in the order of ids.
func (b *Book) keep(r Reservation) {
	b.reservations = append(b.reservations, r)
	slices.SortFunc(b.reservations, func(x, y Reservation) int { return cmp.Or(cmp.Compare(len(x.ID), len(y.ID)), cmp.Compare(x.ID, y.ID)) })
}

func (b *Book) unreserve(id string) {
	b.reservations = slices.DeleteFunc(b.reservations, func(r Reservation) bool { return r.ID == id })
}

// reservation finds a reservation that a user may change. If there is none, it answers
// so.
func (b *Book) reservation(conn Conn, uid int, id string) *Reservation {
	i := slices.IndexFunc(b.reservations, func(r Reservation) bool { return r.ID == id })
	switch {
	case i < 0:
		b.refuse(conn, finding.LeaseUnknown, "there is no reservation "+id, "see the reservations: lpuctl list")
	case uid != 0 && uid != b.reservations[i].UID:
		b.refuse(conn, finding.LeaseUnknown, id+" is a reservation of "+b.reservations[i].String(), "ask that user, or root")
	default:
		return &b.reservations[i]
	}
	return nil
}

// Expire ends the reservations whose time is over, and tells the holders of leases of
// which it is.
func (b *Book) Expire(now time.Duration) {
	if b.expire(now) {
		b.serve(now)
	}
}

func (b *Book) expire(now time.Duration) (ended bool) {
	before := len(b.reservations)
	b.reservations = slices.DeleteFunc(b.reservations, func(r Reservation) bool { return r.Until <= now })
	ended = len(b.reservations) < before
	b.changed.Reservations = b.changed.Reservations || ended
	for _, e := range b.entries {
		if e.isOver(now) && !e.over {
			e.over = true
			if !e.Gone {
				b.send(e.conn, Answer{Over: &struct{}{}})
			}
		}
	}
	return ended
}

// isOver reports whether the time of a lease is over.
func (e *entry) isOver(now time.Duration) bool {
	return e.Grant != nil && e.Until != 0 && e.Until <= now
}

// Next is when Expire will have something to do; 0: never.
func (b *Book) Next() (next time.Duration) {
	earlier := func(t time.Duration) {
		if t != 0 && (next == 0 || t < next) {
			next = t
		}
	}
	for _, r := range b.reservations {
		earlier(r.Until)
	}
	for _, e := range b.entries {
		if e.Grant != nil && !e.over {
			earlier(e.Until)
		}
	}
	return next
}

// Watches reports whether changes at the node matter though no client asks: a wish waits,
// or a lease lasts as long as a container.
func (b *Book) Watches() bool {
	return slices.ContainsFunc(b.entries, func(e *entry) bool { return e.Grant == nil || e.Gone })
}

// Keeps reports whether a connection has a lease or waits for one.
func (b *Book) Keeps(conn Conn) bool { return b.entry(conn) != nil }

// List returns all that the book knows.
func (b *Book) List(now time.Duration) *List {
	b.expire(now)
	l := &List{
		Leases: []Lease{}, Reservations: append([]Reservation{}, b.reservations...), Waiting: []Waiter{}, Unleased: []Unleased{},
		Pool: b.Pool, Closed: b.Closed,
	}
	for _, e := range b.entries {
		if e.Grant != nil {
			l.Leases = append(l.Leases, e.Lease)
		} else {
			l.Waiting = append(l.Waiting, Waiter{e.Peer, e.Wish.Count, e.Since})
		}
	}
	leased := b.leased()
	for i := range b.Inventory.LPUs {
		u := b.lpu(i)
		l.UsersHidden = l.UsersHidden || u.UsersHidden
		if len(u.Users) > 0 && leased[u.Address] == nil {
			l.Unleased = append(l.Unleased, Unleased{LPU{u.Address, u.Name}, u.Users})
		}
	}
	return l
}

func (b *Book) entry(conn Conn) *entry {
	for _, e := range b.entries {
		if e.conn == conn && !e.Gone {
			return e
		}
	}
	return nil
}

// end takes an entry out.
func (b *Book) end(now time.Duration, gone *entry) {
	b.entries = slices.DeleteFunc(b.entries, func(e *entry) bool { return e == gone })
	b.changed.Leases = true
	if gone.Grant != nil {
		for _, l := range gone.LPUs {
			b.ended[l.Address] = end{at: now, uid: gone.UID}
		}
	}
}

// queue are the wishes that wait, in their order.
func (b *Book) queue() []*entry {
	return slices.DeleteFunc(slices.Clone(b.entries), func(e *entry) bool { return e.Grant != nil })
}

// serve grants what can be granted to those who wait, in their order, and tells the
// others where they are now.
func (b *Book) serve(now time.Duration) {
	b.expire(now)
	blocked := map[pci.Address]bool{}
	for _, e := range b.queue() {
		if refused := b.never(e.UID, &e.Wish.Selection, e.Wish.For); refused != nil && refused.ID == finding.LeaseClosed {
			b.end(now, e)
			b.send(e.conn, Answer{Refused: refused})
			continue
		}
		if d := b.choose(e.UID, &e.Wish.Selection, blocked, b.Began); d != nil {
			b.grant(now, e, d)
			continue
		}
		b.claim(blocked, e)
	}
	b.tell(now)
}

// blocked are the LPUs that wishes in the queue could use. No wish that comes later gets
// these.
func (b *Book) blocked() map[pci.Address]bool {
	blocked := map[pci.Address]bool{}
	for _, e := range b.queue() {
		b.claim(blocked, e)
	}
	return blocked
}

func (b *Book) claim(blocked map[pci.Address]bool, e *entry) {
	for _, card := range b.possible(e.UID, &e.Wish.Selection) {
		blocked[b.lpu(card).Address] = true
	}
}

func (b *Book) grant(now time.Duration, e *entry, d *allocate.Decision) {
	e.Grant = b.granted(now, e, d)
	e.Grant.ID = e.ID
	e.LPUs, e.Since, e.Until = e.Grant.LPUs, now, e.Grant.Until
	b.changed.Leases = true
	b.promise(e.conn, Answer{Granted: e.Grant}, func() { b.end(now, e) })
}

func (b *Book) granted(now time.Duration, e *entry, d *allocate.Decision) *Grant {
	g := &Grant{
		LPUs: b.lpus(d.Chosen), Connected: d.Connected, UsersHidden: d.Explanation.UsersHidden, Reason: d.Explanation.Reason,
	}
	limit := e.Wish.For
	// The limit may have been lowered while the wish waited.
	if most := b.Limits.Time; e.UID != 0 && most > 0 && (limit == 0 || limit > most) {
		limit = most
	}
	if limit > 0 {
		g.Until = now + limit
	}
	return g
}

// tell says to each who waits where it is in the queue, if that is something new.
func (b *Book) tell(now time.Duration) {
	queue, blocked := b.queue(), map[pci.Address]bool{}
	for i, e := range queue {
		const noTime = -1
		p := Place{Place: i + 1, Of: len(queue), Why: b.why(noTime, e, blocked)}
		if p != e.place {
			e.place = p
			p.Why = b.why(now, e, blocked)
			b.send(e.conn, Answer{Waiting: &p})
		}
		b.claim(blocked, e)
	}
}

// leased are the leases, by LPU.
func (b *Book) leased() map[pci.Address]*entry {
	leased := map[pci.Address]*entry{}
	for _, e := range b.entries {
		for _, l := range e.LPUs {
			leased[l.Address] = e
		}
	}
	return leased
}

// reserved are the LPUs that a user has reserved, and those that others have.
func (b *Book) reserved(uid int) (own, others map[pci.Address]bool) {
	own, others = map[pci.Address]bool{}, map[pci.Address]bool{}
	for _, r := range b.reservations {
		by := others
		if r.UID == uid {
			by = own
		}
		for _, l := range r.LPUs {
			by[l.Address] = true
		}
	}
	return own, others
}

// has are the LPUs that a user has leased or reserved.
func (b *Book) has(uid int) map[pci.Address]bool {
	has, _ := b.reserved(uid)
	for _, e := range b.entries {
		if e.UID == uid {
			for _, l := range e.LPUs {
				has[l.Address] = true
			}
		}
	}
	return has
}

// overLimit reports whether a user would have too much with so many LPUs more, or has a
// lease whose time is over.
func (b *Book) overLimit(uid, more int) bool {
	if uid == 0 {
		return false
	}
	return b.overdue(uid) != nil || b.Limits.LPUs > 0 && len(b.has(uid))+more > b.Limits.LPUs
}

// overdue is a lease of a user whose time is over; nil if there is none.
func (b *Book) overdue(uid int) *entry {
	for _, e := range b.entries {
		if e.UID == uid && e.over {
			return e
		}
	}
	return nil
}

// suspects are the users whose leases have ended, and of whom it is not known whether they
// still use the LPUs.
func (b *Book) suspects() map[int]bool {
	uids := map[int]bool{}
	for _, e := range b.ended {
		if !e.clear {
			uids[e.uid] = true
		}
	}
	return uids
}

// unclear is a process of a user that may still use what the user had leased; nil if
// there is none.
func (b *Book) unclear(uid int) *discovery.Unclear {
	for i := range b.Unclear {
		if b.Unclear[i].UID == uid {
			return &b.Unclear[i]
		}
	}
	return nil
}

// keptBack is the process because of which an LPU whose lease has ended is kept from
// other users; nil if there is none.
func (b *Book) keptBack(uid int, a pci.Address) *discovery.Unclear {
	e, ended := b.ended[a]
	if !ended || e.clear || e.uid == uid {
		return nil
	}
	return b.unclear(e.uid)
}

// containers are the containers that leases last as long as.
func (b *Book) containers() []string {
	ids := map[string]bool{}
	for _, e := range b.entries {
		if e.Container != "" {
			ids[e.Container] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// waiting reports whether a connection waits for a lease.
func (b *Book) waiting(conn Conn) bool {
	e := b.entry(conn)
	return e != nil && e.Grant == nil
}
