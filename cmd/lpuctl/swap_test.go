package main

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/simulate"
	"github.com/hyperaccel/lpuctl/test/long"
)

// TestTheLaterTruthWins: refreshes that start before, during and after a swap of two nodes leave the nodes as they are after it. The
// last one need not be the one that began last.
func TestTheLaterTruthWins(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	machine, err := (simulate.Node{Profile: "lpu", LPUs: 2, Functions: 400}).Start(root) // so many that a scan takes as long as a write
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
	random := long.Rand(t)
	for round := range long.Rounds(t, 8) {
		var running sync.WaitGroup
		start := func(code bool) {
			running.Go(func() {
				out, err := exec.Command(lpuctl, "--root", root, "--quiet", "cdi", "refresh").CombinedOutput()
				if err != nil && code {
					t.Errorf("round %d: %v\n%s", round, err, out)
				}
			})
			time.Sleep(rand.N(10 * time.Millisecond))
		}
		for range 1 + random.IntN(3) { // during the swap a card may have no node, which is exit code 3
			start(false)
		}
		if err := machine.SwapNodes(0, 1); err != nil {
			t.Fatal(err)
		}
		for range 1 + random.IntN(2) {
			start(true)
		}
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
