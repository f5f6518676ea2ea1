package lease

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// said are the answers since the latest call, by connection.
func said(b *Book) map[Conn]Answer {
	all := map[Conn]Answer{}
	out, _ := b.Outbox()
	for _, m := range out {
		all[m.Conn] = m.Answer
	}
	return all
}

// TestRootEndsALease: the holder hears when. The LPUs stay with it until it has ended, and its user gets no others.
func TestRootEndsALease(t *testing.T) {
	b := NewBook()
	b.See(10, (&glimpse{began: 5, pool: 0xff}).view())
	b.Wish(20, 1, Peer{UID: 1, PID: 77}, Wish{Selection: Selection{Count: 8}})
	b.Outbox()
	for uid, want := range map[int]string{1: "end that: kill 77, if that is still a program of uid(1)", 2: "ask that user, or root"} {
		b.End(30, 2, uid, "l1")
		if r := said(b)[2].Refused; r == nil || r.ID != finding.LeaseUnknown || r.Remedy != want {
			t.Errorf("user %d: %+v", uid, r)
		}
	}
	if b.End(30, 2, 0, "l4"); said(b)[2].Refused == nil {
		t.Error("a lease that there is not")
	}
	for _, at := range []time.Duration{40, 50} { // also if it does not end at once
		b.End(at, 2, 0, "l1")
		out := said(b)
		if over := out[1].Over; over == nil || over.At != at {
			t.Errorf("the holder hears %+v", over)
		}
		if ended := out[2].Ended; ended == nil || len(ended.LPUs) != 8 || ended.UID != 1 || ended.Until != 40 {
			t.Errorf("root hears %+v", ended)
		}
	}
	leases, _ := b.Records("b", 2)
	if len(leases.Leases) != 1 || leases.Leases[0].Until != 40 || leases.Leases[0].Grant.Until != 40 {
		t.Errorf("recorded is %+v", leases.Leases)
	}
	b.Wish(60, 3, Peer{UID: 2}, Wish{Selection: Selection{Count: 1}})
	if r := said(b)[3].Refused; r == nil || r.ID != finding.LeaseNoneFree {
		t.Errorf("another user: %+v", r)
	}
	b.Reserve(60, 4, Peer{UID: 1}, Reserve{Selection: Selection{Count: 1}, For: time.Hour, Reason: "x"})
	if r := said(b)[4].Refused; r == nil || r.ID != finding.LeaseLimit {
		t.Errorf("the same user: %+v", r)
	}
	b.Drop(70, 1)
	if len(b.leases) != 0 {
		t.Error("it is there yet")
	}
}

// TestRootEndsAWish: it leaves the queue, and who waits for what it could use gets that.
func TestRootEndsAWish(t *testing.T) {
	b := NewBook()
	b.See(10, (&glimpse{began: 5, pool: 0xff}).view())
	b.Wish(20, 1, Peer{UID: 1}, Wish{Selection: Selection{Count: 1}})
	b.Wish(20, 2, Peer{UID: 2}, Wish{Selection: Selection{Count: 8}, Wait: true})
	b.Wish(20, 3, Peer{UID: 3}, Wish{Selection: Selection{Count: 1}, Wait: true})
	b.Outbox()
	b.End(30, 4, 0, "l2")
	out := said(b)
	if r := out[2].Refused; r == nil || r.ID != finding.LeaseEnded || !strings.Contains(r.Message, "root has taken l2 out of the queue") {
		t.Errorf("who waited hears %+v", r)
	}
	if ended := out[4].Ended; ended == nil || len(ended.LPUs) != 0 || out[3].Granted == nil {
		t.Errorf("%+v, %+v", ended, out[3])
	}
}

