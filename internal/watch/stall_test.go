package watch

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/stall"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestACardThatHangsIsLeftAlone: while a read of a card hangs its sensors are not read, nor for a while afterwards. Other cards are.
func TestACardThatHangsIsLeftAlone(t *testing.T) {
	for _, stage := range []string{"kernel", "driver", "config", "sensors"} {
		root := plant.Capture(t, u55c)
		dir := pci.Devices + "/0000:43:00.1"
		plant.File(t, filepath.Join(root, dir, "hwmon/hwmon0/temp1_input"), "41000\n")
		plant.File(t, filepath.Join(root, pci.Devices, "0000:44:00.1", "hwmon/hwmon1/temp1_input"), "42000\n")
		now := time.Hour
		w := New(root, Options{Scan: discovery.Options{Models: captureModels(t)}}, func() time.Duration { return now })
		temperature := func() (celsius float64, stalled bool) {
			t.Helper()
			inv, err := w.Scan(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if l := inv.LPUs[1]; len(l.Temperatures) != 1 || l.Temperatures[0].Celsius != 42 || l.Reasons.Has(finding.ReadStalled) {
				t.Errorf("%s: the other card: %v %v", stage, l.Temperatures, l.Reasons)
			}
			l := inv.LPUs[0]
			if len(l.Temperatures) > 0 {
				celsius = l.Temperatures[0].Celsius
			}
			return celsius, l.Reasons.Has(finding.ReadStalled)
		}
		what := discovery.StageOf(pci.Address{Bus: 0x43, Function: 1}, map[string]int{"kernel": 0, "driver": 1, "config": 2, "sensors": 3}[stage])
		hanging := hang(t, &w.cards.reads, what)
		for range 15 {
			if got, stalled := temperature(); got != 0 || !stalled {
				t.Fatalf("%s hangs: %v °C, stalled: %t", stage, got, stalled)
			}
			now += time.Second
		}
		w.cards.reads.End(what, hanging)
		if err := os.WriteFile(filepath.Join(root, dir, "hwmon/hwmon0/temp1_input"), []byte("45000\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for range 9 {
			if got, stalled := temperature(); got != 0 || stalled {
				t.Fatalf("%s has hung: %v °C, stalled: %t", stage, got, stalled)
			}
			now += time.Second
		}
		now += 10 * time.Second
		if got, _ := temperature(); got != 45 {
			t.Errorf("%s hung long ago: %v °C", stage, got)
		}
	}
}

// hang begins a read that seems to have begun long ago, and that sleeps in the kernel: of an empty pipe, until the test ends.
func hang(t *testing.T, reads *stall.Reads, what string) *stall.Read {
	t.Helper()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, _ := reads.Begin(what)
	r.Began = time.Time{}
	go r.Do(func() {
		_, _ = unix.Read(pipe[0], make([]byte, 1))
		_ = unix.Close(pipe[0])
	})
	t.Cleanup(func() { _ = unix.Close(pipe[1]) })
	await.For(t, "it sleeps", r.Asleep)
	return r
}
