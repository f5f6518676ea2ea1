package lease

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/person"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// cleaning is a book of a node whose LPUs have to be cleaned, and of which a user has given LPU 3 back.
func cleaning(t *testing.T) *Book {
	t.Helper()
	b := NewBook()
	b.hooks = true
	b.See(10, (&glimpse{began: 5, pool: 0xff}).view())
	b.Wish(20, 1, Peer{UID: 7}, Wish{Selection: Selection{Count: 1, Must: lpusOf(3)}})
	if out, _ := b.Outbox(); len(out) != 1 || out[0].Granted == nil {
		t.Fatalf("%+v", out)
	}
	b.Drop(30, 1)
	return b
}

// answered is the only answer since the latest one.
func answered(t *testing.T, b *Book) Answer {
	t.Helper()
	out, _ := b.Outbox()
	if len(out) != 1 {
		t.Fatalf("%+v", out)
	}
	return out[0].Answer
}

// TestTheNextGetsACleanCard: after a lease an LPU is given to no user, not even to who had it, before the hook has run, and that only when
// no process has it; when it has failed, not before it has run again.
func TestTheNextGetsACleanCard(t *testing.T) {
	b := cleaning(t)
	third := Selection{Count: 1, Must: lpusOf(3)}
	refused := func(now time.Duration, why string) {
		t.Helper()
		b.Wish(now, Conn(now), Peer{UID: 7}, Wish{Selection: third})
		if a := answered(t, b); a.Refused == nil || !strings.Contains(a.Refused.Message, why) {
			t.Errorf("at %d: %+v, not %q", now, a, why)
		}
	}
	b.Outbox()
	if len(b.due()) != 0 {
		t.Error("it runs before a look")
	}
	b.See(50, (&glimpse{began: 40, pool: 0xff, open: 1 << 3}).view())
	if refused(60, "in use without a lease by x(7)"); len(b.due()) != 0 {
		t.Error("it runs while a process has the LPU")
	}
	if !b.Watches() {
		t.Error("nobody would see that the process ends")
	}
	b.See(80, (&glimpse{began: 70, pool: 0xff}).view())
	due := b.due()
	if len(due) != 1 || due[0].Address != address(3) || due[0].UID != 7 {
		t.Fatalf("%+v", due)
	}
	refused(90, "kept back: leases.hook has to run on it first")
	due[0].running = true
	if len(b.due()) != 0 {
		t.Error("it runs twice at a time")
	}
	due[0].running = false
	b.Wish(91, 91, Peer{UID: 8}, Wish{Selection: Selection{Count: 8}, Wait: true})
	b.Outbox()
	b.Cleaned(100, due[0], "exit status 3: no\x1b[31m")
	b.Tell(100, batch)
	const why = "lpu3 kept back: leases.hook has failed on it: exit status 3: no [31m"
	if a := answered(t, b); a.Waiting == nil || !strings.Contains(a.Waiting.Why, why) {
		t.Errorf("who waits: %+v", a)
	}
	if len(b.due()) != 0 {
		t.Error("it runs again by itself")
	}
	b.Wish(105, 105, Peer{UID: 9}, Wish{Selection: Selection{Count: 7}})
	if a := answered(t, b); a.Granted == nil {
		t.Errorf("who waits for it holds others back, and nobody knows how long: %+v", a)
	}
	b.Drop(106, 105)
	b.Drop(107, 91)
	b.Outbox()
	b.Retry(110, false, address(3))
	if a := answered(t, b); a.Refused == nil || a.Refused.ID != finding.LeaseRequest {
		t.Errorf("not root: %+v", a)
	}
	b.Retry(111, true, address(5))
	if a := answered(t, b); a.Refused == nil || !strings.Contains(a.Refused.Message, "its lease has ended just now") {
		t.Errorf("one that is not clear yet: %+v", a)
	}
	b.Retry(112, true, address(3))
	if due = b.due(); len(due) != 1 {
		t.Fatalf("%+v", due)
	}
	b.Cleaned(120, due[0], "")
	if a := answered(t, b); a.Done == nil {
		t.Errorf("who asked: %+v", a)
	}
	if b.Wish(125, 125, Peer{UID: 7}, Wish{Selection: third}) {
		t.Error("a process of the hook may still have it, and no look is waited for")
	}
	b.See(140, (&glimpse{began: 130, pool: 0xff}).view())
	b.Wish(150, 150, Peer{UID: 8}, Wish{Selection: third})
	if a := answered(t, b); a.Granted == nil {
		t.Errorf("it is clean: %+v", a)
	}
}