// TestReleaseAll: what others have reserved stays, and what cannot be written down is not given back.
func TestReleaseAll(t *testing.T) {
	b := NewBook()
	b.See(10, (&glimpse{began: 5, pool: 0xff}).view())
	for conn, uid := range []int{1, 2, 1} {
		b.Reserve(20, Conn(conn+1), Peer{UID: uid}, Reserve{Selection: Selection{Count: 2}, For: time.Hour, Reason: "x"})
	}
	b.Outbox()
	ids := func() (all []string) {
		for _, r := range b.reservations {
			all = append(all, r.ID)
		}
		return all
	}
	b.ReleaseAll(30, 4, 1)
	out, changed := b.Outbox()
	if len(out) != 1 || !slices.Equal(out[0].Released.IDs, []string{"r1", "r3"}) || !changed.Reservations ||
		!slices.Equal(ids(), []string{"r2"}) {
		t.Fatalf("%+v; there are %v", out, ids())
	}
	if out = Unwritten(out, errors.New("full")); out[0].Refused == nil || !slices.Equal(ids(), []string{"r1", "r2", "r3"}) {
		t.Errorf("%+v; there are %v", out, ids())
	}
	b.ReleaseAll(40, 4, 3)
	if out, changed := b.Outbox(); len(out) != 1 || out[0].Released == nil || len(out[0].Released.IDs) != 0 || changed.Reservations {
		t.Errorf("%+v", out)
	}
}

// TestAnOlderArbiter refuses what it does not know, and the client says that it is one.
func TestAnOlderArbiter(t *testing.T) {
	_, err := ParseRequest([]byte(`{"apiVersion":"lpuctl.hyperaccel.ai/v1alpha1","later":{}}`))
	r := refuse(finding.LeaseRequest, "this is not a request: "+err.Error(), "start it again").orOutdated()
	if r.Message != "the arbiter is of an older lpuctl, and does not know this request" || r.Remedy != "start it again" {
		t.Errorf("%+v", r)
	}
}

// TestRootTakesAnLPUFromAContainer: who has bound a lease to a container of root's, which the arbiter may not end, keeps the LPUs no longer
// than they are in use, when root has ended the lease.
func TestRootTakesAnLPUFromAContainer(t *testing.T) {
	for _, c := range []struct {
		uid, owner int
		ends       bool
	}{{7, 0, true}, {7, 7, false}, {0, 0, false}} { // the arbiter ends the other two
		b := bound(t, c.uid, c.owner)
		e := b.leases[0]
		see := func(now time.Duration, open set) bool {
			v := (&glimpse{began: now, pool: 0xff, open: open}).view()
			v.Containers = map[string][]Group{e.Container: e.Groups}
			b.See(now, v)
			return len(b.leases) == 0
		}
		b.Drop(30, 1)
		if see(40, 0) {
			t.Error("root has not ended it")
		}
		b.End(50, 2, 0, e.ID)
		if see(60, 0xff) || !b.Watches() {
			t.Error("a process has it")
		}
		if see(70, 0) != c.ends {
			t.Errorf("%+v: %+v", c, b.leases)
		}
	}
}

// TestARecordIsWrittenAgain: that it cannot be written is said once, and once more when it could be meanwhile.
func TestARecordIsWrittenAgain(t *testing.T) {
	var log strings.Builder
	a := &Arbiter{Log: slog.New(slog.NewTextHandler(&log, nil))}
	full := errors.New("no space left on device")
	for _, err := range []error{full, full, nil, full} {
		a.sayUnwritten(err)
	}
	if n := strings.Count(log.String(), "no space left"); n != 2 {
		t.Errorf("%d times:\n%s", n, &log)
	}
}

// TestUnclearIsSaidOnce: a user with many processes that keep an LPU back does not fill the log.
func TestUnclearIsSaidOnce(t *testing.T) {
	var log strings.Builder
	a := &Arbiter{Log: slog.New(slog.NewTextHandler(&log, nil))}
	var unclear []discovery.Unclear
	for pid := range 100 {
		unclear = append(unclear, discovery.Unclear{User: discovery.User{PID: pid}, Of: 7 + pid%2})
	}
	a.sayUnclear(unclear)
	a.sayUnclear(unclear)
	if n := strings.Count(log.String(), "kept back"); n != 2 {
		t.Errorf("%d lines of two users:\n%s", n, &log)
	}
}
