package claim_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// leases is the arbiter of a node on which plugin and driver hand out LPUs too: it sees what lpuctl
// lease serve sees, and writes down what that does.
type leases struct {
	pool               []pci.Address // what the configuration sets apart
	file, reservations lease.File
	book               *lease.Book
	presence           filelock.Presence
	claims             *claim.Store       // reads them
	users              map[lease.Conn]int // the LPU of each
	last               lease.Conn
	lost               bool // the record, until the arbiter sees that
}

func newLeases(w *world) *leases {
	run := filepath.Join(w.root, "run/lpuctl")
	return &leases{
		file: lease.LeasesIn(run), reservations: lease.ReservationsIn(w.store().Dir), claims: w.store(), users: map[lease.Conn]int{},
		presence: filelock.Presence{Path: filepath.Join(run, "arbiter")},
	}
}

// held is what plugin and driver read.
func (c *changeovers) held() (map[pci.Address]string, error) {
	return lease.Held(host.Root(c.root), c.leases.file, c.leases.reservations)
}

// arbitrate starts the arbiter, perhaps again: its connections were kept, and not the leases that are
// in no record.
func (c *changeovers) arbitrate(t *testing.T) {
	t.Helper()
	l := c.leases
	l.presence.Hide()
	l.book, l.claims = lease.NewBook(), c.world.store()
	recorded, _, err := l.file.Read(host.Now().Boot)
	c.must(err)
	l.book.Restore(host.SinceBoot(), recorded, &lease.Record{}, nil, func(conn lease.Conn) bool { _, open := l.users[conn]; return open })
	for conn := range l.users {
		if !l.book.Keeps(conn) {
			delete(l.users, conn)
		}
	}
	c.record()
}

// record writes down who has what.
func (c *changeovers) record() {
	c.leases.lost = false
	records, _ := c.leases.book.Records(host.Now().Boot, c.leases.last)
	c.must(c.leases.file.Write(records))
	c.must(c.leases.presence.Show())
}

// lookAt is what the arbiter sees of the node.
func (c *changeovers) lookAt() lease.View {
	v := lease.View{Began: host.SinceBoot(), Inventory: c.inv, Pool: c.leases.pool, Pods: map[pci.Address]string{}}
	var lately bool
	if v.Closed, lately = c.closed(); v.Closed != "" {
		return v
	}
	if !c.silent {
		for lpu, pod := range c.pods {
			v.Pods[c.lpu(lpu)] = pod
		}
	}
	c.hear(c.leases.claims)
	claimed, unread := c.leases.claims.Holders()
	maps.Copy(v.Pods, claimed)
	if v.Pool == nil && (unread != nil || c.silent) {
		v.Closed = "it cannot be known which LPUs pods have"
	}
	for a := range c.at {
		if lately && v.Pods[a] == "" {
			v.Pods[a] = "a pod, perhaps"
		}
	}
	return v
}

// closed says why no LPU can be leased, and whether a pod may have any of them.
func (c *changeovers) closed() (why string, lately bool) {
	if c.leases.pool != nil {
		return "", false
	}
	now := c.file.Stand()
	return now.Kubernetes(), now.Lately
}

// user asks for an LPU that need not be free. Meanwhile plugin and driver may start, and give LPUs to
// pods.
func (c *changeovers) user(t *testing.T) {
	l, lpu := c.leases, c.IntN(8)
	l.last++
	l.book.See(host.SinceBoot(), c.lookAt())
	c.meanwhile(t)
	l.book.Wish(host.SinceBoot(), l.last, lease.Peer{UID: 1000, User: "bob"},
		lease.Wish{Selection: lease.Selection{Count: 1, Must: []pci.Address{c.lpu(lpu)}}})
	l.book.Outbox()
	if !l.book.Keeps(l.last) {
		return
	}
	c.record()
	c.meanwhile(t)
	why, lately := c.closed()
	claimed, err := l.claims.Holders()
	if why != "" || lately || claimed[c.lpu(lpu)] != "" || err != nil && l.pool == nil {
		l.book.Drop(host.SinceBoot(), l.last)
		c.record()
		return
	}
	l.users[l.last] = lpu
	c.given["arbiter"]++
	if l.pool == nil {
		c.given["arbiter without a pool"]++
	}
	if pod, held := c.pods[lpu]; held {
		t.Errorf("lpu%d was leased, and %s has it", lpu, pod)
	}
	if number, held := c.claimed(lpu); held {
		t.Errorf("lpu%d was leased, and claim %d has it", lpu, number)
	}
}

// meanwhile is what may happen while the arbiter is about to answer.
func (c *changeovers) meanwhile(t *testing.T) {
	if c.IntN(4) == 0 {
		c.programs(t)
		c.pod(t)
		c.claim(t)
	}
}

// unleased wants no user to have an LPU that is given to a pod.
func (c *changeovers) unleased(t *testing.T, lpu int, to string) {
	t.Helper()
	for conn, has := range c.leases.users {
		if has == lpu {
			t.Errorf("lpu%d was given to %s, and lease l%d has it", lpu, to, conn)
		}
	}
}

// leave lets users give LPUs back.
func (c *changeovers) leave(*testing.T) {
	for _, conn := range slices.Sorted(maps.Keys(c.leases.users)) {
		if c.IntN(3) == 0 {
			delete(c.leases.users, conn)
			c.leases.book.Drop(host.SinceBoot(), conn)
			c.record()
		}
	}
}

// loseLeases removes the record of the leases, or cuts it off.
func (c *changeovers) loseLeases(*testing.T) {
	c.leases.lost = true
	if c.IntN(2) == 0 {
		c.must(ignoreAbsent(os.Remove(c.leases.file.Path)))
	} else {
		c.must(ignoreAbsent(os.Truncate(c.leases.file.Path, int64(c.IntN(200)))))
	}
}

// programs starts plugin and driver, or starts them again.
func (c *changeovers) programs(t *testing.T) {
	c.stop(t)
	c.stopped = false
	c.gates()
	c.start(t)
	c.plugin.Show()
	c.driver.Show()
}

// stop ends plugin and driver, and perhaps lets a while pass.
func (c *changeovers) stop(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	c.plugin.Run(ended)
	c.driver.Run(ended)
	c.stopped = true
	if c.IntN(3) > 0 {
		c.pass(t, 5)
		noted := filelock.Presence{Path: filepath.Join(c.file.Dir, "owner-plugin")} // by a clock that is not that of this test
		c.must(noted.Show())
		c.must(noted.Note(fmt.Sprint("0 ", host.Now().Boot)))
		noted.Hide()
	}
}

// configure sets LPUs apart for leases that no pod has, or none. The programs start again, and then
// the arbiter.
func (c *changeovers) configure(t *testing.T) {
	c.leases.pool = nil
	for lpu := range 8 {
		_, claimed := c.claimed(lpu)
		if c.pods[lpu] == "" && !claimed && c.IntN(3) == 0 {
			c.leases.pool = append(c.leases.pool, c.lpu(lpu))
		}
	}
	if c.IntN(2) == 0 {
		c.leases.pool = nil
	}
	c.programs(t)
	c.arbitrate(t)
}

// setApart reports whether plugin and driver offer an LPU to no pod.
func (c *changeovers) setApart(lpu int) bool { return slices.Contains(c.leases.pool, c.lpu(lpu)) }
