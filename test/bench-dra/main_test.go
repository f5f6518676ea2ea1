package main

import (
	"io"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/hyperaccel/lpuctl/pkg/pci"
)

func newWorld(t *testing.T) *world {
	t.Helper()
	server, err := newServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &world{server: server, mode: arcs, nodes: 40}
}

// TestPlay: every mode gets the same pods, and they leave as much as they should.
func TestPlay(t *testing.T) {
	w := newWorld(t)
	all, next := w.play()
	holder := map[string]bool{}
	for _, taken := range all {
		for _, a := range taken.lpus {
			lpu := nodeName(taken.node) + a.String()
			if holder[lpu] {
				t.Errorf("%s is taken twice", lpu)
			}
			holder[lpu] = true
		}
	}
	if n := w.nodes * lpusOfServer * 8 / 10; len(holder) < n || len(holder) >= n+8 {
		t.Errorf("%d LPUs are taken, want %d or a few more", len(holder), n)
	}
	again, nextAgain := w.play()
	if len(next) == 0 || len(again) != len(all) || len(nextAgain) != len(next) {
		t.Errorf("%d and then %d pods, played again %d and %d", len(all), len(next), len(again), len(nextAgain))
	}
}

// TestCovering: what is taken without the scheduler is devices that have just these LPUs.
func TestCovering(t *testing.T) {
	w := newWorld(t)
	address := func(indices ...int) (all []pci.Address) {
		for _, i := range indices {
			all = append(all, w.server.LPUs[i].Address)
		}
		return all
	}
	for _, c := range []struct {
		mode mode
		lpus []pci.Address
		want int
	}{
		{arcs, address(6, 7, 0, 1), 1}, {arcs, address(0, 2, 4, 6), 4}, {single, address(6, 7, 0, 1), 4}, {single, address(3), 1},
	} {
		w.mode = c.mode
		if got := w.covering(taken{lpus: c.lpus}); len(got) != c.want {
			t.Errorf("%s: %v have %v, want %d", c.mode, got, c.lpus, c.want)
		}
	}
}

func TestTwice(t *testing.T) {
	lpus := newWorld(t).server.LPUs
	members := map[string][]pci.Address{
		"n/a": {lpus[0].Address, lpus[1].Address}, "n/b": {lpus[1].Address, lpus[2].Address}, "m/b": {lpus[1].Address},
	}
	claim := func(name, pool, device string) (c resourceapi.ResourceClaim) {
		c.Name = name
		result := resourceapi.DeviceRequestAllocationResult{Pool: pool, Device: device}
		c.Status.Allocation = &resourceapi.AllocationResult{}
		c.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{result}
		return c
	}
	a := claim("a", "n", "a")
	if err := twice([]resourceapi.ResourceClaim{a, claim("other node", "m", "b"), {}}, members); err != nil {
		t.Error(err)
	}
	if err := twice([]resourceapi.ResourceClaim{a, claim("b", "n", "b")}, members); err == nil {
		t.Error("two claims have an LPU, and nobody says so")
	}
}

func TestReport(t *testing.T) {
	made := func(m mode, nodes int, cpu float64) *result {
		w := &wave{Pods: 10, Attempts: 10, CPU: cpu, Wall: 1}
		return &result{Mode: m, Nodes: nodes, Empty: []*wave{w, w}, Full: []*wave{w}, Refused: w}
	}
	for _, c := range []struct {
		nodes int
		arcs  float64
		want  string
	}{
		{300, 2.4, ""}, {300, 2.6, "300 nodes, nearly empty: 2.60 times, the bar is 2.5"}, {100, 9, ""}, {300, 4.1, "nothing fits: 4.10"},
	} {
		err := report(io.Discard, []*result{made(plugin, c.nodes, .1), made(single, c.nodes, 1), made(arcs, c.nodes, c.arcs)})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d nodes, %v times: %v, want %q", c.nodes, c.arcs, err, c.want)
		}
	}
}
