package lease

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
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
	LPUs    int           // that are leased or reserved; 0: no limit
	Time    time.Duration // of a lease, and of a reservation from now on; 0: no limit
	Waiting int           // wishes in the queue; 0: no limit
	// AllWaiting is how many wishes of all users wait at most; 0: no limit. Those of root
	// count, and are not refused.
	AllWaiting int
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
	Backfill  bool                 // a wish goes first where no wish ahead starts later by that
	// Pods are the LPUs that pods of Kubernetes have, and by whom: "pod default/a,
	// container main". They need not have opened them yet.
	Pods         map[pci.Address]string
	Closed       string // why no LPU can be leased; "": they can
	ClosedRemedy string // what to do about that; "": set some apart
	// Containers are the control groups in which processes are, by the ids of containers.
	Containers map[string][]Group
	// Unclear are processes of users whose leases have ended, which may use the LPUs of these
	// leases though no look finds that they have them open.
	Unclear []discovery.Unclear
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

	leases       []*entry        // in the order in which they were asked for
	queue        []*entry        // the wishes that wait, in their order
	open         map[Conn]*entry // of both, those whose connection is not closed
	asked        uint64
	reservations []Reservation
	last         uint64               // number of the latest reservation
	ended        map[pci.Address]*end // the latest lease of an LPU
	hooks        bool                 // a hook has to succeed before an LPU is given to the next one
	hookLimit    time.Duration        // after which a hook has ended
	noted        []Kept               // that are written down as kept back, as of the latest look

	line  line
	state uint64 // what List returns stays the same while this does, and no reservation ends

	out     []Message
	changed Changes
	steps   []step // of the queue, since the latest takeSteps
}

// entry is a connection that has a lease or waits for one.
type entry struct {
	Lease
	Wish  Wish   `json:"wish"`
	Grant *Grant `json:"grant,omitempty"` // nil: it waits
	// Gone: the connection is closed, and the lease lasts until its container has ended.
	Gone bool `json:"gone,omitempty"`
	// Groups are those in which the container was when the lease was bound to it.
	Groups []Group `json:"groups,omitempty"`
	// MayEnd: the user could end that container, so the arbiter may when its time is over.
	MayEnd bool `json:"mayEnd,omitempty"`

	conn  Conn
	asked uint64 // a later entry has a higher number
	over  bool   // Over was sent to the holder, or the holder is gone
	taken bool   // root has ended the lease
	place Place  // that was sent to the waiter, without times
	// askedToEnd is when the processes of the container were sent SIGTERM, or it was said that
	// they may not be; 0: not yet.
	askedToEnd time.Duration
	claims
}

// Changes says which records are to be written.
type Changes struct{ Leases, Reservations bool }

func (c Changes) and(d Changes) Changes {
	return Changes{c.Leases || d.Leases, c.Reservations || d.Reservations}
}

// NewBook returns a book of a node that the arbiter has not looked at yet, so that
// nothing can be leased.
func NewBook() *Book {
	b := &Book{ended: map[pci.Address]*end{}, open: map[Conn]*entry{}, line: newLine()}
	b.look(View{Inventory: &discovery.Inventory{}})
	return b
}

// look takes the cabling whatever the health is: what is sick is not offered, and who
// waits for it may get it when it is well again.
func (b *Book) look(v View) {
	fabric := v.Inventory.Cabled()
	if b.Inventory == nil || !b.offersAs(&v) || !reflect.DeepEqual(b.fabric, fabric) {
		b.line.era++
	}
	b.View, b.fabric = v, fabric
}

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
	b.state++
	b.look(v)
	for _, e := range b.ended {
		e.clear = e.clear || e.Since < v.Began && b.unclear(e.UID) == nil
	}
	for _, e := range slices.Clone(b.leases) {
		if e.Gone && (!runs(e.Groups, v.Containers[e.Container]) || b.forfeited(e)) {
			b.end(now, e)
		}
	}
	b.noteKept()
	b.serve(now)
}

