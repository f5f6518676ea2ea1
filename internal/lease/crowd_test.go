package lease_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/hostile"
	"github.com/hyperaccel/lpuctl/test/long"
)

// A process of those that wait has so many wishes in the queue: of five users, each of whom wants six LPUs in all. So nobody's own leases
// ever make one of the next wishes impossible, and all get theirs strictly in order.
const (
	wishesOfEach = 25
	wishesOfUser = 5
	firstWaiter  = 62000
)

// TestACrowdWaits: processes that wait get LPUs in the order of the queue, and no other, beside attackers, while the arbiter and some of
// them are killed again and again. No LPU has two holders; and no wish, place or lease is lost but with its process. All who waited at the
// beginning get theirs. In a long run a thousand wait.
func TestACrowdWaits(t *testing.T) {
	processes, attackers, kills := 2, 2, 3
	if long.Rounds(t, 1) > 1 {
		processes, attackers, kills = 40, 8, 30
	}
	if os.Getuid() != 0 {
		attackers = 0 // they are other users
	}
	w := newCrowd(t, long.Rand(t))
	q, begin := aCrowdThatWaits(w, processes)
	for i := range attackers {
		q.attackers = append(q.attackers, w.start("attacker", attacker+10+i%4))
	}
	var first []string
	for id := range q.look() {
		if !slices.Contains(q.attackers, q.pid[id]) {
			first = append(first, id)
		}
	}
	begin()
	if all := processes * wishesOfEach; len(first) != all {
		t.Fatalf("%d wait at the beginning, not %d", len(first), all)
	}
	for killed := 0; ; {
		began := time.Now()
		waiting := q.look()
		took := time.Since(began)
		left := 0
		for _, id := range first {
			if waiting[id] {
				left++
			}
		}
		if due := (len(first) - left) * (kills + 1) / len(first); killed < min(due, kills) {
			killed++
			q.killSome(killed)
		} else if left == 0 {
			break
		}
		time.Sleep(4 * took) // who watches takes less of the arbiter than who waits
	}
	q.look()
	for _, id := range first {
		if _, err := os.Stat(filepath.Join(w.dir, "granted", id)); err != nil && !q.dead[q.pid[id]] {
			t.Errorf("%s has left the queue, its process %d runs, and has no lease", id, q.pid[id])
		}
	}
	w.finish()
	t.Logf("%d waited at first, %d leases, %d looks at the queue; the arbiter was killed %d times, and %d processes of %d", len(first),
		len(w.names("granted")), q.looks, w.arbiters-1, w.killed, w.started)
}

// line watches the queue of a crowd.
type line struct {
	*crowd
	rank      map[string]int // of wishes and leases, in the order in which they were first seen, by id
	pid       map[string]int // of who has them
	dead      map[int]bool   // killed
	processes []int          // of those who wait
	attackers []int
	looks     int
	answered  time.Duration // since boot: when the last queue was known
}

// aCrowdThatWaits is one of which nobody has an LPU before all wait and it shall begin.
func aCrowdThatWaits(w *crowd, processes int) (q *line, begin func()) {
	w.t.Helper()
	for _, dir := range []string{"ready", "granted"} {
		path := filepath.Join(w.dir, dir)
		if err := errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, 0o777)); err != nil {
			w.t.Fatal(err)
		}
	}
	q = &line{crowd: w, rank: map[string]int{}, pid: map[string]int{}, dead: map[int]bool{}}
	holder := dial(w.t, w.dir)
	if _, err := holder.Wish(w.t.Context(), wish(8), nil); err != nil {
		w.t.Fatal(err)
	}
	for range processes {
		q.processes = append(q.processes, w.start("waiters", 0))
	}
	await.For(w.t, "all wait", func() bool { return len(w.names("ready")) == processes })
	return q, func() { _ = holder.Close() }
}

// killSome kills the arbiter, a process that waits, and an attacker, and lets others come.
func (q *line) killSome(n int) {
	q.t.Helper()
	replace := func(all []int, kind string, uid int) {
		i := q.rand.IntN(len(all))
		q.dead[all[i]] = true
		if unix.Kill(all[i], unix.SIGKILL) == nil {
			q.killed++
		}
		all[i] = q.start(kind, uid)
	}
	if n%2 == 0 { // before the arbiter, which then has to see it, or after
		replace(q.processes, "waiters", 0)
	}
	q.restartArbiter()
	if n%2 == 1 {
		replace(q.processes, "waiters", 0)
	}
	if len(q.attackers) > 0 {
		replace(q.attackers, "attacker", attacker+10+n%4)
	}
}

