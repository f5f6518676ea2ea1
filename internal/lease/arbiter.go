package lease

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/usage"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

const (
	maxConnections = 64 // of one user who is not root
	// Of all users: more than wait and have LPUs where each is at its limit, and fewer than
	// LimitNOFILE of lpuctl-lease.service.
	allConnections = 6144
	// After this time a connection is closed that holds nothing and waits for nothing.
	silence   = 10 * time.Second
	maxLooks  = 5                // at the node, for one wish
	batch     = 16               // users whose turn it is, and wishes in the queue, at a time
	tellPause = time.Millisecond // between two of these
	listFresh = time.Second      // how old a look may be for a list
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
	// Usage is where it is recorded who has used what; kept for no time: what was recorded
	// is removed. nil: neither.
	Usage *usage.Journal

	// Look looks at the node. It sets all of a View but Began. One ends before the next
	// begins.
	Look func(ctx context.Context, seek Seek) (View, error)
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
	// End has the processes of a container end whose time is over. It is called beside the
	// loop of Serve, and not during a look; nil: they are left alone.
	End func(context.Context, Ending) error
	// Daemons are sockets of container engines: who may write to one could end the containers
	// of root.
	Daemons []string
	Hook    *Hook // that cleans LPUs between two leases; nil: none
	// Relay is for tests: descriptors are passed, and other processes read the connections,
	// as before Linux 6.16.
	Relay bool

	boot     string
	book     *Book
	arriving map[*connection]bool // of whom it is not known yet who they are
	conns    map[Conn]*connection
	of       map[int]map[Conn]*connection // the same, by user
	most     int                          // connections
	last     Conn
	over     <-chan struct{} // closed when Serve ends
	events   chan func()
	arrivals chan *net.UnixConn
	turns    *turns
	relays   map[int]*relay
	storing  *storing // nil: nothing keeps connections
	journal  journal
	ledger   ledger
	listed   *Answer // a list
	listedAt uint64  // of [Book.state]

	asks    []*ask // that wait for a look at the node
	looking bool
	telling bool          // the clock says when to go on
	pause   time.Duration // until the next look where one is due by itself
	unsaved Changes
	clocks  clocks

	hooks   sync.WaitGroup
	unclear map[int]bool // the processes of which it is said that they keep LPUs back

	presence   filelock.Presence // shown while the record of leases is there
	writeError string            // the latest, which is said once
}

// clocks say when something is to be done that no client asked for.
type clocks struct{ expire, look, idle, keep, tell *time.Timer }

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
	a.start(ctx)
	defer a.stop(ctx)
	if a.storing != nil {
		var stored sync.WaitGroup
		stored.Go(func() { a.storing.run(ctx) })
		defer stored.Wait()
	}
	defer cancel()
	if err := a.restore(ctx); err != nil {
		return err
	}
	if a.Store == nil {
		a.Log.Warn("no service manager keeps the connections: leases end with the arbiter", "id", finding.LeaseNoStore)
	}
	defer func() { _ = a.Listener.Close() }()
	if !a.Relay {
		refuseRights(a.Listener)
	}
	go host.Follow(ctx, func() { a.do(a.keepRecords) }, a.Leases.Path, a.Reservations.Path, a.journal.Path)
	return a.loop(ctx, a.accept(ctx))
}

// loop does one thing at a time: nothing that it does may sleep.
func (a *Arbiter) loop(ctx context.Context, accepting <-chan error) error {
	for {
		a.flush(ctx)
		a.wind()
		select {
		case <-ctx.Done():
			return nil
		case conn := <-a.room():
			a.admit(ctx, conn)
		case err := <-accepting:
			return fmt.Errorf("%s: %w", a.Listener.Addr(), err)
		case <-a.clocks.idle.C:
			if a.rest(ctx, accepting) {
				a.Log.Info("no client is connected: ended until one is")
				return nil
			}
			accepting = a.accept(ctx)
		case do := <-a.events:
			do()
		case <-a.turns.ready:
			a.takeTurns()
		case <-a.clocks.expire.C:
			a.book.Expire(host.SinceBoot())
			a.lookSoon()
		case <-a.clocks.look.C:
			a.look(ctx)
		case <-a.clocks.keep.C:
			a.keepRecords()
		case <-a.clocks.tell.C:
			a.telling = false
		case <-a.ledger.clock.C:
			a.look(ctx)
		}
	}
}

