package lease

import (
	"slices"
	"strings"
	"testing"
	"time"

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
