package lease

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

const (
	maxConnections = 64 // of one user who is not root
	// After this time a connection is closed that holds nothing and waits for nothing.
	silence   = 10 * time.Second
	maxLooks  = 5           // at the node, for one wish
	listFresh = time.Second // how old a look may be for a list
)

// While wishes wait, or a lease lasts as long as a container, the node is looked at again
// and again: soon after a lease has ended, because its processes may need a moment to
// end, and then ever more seldom. What a look takes says how often is seldom, so that all
// of them together take a thousandth of a processor.
const (
	firstPause = 10 * time.Millisecond
	leastPause = time.Second
	mostPause  = 10 * time.Second
	dutyCycle  = 1000
)

// Arbiter gives LPUs to those who ask for them over a socket.
type Arbiter struct {
	Listener *net.UnixListener // of type SOCK_SEQPACKET
	// Kept are connections of the arbiter before, with the names under which they were
	// stored.
	Kept []*os.File
	// Store is what keeps the connections when the arbiter ends; nil: nothing does.
	Store        *Store
	Leases       File
	Reservations File
	Idle         time.Duration // after which an arbiter without connections ends; 0: never

	// Look looks at the node. Of these containers it tells which run. It sets all of a
	// View but Began.
	Look func(ctx context.Context, containers []string) (View, error)
	// Closed says why these LPUs cannot be leased at this moment, and what to do about
	// that, as ClosedRemedy of a View does; "": they can. It is asked when a lease is
	// written down and before the user is answered: a program that has handed out LPUs
	// since the look has seen the record, or is seen here, or what it handed out is. nil:
	// as the look says.
	Closed func(lpus []pci.Address) (why, remedy string)
	// Describe says who a peer is, of whom the kernel has said uid and process; see
	// [Identify]. It may take a second, and is called beside the loop of Serve.
	Describe func(context.Context, Peer) (Peer, *Refusal)
	Log      *slog.Logger

	boot     string
	book     *Book
	arriving map[*net.UnixConn]bool // of whom it is not known yet who they are
	conns    map[Conn]*connection
	last     Conn
	events   chan func()

	asks    []*ask // that wait for a look at the node
	looking bool
	pause   time.Duration // until the next look where one is due by itself
	unsaved Changes
	clocks  clocks

	presence   filelock.Presence // shown while the record of leases is there
	writeError string            // the latest, which is said once
}

// clocks say when something is to be done that no client asked for.
type clocks struct{ expire, look, idle, keep *time.Timer }

// ask is a request that needs a look at the node that begins after it came.
type ask struct {
	*connection
	request *Request
	came    time.Duration
	looks   int
}

// Serve serves until ctx ends, or until no client has been connected for a while. Who has
// a lease then keeps it if a store has the connections, until the next Serve.
func (a *Arbiter) Serve(ctx context.Context) error {
	lock, err := filelock.Hold(ctx, a.Leases.Path)
	if err != nil {
		return err
	}
	defer lock.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.presence = a.Leases.presence()
	defer a.presence.Hide()
	a.boot, a.book, a.events = host.Now().Boot, NewBook(), make(chan func())
	a.arriving, a.conns = map[*net.UnixConn]bool{}, map[Conn]*connection{}
	a.clocks = clocks{stopped(), stopped(), stopped(), stopped()}
	defer func() {
		if a.Store == nil {
			a.endLeases()
		}
		for _, c := range a.conns {
			_ = c.Close()
		}
		for conn := range a.arriving {
			_ = conn.Close()
		}
	}()
	if err := a.restore(ctx); err != nil {
		return err
	}
	if a.Store == nil {
		a.Log.Warn("no service manager keeps the connections: leases end with the arbiter", "id", finding.LeaseNoStore)
	}
	defer func() { _ = a.Listener.Close() }()
	accepting := a.accept(ctx)
	go host.Follow(ctx, func() { a.do(ctx, a.keepRecords) }, a.Leases.Path, a.Reservations.Path)
	for {
		a.flush()
		a.wind()
		select {
		case <-ctx.Done():
			return nil
		case do := <-a.events:
			do()
		case <-a.clocks.expire.C:
			a.book.Expire(host.SinceBoot())
		case <-a.clocks.look.C:
			a.look(ctx)
		case <-a.clocks.keep.C:
			a.keepRecords()
		case err := <-accepting:
			return fmt.Errorf("%s: %w", a.Listener.Addr(), err)
		case <-a.clocks.idle.C:
			if a.rest(accepting) {
				a.Log.Info("nobody is connected: ended until somebody is")
				return nil
			}
			accepting = a.accept(ctx)
		}
	}
}