// start begins with nothing that is connected.
func (a *Arbiter) start(ctx context.Context) {
	a.over = ctx.Done()
	a.boot, a.book, a.conns, a.of = host.Now().Boot, NewBook(), map[Conn]*connection{}, map[int]map[Conn]*connection{}
	if a.book.hooks = a.Hook != nil; a.book.hooks {
		a.book.hookLimit = a.Hook.Limit
	}
	a.arriving = map[*connection]bool{}
	a.events, a.arrivals, a.turns, a.relays = make(chan func()), make(chan *net.UnixConn, 64), newTurns(), map[int]*relay{}
	a.clocks = clocks{stopped(), stopped(), stopped(), stopped(), stopped()}
	a.journal, a.ledger.clock = journalOf(a.Leases), stopped()
	if a.Store != nil {
		a.storing = &storing{Store: a.Store, turns: newTurns()}
	}
	a.most = allConnections
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		a.most = min(a.most, int(min(files.Cur, math.MaxInt32))/4*3)
	}
}

// stop hangs up on all clients. Who has a lease keeps it if a store has the connections.
func (a *Arbiter) stop(ctx context.Context) {
	if a.Store == nil {
		a.endLeases(ctx)
	}
	for _, c := range a.conns {
		a.close(ctx, c)
	}
	for c := range a.arriving {
		a.close(ctx, c)
	}
	for _, r := range a.relays {
		r.Kill() // and not End, because one may sleep
	}
	a.hooks.Wait() // they are killed
	a.journal.Close()
	a.closeLedger()
}

// takeTurns does what some users want. All of it is written down at once.
func (a *Arbiter) takeTurns() {
	for range batch {
		do := a.turns.next()
		if do == nil {
			return
		}
		do()
	}
}

// endLeases ends the leases of all connections, which nothing keeps, and writes that
// down: programs that hand out LPUs to pods read the record.
func (a *Arbiter) endLeases(ctx context.Context) {
	for conn := range a.conns {
		a.hangUp(ctx, conn)
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
func (a *Arbiter) do(what func()) {
	select {
	case a.events <- what:
	case <-a.over:
	}
}

// restore takes up what the arbiter before has left.
func (a *Arbiter) restore(ctx context.Context) error {
	for _, file := range []string{a.Leases.Path, a.Reservations.Path, a.journal.Path} {
		wholefile.ClearLeftovers(file) // of an arbiter that was killed while it wrote
	}
	leases, said, err := a.Leases.Read(a.boot)
	if err != nil {
		return err
	}
	reservations, more, err := a.Reservations.Read(a.boot)
	if err != nil {
		return err
	}
	queue, last, lost, err := a.journal.read(a.boot)
	if err != nil {
		return err
	}
	a.last = Conn(max(leases.Last, last))
	recorded := map[Conn]bool{}
	for _, e := range slices.Concat(queue, leases.Leases) {
		recorded[e.conn] = !e.Gone
	}
	unusable := a.reopenKept(recorded)
	ended := a.book.Restore(host.SinceBoot(), leases, reservations, queue, func(c Conn) bool { return a.conns[c] != nil })
	for _, f := range slices.Concat(said, more, unusable, lost, ended) {
		a.Log.Warn(f.Message, "subject", f.Subject, "id", f.ID)
	}
	a.keepLedger(leases.Leases)
	a.keepRecords()
	a.resume(ctx)
	return nil
}

// reopenKept takes the connections that were kept and are of a recorded lease or wish, and
// forgets the others.
func (a *Arbiter) reopenKept(recorded map[Conn]bool) (unusable finding.List) {
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
			unusable.Add(finding.LeaseEnded, f.Name(), "the connection that was kept cannot be used: "+err.Error(), "")
		case !recorded[conn] || a.conns[conn] != nil:
			_ = c.Close()
			unusable.Add(finding.LeaseEnded, f.Name(), "the connection that was kept is in no record", "")
		default:
			c.conn, c.stored = conn, true
			a.conns[conn] = c
			continue
		}
		if a.storing != nil {
			a.storing.forget(0, conn)
		}
	}
	return unusable
}

// resume serves the connections that were kept, and looks at the node for them.
func (a *Arbiter) resume(ctx context.Context) {
	for _, c := range a.conns {
		c.peer = a.book.open[c.conn].Peer
		c.relayed = c.peer.UID != 0 && (a.Relay || mayHaveRights(c.UnixConn))
		a.take(ctx, c)
		a.begin(ctx, c)
	}
	out, _ := a.book.Outbox()
	for _, m := range out { // to holders, of which most know it: no matter if it cannot be sent
		if c := a.conns[m.Conn]; c != nil {
			_ = c.send(m.Answer)
		}
	}
	if a.book.Watches() {
		a.look(ctx)
	}
}

