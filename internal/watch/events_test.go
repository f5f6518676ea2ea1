package watch

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/uevent"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestEventsOfLPUs: what the kernel tells of an LPU, and of its class device, reaches the judge; other events only have the machine
// looked at, and repeated ones change nothing.
func TestEventsOfLPUs(t *testing.T) {
	const function = "/devices/pci0000:40/0000:40:00.0/0000:43:00.1"
	recovery := func(how string) uevent.Event {
		return uevent.Event{Action: "change", DevPath: function, Subsystem: "pci", ErrorEvent: how}
	}
	node := uevent.Event{Action: "add", DevPath: function + "/drm/renderD128", Subsystem: "drm", DevName: "dri/renderD128"}
	for name, c := range map[string]struct {
		event uevent.Event
		want  finding.ID
		due   bool
	}{
		"unbound":            {uevent.Event{Action: "unbind", DevPath: function, Subsystem: "pci"}, finding.Rebound, true},
		"bound":              {uevent.Event{Action: "bind", DevPath: function, Subsystem: "pci"}, finding.Rebound, true},
		"its node":           {node, finding.Rebound, true},
		"no node":            {uevent.Event{Action: "add", DevPath: function + "/drm/x", Subsystem: "drm"}, "", true},
		"repeated":           {uevent.Event{Action: "bind", DevPath: function, Subsystem: "pci", Synthetic: true}, "", true},
		"recovery":           {recovery("BEGIN_RECOVERY"), finding.InRecovery, true},
		"recovered":          {recovery("SUCCESSFUL_RECOVERY"), finding.Recovered, true},
		"not recovered":      {recovery("FAILED_RECOVERY"), finding.RecoveryFailed, true},
		"another function":   {uevent.Event{Action: "unbind", DevPath: function[:len(function)-1] + "0", Subsystem: "pci"}, "", false},
		"the port above":     {uevent.Event{Action: "unbind", DevPath: "/devices/pci0000:40/0000:40:00.0", Subsystem: "pci"}, "", false},
		"events were lost":   {uevent.Event{Overflow: true}, "", true},
		"nothing about PCI":  {uevent.Event{Action: "add", DevPath: "/devices/virtual/net/veth0", Subsystem: "net"}, "", false},
		"a recovery of what": {recovery("x"), "", true},
	} {
		w := New("/nowhere", Options{}, func() time.Duration { return time.Hour })
		inv := &discovery.Inventory{LPUs: []discovery.LPU{{Address: pci.Address{Bus: 0x43, Function: 1}}}}
		w.judgeAll(inv, time.Hour)
		w.listen(inv)
		w.cards.of(inv.LPUs[0].Address)
		w.take(c.event)
		verdict := w.judge.See("0000:43:00.1", "lpu0", health.Reading{}, time.Hour+time.Second)
		var ids []finding.ID
		for _, f := range verdict.Reasons {
			ids = append(ids, f.ID)
		}
		want := []finding.ID{c.want}
		if c.want == "" {
			want = nil
		}
		if !slices.Equal(ids, want) || w.cards.wanted() != c.due {
			t.Errorf("%s: %v, want %v; due: %t", name, ids, want, w.cards.wanted())
		}
	}
}

