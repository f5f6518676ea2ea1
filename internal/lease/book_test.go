package lease

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// TestAnLPUThatIsGone: who has it keeps the lease. Who waits for it waits on, and gets it when it is back, and not the card that has its
// name meanwhile.
func TestAnLPUThatIsGone(t *testing.T) {
	b := NewBook()
	see := func(now time.Duration, gone bool) []Message {
		v := (&glimpse{began: now, pool: 0xff}).view()
		if gone {
			v.Inventory.LPUs = slices.Delete(v.Inventory.LPUs, 3, 4)
			v.Inventory.Rings = nil
			v.Inventory.LPUs[3].Name = "lpu3"
		}
		b.See(now, v)
		b.Tell(now, batch)
		out, _ := b.Outbox()
		return out
	}
	see(10, false)
	third := Selection{Count: 1, Must: []pci.Address{address(3)}}
	b.Wish(20, 1, Peer{UID: 1}, Wish{Selection: third})
	b.Wish(30, 2, Peer{UID: 2}, Wish{Selection: third, Wait: true})
	b.Outbox()
	out := see(40, true)
	if l := b.List(40); len(l.Leases) != 1 || l.Leases[0].LPUs[0].Address != address(3) || len(l.Waiting) != 1 {
		t.Fatalf("%+v", l)
	}
	if len(out) != 1 || out[0].Waiting == nil || !strings.Contains(out[0].Waiting.Why, "0000:43:00.1 is not in this machine now") {
		t.Errorf("told is %+v", out)
	}
	b.Drop(50, 1)
	b.Outbox()
	if out := see(60, true); len(out) != 0 {
		t.Errorf("while it is gone: %+v", out)
	}
	if out := see(70, false); len(out) != 1 || out[0].Granted == nil || out[0].Granted.LPUs[0].Address != address(3) {
		t.Errorf("when it is back: %+v", out)
	}
}

// TestAnLPUThatIsUnclear: what a user had leased stays with the user while it cannot be seen whether a process of the user still uses it.
func TestAnLPUThatIsUnclear(t *testing.T) {
	b := NewBook()
	hidden := []discovery.Unclear{{User: discovery.User{PID: 7, Command: "python", UID: 100001}, Of: 1, Why: "has something"}}
	see := func(now time.Duration, unclear []discovery.Unclear) []Message {
		v := (&glimpse{began: now, pool: 0xff}).view()
		v.Unclear = unclear
		b.See(now, v)
		out, _ := b.Outbox()
		return out
	}
	third := Selection{Count: 1, Must: []pci.Address{address(3)}}
	ask := func(now time.Duration, conn Conn, uid int, wait bool) Answer {
		b.Wish(now, conn, Peer{UID: uid}, Wish{Selection: third, Wait: wait})
		out, _ := b.Outbox()
		return out[0].Answer
	}
	see(10, hidden) // of a user who has had nothing yet
	if a := ask(20, 1, 1, false); a.Granted == nil {
		t.Fatalf("%+v", a)
	}
	b.Drop(30, 1)
	see(40, hidden)
	if a := ask(50, 2, 2, false); a.Refused == nil || !strings.Contains(a.Refused.Message, "python(7) has something") {
		t.Errorf("another user: %+v", a)
	}
	if a := ask(60, 3, 1, false); a.Granted == nil {
		t.Errorf("the same user: %+v", a)
	}
	b.Drop(70, 3)
	if a := ask(80, 4, 2, true); a.Waiting == nil {
		t.Errorf("who waits: %+v", a)
	}
	if out := see(90, hidden); len(out) != 0 && out[0].Granted != nil {
		t.Errorf("while it is unclear: %+v", out)
	}
	if out := see(100, nil); len(out) != 1 || out[0].Granted == nil {
		t.Errorf("when it is clear: %+v", out)
	}
	if len(b.suspects()) != 0 {
		t.Errorf("suspects are %v", b.suspects())
	}
}
