package lease

import (
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// asked is what a book answers to a wish.
func asked(t *testing.T, b *Book, now time.Duration, conn Conn, uid int, w Wish) Answer {
	t.Helper()
	b.Wish(now, conn, Peer{UID: uid}, w)
	out, _ := b.Outbox()
	if len(out) != 1 {
		t.Fatalf("wish %d: %+v", conn, out)
	}
	return out[0].Answer
}

// TestOwnLeasesHoldNobodyBack: who has an LPU and waits for all of them waits for nobody else, hears so, and keeps none from others, root
// included. When that LPU is given back the wish counts again.
func TestOwnLeasesHoldNobodyBack(t *testing.T) {
	for _, uid := range []int{1, 0} {
		b := NewBook()
		b.See(10, (&glimpse{began: 5, pool: 0xff}).view())
		all := Wish{Selection: Selection{Count: 8}, Wait: true}
		asked(t, b, 20, 1, uid, Wish{Selection: Selection{Count: 1, Must: lpusOf(3)}})
		if a := asked(t, b, 30, 2, uid, all); a.Waiting == nil || !strings.Contains(a.Waiting.Why, "leased yourself") ||
			!strings.Contains(a.Waiting.Why, "lpu3 (lease l1); until that changes others go first") {
			t.Errorf("%d waits for %+v", uid, a.Waiting)
		}
		all.Wait = false
		if a := asked(t, b, 40, 3, uid, all); a.Refused == nil || a.Refused.ID != finding.LeaseNoneFree ||
			!strings.Contains(a.Refused.Message, "lpu3 (lease l1)") {
			t.Errorf("%d is refused with %+v", uid, a.Refused)
		}
		if a := asked(t, b, 50, 4, 2, Wish{Selection: Selection{Count: 6}}); a.Granted == nil {
			t.Errorf("another user: %+v", a.Refused)
		}
		b.Drop(60, 1)
		if a := asked(t, b, 70, 5, 3, Wish{Selection: Selection{Count: 1}}); a.Refused == nil {
			t.Error("the wish for all LPUs comes first again, and another user gets one")
		}
	}
}

// TestALimitHoldsNobodyBack: who has as many LPUs as the limit allows hears that it is the limit.
func TestALimitHoldsNobodyBack(t *testing.T) {
	b := NewBook()
	v := (&glimpse{began: 5, pool: 0xff}).view()
	v.Limits.LPUs = 2
	b.See(10, v)
	b.Reserve(20, 1, Peer{UID: 1}, Reserve{Selection: Selection{Count: 2, Must: lpusOf(0, 1)}, For: time.Hour, Reason: "a test"})
	b.Outbox()
	if a := asked(t, b, 30, 2, 1, Wish{Selection: Selection{Count: 1, Must: lpusOf(7)}, Wait: true}); a.Waiting == nil ||
		!strings.Contains(a.Waiting.Why, "a user may have 2 LPUs, leased and reserved, and has 2; until that changes others go first") {
		t.Errorf("waits for %+v", a.Waiting)
	}
	if a := asked(t, b, 40, 3, 2, Wish{Selection: Selection{Count: 1, Must: lpusOf(7)}}); a.Granted == nil {
		t.Errorf("another user: %+v", a.Refused)
	}
}
