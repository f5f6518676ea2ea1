package lease

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestWhoWaitsForWhom: of each wish those are named who have LPUs that it could use, with these LPUs.
func TestWhoWaitsForWhom(t *testing.T) {
	b := NewBook()
	b.See(10, (&glimpse{began: 5, pool: 0xff}).view())
	b.Wish(20, 1, Peer{UID: 1}, Wish{Selection: Selection{Count: 2, Must: lpusOf(0, 1)}, For: time.Hour})
	b.Wish(20, 2, Peer{UID: 2}, Wish{Selection: Selection{Count: 2, Must: lpusOf(2, 3)}})
	b.Reserve(20, 3, Peer{UID: 3}, Reserve{Selection: Selection{Count: 4, Must: lpusOf(4)}, For: 2 * time.Hour, Reason: "x"})
	for conn, s := range []Selection{{Count: 2, Must: lpusOf(1, 2)}, {Count: 1, Must: lpusOf(4)}, {Count: 4}} {
		b.Wish(30, Conn(10+conn), Peer{UID: 7}, Wish{Selection: s, Wait: true})
	}
	text := func(q Queued) string {
		all := []string{q.ID}
		for _, h := range q.Holders {
			all = append(all, h.ID+" has")
			for _, l := range h.LPUs {
				all = append(all, l.Name)
			}
			all = append(all, "until "+h.Until.Round(time.Hour).String())
		}
		return strings.Join(all, " ")
	}
	q := b.Queue(40, 7, 0)
	var got []string
	for _, w := range q.Waiting {
		got = append(got, text(w))
		if !w.Mine || w.Since != 30 || w.Why == "" {
			t.Errorf("%+v", w)
		}
	}
	want := []string{
		"l10 l1 has lpu1 until 1h0m0s l2 has lpu2 until 0s",
		"l11 r1 has lpu4 until 2h0m0s",
		"l12 l1 has lpu0 lpu1 until 1h0m0s l2 has lpu2 lpu3 until 0s",
	}
	if !slices.Equal(got, want) || q.More {
		t.Errorf("%q", got)
	}
	if q := b.Queue(40, 8, 0); q.Waiting[0].Mine {
		t.Error("what another user waits for is mine")
	}
}

// TestTheQueueGoesInParts that are bounded, each after the one before.
func TestTheQueueGoesInParts(t *testing.T) {
	b := aLine(t, 150)
	var ids, want []string
	for _, e := range b.queue {
		want = append(want, e.ID)
	}
	parts := 0
	for q := (&Queue{More: true}); q.More; parts++ {
		after := uint64(0)
		if n := len(q.Waiting); n > 0 {
			after = q.Waiting[n-1].Order
		}
		q = b.Queue(50, 1, after)
		for _, w := range q.Waiting {
			ids = append(ids, w.ID)
		}
	}
	if parts != 3 || !slices.Equal(ids, want) {
		t.Errorf("%d parts: %v", parts, ids)
	}
	if q := b.Queue(50, 1, 1<<40); q.More || q.Waiting == nil || len(q.Waiting) > 0 {
		t.Errorf("after the last: %+v", q)
	}
	long := b.Queue(50, 1, 0)
	for i := range long.Waiting {
		long.Waiting[i].Why = strings.Repeat("x", 4000)
	}
	text, err := (&Answer{Queue: long}).marshal()
	if err != nil || len(text) > maxAnswer || !long.More || len(long.Waiting) == 0 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