// endLeases ends the leases of all connections, which nothing keeps, and writes that
// down: programs that hand out LPUs to pods read the record.
func (a *Arbiter) endLeases() {
	for conn := range a.conns {
		a.hangUp(conn)
	}
	a.book.Outbox() // of which no one is left
	a.unsaved.Leases = true
	if err := a.write(); err != nil {
		a.Log.Error("the records cannot be written, and name leases that have ended", "error", err, "id", finding.LeaseUnrecorded)
	}
}

func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// do has the loop of Serve do something.
func (a *Arbiter) do(ctx context.Context, what func()) {
	select {
	case a.events <- what:
	case <-ctx.Done():
	}
}

// restore takes up what the arbiter before has left.
func (a *Arbiter) restore(ctx context.Context) error {
	leases, said, err := a.Leases.Read(a.boot)
	if err != nil {
		return err
	}
	reservations, more, err := a.Reservations.Read(a.boot)
	if err != nil {
		return err
	}
	a.last = Conn(leases.Last)
	recorded := map[Conn]bool{}
	for _, e := range leases.Leases {
		recorded[e.conn] = !e.Gone
	}
	for _, f := range a.Kept {
		n, err := number(f.Name(), StoredPrefix)
		if err != nil { // it is not one of ours
			f.Close()
			continue
		}
		conn := Conn(n)
		a.last = max(a.last, conn)
		c, err := reopen(f)
		switch {
		case err != nil:
			more.Add(finding.LeaseEnded, f.Name(), "the connection that was kept cannot be used: "+err.Error(), "")
		case !recorded[conn] || a.conns[conn] != nil:
			_ = c.Close()
			more.Add(finding.LeaseEnded, f.Name(), "the connection that was kept is in no record", "")
		default:
			c.conn, c.stored = conn, true
			a.conns[conn] = c
			continue
		}
		a.Store.forget(conn)
	}
	ended := a.book.Restore(host.SinceBoot(), leases, reservations, func(c Conn) bool { return a.conns[c] != nil })
	for _, f := range slices.Concat(said, more, ended) {
		a.Log.Warn(f.Message, "subject", f.Subject, "id", f.ID)
	}
	a.keepRecords()
	for _, c := range a.conns {
		c.peer = a.book.entry(c.conn).Peer
		go a.read(ctx, c)
	}
	out, _ := a.book.Outbox()
	for _, m := range out { // to holders, of which most know it: no matter if it cannot be sent
		_ = a.conns[m.Conn].send(m.Answer)
	}
	if a.book.Watches() {
		a.look(ctx)
	}
	return nil
}

// rest ends the arbiter if no client is connected and no client has just come. It stops
// accepting first: who comes later waits at the socket, which the service manager
// watches. The result is false if a client came.
func (a *Arbiter) rest(accepting <-chan error) bool {
	_ = a.Listener.SetDeadline(time.Unix(1, 0))
	for {
		select {
		case do := <-a.events:
			do()
			continue
		case <-accepting: //nolint:errcheck // the deadline
		}
		break
	}
	if a.idle() {
		return true
	}
	_ = a.Listener.SetDeadline(time.Time{})
	return false
}

// idle reports whether no client is connected, and no lease lasts as long as a container.
func (a *Arbiter) idle() bool {
	return len(a.conns)+len(a.arriving) == 0 && !a.book.Watches()
}

// wind sets the clocks.
func (a *Arbiter) wind() {
	if next := a.book.Next(); next != 0 {
		a.clocks.expire.Reset(next - host.SinceBoot())
	}
	a.clocks.idle.Stop()
	if a.Idle > 0 && a.idle() {
		a.clocks.idle.Reset(a.Idle)
	}
}

