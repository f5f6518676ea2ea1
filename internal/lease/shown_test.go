package lease_test

import (
	"context"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/await"
)

// asRoot takes who connects for root.
func asRoot(a *lease.Arbiter) {
	a.Describe = func(_ context.Context, p lease.Peer) (lease.Peer, *lease.Refusal) {
		p.UID = 0
		return p, nil
	}
}

// TestAllWhoWaitAreShown, in their order, however many answers that takes.
func TestAllWhoWaitAreShown(t *testing.T) {
	const many = 70
	dir := serving(t, asRoot)
	c := dial(t, dir)
	g, err := c.Wish(t.Context(), wish(8), nil)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := c.Queue(t.Context()); err != nil || all == nil || len(all) != 0 {
		t.Fatalf("%+v, %v", all, err)
	}
	for range many {
		waits := make(chan struct{}, 100)
		go func(c *lease.Client) {
			w := wish(1)
			w.Wait = true
			_, _ = c.Wish(t.Context(), w, func(lease.Place) { waits <- struct{}{} })
		}(dial(t, dir))
		<-waits
	}
	all, err := c.Queue(t.Context())
	if err != nil || len(all) != many {
		t.Fatalf("%d wait, %v", len(all), err)
	}
	for i, q := range all {
		if i > 0 && q.Order <= all[i-1].Order || len(q.Holders) != 1 || q.Holders[0].ID != g.ID || !q.Mine {
			t.Fatalf("%d: %+v", i, q)
		}
	}
}

// TestTheHolderHears that root has ended its lease, also if that comes while it waits for another answer.
func TestTheHolderHears(t *testing.T) {
	dir := serving(t, asRoot)
	holder, root := dial(t, dir), dial(t, dir)
	g, err := holder.Wish(t.Context(), wish(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if ended, err := root.End(t.Context(), g.ID); err != nil || ended.ID != g.ID || len(ended.LPUs) != 1 {
		t.Fatalf("%+v, %v", ended, err)
	}
	if err := holder.Bind(t.Context(), strings.Repeat("0123456789abcdef", 4)); !refusedWith(err, finding.LeaseNoContainer) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	if over, err := holder.Over(ctx); err != nil || over.At == 0 {
		t.Errorf("%+v, %v", over, err)
	}
	if ids, err := root.ReleaseAll(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("%v, %v", ids, err)
	}
}