// TestWhatIsKeptBackIsRecorded: an arbiter that was killed has forgotten neither that the hook has to run nor that it has failed.
func TestWhatIsKeptBackIsRecorded(t *testing.T) {
	for _, failed := range []string{"", "exit status 3"} {
		b := cleaning(t)
		b.See(50, (&glimpse{began: 40, pool: 0xff}).view())
		if failed != "" {
			b.Cleaned(60, b.due()[0], failed)
		}
		leases, reservations := b.Records("this", 1)
		file := LeasesIn(t.TempDir())
		if err := file.Write(leases); err != nil {
			t.Fatal(err)
		}
		read, _, err := file.Read("this")
		if err != nil {
			t.Fatal(err)
		}
		again := NewBook()
		again.hooks = true
		again.Restore(70, read, reservations, nil, func(Conn) bool { return false })
		again.See(90, (&glimpse{began: 80, pool: 0xff}).view())
		again.Wish(100, 2, Peer{}, Wish{Selection: Selection{Count: 8}})
		if a := answered(t, again); a.Refused == nil || !strings.Contains(a.Refused.Message, "lpu3 kept back: leases.hook") {
			t.Errorf("%q: %+v", failed, a)
		}
		if due := again.due(); (len(due) == 1) != (failed == "") {
			t.Errorf("%q: due are %+v", failed, due)
		}
		inv := (&glimpse{pool: 0xff}).view().Inventory
		now := host.Moment{Boot: "this", SinceBoot: 100}
		marked := Mark("", inv, read, nil, now).LPUs[3]
		if !strings.Contains(marked.KeptBack, "leases.hook") || marked.Reasons.Has(finding.LeaseHookFailed) != (failed != "") {
			t.Errorf("%q: marked is %+v", failed, marked)
		}
		// Without a hook nothing is kept back for it.
		without := NewBook()
		without.Restore(70, read, reservations, nil, func(Conn) bool { return false })
		if kept := without.kept(); len(kept) != 0 {
			t.Errorf("%q: %+v", failed, kept)
		}
	}
}

// TestUnclearIsRecorded: what is kept back because a process may still use it is written down, for list, and watched.
func TestUnclearIsRecorded(t *testing.T) {
	b := NewBook()
	see := func(now time.Duration, unclear ...discovery.Unclear) {
		v := (&glimpse{began: now, pool: 0xff}).view()
		v.Unclear = unclear
		b.See(now, v)
	}
	see(10)
	b.Wish(20, 1, Peer{UID: 7}, Wish{Selection: Selection{Count: 1, Must: lpusOf(3)}})
	b.Drop(30, 1)
	b.Outbox()
	see(40, discovery.Unclear{User: discovery.User{PID: 9, Command: "py\x07thon"}, Of: 7, Why: "has something"})
	leases, _ := b.Records("this", 1)
	_, changed := b.Outbox()
	if !changed.Leases || len(leases.Kept) != 1 || leases.Kept[0].Unclear != "py thon(9) has something" || leases.check() != nil {
		t.Fatalf("%+v, %+v", changed, leases.Kept)
	}
	if !b.Watches() {
		t.Error("nobody would see that the process ends")
	}
	see(50)
	if leases, _ = b.Records("this", 1); len(leases.Kept) != 0 || b.Watches() {
		t.Errorf("when it is clear: %+v", leases.Kept)
	}
}