// hangUp forgets a connection.
func (a *Arbiter) hangUp(conn Conn) {
	c := a.conns[conn]
	if c == nil {
		return
	}
	delete(a.conns, conn)
	_ = c.Close()
	if c.stored {
		a.Store.forget(conn)
	}
	a.asks = slices.DeleteFunc(a.asks, func(k *ask) bool { return k.conn == conn })
	if e := a.book.entry(conn); e != nil {
		a.Log.Info("hung up", "lease", e.ID, "user", c.peer.String(), "container", e.Container, "waited", e.Grant == nil)
		a.book.Drop(host.SinceBoot(), conn)
		a.lookSoon()
	}
}

// lookSoon has the node looked at, if a client waits for what has just become free, or a
// lease lasts as long as a container.
func (a *Arbiter) lookSoon() {
	a.pause = firstPause
	if a.book.Watches() {
		a.clocks.look.Reset(0)
	}
}

// request does what a client asks.
func (a *Arbiter) request(ctx context.Context, c *connection, r *Request, err error) {
	now := host.SinceBoot()
	switch {
	case a.conns[c.conn] != c: // it was closed in the meantime
	case c.busy || a.book.waiting(c.conn): // one request at a time: it is ignored
	case err != nil:
		a.book.refuse(c.conn, finding.LeaseRequest, "this is not a request: "+err.Error(),
			"after an update start the arbiter again: sudo systemctl try-restart lpuctl-lease.service")
	case r.Release != nil:
		a.book.Release(now, c.conn, c.peer.UID, r.Release.ID)
		a.lookSoon()
	case r.List != nil && a.book.Began > now-listFresh:
		a.list(c)
	default:
		c.busy = true
		a.asks = append(a.asks, &ask{connection: c, request: r, came: now})
		a.look(ctx)
	}
}

// answer does what a client asks, after a look at the node. It returns false if it takes
// a later one.
func (a *Arbiter) answer(c *connection, r *Request) bool {
	now := host.SinceBoot()
	switch {
	case r.Wish != nil:
		return a.book.Wish(now, c.conn, c.peer, *r.Wish)
	case r.Reserve != nil:
		return a.book.Reserve(now, c.conn, c.peer, *r.Reserve)
	case r.Extend != nil:
		a.book.Extend(now, c.conn, c.peer.UID, r.Extend.ID, r.Extend.For)
	case r.Bind != nil:
		a.book.Bind(c.conn, r.Bind.Container)
	default:
		a.list(c)
	}
	return true
}

func (a *Arbiter) list(c *connection) {
	a.book.send(c.conn, Answer{List: a.book.List(host.SinceBoot())})
}

// look looks at the node, beside the loop of Serve. There is one look at a time.
func (a *Arbiter) look(ctx context.Context) {
	if a.looking {
		return
	}
	a.looking = true
	a.clocks.look.Stop()
	containers := a.book.containers()
	began := host.SinceBoot()
	for _, k := range a.asks {
		k.looks++
		if k.request.Bind != nil {
			containers = append(containers, k.request.Bind.Container)
		}
	}
	go func() {
		view, err := a.Look(ctx, containers)
		view.Began = began
		a.do(ctx, func() { a.looked(ctx, view, err) })
	}()
}

// looked takes what a look has shown.
func (a *Arbiter) looked(ctx context.Context, view View, err error) {
	a.looking = false
	now := host.SinceBoot()
	if err == nil {
		a.book.See(now, view)
	} else {
		a.Log.Error("the node cannot be looked at", "error", err)
	}
	a.asks = slices.DeleteFunc(a.asks, func(k *ask) bool {
		if k.came >= view.Began { // it came during the look, and the next one counts for it
			return false
		}
		settled := err == nil && a.answer(k.connection, k.request)
		switch {
		case err != nil:
			a.book.refuse(k.conn, finding.LeaseRequest, "the node cannot be looked at: "+err.Error(), "see what is wrong: lpuctl list")
		case !settled && k.looks < maxLooks:
			return false
		case !settled:
			a.book.refuse(k.conn, finding.LeaseNoneFree, "leases end faster than the node can be looked at", "ask again")
		}
		k.busy = false
		return true
	})
	if len(a.asks) > 0 {
		a.look(ctx)
	} else if a.book.Watches() {
		a.pause = max(a.pause, firstPause)
		a.clocks.look.Reset(a.pause)
		seldom := min(mostPause, max(leastPause, dutyCycle*(now-view.Began)))
		a.pause = min(2*a.pause, seldom)
	}
}

