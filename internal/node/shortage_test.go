package node_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// written are the files that a node writes, by path, with what would show that one was written again.
func written(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all[path] = string(data)
			if !strings.HasSuffix(path, "health.json") { // of which the time is renewed
				all[path] += host.State(path)
			}
		}
	}
	return all
}

// TestAShortageWritesNothing: whatever number of descriptors is left, an Update takes its snapshot as ever or not at all, writes nothing,
// and tells nobody that an LPU is sick.
func TestAShortageWritesNothing(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: 4}).Write(root); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "run/cdi")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	plant.File(t, filepath.Join(dir, "other.json"), `{"cdiVersion": "0.5.0", "kind": "example.com/other", "devices": []}`)
	file, err := cdi.Locate(root, "/run/cdi", cdi.DefaultKind)
	if err != nil {
		t.Fatal(err)
	}
	n := node.New(slog.New(slog.DiscardHandler))
	n.Early = func(s *node.Snapshot) { t.Errorf("told before the spec is written: %+v", s.Devices) }
	if n.Memory, err = node.RememberIn(host.Root(root)); err != nil {
		t.Fatal(err)
	}
	now := time.Hour
	w := watch.New(root, watch.Options{}, func() time.Duration { return now })
	spec := node.Spec{File: file}
	update := func() *node.Snapshot {
		now += 11 * time.Second // everything is read each time
		return n.Update(t.Context(), spec, w.Scan)
	}
	if s := update(); s == nil || n.Ready() != nil {
		t.Fatalf("%+v, %v", s, n.Ready())
	}
	want, failures := written(t, dir, n.Memory.Dir), 0
	for left := range 20 {
		n.Renew() // so that the spec is compared again
		restore := plant.LeaveDescriptors(t, left)
		s := update()
		restore()
		if s == nil {
			failures++
		}
		for _, d := range n.Latest().Devices {
			if !d.Healthy {
				t.Errorf("with %d descriptors %s is sick: %v", left, d.ID, d.Reasons)
			}
		}
		if got := written(t, dir, n.Memory.Dir); !maps.Equal(got, want) {
			t.Fatalf("with %d descriptors files have changed: %v", left, got)
		}
	}
	if failures < 3 {
		t.Errorf("%d Updates have failed", failures)
	}
	if s := update(); s == nil || n.Ready() != nil {
		t.Errorf("after the shortage: %v", n.Ready())
	}
}

// TestThreeScansThatFail make a node not ready. It stays alive, and is ready again with the first scan that succeeds.
func TestThreeScansThatFail(t *testing.T) {
	var log strings.Builder
	n := node.New(slog.New(slog.NewTextHandler(&log, nil)))
	update := func(err error) {
		n.Update(t.Context(), node.Spec{}, func(context.Context) (*discovery.Inventory, error) { return &discovery.Inventory{}, err })
	}
	update(nil)
	failed := errors.Join(discovery.ErrNoSysfs, errors.New("it is away"))
	for i, ready := range []bool{true, true, false, false} {
		update(failed)
		if err := n.Ready(); (err == nil) != ready {
			t.Errorf("after %d failures: %v", i+1, err)
		}
	}
	for _, part := range []string{"it is away", "what was known before holds; remedy: check --root, and that sysfs is mounted there"} {
		if err := n.Ready(); !strings.Contains(err.Error(), part) {
			t.Errorf("no %q in %v", part, err)
		}
	}
	n.Now = func() time.Time { return time.Now().Add(3 * node.MaxAge / 2) }
	update(failed)
	n.Now = func() time.Time { return time.Now().Add(3 * node.MaxAge) }
	if err := n.Alive(); err != nil {
		t.Errorf("it looks at a machine that cannot be read, and is not alive: %v", err)
	}
	n.Now = func() time.Time { return time.Now().Add(4 * node.MaxAge) }
	if n.Alive() == nil {
		t.Error("nobody looks at the machine, and it is alive")
	}
	update(nil)
	if err := errors.Join(n.Ready(), n.Alive()); err != nil {
		t.Errorf("after a scan that succeeded: %v", err)
	}
	update(failed)
	if err := n.Ready(); err != nil {
		t.Errorf("after the first failure since: %v", err)
	}
}

// TestAShortageLiftsNoCordon: without a descriptor the cordons cannot be read, and no LPU is offered as if there were none.
func TestAShortageLiftsNoCordon(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: 2}).Write(root); err != nil {
		t.Fatal(err)
	}
	inv, err := discovery.Scan(t.Context(), root, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := node.New(slog.New(slog.DiscardHandler))
	if n.Memory, err = node.RememberIn(host.Root(root)); err != nil {
		t.Fatal(err)
	}
	plant.File(t, n.Memory.Cordons().Path, `{"apiVersion": "lpuctl.hyperaccel.ai/v1alpha1", "kind": "Cordons",
		"cordons": {"`+inv.LPUs[0].Address.String()+`": {"reason": "cable", "since": "2026-11-25T10:00:00Z"}}}`)
	scan := func(context.Context) (*discovery.Inventory, error) { return inv, nil }
	restore := plant.LeaveDescriptors(t, 0)
	s := n.Update(t.Context(), node.Spec{}, scan)
	restore()
	if s != nil {
		t.Errorf("it has a snapshot without a look at the cordons: %+v", s.Devices)
	}
	if s = n.Update(t.Context(), node.Spec{}, scan); s == nil || s.Devices[0].Offered() || !s.Devices[1].Offered() {
		t.Errorf("after the shortage: %+v", s)
	}
}