// TestRelease: the warning that an LPU was bound again ends when all who used it before have gone, as far as processes can be seen.
func TestRelease(t *testing.T) {
	const stat = "12 (a (b) c) S 1 12 12 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 " // the 22nd field follows
	for name, c := range map[string]struct {
		files map[string]string
		warns bool
	}{
		"who used it before": {map[string]string{"proc/12/fd/3": "-> /dev/lpu0 (deleted)", "proc/12/stat": stat + "359999 0\n"}, true},
		"who used it when it had another name": {
			map[string]string{"proc/12/fd/3": "-> /dev/lpu1 (deleted)", "proc/12/stat": stat + "359999 0\n"}, true,
		},
		"who uses it since":    {map[string]string{"proc/12/fd/3": "-> /dev/lpu0", "proc/12/stat": stat + "360001 0\n"}, false},
		"nobody knows when":    {map[string]string{"proc/12/fd/3": "-> /dev/lpu0"}, true},
		"nobody":               {nil, false},
		"it has no node now":   {nil, true}, // who used it has it open all the same
		"nobody that one sees": {map[string]string{"proc/2/comm": "sh\n"}, true},
		"others that one does not see": {map[string]string{
			"proc/2/comm": "sh\n", "proc/12/fd/3": "-> /dev/lpu0", "proc/12/stat": stat + "360001 0\n",
		}, true},
	} {
		files := map[string]string{"proc/2/comm": "kthreadd\n"}
		maps.Copy(files, c.files)
		w := New(plant.Tree(t, files), Options{}, func() time.Duration { return time.Hour })
		lpu := discovery.LPU{Address: pci.Address{Bus: 0x43, Function: 1}, Nodes: []discovery.Node{{Path: "/dev/lpu1"}}}
		inv := &discovery.Inventory{LPUs: []discovery.LPU{lpu}}
		w.judgeAll(inv, time.Hour)
		w.judge.Tell("0000:43:00.1", health.Renumbered, time.Hour)
		inv.LPUs[0].Reasons, inv.LPUs[0].Nodes = nil, []discovery.Node{{Path: "/dev/lpu0"}}
		if name == "it has no node now" {
			inv.LPUs[0].Nodes = nil
		}
		w.judgeAll(inv, time.Hour)
		w.release(t.Context(), inv, time.Hour+time.Minute)
		if verdict := w.judge.See("0000:43:00.1", "lpu0", health.Reading{}, time.Hour+time.Minute); (len(verdict.Reasons) == 1) != c.warns {
			t.Errorf("%s: %v", name, verdict.Reasons)
		}
	}
}

// TestAStormOfEvents: 100,000 events of LPUs, of their nodes and of other devices leave nothing behind.
func TestAStormOfEvents(t *testing.T) {
	now := time.Hour
	w := New("/nowhere", Options{}, func() time.Duration { return now })
	inv := &discovery.Inventory{}
	for i := range 8 {
		inv.LPUs = append(inv.LPUs, discovery.LPU{Name: fmt.Sprint("lpu", i), Address: pci.Address{Bus: uint8(0x41 + i), Function: 1}})
	}
	w.judgeAll(inv, now)
	w.listen(inv)
	words := []string{"bind", "unbind", "add", "remove", "change", "move"}
	errs := []string{"BEGIN_RECOVERY", "SUCCESSFUL_RECOVERY", "FAILED_RECOVERY"}
	storm := func(from, to int) {
		for n := from; n < to; n++ {
			now += time.Millisecond
			path := fmt.Sprintf("/devices/pci0000:40/0000:40:00.0/0000:%02x:00.1", 0x41+n%8)
			e := uevent.Event{Action: words[n%6], DevPath: path, Subsystem: "pci"}
			switch n % 5 {
			case 0: // the node of an LPU
				e.DevPath, e.Subsystem, e.DevName = fmt.Sprintf("%s/drm/renderD%d", e.DevPath, n), "drm", fmt.Sprint("dri/renderD", n)
			case 1: // a function that was never there before
				e.DevPath = fmt.Sprintf("/devices/pci%04x:00/%04[1]x:00:00.0", n)
			case 2:
				e.DevPath, e.Subsystem = fmt.Sprint("/devices/virtual/net/veth", n), "net"
			case 3:
				e.Action, e.ErrorEvent = "change", errs[n/7%3]
			}
			w.take(e)
		}
	}
	storm(0, 10_000)
	goroutines, before := runtime.NumGoroutine(), heap()
	storm(10_000, 110_000)
	if grown := int64(heap()) - int64(before); grown > 64<<10 {
		t.Errorf("100,000 events leave %d bytes", grown)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, and %d before", n, goroutines)
	}
	if n := len(w.judge.Records()); n != 8 || !w.cards.wanted() {
		t.Errorf("%d LPUs are remembered; due: %t", n, w.cards.wanted())
	}
}

// heap is the size of what is in use on the heap.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