// TestASickCardIsNamed: who waits reads what is wrong with it.
func TestASickCardIsNamed(t *testing.T) {
	b := NewBook()
	v := (&glimpse{began: 5, pool: 0xff}).view()
	v.Inventory.LPUs[3].Health = discovery.Unhealthy
	v.Inventory.LPUs[3].Reasons.Add(finding.BadState, "lpu3", "state 7", "")
	b.See(10, v)
	b.Wish(20, 1, Peer{UID: 7}, Wish{Selection: Selection{Count: 8}})
	if a := answered(t, b); a.Refused == nil || !strings.Contains(a.Refused.Message, "lpu3 unhealthy (bad state)") {
		t.Errorf("%+v", a)
	}
}

// bound is a book with a lease that has a time, until 100, and is bound to a container.
func bound(t *testing.T, uid, owner int) *Book {
	t.Helper()
	b := NewBook()
	v := (&glimpse{began: 5, pool: 0xff}).view()
	id := strings.Repeat("a", 64)
	v.Containers = map[string][]Group{id: {{Path: "/" + id, Inode: 9, owner: owner}}}
	b.See(10, v)
	b.Wish(20, 1, Peer{UID: uid}, Wish{Selection: Selection{Count: 1}, For: 80 * time.Second})
	b.Bind(1, id)
	if out, _ := b.Outbox(); len(out) != 2 || out[1].Done == nil {
		t.Fatalf("%+v", out)
	}
	return b
}

// TestALeftContainerIsWatched: its end is looked for though no client asks, also of a lease without a time.
func TestALeftContainerIsWatched(t *testing.T) {
	b := bound(t, 7, 7)
	b.leases[0].Until = 0
	if b.Watches() {
		t.Error("its client is connected, and hears of nothing else")
	}
	if b.Drop(30, 1); !b.Watches() {
		t.Error("no look sees that it ends")
	}
}