// look returns who waits. It wants the queue to be in its order, and none to have a lease before one who was in the queue earlier.
func (q *line) look() (waiting map[string]bool) {
	q.t.Helper()
	leases, queue, err := q.ask()
	for ; err != nil; leases, queue, err = q.ask() { // the arbiter was killed just now
		time.Sleep(time.Millisecond)
	}
	q.looks++
	waiting = map[string]bool{}
	before := len(q.rank)
	for _, l := range leases {
		if _, seen := q.rank[l.ID]; !seen && l.Since <= q.answered { // got between the two answers of the last look
			q.rank[l.ID], q.pid[l.ID] = -1, l.PID
		}
		q.see(l.ID, l.PID) // who was not seen to wait came after all who were
	}
	q.answered = host.SinceBoot()
	last, ahead := -1, lease.Queued{}
	for _, e := range queue {
		waiting[e.ID] = true
		rank := q.see(e.ID, e.PID)
		if rank < last {
			q.t.Errorf("look %d: the queue is in another order: %s was number %d, and is behind number %d", q.looks, e.ID, rank, last)
		}
		if last < 0 && rank < before {
			ahead = e
		}
		last = rank
	}
	for _, l := range leases {
		if ahead.ID != "" && q.rank[l.ID] > q.rank[ahead.ID] {
			q.t.Errorf("look %d: number %d has a lease: %s; and before it number %d waits: %s", q.looks, q.rank[l.ID], inJSON(l),
				q.rank[ahead.ID], inJSON(ahead))
		}
	}
	return waiting
}

// see returns the number of a lease or wish, which it has from when it is first seen.
func (q *line) see(id string, pid int) (rank int) {
	if rank, seen := q.rank[id]; seen {
		return rank
	}
	q.rank[id], q.pid[id] = len(q.rank), pid
	return q.rank[id]
}

func inJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// ask returns who has LPUs, and who waits after that, and so has waited then.
func (q *line) ask() (leases []lease.Lease, queue []lease.Queued, err error) {
	c, err := lease.Dial(filepath.Join(q.dir, "socket"))
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = c.Close() }()
	l, err := c.List(q.t.Context())
	if err != nil {
		return nil, nil, err
	}
	queue, err = c.Queue(q.t.Context())
	return l.Leases, queue, err
}

// attacks is what an attacker does.
func attacks(seed string) error {
	m := &hostile.Member{Socket: filepath.Join(os.Getenv("LEASE_DIR"), "socket"), List: asksList}
	m.Wait = strings.Replace(waits, `,"must":[%q]`, "", 1)
	n, err := strconv.ParseUint(seed, 10, 64)
	if err == nil {
		m.Rand = rand.New(rand.NewPCG(n, 0))
		err = m.Run()
	}
	return err
}

// waiter is one who waits: a connection at a time, with one wish.
type waiter struct {
	dir    string
	uid    int // for root
	number int // in its process
	count  int // LPUs
	nodes  map[string]string
}

// waiters are those of a process. Each gets into the queue again when it has had its LPUs. What must not be is written down.
func waiters(string) error {
	dir := os.Getenv("LEASE_DIR")
	inv, err := discovery.Scan(context.Background(), filepath.Join(dir, "node"),
		discovery.Options{Models: discovery.BuiltinModels(), CardDeadline: time.Minute}) // the machine is busy
	if err != nil {
		return err
	}
	nodes := map[string]string{}
	for _, l := range inv.LPUs {
		nodes[l.Address.String()] = l.Nodes[0].Path
	}
	var queued, all sync.WaitGroup
	for i := range wishesOfEach {
		w := &waiter{dir, firstWaiter + os.Getpid()*wishesOfEach/wishesOfUser + i/wishesOfUser, i, 1, nodes}
		if i%wishesOfUser == 0 && os.Getuid() == 0 {
			w.count = 2
		}
		queued.Add(1)
		all.Go(func() {
			in := sync.OnceFunc(queued.Done)
			for {
				if err := w.once(in); err != nil {
					_ = os.WriteFile(filepath.Join(dir, "wrong", fmt.Sprint(os.Getpid(), "-", i)), []byte(err.Error()), 0o600)
				}
			}
		})
	}
	queued.Wait()
	if err := os.WriteFile(filepath.Join(dir, "ready", fmt.Sprint(os.Getpid())), nil, 0o600); err != nil {
		return err
	}
	all.Wait()
	return nil
}