// rest ends the arbiter if no client is connected and no client has just come. It stops
// accepting first: who comes later waits at the socket, which the service manager
// watches. The result is false if a client came.
func (a *Arbiter) rest(ctx context.Context, accepting <-chan error) bool {
	_ = a.Listener.SetDeadline(time.Unix(1, 0))
	for {
		select {
		case do := <-a.events:
			do()
			continue
		case conn := <-a.arrivals:
			a.admit(ctx, conn)
			continue
		case <-accepting: //nolint:errcheck // the deadline
		}
		break
	}
	select {
	case conn := <-a.arrivals: // which came before the deadline
		a.admit(ctx, conn)
	default:
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
func (a *Arbiter) hangUp(ctx context.Context, conn Conn) {
	c := a.conns[conn]
	if c == nil {
		return
	}
	delete(a.conns, conn)
	if delete(a.of[c.peer.UID], conn); len(a.of[c.peer.UID]) == 0 {
		delete(a.of, c.peer.UID)
	}
	if c.ended = c.storing; !c.ended { // else it is closed when that is done
		a.unstore(c)
		a.close(ctx, c)
	}
	if c.busy {
		a.asks = slices.DeleteFunc(a.asks, func(k *ask) bool { return k.conn == conn })
	}
	if e := a.book.open[conn]; e != nil {
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
	case r.ReleaseAll != nil:
		a.book.ReleaseAll(now, c.conn, c.peer.UID)
		a.lookSoon()
	case r.End != nil:
		if c.peer.UID == 0 { // others are refused, and could fill the log
			a.Log.Info("asked to end", "lease", r.End.ID, "user", c.peer.String())
		}
		a.book.End(now, c.conn, c.peer.UID, r.End.ID)
	case r.Queue != nil && a.book.Began > 0:
		a.answer(c, r)
	case r.Usage != nil:
		a.askUsage(c, *r.Usage)
	case r.List != nil && a.book.Began > now-listFresh:
		a.answerList(c)
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
		if e := a.book.open[c.conn]; e != nil && c.mayCommand(a.Daemons) {
			e.MayEnd = true
		}
		a.lookSoon() // and then again and again, if it has a time
	case r.Retry != nil:
		c.quiet.Stop() // it is answered when the hook has ended
		a.book.Retry(c.conn, c.peer.UID == 0 || c.peer.UID == os.Geteuid(), r.Retry.Address)
		a.lookSoon() // which starts the hook
	case r.Queue != nil:
		a.book.send(c.conn, Answer{Queue: a.book.Queue(now, c.peer.UID, r.Queue.After)})
	default:
		a.answerList(c)
	}
	return true
}

// answerList answers with the list as it is now, which is made once for all who ask
// before it changes.
func (a *Arbiter) answerList(c *connection) {
	a.book.expire(host.SinceBoot())
	if a.listed == nil || a.listedAt != a.book.state {
		a.listed = &Answer{List: a.book.List(host.SinceBoot())}
		a.listed.text, _ = a.listed.marshal()
		a.listedAt = a.book.state
	}
	a.book.send(c.conn, *a.listed)
}

// look looks at the node, beside the loop of Serve. There is one look at a time.
func (a *Arbiter) look(ctx context.Context) {
	if a.looking {
		return
	}
	a.looking = true
	a.clocks.look.Stop()
	seek := Seek{a.book.containers(), a.book.suspects()}
	began := host.SinceBoot()
	endings := a.book.endings(began)
	for _, k := range a.asks {
		k.looks++
		if k.request.Bind != nil {
			seek.Containers = append(seek.Containers, k.request.Bind.Container)
		}
	}
	go func() {
		a.endContainers(ctx, endings)
		view, err := a.Look(ctx, seek)
		view.Began = began
		a.do(func() { a.looked(ctx, view, err) })
	}()
}

// looked takes what a look has shown.
func (a *Arbiter) looked(ctx context.Context, view View, err error) {
	a.looking = false
	now := host.SinceBoot()
	if err == nil {
		a.book.See(now, view)
		a.sayUnclear(view.Unclear)
		a.runHooks(ctx)
	} else {
		a.Log.Error("the node cannot be looked at", "error", err)
		view.Inventory = nil
	}
	a.ledger.measure(view.Began, view.Inventory)
	// Those that came during the look wait for the next one.
	a.asks = slices.DeleteFunc(a.asks, func(k *ask) bool {
		if k.came >= view.Began {
			return false
		}
		a.turns.add(k.peer.UID, func() { a.settle(ctx, k, err) })
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

// sayUnclear says once which processes keep LPUs back; of each user one, because there may
// be thousands.
func (a *Arbiter) sayUnclear(unclear []discovery.Unclear) {
	said, users := a.unclear, map[int]bool{}
	a.unclear = map[int]bool{}
	for _, u := range unclear {
		a.unclear[u.PID] = true
		if !said[u.PID] && !users[u.Of] {
			users[u.Of] = true
			a.Log.Warn("LPUs whose lease has ended are kept back", "process", u.String(), "uid", u.UID, "id", finding.LeaseUnclear)
		}
	}
}

// settle answers a request after a look at the node, or has it wait for another.
func (a *Arbiter) settle(ctx context.Context, k *ask, failed error) {
	switch {
	case a.conns[k.conn] != k.connection:
		return
	case failed != nil:
		a.book.refuse(k.conn, finding.LeaseRequest, "the node cannot be looked at: "+failed.Error(), "see what is wrong: lpuctl list")
	case a.answer(k.connection, k.request):
		if a.book.waiting(k.conn) && len(a.book.queue) == 1 {
			a.lookSoon() // and then again and again: until now it was for no one
		}
	case k.looks < maxLooks:
		k.came = host.SinceBoot()
		a.asks = append(a.asks, k)
		a.look(ctx)
		return
	default:
		a.book.refuse(k.conn, finding.LeaseNoneFree, "leases end faster than the node can be looked at", "ask again")
	}
	k.busy = false
}

// flush writes the records of all that has changed since the last one, and then sends the
// answers.
func (a *Arbiter) flush(ctx context.Context) {
	if !a.telling {
		if a.telling = a.book.Tell(host.SinceBoot(), batch); a.telling {
			a.clocks.tell.Reset(tellPause)
		}
	}
	out, changed := a.book.Outbox()
	a.unsaved = a.unsaved.and(changed)
	err := a.write()
	if err != nil {
		out, a.listed = Unwritten(out, err), nil
	}
	unwritten := err // of what is promised; who waits hears its place all the same
	if err == nil {
		steps := a.book.takeSteps()
		a.ledger.waits(steps)
		unwritten = a.journal.write(steps, a.book.queue, a.boot, a.last)
	}
	a.sayUnwritten(unwritten)
	if err == nil {
		_ = a.presence.Show() // if not, a program that starts while the record is lost sees no leases
		out = a.withdraw(out)
	}
	for _, m := range out {
		a.dispatch(ctx, m)
	}
	if changed.Leases || a.unsaved.Leases {
		a.ledger.settle(a.book)
	}
	a.keepUsage()
}

// sayUnwritten says once why the records cannot be written, until they can be again.
func (a *Arbiter) sayUnwritten(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != a.writeError {
		a.Log.Error("the records cannot be written", "error", text, "id", finding.LeaseUnrecorded)
	}
	a.writeError = text
}

// dispatch sends an answer, after the connection of one who has a lease or waits for one
// was stored.
func (a *Arbiter) dispatch(ctx context.Context, m Message) {
	c := a.conns[m.Conn]
	switch {
	case c == nil:
	case c.storing:
		c.held = append(c.held, m)
	case a.storing == nil || c.stored || !a.book.Keeps(m.Conn):
		a.deliver(ctx, c, m)
	default:
		c.storing, c.held = true, []Message{m}
		a.storing.add(c.peer.UID, func() {
			err := a.storing.keep(c)
			a.do(func() { a.wasStored(ctx, c, err) })
		})
	}
}

// wasStored sends what was held until a connection was stored.
func (a *Arbiter) wasStored(ctx context.Context, c *connection, err error) {
	if err != nil {
		a.Log.Error("the service manager does not keep a connection: its lease would end with the arbiter", "error", err)
	}
	c.storing, c.stored = false, err == nil
	if c.ended {
		a.unstore(c)
		a.close(ctx, c)
	}
	held := c.held
	c.held = nil
	for _, m := range held {
		if a.conns[m.Conn] == c {
			a.deliver(ctx, c, m)
		}
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
	out, a.listed = withdrawn(out, why, remedy), nil
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
	if a.journal.Lost() {
		a.journal.Close()
	} else if lost == (Changes{}) {
		return
	}
	a.unsaved = a.unsaved.and(lost)
	a.clocks.keep.Reset(time.Second)
}

// deliver sends an answer. No client can make the arbiter wait: the arbiter hangs up on a
// client that does not read the answers, unless nothing is lost by it.
func (a *Arbiter) deliver(ctx context.Context, c *connection, m Message) {
	if g := m.Granted; g != nil && g.ID != "" {
		a.Log.Info("leased", "lease", g.ID, "user", c.peer.String(), "program", c.peer.Command, "pid", c.peer.PID, "lpus", named(g.LPUs))
	}
	if r := m.Reserved; r != nil {
		a.Log.Info("reserved", "reservation", r.ID, "user", r.String(), "lpus", named(r.LPUs), "reason", r.Reason)
	}
	err := c.send(m.Answer)
	if !a.book.Keeps(m.Conn) {
		a.unstore(c)
		c.quiet.Reset(silence)
	}
	if err != nil && m.Waiting == nil && m.Over == nil {
		a.hangUp(ctx, m.Conn)
	}
}

func named(lpus []LPU) (names []string) {
	for _, l := range lpus {
		names = append(names, l.Name)
	}
	return names
}