// TestTheTimeOfAContainerIsOver: its processes are asked to end, and are killed half a minute later, again and again. One that is not the
// user's own is left alone.
func TestTheTimeOfAContainerIsOver(t *testing.T) {
	const end = 20 + 80*time.Second
	for name, c := range map[string]struct {
		uid, owner int
		gone       bool
		want       []string
	}{
		"left behind":          {7, 7, true, []string{"0s terminated", "30s killed", "31s killed"}},
		"its starter is there": {7, 7, false, []string{"10s terminated", "40s killed", "41s killed"}},
		"root's lease":         {0, 0, true, []string{"0s terminated", "30s killed", "31s killed"}},
		"a container of root":  {7, 0, true, []string{"0s signal 0"}},
	} {
		b := bound(t, c.uid, c.owner)
		if c.gone {
			b.Drop(30, 1)
		}
		if !b.Watches() {
			t.Errorf("%s: it is not watched", name)
		}
		var got []string
		for now := end - 2*time.Second; now < end+42*time.Second && len(got) < 3; now += time.Second {
			for _, e := range b.endings(now) {
				got = append(got, fmt.Sprint(now-end, " ", e.Signal))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

// TestWhoseContainer: a process is ended if it is in the group that was bound, and in a user's own group only if it is that user's.
func TestWhoseContainer(t *testing.T) {
	root := plant.Tree(t, map[string]string{
		"etc/passwd": "anna:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n", "etc/subuid": "anna:100000:65536\n",
		"proc/1/status": "Name:\tx\nUid:\t1000\t1000\t1000\t1000\n", "proc/2/status": "Name:\tx\nUid:\t100999\t1\t1\t1\n",
		"proc/3/status": "Name:\tx\nUid:\t1001\t1000\t1000\t1000\n", "proc/4/status": "",
	})
	k := Looker{Root: host.Root(root), People: person.In(host.Root(root), "lpu")}
	tree, err := k.Root.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	bound := Group{Path: "/a", Inode: 9}
	for _, c := range []struct {
		g    Group
		uid  int
		pids string
	}{
		{Group{Path: "/a", Inode: 9, owner: 1000}, 1000, "12"},
		{Group{Path: "/a", Inode: 9}, 1000, "1234"}, // of root: the lease was bound to it by one who could end it
		{Group{Path: "/a", Inode: 9, owner: 1000}, 0, "1234"},
		{Group{Path: "/a", Inode: 8, owner: 1000}, 1000, ""},
		{Group{Path: "/b", Inode: 9, owner: 1000}, 1000, ""},
		{Group{Path: "/a", owner: 1000}, 1000, ""},
	} {
		got := ""
		for _, pid := range []string{"1", "2", "3", "4"} {
			process, err := tree.Dir("proc/" + pid)
			if err != nil {
				t.Fatal(err)
			}
			if k.isOf(t.Context(), c.g, process, Ending{UID: c.uid, Groups: []Group{bound}}) {
				got += pid
			}
			process.Close()
		}
		if got != c.pids {
			t.Errorf("%+v of %d: %q, not %q", c.g, c.uid, got, c.pids)
		}
	}
	// A tree that is not this machine's names no processes of it.
	if err := k.End(t.Context(), Ending{UID: 0, Groups: []Group{bound}, Signal: unix.SIGTERM}); err == nil ||
		!strings.Contains(err.Error(), "does not show the processes of this machine") {
		t.Error(err)
	}
}

// TestEndContainer ends processes in a control group of this machine, and none of another group.
func TestEndContainer(t *testing.T) {
	dir := ""
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"} {
		own := filepath.Join(mount, "lpuctl-"+strings.Repeat("ab", 32))
		if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err == nil && os.MkdirAll(filepath.Join(own, "below"), 0o755) == nil {
			dir = own
			break
		}
	}
	if dir == "" {
		t.Skip("only root can make control groups, where they are mounted")
	}
	t.Cleanup(func() {
		await.Until(t, "the group is gone", func() error {
			_ = os.Remove(filepath.Join(dir, "below"))
			return os.Remove(dir)
		})
	})
	k := Looker{Root: "/", People: person.In("/", "lpu")}
	for _, c := range []struct {
		signal unix.Signal
		want   string
	}{{unix.SIGTERM, "signal: terminated"}, {unix.SIGKILL, "signal: killed"}} {
		program := sleeping(t)
		err := os.WriteFile(filepath.Join(dir, "below", "cgroup.procs"), []byte(fmt.Sprint(program.Process.Pid)), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := k.Root.Open()
		if err != nil {
			t.Fatal(err)
		}
		e := Ending{Container: strings.Repeat("ab", 32), Signal: c.signal}
		e.Groups = groups(tree, []string{e.Container})[e.Container]
		tree.Close()
		if len(e.Groups) != 1 || e.Groups[0].Inode == 0 {
			t.Fatalf("%+v", e.Groups)
		}
		other := e
		other.Groups = []Group{{Path: e.Groups[0].Path, Inode: e.Groups[0].Inode + 1}}
		if err := k.End(t.Context(), other); err != nil || unix.Kill(program.Process.Pid, 0) != nil {
			t.Errorf("of a group that was made later: %v", err)
		}
		if err := k.End(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if err := program.Wait(); err == nil || err.Error() != c.want {
			t.Errorf("%v, not %s", err, c.want)
		}
	}
}

// TestALookFollowsEachLease: an arbiter that ends meanwhile, because no client is connected, would forget who may still use the LPU.
func TestALookFollowsEachLease(t *testing.T) {
	b := NewBook()
	b.See(10, (&glimpse{began: 5, pool: 0xff}).view())
	b.Wish(20, 1, Peer{UID: 7}, Wish{Selection: Selection{Count: 1}})
	if b.Watches() {
		t.Error("there is nothing to see")
	}
	if b.Drop(30, 1); !b.Watches() {
		t.Error("no look shows whether a process has it yet")
	}
	if b.See(50, (&glimpse{began: 40, pool: 0xff}).view()); b.Watches() {
		t.Error("it is clear")
	}
}
