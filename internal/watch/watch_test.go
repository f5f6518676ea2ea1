package watch_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/machines"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// watched runs a watch and returns the inventories it delivers.
func watched(t *testing.T, root string, interval time.Duration) <-chan *discovery.Inventory {
	t.Helper()
	return watchedAs(t, root, discovery.Options{}, interval)
}

func watchedAs(t *testing.T, root string, options discovery.Options, interval time.Duration) <-chan *discovery.Inventory {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	inventories, done := make(chan *discovery.Inventory, 1000), make(chan struct{})
	go func() {
		w := watch.New(root, watch.Options{Scan: options}, host.SinceBoot)
		w.Run(ctx, interval, func() {
			inv, err := w.Scan(ctx)
			if err == nil {
				inventories <- inv
			} else if ctx.Err() == nil {
				t.Error(err)
			}
		})
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return inventories
}

// next is the next inventory that is as it should be.
func next(t *testing.T, inventories <-chan *discovery.Inventory, what string, is func(*discovery.Inventory) bool) *discovery.Inventory {
	t.Helper()
	limit := time.After(await.Limit)
	for {
		select {
		case inv := <-inventories:
			if is(inv) {
				return inv
			}
		case <-limit:
			t.Fatalf("it does not happen: %s", what)
		}
	}
}

func TestWatchKeepsACardThatIsGone(t *testing.T) {
	_, root := machines.Start(t, simulate.Node{Profile: "orion"})
	inventories := watched(t, root, 10*time.Millisecond)
	next(t, inventories, "the server", func(inv *discovery.Inventory) bool { return len(inv.LPUs) == 8 })
	if err := os.Remove(filepath.Join(root, "sys/bus/pci/devices/0000:45:00.1")); err != nil {
		t.Fatal(err)
	}
	inv := next(t, inventories, "LPU 2 is gone", func(inv *discovery.Inventory) bool {
		return inv.LPUs[2].Absent && inv.LPUs[2].Health == discovery.Unhealthy
	})
	l := inv.LPUs[2]
	if !l.Absent || l.Address.String() != "0000:45:00.1" || l.Reasons[0].ID != "gone" || inv.LPUs[3].Name != "lpu3" {
		t.Errorf("LPU 2 is %+v", l)
	}
	r := inv.Rings[0]
	if len(r.Members) != 8 || !slices.Equal(r.DeadLinks, [][2]string{{"lpu1", "lpu2"}, {"lpu2", "lpu3"}}) {
		t.Errorf("the ring is %+v", r)
	}
}

// TestWatchSeesNodesAtOnce: an interval of an hour is not waited for when /dev changes.
func TestWatchSeesNodesAtOnce(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: device nodes are made by root only")
	}
	_, root := machines.Start(t, simulate.Node{Profile: "orion"})
	inventories := watched(t, root, time.Hour)
	inv := next(t, inventories, "the server", func(*discovery.Inventory) bool { return true })
	if err := os.Remove(filepath.Join(root, inv.LPUs[4].Nodes[0].Path)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	next(t, inventories, "LPU 4 has no node", func(inv *discovery.Inventory) bool { return inv.LPUs[4].Health == discovery.Unhealthy })
	t.Logf("seen after %v", time.Since(start))
}

// TestWatchSeesTheEndOfAGrace, though it ends while a look goes on: the next look does not wait for the interval.
func TestWatchSeesTheEndOfAGrace(t *testing.T) {
	const grace = 90 * time.Second
	root := filepath.Join(t.TempDir(), "node")
	machine, err := simulate.Node{Profile: "orion"}.Start(root)
	if err != nil {
		t.Fatal(err)
	}
	policy := health.DefaultPolicy()
	policy.ResetGrace, policy.BadReadings = grace, 1
	now := time.Hour
	w := watch.New(root, watch.Options{Scan: discovery.Options{Policy: &policy}}, func() time.Duration { return now })
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	var states []health.State
	w.Run(ctx, time.Hour, func() {
		inv, err := w.Scan(ctx)
		if err != nil {
			t.Error(err)
			cancel()
			return
		}
		states = append(states, inv.LPUs[2].Health)
		switch len(states) {
		case 1:
			err = machine.AllOnes(2, true)
			now += time.Hour - time.Millisecond // a beat is near
		case 2:
			now += grace + time.Second // so long the look takes
		default:
			cancel()
		}
		if err != nil {
			t.Error(err)
		}
	})
	if want := []health.State{health.Healthy, health.Unknown, health.Unhealthy}; !slices.Equal(states, want) {
		t.Errorf("looks find %v, want %v", states, want)
	}
}

// TestWatchAsksForTheSerialOnce: the number goes through the card's management side, and does not change.
func TestWatchAsksForTheSerialOnce(t *testing.T) {
	_, root := machines.Start(t, simulate.Node{Profile: "orion"})
	inventories := watched(t, root, 10*time.Millisecond)
	inv := next(t, inventories, "the server", func(inv *discovery.Inventory) bool { return len(inv.LPUs) == 8 })
	serial := inv.LPUs[0].Serial
	files, err := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/0000:43:00.1/xmc.u.*/serial_num"))
	if err != nil || len(files) != 1 || serial == "" {
		t.Fatal(files, serial, err)
	}
	if err := os.WriteFile(files[0], []byte("ANOTHER\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		inv = <-inventories
	}
	if inv.LPUs[0].Serial != serial {
		t.Errorf("the serial number was read again: %s", inv.LPUs[0].Serial)
	}
}

// TestWatchKnowsCardsThatCannotBeRead: what an earlier scan saw is known, also if its ids cannot be read now.
func TestWatchKnowsCardsThatCannotBeRead(t *testing.T) {
	m, root := machines.Start(t, simulate.Node{Profile: "bertha", LPUs: 3})
	models := discovery.MergeModels(discovery.BuiltinModels(), []discovery.Model{
		{Name: "bertha", Match: []discovery.Match{{Vendor: "20fb", Device: "0010"}}},
	})
	inventories := watchedAs(t, root, discovery.Options{Models: models}, 10*time.Millisecond)
	next(t, inventories, "the server", func(inv *discovery.Inventory) bool { return len(inv.LPUs) == 3 })
	machines.Must(t, m.Hide(1, "vendor", "modalias", "uevent"))
	inv := next(t, inventories, "an unknown card", func(inv *discovery.Inventory) bool { return !inv.LPUs[1].Usable })
	if l := inv.LPUs[1]; len(inv.LPUs) != 3 || l.Absent || l.Reasons[0].ID != "read-stalled" || inv.Undecided() != nil {
		t.Errorf("%+v, undecided: %v", inv.LPUs, inv.Undecided())
	}
	machines.Must(t, m.Show(1))
	next(t, inventories, "the card", func(inv *discovery.Inventory) bool { return inv.LPUs[1].Usable })
	machines.Must(t, m.Unplug(1))
	next(t, inventories, "no card", func(inv *discovery.Inventory) bool { return len(inv.LPUs) == 3 && inv.LPUs[1].Absent })
}

// TestTheFirstReadingOfAFaultThatMayPass says nothing about health; that of another fault does.
func TestTheFirstReadingOfAFaultThatMayPass(t *testing.T) {
	for fault, want := range map[string][]discovery.Health{
		"unbound": {discovery.Unhealthy, discovery.Unhealthy, discovery.Unhealthy},
		"offline": {discovery.HealthUnknown, discovery.HealthUnknown, discovery.Unhealthy},
		"":        {discovery.Healthy, discovery.Healthy, discovery.Healthy},
	} {
		root, now := filepath.Join(t.TempDir(), "node"), time.Unix(0, 0)
		m, err := (simulate.Node{Profile: "orion", LPUs: 2}).Start(root)
		machines.Must(t, err)
		switch fault {
		case "offline":
			plant.File(t, filepath.Join(root, m.Card(1).Dir, "dev_offline"), "1\n")
		case "unbound":
			machines.Must(t, m.Unbind(1))
		}
		w := watch.New(root, watch.Options{}, func() time.Duration { return time.Duration(now.UnixNano()) })
		for i, want := range want {
			for range 2 { // a scan that is repeated at once says nothing new
				inv, err := w.Scan(t.Context())
				machines.Must(t, err)
				if got := inv.LPUs[1].Health; got != want {
					t.Errorf("%s, look %d: %s, want %s", fault, i, got, want)
				}
			}
			now = now.Add(29 * time.Second)
		}
	}
}

// TestAGlanceAfterABind: what an LPU has got by its driver is looked at each second, too, and not only when all is read again.
func TestAGlanceAfterABind(t *testing.T) {
	m, root := machines.Start(t, simulate.Node{Profile: "bertha", LPUs: 1})
	now := time.Hour
	w := watch.New(root, watch.Options{Scan: discovery.Options{Models: machines.Bertha()}}, func() time.Duration { return now })
	scan := func() *discovery.LPU {
		t.Helper()
		inv, err := w.Scan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		now += time.Second
		return &inv.LPUs[0]
	}
	scan()
	if err := m.Unbind(0); err != nil {
		t.Fatal(err)
	}
	scan()
	if err := m.Bind(0); err != nil {
		t.Fatal(err)
	}
	for range 11 { // all is read after ten seconds; then nine are left
		scan()
	}
	if err := m.Set(0, "ha/state", "failed"); err != nil {
		t.Fatal(err)
	}
	if l := scan(); l.Usable {
		t.Errorf("%s: %v", l.Health, l.Reasons)
	}
}