// Wish asks for a lease. It returns false, and does nothing, if a look at the node that
// begins now might show more free LPUs, and the answer depends on that.
func (b *Book) Wish(now time.Duration, conn Conn, peer Peer, w Wish) bool {
	b.state++
	b.expire(now)
	peer.Command = cmp.Or(w.Command, peer.Command)
	e := &entry{Lease: Lease{ID: fmt.Sprintf("l%d", conn), Peer: peer, Since: now}, Wish: w, conn: conn}
	refused := b.never(e.UID, &w.Selection, w.For)
	if b.open[conn] != nil {
		refused = refuse(finding.LeaseRequest, "this connection has a lease or waits for one", "ask for another over another connection")
	}
	if refused != nil {
		b.send(conn, Answer{Refused: refused})
		return true
	}
	blocked := b.blocked()
	d := b.choose(e.UID, &w.Selection, blocked, b.Began)
	if d == nil {
		d = b.goesFirst(now, e)
	}
	switch {
	case d == nil && !w.Wait && b.choose(e.UID, &w.Selection, blocked, now) != nil:
		return false
	case d != nil && w.DryRun:
		b.send(conn, Answer{Granted: b.granted(now, e, d)})
	case d != nil:
		b.enter(e)
		b.grant(now, e, d)
	case w.Wait && !w.DryRun:
		if full := b.full(e.UID); full != nil {
			b.send(conn, Answer{Refused: full})
			break
		}
		b.enter(e)
		b.wait(e)
		b.say(now, e, len(b.queue), blocked)
	default:
		b.send(conn, Answer{Refused: b.noneFree(now, e.UID, &w.Selection, blocked)})
	}
	return true
}

// Drop says that a connection is closed: its lease ends, or it waits no longer.
func (b *Book) Drop(now time.Duration, conn Conn) {
	b.state++
	e := b.open[conn]
	switch {
	case e == nil:
	case e.Container != "":
		delete(b.open, conn)
		e.Gone, b.changed.Leases = true, true
	default:
		b.end(now, e)
		b.serve(now)
	}
}

// Bind makes the lease of a connection last until a container ends.
func (b *Book) Bind(conn Conn, container string) {
	b.state++
	e := b.open[conn]
	switch {
	case e == nil || e.Grant == nil:
		b.refuse(conn, finding.LeaseRequest, "this connection has no lease", "ask for a lease first")
	case len(ofUser(b.Containers[container], e.UID)) == 0:
		b.refuse(conn, finding.LeaseNoContainer, "no process of container "+container[:12]+" runs", "bind a lease while the container runs")
	default:
		before := *e
		e.Container, e.Groups, b.changed.Leases = container, ofUser(b.Containers[container], e.UID), true
		e.MayEnd = e.UID == 0 || !slices.ContainsFunc(e.Groups, func(g Group) bool { return g.owner == 0 })
		b.promise(conn, Answer{Done: &struct{}{}}, func() { e.Container, e.Groups, e.MayEnd = before.Container, before.Groups, before.MayEnd })
	}
}

// Reserve keeps LPUs that are free for a user. It returns false, and does nothing, where
// Wish does.
func (b *Book) Reserve(now time.Duration, conn Conn, peer Peer, r Reserve) bool {
	b.state++
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
	for i := range blocked {
		blocked[i] = blocked[i] || own[b.lpu(i).Address]
	}
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
	b.untell()
	return true
}

// Release ends a reservation.
func (b *Book) Release(now time.Duration, conn Conn, uid int, id string) {
	b.state++
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
	b.state++
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
	b.untell()
}

// keep adds a reservation, in the order of ids.
func (b *Book) keep(r Reservation) {
	b.line.era++
	b.reservations = append(b.reservations, r)
	slices.SortFunc(b.reservations, func(x, y Reservation) int { return cmp.Or(cmp.Compare(len(x.ID), len(y.ID)), cmp.Compare(x.ID, y.ID)) })
}

func (b *Book) unreserve(id string) {
	b.line.era++
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
	if ended = len(b.reservations) < before; ended {
		b.state++
		b.line.era++
		b.changed.Reservations = true
	}
	for _, e := range b.leases {
		if e.isOver(now) && !e.over {
			e.over = true
			b.line.eraOf[e.UID]++
			if !e.Gone {
				b.send(e.conn, Answer{Over: &Over{}})
			}
		}
	}
	return ended
}

// isOver reports whether the time of a lease is over.
func (e *entry) isOver(now time.Duration) bool {
	return e.Until != 0 && e.Until <= now
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
	for _, e := range b.leases {
		if !e.over {
			earlier(e.Until)
		}
	}
	return next
}

// Watches reports whether changes at the node matter though no client asks: a wish waits,
// a lease lasts as long as a container, or an LPU is kept back after one.
func (b *Book) Watches() bool {
	if b.cleans() || b.ends() {
		return true
	}
	return len(b.queue) > 0 || slices.ContainsFunc(b.leases, func(e *entry) bool { return e.Gone })
}