// once waits in the queue, and has its LPUs for a moment.
func (w *waiter) once(queued func()) error {
	c, err := w.dial()
	if err != nil {
		time.Sleep(time.Millisecond)
		return nil
	}
	defer func() { _ = c.Close() }()
	place := 0
	wanted := wish(w.count)
	wanted.Wait = true
	grown := error(nil)
	g, err := c.Wish(context.Background(), wanted, func(p lease.Place) {
		if place > 0 && p.Place > place {
			grown = fmt.Errorf("it was at place %d, and is at %d", place, p.Place)
		}
		place = p.Place
		queued()
	})
	switch {
	case grown != nil:
		return grown
	case err != nil && place > 0:
		return fmt.Errorf("it is out of the queue, where it was at place %d: %w", place, err)
	case err != nil: // the arbiter was killed before it answered
		return nil
	}
	queued()
	if err := os.WriteFile(filepath.Join(w.dir, "granted", g.ID), nil, 0o600); err != nil {
		return err
	}
	links, err := w.open(g)
	if err == nil {
		err = (&member{dir: w.dir}).listed(g)
	}
	for _, link := range links {
		err = errors.Join(err, os.Remove(link))
	}
	return err
}

// dial connects as the user.
func (w *waiter) dial() (c *lease.Client, err error) {
	done := make(chan struct{})
	go func() { // the thread ends with the goroutine, because it is locked to it
		defer close(done)
		lockThread()
		uid := uintptr(w.uid)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uid, uid, uid); errno != 0 && os.Getuid() == 0 {
			err = errno
			return
		}
		c, err = lease.Dial(filepath.Join(w.dir, "socket"))
	}()
	<-done
	return c, err
}

// open opens the nodes of the LPUs, and returns what has to be removed to close them: first who holds them. Another holder is a fault.
func (w *waiter) open(g *lease.Grant) (links []string, err error) {
	fds := filepath.Join(w.dir, "node/proc", fmt.Sprint(os.Getpid()), "fd")
	if err := os.MkdirAll(fds, 0o755); err != nil {
		return nil, err
	}
	for i, l := range g.LPUs {
		fd := filepath.Join(fds, fmt.Sprint(3+10*w.number+i))
		if err := os.Symlink(w.nodes[l.Address.String()], fd); err != nil {
			return links, err
		}
		links = append(links, fd)
	}
	for _, l := range g.LPUs {
		path := filepath.Join(w.dir, "held", l.Name)
		err := os.Symlink(fmt.Sprint(os.Getpid()), path) // which makes the name and says the holder at once
		if errors.Is(err, fs.ErrExist) {
			holder, _ := os.Readlink(path)
			return links, fmt.Errorf("%d has got %s with lease %s, and %s has it", os.Getpid(), l.Name, g.ID, holder)
		}
		if err != nil {
			return links, err
		}
		links = slices.Insert(links, 0, path)
	}
	return links, nil
}

// BenchmarkAThousandWait is what an arbiter costs for which a thousand wait: what a wish takes at the median, the memory, and what it takes
// of a processor while nothing is asked.
func BenchmarkAThousandWait(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("a user has 64 connections")
	}
	w := newCrowd(b, long.Rand(b))
	_, begin := aCrowdThatWaits(w, 40)
	defer begin()
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		c := dial(b, w.dir)
		if _, err := c.Wish(b.Context(), wish(1), nil); !refusedWith(err, finding.LeaseNoneFree) {
			b.Fatal(err)
		}
		_ = c.Close()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "ms/wish")
	const settles, rests = 15 * time.Second, 20 * time.Second // it looks at the node ever more seldom
	time.Sleep(settles)
	before := processorTime(b, w.arbiter.Process.Pid)
	time.Sleep(rests)
	used := processorTime(b, w.arbiter.Process.Pid) - before
	b.ReportMetric(100*used.Seconds()/rests.Seconds(), "%-of-a-core")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.arbiter.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	for what, unit := range map[string]string{"VmRSS:": "MiB", "VmHWM:": "MiB-at-most"} {
		_, after, _ := strings.Cut(string(status), what)
		kib, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(kib/1024, unit)
	}
}

// processorTime is what a process has taken of all processors (clock_getcpuclockid(3)).
func processorTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
