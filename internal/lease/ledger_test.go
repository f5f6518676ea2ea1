package lease_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/usage"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/await"
)

// recording has an arbiter record usage below a node.
func recording(dir string, keep time.Duration) func(*lease.Arbiter) {
	return func(a *lease.Arbiter) { a.Usage = &usage.Journal{Dir: filepath.Join(dir, "var/usage"), Keep: keep} }
}

// as has all who connect be one user.
func as(uid int, name string) func(*lease.Arbiter) {
	return func(a *lease.Arbiter) {
		a.Describe = func(_ context.Context, p lease.Peer) (lease.Peer, *lease.Refusal) {
			return lease.Peer{UID: uid, User: name, PID: p.PID}, nil
		}
	}
}

// allDay is a query of the hours around now.
func allDay() usage.Query {
	return usage.Query{Since: time.Now().Add(-24 * time.Hour), Until: time.Now().Add(24 * time.Hour)}
}

// used is what a user has used; nothing if that is not known.
func used(t *testing.T, dir string, uid int) usage.User {
	t.Helper()
	r, err := dial(t, dir).Usage(t.Context(), allDay())
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range r.Users {
		if u.UID == uid {
			return u
		}
	}
	return usage.User{}
}

// TestUsage: who had what is summed up for the user and for root, over arbiters that come and go.
func TestUsage(t *testing.T) {
	dir := aNode(t)
	listen := listening(t, dir)
	stop := listen(recording(dir, time.Hour), as(1000, "anna"))
	c := dial(t, dir)
	g, err := c.Wish(t.Context(), wish(2), nil)
	if err != nil {
		t.Fatal(err)
	}
	waits := wish(8)
	waits.Wait = true
	ctx, giveUp := context.WithCancel(t.Context())
	second := dial(t, dir)
	if _, err := second.Wish(ctx, waits, func(lease.Place) { giveUp() }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	_ = second.Close()
	opens(t, dir, 4711, 0)
	await.For(t, "the node is seen open", func() bool {
		u := used(t, dir, 1000)
		return u.Leases == 1 && u.Waits == 1 && u.Leased > 0 && u.Open > 0 && u.Open <= u.Leased && u.LongestWait > 0
	})
	u := used(t, dir, 1000)
	if u.Name != "anna" || len(u.LPUs) != 2 || u.LPUs[0].Name != g.LPUs[0].Name || u.LPUs[0].Address != g.LPUs[0].Address.String() ||
		u.LPUs[0].Leases != 1 || u.LPUs[0].Open != u.Open || u.LPUs[1].Open != 0 {
		t.Errorf("%+v", u)
	}
	other := allDay()
	other.User = "bob"
	if _, err := dial(t, dir).Usage(t.Context(), other); !refusedWith(err, finding.LeaseNoUsage) {
		t.Errorf("of another user: %v", err)
	}
	other.User = "anna"
	if r, err := dial(t, dir).Usage(t.Context(), other); err != nil || len(r.Users) != 1 {
		t.Errorf("of that user: %+v, %v", r, err)
	}
	stop()

	stop = listening(t, aSocket(t, dir))(recording(dir, time.Hour), as(1001, "bob"))
	if _, err := dial(t, dir).Wish(t.Context(), wish(1), nil); err != nil {
		t.Fatal(err)
	}
	if anna, bob := used(t, dir, 1000), used(t, dir, 1001); anna.Leases != 0 || bob.Leases != 1 || bob.Name != "bob" {
		t.Errorf("bob is shown %+v and %+v", anna, bob)
	}
	stop()

	stop = listening(t, aSocket(t, dir))(recording(dir, time.Hour), as(0, "root"))
	if anna, bob := used(t, dir, 1000), used(t, dir, 1001); anna.Leases != 1 || anna.Waits != 1 || bob.Leases != 1 {
		t.Errorf("root is shown %+v and %+v", anna, bob)
	}
	stop()

	// Turned off it is not recorded, and what was recorded is gone.
	stop = listening(t, aSocket(t, dir))(recording(dir, 0), as(0, "root"))
	defer stop()
	if _, err := dial(t, dir).Usage(t.Context(), allDay()); !refusedWith(err, finding.LeaseNoUsage) {
		t.Errorf("turned off: %v", err)
	}
	if _, err := dial(t, dir).Wish(t.Context(), wish(1), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "var/usage")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// aSocket removes the socket of an arbiter that has ended, for the next one.
func aSocket(t *testing.T, dir string) string {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, "socket")); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return dir
}

// TestUsageThatCannotBeWritten: leases go on, it is said once, and what was not written is shown and written later.
func TestUsageThatCannotBeWritten(t *testing.T) {
	dir := aNode(t)
	var said strings.Builder
	at := filepath.Join(dir, "var/usage")
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	stop := serve(t, dir, recording(dir, time.Hour), as(1000, "anna"), logging(&said))
	for range 3 {
		c := dial(t, dir)
		if _, err := c.Wish(t.Context(), wish(8), nil); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		await.For(t, "its LPUs are free", func() bool {
			l, err := dial(t, dir).List(t.Context())
			return err == nil && len(l.Leases) == 0
		})
	}
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	stop()
	if n := strings.Count(said.String(), "lease-usage"); n < 1 || n > 2 { // it cannot be read, and it cannot be written
		t.Errorf("said %d times:\n%s", n, &said)
	}
	defer listening(t, aSocket(t, dir))(recording(dir, time.Hour), as(1000, "anna"))()
	if u := used(t, dir, 1000); u.Leases != 3 || len(u.LPUs) != 8 {
		t.Errorf("%+v", u)
	}
}

// logging has an arbiter log to a text.
func logging(to io.Writer) func(*lease.Arbiter) {
	return func(a *lease.Arbiter) { a.Log = slog.New(slog.NewTextHandler(to, nil)) }
}

// isUsage wants the journal to have what a crowd has had, though its arbiter was killed again and again: of no LPU more time than has
// passed, and of the leases that were given all but those that ended in the moment in which an arbiter was killed.
func (w *crowd) isUsage(leases int, passed time.Duration) {
	w.t.Helper()
	j := &usage.Journal{Dir: filepath.Join(w.dir, "var/usage"), Keep: time.Hour}
	r, err := j.Reports([]usage.Ask{{Query: allDay()}}, nil, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	counted, of := 0, map[string]float64{}
	for _, u := range r[0].Users {
		counted += u.Leases
		for _, l := range u.LPUs {
			of[l.Name] += l.Leased
		}
	}
	for name, hours := range of {
		if hours <= 0 || hours > passed.Hours() {
			w.t.Errorf("%s was leased for %g s in %s", name, 3600*hours, passed)
		}
	}
	if len(of) != 8 || counted < leases*9/10 || r[0].Unread > 0 {
		w.t.Errorf("%d leases of %d LPUs are counted, %d were seen; %d lines cannot be read", counted, len(of), leases, r[0].Unread)
	}
	w.t.Logf("%d leases are counted, %d were seen", counted, leases)
}