// flush keeps the connections and writes the records, and then sends the answers.
func (a *Arbiter) flush() {
	out, changed := a.book.Outbox()
	for _, m := range out {
		if c := a.conns[m.Conn]; c != nil && !c.stored && a.Store != nil && a.book.Keeps(m.Conn) {
			err := a.Store.keep(c)
			if err != nil {
				a.Log.Error("the service manager does not keep a connection: its lease would end with the arbiter", "error", err)
			}
			c.stored = err == nil
		}
	}
	a.unsaved = Changes{a.unsaved.Leases || changed.Leases, a.unsaved.Reservations || changed.Reservations}
	err := a.write()
	if err != nil {
		out = Unwritten(out, err)
	}
	if text := fmt.Sprint(err); err != nil && text != a.writeError {
		a.Log.Error("the records cannot be written", "error", text, "id", finding.LeaseUnrecorded)
		a.writeError = text
	}
	if err == nil {
		_ = a.presence.Show() // if not, a program that starts while the record is lost sees no leases
		out = a.withdraw(out)
	}
	for _, m := range out {
		a.deliver(m)
	}
}

// withdraw takes back what answers promise if no LPU can be leased any more.
func (a *Arbiter) withdraw(out []Message) []Message {
	var promised []pci.Address
	for _, m := range out {
		for _, l := range m.promised() {
			promised = append(promised, l.Address)
		}
	}
	if a.Closed == nil || len(promised) == 0 {
		return out
	}
	why, remedy := a.Closed(promised)
	if why == "" {
		return out
	}
	out = withdrawn(out, why, remedy)
	a.unsaved = Changes{true, true}
	// If this fails, the record names leases that no user has. It is written with the next
	// change.
	if err := a.write(); err != nil {
		a.Log.Error("the records cannot be written", "error", err, "id", finding.LeaseUnrecorded)
	}
	return out
}

// write writes the records that have changed.
func (a *Arbiter) write() error {
	leases, reservations := a.book.Records(a.boot, a.last)
	if a.unsaved.Leases {
		if err := a.Leases.Write(leases); err != nil {
			return err
		}
		a.unsaved.Leases = false
	}
	if a.unsaved.Reservations {
		if err := a.Reservations.Write(reservations); err != nil {
			return err
		}
		a.unsaved.Reservations = false
	}
	return nil
}

// keepRecords has records written again that were removed or spoiled: programs that hand
// out LPUs to pods read them. Then it looks once more a second later.
func (a *Arbiter) keepRecords() {
	leases, reservations := a.book.Records(a.boot, a.last)
	none := len(reservations.Reservations) == 0 && host.State(a.Reservations.Path) == ""
	lost := Changes{!a.Leases.has(leases), !none && !a.Reservations.has(reservations)}
	if lost == (Changes{}) {
		return
	}
	a.unsaved = Changes{a.unsaved.Leases || lost.Leases, a.unsaved.Reservations || lost.Reservations}
	a.clocks.keep.Reset(time.Second)
}

// deliver sends an answer. No client can make the arbiter wait: the arbiter hangs up on a
// client that does not read the answers, unless nothing is lost by it.
func (a *Arbiter) deliver(m Message) {
	c := a.conns[m.Conn]
	if c == nil {
		return
	}
	if g := m.Granted; g != nil && g.ID != "" {
		a.Log.Info("leased", "lease", g.ID, "user", c.peer.String(), "program", c.peer.Command, "pid", c.peer.PID, "lpus", named(g.LPUs))
	}
	if r := m.Reserved; r != nil {
		a.Log.Info("reserved", "reservation", r.ID, "user", r.String(), "lpus", named(r.LPUs), "reason", r.Reason)
	}
	err := c.send(m.Answer)
	if !a.book.Keeps(m.Conn) {
		if c.stored {
			a.Store.forget(m.Conn)
			c.stored = false
		}
		_ = c.SetReadDeadline(time.Now().Add(silence))
	}
	if err != nil && m.Waiting == nil && m.Over == nil {
		a.hangUp(m.Conn)
	}
}

func named(lpus []LPU) (names []string) {
	for _, l := range lpus {
		names = append(names, l.Name)
	}
	return names
}
