package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// TestDetached: pods that got LPUs before another file took the place of the host's table are named until they are made again.
func TestDetached(t *testing.T) {
	r := orion(t)
	table := filepath.Join(r.root, discovery.HyperdexRingTable)
	d := &Detached{Root: host.Root(r.root), Node: r.plugin.Node}
	l := &podLister{}
	want := func(when string, pods ...string) {
		t.Helper()
		d.Hear(said(t, l))
		var got []string
		for _, f := range d.Problems(nil) {
			got = append(got, f.Subject)
			if _, pod, _ := strings.Cut(f.Subject, "/"); f.ID != finding.RingTableDetached || !strings.HasSuffix(f.Remedy, " delete pod "+pod) {
				t.Errorf("%s: %+v", when, f)
			}
		}
		if strings.Join(got, ", ") != strings.Join(pods, ", ") {
			t.Errorf("%s: %q, want %q", when, got, pods)
		}
	}
	replace := func() {
		t.Helper()
		text, err := os.ReadFile(table)
		if err == nil {
			err = os.WriteFile(table+".new", text, 0o644)
		}
		if err == nil {
			err = unix.Rename(table+".new", table)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	get := func(ids ...string) {
		t.Helper()
		if _, err := r.allocate(ids...); err != nil {
			t.Fatal(err)
		}
	}
	l.run("ml", "seen", ids(3)...)
	want("before the machine is read")
	r.scan()
	get(ids(0, 1)...)
	l.run("ml", "pair", ids(0, 1)...)
	one := []string{"hyperaccel.ai/lpu=" + orionIDs[5], cdi.ClaimKind + "=claim-" + claimUID + "-one"}
	l.claimed("claims", "job", map[string][]string{"lpu1": one}, "lpu1")
	want("at first sight")
	if err := os.WriteFile(table, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	want("the table is written in place")
	replace()
	want("another file takes its place", "pod ml/claims", "pod ml/pair", "pod ml/seen")
	d = &Detached{Root: host.Root(r.root), Node: r.plugin.Node}
	want("after a restart", "pod ml/claims", "pod ml/pair", "pod ml/seen")
	if text := d.Problems(nil)[1].Message; !strings.Contains(text, "it has lpu0 lpu1, ") {
		t.Error(text)
	}

	r.plugin.Node.Beside = d.Problems
	r.scan()
	if !r.plugin.Node.Latest().Inventory.Problems.Has(finding.RingTableDetached) {
		t.Error("it is no problem of the node")
	}
	get(ids(0, 1)...)
	want("a pod is made again", "pod ml/claims", "pod ml/seen")
	if _, err := r.plugin.PreStartContainer(t.Context(), &api.PreStartContainerRequest{DevicesIds: ids(3)}); err != nil {
		t.Fatal(err)
	}
	want("a container starts again", "pod ml/claims")
	l.pods = l.pods[:2]
	want("a pod has ended")
	if err := os.Remove(table); err != nil {
		t.Fatal(err)
	}
	want("the table is removed", "pod ml/pair", "pod ml/seen")
	l.pods = nil
	get(orionIDs...)
	l.run("ml", "all", orionIDs...)
	replaced := filepath.Join(r.root, "table")
	if err := os.WriteFile(replaced, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Rename(replaced, table); err != nil {
		t.Fatal(err)
	}
	want("a pod has all LPUs")
}

// TestStaleRingTables: pods with the ring table of former cables are named until they are made again, or the cables are as before.
func TestStaleRingTables(t *testing.T) {
	r := orion(t)
	table := filepath.Join(r.root, discovery.HyperdexRingTable)
	d := &Detached{Root: host.Root(r.root), Node: r.plugin.Node}
	l := &podLister{}
	cables := func(order ...int) {
		t.Helper()
		c := &ring.Cabling{Rings: []ring.Ring{{Cards: order, Closed: true, Links: ring.Links(order, true, false)}}}
		if err := os.WriteFile(table, ring.WriteHyperdex(c), 0o644); err != nil {
			t.Fatal(err)
		}
		r.scan()
	}
	want := func(when string, pods ...string) {
		t.Helper()
		d.Hear(said(t, l))
		var got []string
		for _, f := range d.Problems(nil) {
			if got = append(got, f.Subject); f.ID != finding.RingTableStale {
				t.Errorf("%s: %+v", when, f)
			}
		}
		if strings.Join(got, ", ") != strings.Join(pods, ", ") {
			t.Errorf("%s: %q, want %q", when, got, pods)
		}
	}
	get := func(ids ...string) {
		t.Helper()
		if _, err := r.allocate(ids...); err != nil {
			t.Fatal(err)
		}
	}
	cables(0, 1, 2, 3, 4, 5, 6, 7)
	get(ids(0, 1, 2)...)
	get(ids(5)...)
	l.run("ml", "three", ids(0, 1, 2)...)
	l.run("ml", "one", ids(5)...)
	want("at first")
	cables(0, 2, 1, 3, 4, 5, 6, 7)
	want("other cables", "pod ml/three") // the table of one LPU is the same
	d = &Detached{Root: host.Root(r.root), Node: r.plugin.Node}
	if _, err := r.plugin.PreStartContainer(t.Context(), &api.PreStartContainerRequest{DevicesIds: ids(0, 1, 2)}); err != nil {
		t.Fatal(err)
	}
	want("serve and the container start again", "pod ml/three")
	cables(0, 1, 2, 3, 4, 5, 6, 7)
	want("the cables of before")
	cables(0, 2, 1, 3, 4, 5, 6, 7)
	get(ids(0, 1, 2)...)
	want("the pod is made again")
}
