package watch_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/machines"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestAWatcherIsRightOrFails: what changes while there are too few descriptors is seen as soon as there are enough.
func TestAWatcherIsRightOrFails(t *testing.T) {
	_, root := machines.Start(t, simulate.Node{Profile: "orion", LPUs: 4})
	now := time.Hour
	w := watch.New(root, watch.Options{}, func() time.Duration { return now })
	look := func() (*discovery.Inventory, error) {
		now += time.Second
		return w.Scan(t.Context())
	}
	inv, err := look()
	if err != nil {
		t.Fatal(err)
	}
	width := filepath.Join(root, "sys/bus/pci/devices", inv.LPUs[1].Address.String(), "current_link_width")
	failures := 0
	for n := range 12 {
		want := 1 + n
		if err := os.WriteFile(width, []byte(fmt.Sprintln(want)), 0o644); err != nil {
			t.Fatal(err)
		}
		restore := plant.LeaveDescriptors(t, n)
		for range 2 {
			inv, err := look()
			switch {
			case err != nil && !host.IsShortage(err):
				t.Errorf("with %d descriptors: %v", n, err)
			case err != nil:
				failures++
			case inv.LPUs[1].Link == nil || inv.LPUs[1].Link.Width != want:
				t.Errorf("with %d descriptors: %+v, not width %d", n, inv.LPUs[1].Link, want)
			}
		}
		restore()
		inv, err := look()
		if err != nil {
			t.Fatalf("after %d descriptors: %v", n, err)
		}
		if one, other := inv.LPUs[1], inv.LPUs[0]; one.Link == nil || one.Link.Width != want || !other.Usable {
			t.Fatalf("after %d descriptors: %+v, %v", n, one.Link, other.Reasons)
		}
	}
	if failures == 0 {
		t.Error("no look has failed")
	}
}

// TestAWatcherHoldsFewDescriptors: at rest at most three for each LPU.
func TestAWatcherHoldsFewDescriptors(t *testing.T) {
	const lpus = 16
	_, root := machines.Start(t, simulate.Node{Profile: "orion", LPUs: lpus})
	before := descriptors(t)
	now := time.Hour
	w := watch.New(root, watch.Options{}, func() time.Duration { return now })
	for range 3 {
		now += time.Second
		if _, err := w.Scan(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	await.Until(t, "reads of configuration spaces end", func() error {
		if n := descriptors(t) - before; n > 3*lpus {
			return fmt.Errorf("it holds %d descriptors for %d LPUs", n, lpus)
		}
		return nil
	})
	_, _ = w.Scan(t.Context()) // it is in use until here
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// TestAGlanceAtACardMadeAnew: the directory that was kept of the card before does not count any more.
func TestAGlanceAtACardMadeAnew(t *testing.T) {
	_, root := machines.Start(t, simulate.Node{Profile: "orion", LPUs: 2})
	now := time.Hour
	w := watch.New(root, watch.Options{}, func() time.Duration { return now })
	var latest *discovery.Inventory
	look := func() discovery.LPU {
		now += time.Second
		inv, err := w.Scan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		latest = inv
		return inv.LPUs[0]
	}
	rest := func() { // a card that has just come back is read with each look
		for before := latest; ; before = latest {
			if look(); latest == before {
				return
			}
		}
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(root, "sys/bus/pci/devices", look().Address.String()))
	if err != nil {
		t.Fatal(err)
	}
	rest()
	before := t.TempDir()
	if err := errors.Join(os.CopyFS(before, os.DirFS(dir)), os.RemoveAll(dir)); err != nil {
		t.Fatal(err)
	}
	if l := look(); l.Usable {
		t.Error("a card that is gone is usable")
	}
	if err := os.CopyFS(dir, os.DirFS(before)); err != nil {
		t.Fatal(err)
	}
	rest()
	for _, width := range []int{8, 4, 2} {
		if err := os.WriteFile(filepath.Join(dir, "current_link_width"), fmt.Appendln(nil, width), 0o644); err != nil {
			t.Fatal(err)
		}
		if l := look(); l.Link == nil || l.Link.Width != width {
			t.Errorf("width %d: %+v, %v", width, l.Link, l.Reasons)
		}
	}
}
