package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/long"
)

// TestTheLaterTruthWins: refreshes that were started before a swap of two nodes, and had to wait for the lock, write what is true when
// they have it. Which of them is the last does not matter.
func TestTheLaterTruthWins(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	machine, err := (simulate.Node{Profile: "lpu", LPUs: 2}).Start(root)
	if err != nil {
		t.Fatal(err)
	}
	this, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	lpuctl := filepath.Join(t.TempDir(), "lpuctl") // by this name the test is lpuctl
	if err := os.Symlink(this, lpuctl); err != nil {
		t.Fatal(err)
	}
	file, err := cdi.Locate(root, cdi.DefaultSpecDir, cdi.DefaultKind)
	if err != nil {
		t.Fatal(err)
	}
	for round := range long.Rounds(t, 5) {
		held, err := file.Hold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		start := func(times int) {
			for range times {
				running.Go(func() {
					if out, err := exec.Command(lpuctl, "--root", root, "--quiet", "cdi", "refresh").CombinedOutput(); err != nil {
						t.Errorf("round %d: %v\n%s", round, err, out)
					}
				})
			}
			time.Sleep(150 * time.Millisecond) // by now they wait for the lock, on most machines
		}
		start(3)
		if err := machine.SwapNodes(0, 1); err != nil {
			t.Fatal(err)
		}
		start(1)
		held.Release()
		running.Wait()
		inv, err := discovery.Scan(t.Context(), root, discovery.Options{})
		if err != nil {
			t.Fatal(err)
		}
		spec, _, err := cdi.Spec(inv, cdi.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if drift, err := file.Drift(inv, spec); err != nil || drift.Any() {
			t.Fatalf("round %d: %s, %v", round, &drift, err)
		}
	}
}
