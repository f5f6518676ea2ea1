package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/uevent"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// settled is a watcher of a captured server with two LPUs, after looks enough that it rests. Its clock stands still until it is moved.
func settled(t *testing.T, options Options) (w *Watcher, root string, now *time.Duration) {
	t.Helper()
	root, now = plant.Capture(t, u55c), new(time.Duration)
	options.Scan.Models = captureModels(t)
	w = New(root, options, func() time.Duration { return *now })
	before := look(t, w)
	for {
		// What the reads beside the scans find has all cards read again.
		await.Until(t, "the reads of configuration spaces end", func() error { return idle(&w.prober) })
		*now += time.Second
		inv := look(t, w)
		if inv == before && !anyLate(w) {
			return w, root, now
		}
		before = inv
	}
}

// anyLate reports whether a card is being read, or its answer was not taken yet: the machine was busy.
func anyLate(w *Watcher) bool {
	for _, c := range w.cards.all {
		if c.late != nil {
			return true
		}
	}
	return false
}

// idle returns an error while a read goes on.
func idle(p *prober) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.began) > 0 {
		return fmt.Errorf("%d go on", len(p.began))
	}
	return nil
}

func look(t *testing.T, w *Watcher) *discovery.Inventory {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	inv, err := w.Scan(ctx)
	if err == nil {
		err = ctx.Err() // it would have gone on for longer
	}
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

// The functions of the LPUs of the captured server.
var first, second = pci.Address{Bus: 0x43, Function: 1}, pci.Address{Bus: 0x44, Function: 1}

// answered waits until the first card has answered that was late.
func answered(w *Watcher) {
	for len(w.cards.of(first).late.answer) == 0 {
		<-w.cards.answered
	}
}

// attribute is the file of an attribute of a function.
func attribute(root string, a pci.Address, name string) string {
	return filepath.Join(root, pci.Devices, a.String(), name)
}

// TestAnEventReadsItsCardAgain, and no other one. What no glance shows is seen by the next reading of everything.
func TestAnEventReadsItsCardAgain(t *testing.T) {
	w, root, now := settled(t, Options{Scan: discovery.Options{CardDeadline: 20 * time.Second}}) // the machine may be busy
	for _, a := range []pci.Address{first, second} {
		plant.File(t, attribute(root, a, "numa_node"), "7\n")
	}
	moved := func(l discovery.LPU) bool { return l.NUMANode != nil && *l.NUMANode == 7 }
	if inv := look(t, w); moved(inv.LPUs[0]) || moved(inv.LPUs[1]) {
		t.Fatal("a card was read, though nothing shows that it has changed")
	}
	w.take(uevent.Event{Action: "change", DevPath: "/devices/pci0000:40/" + first.String(), Subsystem: "pci"})
	if inv := look(t, w); !moved(inv.LPUs[0]) || moved(inv.LPUs[1]) {
		t.Errorf("after an event of one card: %v, %v", inv.LPUs[0].NUMANode, inv.LPUs[1].NUMANode)
	}
	w.take(uevent.Event{Overflow: true})
	if inv := look(t, w); !moved(inv.LPUs[1]) {
		t.Error("events were lost, and a card was not read")
	}
	plant.File(t, attribute(root, second, "numa_node"), "6\n")
	*now += fullPeriod
	if inv := look(t, w); *inv.LPUs[1].NUMANode != 6 {
		t.Error("a card was not read when it was time")
	}
}

// TestACardThatIsLate delays nobody, and stays as it was until it answers. No second read of it begins.
func TestACardThatIsLate(t *testing.T) {
	// The machine may be busy.
	w, root, _ := settled(t, Options{Patience: 500 * time.Millisecond, Scan: discovery.Options{CardDeadline: 20 * time.Second}})
	what := discovery.StageOf(first, discovery.DriverStage)
	hangs, _ := w.cards.reads.Begin(what)
	plant.File(t, attribute(root, first, "current_link_width"), "4\n")
	before := runtime.NumGoroutine()
	for width := 1; width < 4; width++ {
		plant.File(t, attribute(root, second, "current_link_width"), string(rune('0'+width))+"\n")
		var inv *discovery.Inventory
		await.For(t, "the other card is read", func() bool { // on a busy machine it is late too
			inv = look(t, w)
			return inv.LPUs[1].Link.Width == width
		})
		if l := inv.LPUs[0]; l.Link.Width == 4 || l.Reasons.Has(finding.ReadStalled) {
			t.Fatalf("the card that is late: %+v %v", l.Link, l.Reasons)
		}
	}
	await.Until(t, "those that read the configuration space end", func() error {
		if n := runtime.NumGoroutine(); n > before+2 { // one waits for the read, one for the card
			return fmt.Errorf("%d goroutines, %d before", n, before)
		}
		return nil
	})
	w.cards.reads.End(what, hangs)
	answered(w)
	if inv := look(t, w); inv.LPUs[0].Link.Width != 4 {
		t.Errorf("what the card has answered is not taken: %+v", inv.LPUs[0].Link)
	}
}

// TestACardThatAnswersInTime leads to no look of its own. While a card is in doubt all cards are read at each look, and looks would follow
// each other without a pause.
func TestACardThatAnswersInTime(t *testing.T) {
	// The machine may be busy.
	w, _, _ := settled(t, Options{Patience: 20 * time.Second, Scan: discovery.Options{CardDeadline: 30 * time.Second}})
	for range 300 {
		w.cards.want()
		look(t, w)
		time.Sleep(time.Millisecond) // those that read are about to end
		if len(w.cards.answered) > 0 {
			t.Fatal("a look is to follow, though all cards have answered in time")
		}
	}
}

// TestACardThatIsLateForGood has stalled when its deadline is over.
func TestACardThatIsLateForGood(t *testing.T) {
	w, root, _ := settled(t, Options{Patience: time.Millisecond, Scan: discovery.Options{CardDeadline: 20 * time.Millisecond}})
	_, _ = w.cards.reads.Begin(discovery.StageOf(first, discovery.DriverStage))
	plant.File(t, attribute(root, first, "current_link_width"), "4\n")
	await.Until(t, "it has stalled, and the rest was read", func() error {
		if l := look(t, w).LPUs[0]; !l.Reasons.Has(finding.ReadStalled) || l.Link.Width != 4 {
			return fmt.Errorf("%+v %v", l.Link, l.Reasons)
		}
		return nil
	})
}

// TestTheNodeOfACardThatIsLate: another card seems to have it now. Both would be refused, so the card is waited for.
func TestTheNodeOfACardThatIsLate(t *testing.T) {
	w, _, _ := settled(t, Options{Patience: time.Millisecond, Scan: discovery.Options{CardDeadline: time.Hour}})
	c := w.cards.of(first)
	was := *c.latest
	stolen := was
	stolen.Nodes = w.cards.of(second).latest.Nodes // as if the nodes had been exchanged, and this card had not been read since
	c.latest = &stolen
	what := discovery.StageOf(first, discovery.DriverStage)
	hangs, _ := w.cards.reads.Begin(what)
	c.due = true
	go func() {
		time.Sleep(20 * time.Millisecond)
		w.cards.reads.End(what, hangs)
	}()
	for _, l := range look(t, w).LPUs {
		if l.Reasons.Has(finding.SharedNode) {
			t.Errorf("%s: %v", l.Name, l.Reasons)
		}
	}
}

// TestAnAttributeThatWasReplaced: a glance does not go on reading a file that is not there any more.
func TestAnAttributeThatWasReplaced(t *testing.T) {
	w, root, _ := settled(t, Options{Scan: discovery.Options{CardDeadline: 20 * time.Second}})
	width := attribute(root, first, "current_link_width")
	plant.File(t, width+".new", "2\n")
	if err := os.Rename(width+".new", width); err != nil {
		t.Fatal(err)
	}
	if l := look(t, w).LPUs[0]; l.Link.Width != 2 {
		t.Errorf("another file in its place: %+v", l.Link)
	}
	if err := os.Remove(width); err != nil {
		t.Fatal(err)
	}
	if l := look(t, w).LPUs[0]; l.Link.Width != 0 {
		t.Errorf("no file any more: %+v", l.Link)
	}
}