// Keeps reports whether a connection has a lease or waits for one.
func (b *Book) Keeps(conn Conn) bool { return b.open[conn] != nil }

// List returns all that the book knows.
func (b *Book) List(now time.Duration) *List {
	b.expire(now)
	l := &List{
		Leases: []Lease{}, Reservations: append([]Reservation{}, b.reservations...), Waiting: []Waiter{}, Unleased: []Unleased{},
		Pool: b.Pool, Closed: b.Closed,
	}
	for _, e := range b.leases {
		l.Leases = append(l.Leases, e.Lease)
	}
	for _, e := range b.queue {
		l.Waiting = append(l.Waiting, Waiter{e.Peer, e.Wish.Count, e.Since})
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

// enter takes in an entry.
func (b *Book) enter(e *entry) {
	b.asked++
	e.asked = b.asked
	b.open[e.conn] = e
}

// end takes an entry out.
func (b *Book) end(now time.Duration, gone *entry) {
	if b.open[gone.conn] == gone {
		delete(b.open, gone.conn)
	}
	if gone.Grant == nil {
		b.leave(gone)
		return
	}
	b.leases = slices.DeleteFunc(b.leases, func(e *entry) bool { return e == gone })
	b.line.eraOf[gone.UID]++
	b.changed.Leases = true
	for _, l := range gone.LPUs {
		b.ended[l.Address] = &end{Kept: Kept{LPU: l, Peer: gone.Peer, Since: now, Hook: b.hooks}}
	}
}

func (b *Book) grant(now time.Duration, e *entry, d *allocate.Decision) {
	g := b.granted(now, e, d)
	g.ID = e.ID
	b.leave(e)
	e.Grant, e.LPUs, e.Since, e.Until = g, g.LPUs, now, g.Until
	b.hold(e)
	b.promise(e.conn, Answer{Granted: e.Grant}, func() {
		b.end(now, e)
		for _, l := range e.LPUs { // which the user has not had
			b.ended[l.Address].Hook = false
		}
	})
}

func (b *Book) granted(now time.Duration, e *entry, d *allocate.Decision) *Grant {
	g := &Grant{
		LPUs: b.lpus(d.Chosen), Connected: d.Connected, UsersHidden: d.Explanation.UsersHidden, Reason: d.Explanation.Reason,
	}
	if limit := b.limit(e); limit > 0 {
		g.Until = now + limit
	}
	return g
}

// limit is the time of a lease, if a wish is fulfilled; 0: it has none. What a user may
// have can have been lowered while the wish waited.
func (b *Book) limit(e *entry) time.Duration {
	limit := e.Wish.For
	if most := b.Limits.Time; e.UID != 0 && most > 0 && (limit == 0 || limit > most) {
		return most
	}
	return limit
}

// hold takes in a lease.
func (b *Book) hold(e *entry) {
	i, _ := slices.BinarySearchFunc(b.leases, e.asked, func(e *entry, asked uint64) int { return cmp.Compare(e.asked, asked) })
	b.leases = slices.Insert(b.leases, i, e)
	b.line.eraOf[e.UID]++
	b.changed.Leases = true
}

// leased are the leases, by LPU.
func (b *Book) leased() map[pci.Address]*entry {
	leased := map[pci.Address]*entry{}
	for _, e := range b.leases {
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
	for _, e := range b.leases {
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
	for _, e := range b.leases {
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
			uids[e.UID] = true
		}
	}
	return uids
}

// unclear is a process of a user that may still use what the user had leased; nil if
// there is none.
func (b *Book) unclear(uid int) *discovery.Unclear {
	for i := range b.Unclear {
		if b.Unclear[i].Of == uid {
			return &b.Unclear[i]
		}
	}
	return nil
}

// keptBack is the process because of which an LPU whose lease has ended is kept from
// other users; nil if there is none.
func (b *Book) keptBack(uid int, a pci.Address) *discovery.Unclear {
	e := b.ended[a]
	if e == nil || e.clear || e.UID == uid {
		return nil
	}
	return b.unclear(e.UID)
}

// containers are the containers that leases last as long as.
func (b *Book) containers() []string {
	ids := map[string]bool{}
	for _, e := range b.leases {
		if e.Container != "" {
			ids[e.Container] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// waiting reports whether a connection waits for a lease.
func (b *Book) waiting(conn Conn) bool {
	e := b.open[conn]
	return e != nil && e.Grant == nil
}
