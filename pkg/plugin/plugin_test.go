package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/await"
)

// rig is a simulated server with a plugin.
type rig struct {
	t      testing.TB
	root   string
	plugin *Plugin
	log    *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newRig(t testing.TB, node simulate.Node, change func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, root: filepath.Join(t.TempDir(), "node"), log: &lockedBuffer{}}
	if _, err := node.Write(r.root); err != nil {
		t.Fatal(err)
	}
	file, err := cdi.Locate(r.root, cdi.DefaultSpecDir, cdi.DefaultKind)
	if err != nil {
		t.Fatal(err)
	}
	options := Options{Strategy: CDI, NUMA: NUMAOff}
	options.Spec.File, options.Spec.Options.Kind = file, cdi.DefaultKind
	if change != nil {
		change(&options)
	}
	r.plugin = New(options, slog.New(slog.NewJSONHandler(r.log, nil)))
	return r
}

func orion(t *testing.T) *rig {
	return newRig(t, simulate.Node{Profile: "orion"}, nil)
}

// scan reads the server once and tells the plugin.
func (r *rig) scan() *discovery.Inventory {
	r.t.Helper()
	inv, err := discovery.Scan(r.t.Context(), r.root, discovery.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.plugin.Update(r.t.Context(), found(inv))
	return inv
}

// found is a scan that finds an inventory.
func found(inv *discovery.Inventory) node.Scan {
	return func(context.Context) (*discovery.Inventory, error) { return inv, nil }
}

// watch reads the server every few milliseconds and updates the plugin, until the test ends.
func (r *rig) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		watcher := watch.New(r.root, watch.Options{}, host.SinceBoot)
		watcher.Run(ctx, 20*time.Millisecond, func() { r.plugin.Update(ctx, watcher.Scan) })
	})
	r.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

var orionIDs = []string{
	"pci-0000-43-00.1", "pci-0000-44-00.1", "pci-0000-45-00.1", "pci-0000-46-00.1",
	"pci-0000-83-00.1", "pci-0000-84-00.1", "pci-0000-85-00.1", "pci-0000-86-00.1",
}

func ids(cards ...int) []string {
	list := []string{}
	for _, i := range cards {
		list = append(list, orionIDs[i])
	}
	return list
}

func (r *rig) devices() []*api.Device {
	return r.plugin.state.Load().list
}

func (r *rig) prefer(size int32, must []string, available ...string) ([]string, error) {
	a, err := r.plugin.GetPreferredAllocation(r.t.Context(), preference(size, must, available...))
	if err != nil {
		return nil, err
	}
	return a.ContainerResponses[0].DeviceIDs, nil
}

// preference asks for a preferred allocation for one container.
func preference(size int32, must []string, available ...string) *api.PreferredAllocationRequest {
	return &api.PreferredAllocationRequest{ContainerRequests: []*api.ContainerPreferredAllocationRequest{
		{AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: size},
	}}
}

func request(ids ...string) *api.AllocateRequest {
	return &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: ids}}}
}

func (r *rig) allocate(ids ...string) (*api.ContainerAllocateResponse, error) {
	a, err := r.plugin.Allocate(r.t.Context(), request(ids...))
	if err != nil {
		return nil, err
	}
	return a.ContainerResponses[0], nil
}

// TestRingTableOfAContainer: Allocate answers a table that is there. If it cannot be written the
// container gets its LPUs all the same, and the log says it. What a boot has taken away is made again.
func TestRingTableOfAContainer(t *testing.T) {
	r := orion(t)
	r.scan()
	for _, strategy := range []Strategy{CDI, DeviceSpecs} {
		o := r.plugin.state.Load().options
		o.Strategy = strategy
		r.plugin.Reload(t.Context(), o)
		tables := filepath.Join(r.root, cdi.RingTableDir)
		if err := os.RemoveAll(tables); err != nil {
			t.Fatal(err)
		}
		last := func() *api.Mount {
			t.Helper()
			a, err := r.allocate(ids(0, 4)...) // no device of the spec covers them
			if err != nil {
				t.Fatal(err)
			}
			if len(a.Mounts) == 0 {
				return nil
			}
			return a.Mounts[len(a.Mounts)-1]
		}
		m := last()
		if m == nil || m.ContainerPath != discovery.HyperdexRingTable || !m.ReadOnly {
			t.Fatalf("%s: %v", strategy, m)
		}
		table := filepath.Join(r.root, m.HostPath)
		if err := os.Remove(table); err != nil {
			t.Fatal(err)
		}
		by := container{"team", "pod", "main"}
		r.plugin.putTables(map[string]container{ids(0)[0]: by, ids(4)[0]: by, "another program's": {}})
		if err := os.Remove(table); err != nil {
			t.Errorf("%s: after a boot: %v", strategy, err)
		}
		if _, err := r.plugin.PreStartContainer(t.Context(), &api.PreStartContainerRequest{DevicesIds: ids(0, 4)}); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(table); err != nil {
			t.Errorf("%s: before a start: %v", strategy, err)
		}
		if err := errors.Join(os.RemoveAll(tables), os.WriteFile(tables, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		if m := last(); m != nil && m.ContainerPath == discovery.HyperdexRingTable {
			t.Errorf("%s: a table that is not there: %v", strategy, m)
		}
		if !strings.Contains(r.log.String(), "gets no ring table of its own") {
			t.Errorf("%s: log: %s", strategy, r.log)
		}
		if err := os.Remove(tables); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInvariant2SpecIsThereBeforeAnyName(t *testing.T) {
	r := orion(t)
	r.scan()
	a, err := r.allocate(ids(2, 3)...)
	if err != nil {
		t.Fatal(err)
	}
	options := r.plugin.state.Load().options
	data, err := os.ReadFile(options.Spec.File.Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range a.CdiDevices {
		if name := strings.TrimPrefix(d.Name, cdi.DefaultKind+"="); !strings.Contains(string(data), `"`+name+`"`) {
			t.Errorf("%s is handed out and not in the spec", d.Name)
		}
	}
}

func TestInvariant2SpecThatCannotBeWritten(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"a file in place of the directory": func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"another file defines our devices": func(dir string) error {
			text := "cdiVersion: 0.3.0\nkind: hyperaccel.ai/lpu\ndevices:\n"
			for _, id := range orionIDs {
				text += "- {name: " + id + ", containerEdits: {env: [A=B]}}\n"
			}
			return write(dir, "other.yaml", text)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := orion(t)
			options := r.plugin.state.Load().options
			dir := filepath.Dir(options.Spec.File.Path)
			if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			r.scan()
			for _, d := range r.devices() {
				if d.Health != api.Unhealthy {
					t.Errorf("%s is %s, and its name resolves to nothing", d.ID, d.Health)
				}
			}
			if _, err := r.allocate(ids(0)...); err == nil || !strings.Contains(err.Error(), "the CDI spec does not define it") {
				t.Errorf("a name that does not resolve: %v", err)
			}
			if !strings.Contains(r.log.String(), `"reason":"the CDI spec does not define it"`) {
				t.Errorf("the log does not say why the LPUs are unhealthy: %s", r.log)
			}
			if err := r.plugin.Node.Ready(); err == nil || !strings.Contains(r.log.String(), "is not as it should be") {
				t.Errorf("ready: %v, log: %s", err, r.log)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			r.scan()
			if _, err := r.allocate(ids(0)...); err != nil || r.plugin.Node.Ready() != nil {
				t.Errorf("after the fault: %v, %v", err, r.plugin.Node.Ready())
			}
		})
	}
}

func write(dir, name, content string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644)
}

// TestInvariant2Reload: names of another kind are handed out as soon as the spec of that kind is there, and not before.
func TestInvariant2Reload(t *testing.T) {
	r := orion(t)
	r.scan()
	options := r.plugin.state.Load().options
	file, err := cdi.Locate(r.root, cdi.DefaultSpecDir, "example.com/lpu")
	if err != nil {
		t.Fatal(err)
	}
	options.Spec = node.Spec{File: file, Options: cdi.Options{Kind: "example.com/lpu", Annotations: true}}
	handedOut := func(kind string) {
		t.Helper()
		if a, err := r.allocate(ids(0)...); err != nil || a.CdiDevices[0].Name != kind+"="+orionIDs[0] {
			t.Errorf("%v %v, want a device of %s", err, a, kind)
		}
	}
	unlock := holdLock(t, filepath.Dir(file.Path), ".example.com-lpu.lock")
	var wg sync.WaitGroup
	wg.Go(func() { r.plugin.Reload(t.Context(), options) })
	time.Sleep(50 * time.Millisecond)
	handedOut(cdi.DefaultKind)
	unlock()
	wg.Wait()
	handedOut("example.com/lpu")
	if data, err := os.ReadFile(file.Path); err != nil || !bytes.Contains(data, []byte(`"annotations"`)) {
		t.Errorf("%v, the spec is %s", err, data)
	}
}

// TestInvariant2Cancelled: that the spec was not written because serve ends says nothing of the LPUs.
func TestInvariant2Cancelled(t *testing.T) {
	r := orion(t)
	inv := r.scan()
	options := r.plugin.state.Load().options
	if err := os.Remove(options.Spec.File.Path); err != nil {
		t.Fatal(err)
	}
	defer holdLock(t, filepath.Dir(options.Spec.File.Path), ".hyperaccel.ai-lpu.lock")()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r.plugin.Update(ctx, found(inv))
	if h := healthOf(r.devices(), orionIDs[0]); h != api.Healthy || r.plugin.Node.Ready() != nil || strings.Contains(r.log.String(), "ERROR") {
		t.Errorf("LPU 0 is %s, ready: %v, log: %s", h, r.plugin.Node.Ready(), r.log)
	}
}

func TestInvariant2SpecIsWrittenOnlyWhereNeeded(t *testing.T) {
	r := orion(t)
	r.scan()
	options := r.plugin.state.Load().options
	before, err := os.Stat(options.Spec.File.Path)
	if err != nil {
		t.Fatal(err)
	}
	r.scan()
	if after, err := os.Stat(options.Spec.File.Path); err != nil || !os.SameFile(before, after) {
		t.Errorf("a spec that names the right nodes was written again (%v)", err)
	}
	if err := os.Remove(options.Spec.File.Path); err != nil {
		t.Fatal(err)
	}
	r.scan()
	if _, err := os.Stat(options.Spec.File.Path); err != nil {
		t.Errorf("a spec that somebody removed does not come back: %v", err)
	}
	wrong, err := os.ReadFile(options.Spec.File.Path)
	if err != nil {
		t.Fatal(err)
	}
	right := wrong
	wrong = bytes.ReplaceAll(wrong, []byte("renderD134"), []byte("renderD135"))
	if err := os.WriteFile(options.Spec.File.Path, wrong, 0o644); err != nil {
		t.Fatal(err)
	}
	r.scan()
	if now, err := os.ReadFile(options.Spec.File.Path); err != nil || !bytes.Equal(now, right) {
		t.Errorf("a spec that names a wrong node stays (%v)", err)
	}
}

func TestInvariant9IDsAreThoseOfTheSlot(t *testing.T) {
	r := orion(t)
	inv := r.scan()
	for i := range inv.LPUs {
		if id := cdi.AddressName(inv.LPUs[i].Address); id != orionIDs[i] || len(id) > 63 {
			t.Errorf("LPU %d is %s", i, id)
		}
	}
}

func TestInvariant10ListIsInRingOrder(t *testing.T) {
	r := newRig(t, simulate.Node{Profile: "orion"}, nil)
	table := `{"apiVersion": "lpuctl.hyperaccel.ai/v1alpha1", "kind": "RingTable",
		"rings": [["lpu0", "lpu4", "lpu1", "lpu5", "lpu2", "lpu6", "lpu3", "lpu7"]]}`
	if err := write(filepath.Join(r.root, "etc/lpuctl"), "ring.yaml", table); err != nil {
		t.Fatal(err)
	}
	r.scan()
	var got []string
	for _, d := range r.devices() {
		got = append(got, d.ID)
	}
	if diff := cmp.Diff(ids(0, 4, 1, 5, 2, 6, 3, 7), got); diff != "" {
		t.Error(diff)
	}
}

func TestInvariant11LostLPUStaysUnhealthy(t *testing.T) {
	r := orion(t)
	r.scan()
	card := filepath.Join(r.root, "sys/bus/pci/devices/0000:45:00.1")
	if err := os.Rename(card, filepath.Join(r.root, "away")); err != nil {
		t.Fatal(err)
	}
	r.scan()
	if got := r.devices(); len(got) != 8 || healthOf(got, orionIDs[2]) != api.Unhealthy || healthOf(got, orionIDs[3]) != api.Healthy {
		t.Errorf("the list is %v", got)
	}
	if _, err := r.allocate(orionIDs[2]); err == nil {
		t.Error("handed out an LPU that is gone")
	}
	if err := os.Rename(filepath.Join(r.root, "away"), card); err != nil {
		t.Fatal(err)
	}
	r.scan()
	if h := healthOf(r.devices(), orionIDs[2]); h != api.Healthy {
		t.Errorf("the LPU that came back is %s", h)
	}
}

func healthOf(devices []*api.Device, id string) string {
	for _, d := range devices {
		if d.ID == id {
			return d.Health
		}
	}
	return "not listed"
}

// TestInvariant11LostLPUKeepsIndexAndRing: those that stay are called as before, and are as connected as before.
func TestInvariant11LostLPUKeepsIndexAndRing(t *testing.T) {
	r := orion(t)
	r.watch()
	await.For(t, "the plugin knows the server", func() bool { return r.plugin.listed() })
	if err := os.Rename(filepath.Join(r.root, "sys/bus/pci/devices/0000:45:00.1"), filepath.Join(r.root, "away")); err != nil {
		t.Fatal(err)
	}
	await.For(t, "LPU 2 is gone", func() bool { return healthOf(r.devices(), orionIDs[2]) == api.Unhealthy })
	chosen, err := r.prefer(4, nil, ids(0, 1, 3, 4, 6, 7)...)
	if diff := cmp.Diff(ids(6, 7, 0, 1), chosen); diff != "" || err != nil {
		t.Error(err, diff)
	}
	a, err := r.allocate(chosen...)
	if err != nil || a.Envs["LPU_VISIBLE_DEVICES"] != "6,7,0,1" || a.Envs["LPU_CONNECTED"] != "true" {
		t.Errorf("%v %v", a, err)
	}
}

func TestInvariant13HealthComesBackAndIsExplained(t *testing.T) {
	r := orion(t)
	r.watch()
	await.For(t, "all are healthy", func() bool { return r.plugin.listed() && healthOf(r.devices(), orionIDs[5]) == api.Healthy })
	driver := filepath.Join(r.root, "sys/bus/pci/devices/0000:84:00.1/driver")
	target, err := os.Readlink(driver)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(driver); err != nil {
		t.Fatal(err)
	}
	await.For(t, "LPU 5 is unhealthy", func() bool { return healthOf(r.devices(), orionIDs[5]) == api.Unhealthy })
	if !strings.Contains(r.log.String(), "no driver is bound to it") {
		t.Errorf("the log does not say why: %s", r.log)
	}
	back := time.Now()
	if err := os.Symlink(target, driver); err != nil {
		t.Fatal(err)
	}
	await.For(t, "LPU 5 is healthy again", func() bool { return healthOf(r.devices(), orionIDs[5]) == api.Healthy })
	if took := time.Since(back); took < 2900*time.Millisecond {
		t.Errorf("it was taken for healthy after %v", took)
	}
}

func TestInvariant14NothingBeforeTheFirstLook(t *testing.T) {
	r := orion(t)
	if _, err := r.prefer(1, nil, ids(0)...); err == nil {
		t.Error("preferred an LPU that nobody has looked at")
	}
	if _, err := r.allocate(ids(0)...); err == nil {
		t.Error("handed out an LPU that nobody has looked at")
	}
	// An LPU of which nothing is known is not healthy, and one of which nothing is known any more is as it was.
	inv := r.scan()
	unknown := *inv
	unknown.LPUs = slices.Clone(inv.LPUs)
	unknown.LPUs[3].Health = discovery.HealthUnknown
	r.plugin.Update(t.Context(), found(&unknown))
	if h := healthOf(r.devices(), orionIDs[3]); h != api.Healthy {
		t.Errorf("was healthy, now unknown, listed as %s", h)
	}
	fresh := New(Options{Strategy: DeviceSpecs}, slog.New(slog.DiscardHandler))
	fresh.Update(t.Context(), found(&unknown))
	if h := healthOf(fresh.state.Load().list, orionIDs[3]); h != api.Unhealthy {
		t.Errorf("unknown from the start, listed as %s", h)
	}
}

func TestInvariant15Preferred(t *testing.T) {
	r := orion(t)
	r.scan()
	for name, c := range map[string]struct {
		size      int32
		must      []string
		available []string
		want      []string
	}{
		"half the ring":            {4, nil, ids(0, 1, 2, 3, 4, 5, 6, 7), ids(0, 1, 2, 3)},
		"around the end":           {4, nil, ids(3, 6, 7, 0, 1), ids(6, 7, 0, 1)},
		"with one that must be in": {2, ids(5), ids(0, 1, 2, 3, 4, 5), ids(4, 5)},
		"not connected":            {3, nil, ids(1, 2, 4, 6), ids(1, 2, 4)},
		"all there are":            {2, nil, ids(2, 6), ids(2, 6)},
		"unknown among them":       {2, nil, append(ids(2, 3), "pci-0000-99-00.1"), ids(2, 3)},
		"twice the same":           {2, nil, ids(2, 2, 3, 3), ids(2, 3)},
	} {
		got, err := r.prefer(c.size, c.must, c.available...)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
	for name, c := range map[string]struct {
		size      int32
		must      []string
		available []string
	}{
		"none":                  {0, nil, ids(0)},
		"less than none":        {-3, nil, ids(0)},
		"more than there are":   {3, nil, ids(0, 1)},
		"unknown must":          {1, []string{"gpu0"}, ids(0, 1)},
		"must is not available": {1, ids(5), ids(0, 1)},
		"too many musts":        {1, ids(0, 1), ids(0, 1)},
		"unknown only":          {1, nil, []string{"", "\x00", "pci-0000-99-00.1"}},
	} {
		if got, err := r.prefer(c.size, c.must, c.available...); err == nil {
			t.Errorf("%s: chose %v", name, got)
		}
	}
	r.plugin.Reload(t.Context(), Options{Strategy: DeviceSpecs, RequireConnected: true})
	if got, err := r.prefer(3, nil, ids(1, 2, 4, 6)...); err == nil || !strings.Contains(err.Error(), "no set is connected") {
		t.Errorf("strict: %v %v", got, err)
	}
	if _, err := r.prefer(1, nil, ids(4)...); err != nil {
		t.Errorf("strict, one LPU: %v", err)
	}
}

func TestInvariant16Allocate(t *testing.T) {
	r := orion(t)
	inv := r.scan()
	want := &api.ContainerAllocateResponse{
		Envs: map[string]string{
			"LPU_VISIBLE_DEVICES": "6,7,0,1", "LPU_RING_ORDER": "2,3,0,1", "LPU_CONNECTED": "true", "NUM_LPU_DEVICES": "4",
			"LPU_DRIVER_VERSION": inv.LPUs[0].DriverVersion,
		},
		Mounts: []*api.Mount{{
			ContainerPath: discovery.HyperdexRingTable, HostPath: cdi.RingTableOf(inv, []int{0, 1, 6, 7}).HostPath, ReadOnly: true,
		}},
	}
	for _, id := range ids(6, 7, 0, 1) {
		want.CdiDevices = append(want.CdiDevices, &api.CDIDevice{Name: "hyperaccel.ai/lpu=" + id})
	}
	for range 2 { // the kubelet may ask again for the same pod
		got, err := r.allocate(ids(1, 7, 0, 6)...)
		if err != nil || got.String() != want.String() {
			t.Errorf("%v: got\n%v want\n%v", err, got, want)
		}
	}
	for name, list := range map[string][]string{
		"unknown": {"lpu0"}, "one unknown": append(ids(1), "pci-0000-99-00.1"), "twice": ids(1, 1), "empty name": {""},
	} {
		if got, err := r.allocate(list...); err == nil {
			t.Errorf("%s: handed out %v", name, got)
		}
	}
	three := []*api.ContainerAllocateRequest{{DevicesIds: ids(0)}, {DevicesIds: ids(3)}, {}}
	several, err := r.plugin.Allocate(t.Context(), &api.AllocateRequest{ContainerRequests: three})
	if err != nil || len(several.ContainerResponses) != 3 || several.ContainerResponses[1].Envs["LPU_VISIBLE_DEVICES"] != "3" {
		t.Errorf("three requests: %v %v", several, err)
	}
	old := *inv
	r.plugin.state.Load().ReadAt = time.Now().Add(-time.Hour)
	r.plugin.Node.Now = func() time.Time { return time.Now().Add(time.Hour) }
	if _, err := r.allocate(ids(0)...); err == nil {
		t.Error("handed out an LPU that nobody has looked at for an hour")
	}
	if r.plugin.Node.Alive() == nil || r.plugin.Node.Ready() == nil {
		t.Error("nobody has looked at the machine for an hour, and the plugin is alive and ready")
	}
	r.plugin.Node.Now = time.Now
	r.plugin.Update(t.Context(), found(&old))
	if _, err := r.allocate(ids(0)...); err != nil || r.plugin.Node.Alive() != nil {
		t.Error(err, r.plugin.Node.Alive())
	}
}

// TestUnusableSizeIsSaid: a container gets the number of LPUs that it asks for, and the log says that its
// program may not be able to use so many.
func TestUnusableSizeIsSaid(t *testing.T) {
	r := orion(t)
	r.scan()
	const line = "a container gets LPUs that its program may not be able to use"
	for _, size := range []int{1, 2, 4, 3} {
		if _, err := r.allocate(ids(0, 1, 2, 3)[:size]...); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(r.log.String(), line); said != (size == 3) {
			t.Errorf("%d LPUs: %t:\n%s", size, said, r.log)
		}
	}
	if !strings.Contains(r.log.String(), "cannot use 3 LPUs together, only 1, 2, 4, 8") {
		t.Errorf("the log does not say why:\n%s", r.log)
	}
}

func TestDeviceSpecs(t *testing.T) {
	r := newRig(t, simulate.Node{Profile: "orion"}, func(o *Options) { o.Strategy = DeviceSpecs })
	r.scan()
	got, err := r.allocate(ids(0, 1)...)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, d := range got.Devices {
		paths = append(paths, d.HostPath+" "+d.ContainerPath+" "+d.Permissions)
	}
	want := []string{"/dev/dri/renderD134 /dev/dri/renderD134 rw", "/dev/dri/renderD135 /dev/dri/renderD135 rw"}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Error(diff)
	}
	if len(got.CdiDevices) != 0 || len(got.Mounts) == 0 || !got.Mounts[0].ReadOnly ||
		got.Envs["XILINX_XRT"] == "" || got.Envs["LPU_VISIBLE_DEVICES"] != "0,1" {
		t.Errorf("got %v", got)
	}
	options := r.plugin.state.Load().options
	if _, err := os.Stat(options.Spec.File.Path); !os.IsNotExist(err) {
		t.Errorf("a spec was written: %v", err)
	}
}

// TestBothStrategiesGiveTheSame: by CDI a container gets what it gets by device-specs, with two driver versions too.
func TestBothStrategiesGiveTheSame(t *testing.T) {
	byCDI := orion(t)
	scanned := *byCDI.scan()
	inv := &scanned
	inv.LPUs = slices.Clone(inv.LPUs)
	inv.LPUs[1].DriverVersion = "2.0.0"
	byCDI.plugin.Update(t.Context(), found(inv))
	bySpecs := New(Options{Strategy: DeviceSpecs}, slog.New(slog.DiscardHandler))
	bySpecs.Update(t.Context(), found(inv))
	first := inv.LPUs[0].DriverVersion
	for _, c := range []struct {
		want  string
		cards []int
	}{{first, []int{0}}, {"2.0.0", []int{1}}, {"", []int{0, 1, 2}}, {first, []int{2, 3}}} {
		want, cards := c.want, c.cards
		answer, err := bySpecs.Allocate(t.Context(), request(ids(cards...)...))
		if err != nil {
			t.Fatal(err)
		}
		specs := answer.ContainerResponses[0]
		if version, has := specs.Envs["LPU_DRIVER_VERSION"]; version != want || has != (want != "") {
			t.Errorf("%v: driver version %q, want %q", cards, version, want)
		}
		response, err := byCDI.allocate(ids(cards...)...)
		if err != nil {
			t.Fatal(err)
		}
		var names, nodes, mounts []string
		for _, d := range response.CdiDevices {
			names = append(names, d.Name)
		}
		edits, err := cdi.Explain(inv, cdi.Options{}, names)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range specs.Devices {
			nodes = append(nodes, d.HostPath)
		}
		for _, m := range specs.Mounts {
			mounts = append(mounts, m.HostPath)
		}
		for _, n := range edits.Nodes {
			nodes = slices.DeleteFunc(nodes, func(path string) bool { return path == n.Path })
		}
		for _, m := range edits.Mounts {
			mounts = slices.DeleteFunc(mounts, func(path string) bool { return path == m.HostPath })
		}
		for _, v := range edits.Env { // the runtime sets them over those of the kubelet
			response.Envs[v.Name] = v.Value
		}
		if diff := cmp.Diff(specs.Envs, response.Envs); diff != "" || len(nodes)+len(mounts) > 0 || len(edits.Nodes) != len(cards) {
			t.Errorf("%v: %v %v %s", cards, nodes, mounts, diff)
		}
	}
}

// TestOneLPU: a container with one LPU is told the same by Allocate as by the device lpuN, where both say it: above all that its own
// index of the LPU is 0, with a ring table and without.
func TestOneLPU(t *testing.T) {
	for profile, n := range map[string]int{"orion": 5, "lpu": 6} {
		r := newRig(t, simulate.Node{Profile: profile}, func(o *Options) { o.Strategy = DeviceSpecs })
		inv := r.scan()
		name := inv.LPUs[n].Name
		e, err := cdi.Explain(inv, cdi.Options{}, []string{name})
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.allocate(cdi.AddressName(inv.LPUs[n].Address))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range e.Env {
			if value, says := got.Envs[v.Name]; says && value != v.Value {
				t.Errorf("%s: %s, and Allocate says %s", name, v, value)
			}
		}
		if order := got.Envs["LPU_RING_ORDER"]; order != "0" {
			t.Errorf("%s: LPU_RING_ORDER is %q", name, order)
		}
	}
}

func TestInvariant17PreStart(t *testing.T) {
	r := newRig(t, simulate.Node{Profile: "orion"}, func(o *Options) { o.PreStart = true })
	r.scan()
	if o, err := r.plugin.GetDevicePluginOptions(t.Context(), nil); err != nil || !o.PreStartRequired {
		t.Errorf("%v %v", o, err)
	}
	check := func(list ...string) error {
		_, err := r.plugin.PreStartContainer(t.Context(), &api.PreStartContainerRequest{DevicesIds: list})
		return err
	}
	for range 2 {
		if err := check(ids(4, 5)...); err != nil {
			t.Error(err)
		}
	}
	if err := os.Remove(filepath.Join(r.root, "sys/bus/pci/devices/0000:84:00.1/driver")); err != nil {
		t.Fatal(err)
	}
	r.scan()
	if err := check(ids(4, 5)...); err == nil {
		t.Error("a container may start on an LPU without its driver")
	}
	if err := check(ids(4)...); err != nil {
		t.Error(err)
	}
}

// TestInvariant18NoCallWaitsForTheMachine: while the spec's lock is held by somebody else, and so Update stands, calls
// are answered.
func TestInvariant18NoCallWaitsForTheMachine(t *testing.T) {
	r := orion(t)
	inv := r.scan()
	ctx, cancel := context.WithCancel(context.Background())
	options := r.plugin.state.Load().options
	if err := os.Remove(options.Spec.File.Path); err != nil {
		t.Fatal(err)
	}
	unlock := holdLock(t, filepath.Dir(options.Spec.File.Path), ".hyperaccel.ai-lpu.lock")
	var wg sync.WaitGroup
	wg.Go(func() { r.plugin.Update(ctx, found(inv)) })
	time.Sleep(50 * time.Millisecond)
	if _, err := r.prefer(2, nil, ids(0, 1, 2)...); err != nil {
		t.Error(err)
	}
	if _, err := r.allocate(ids(0, 1)...); err != nil {
		t.Error(err)
	}
	cancel()
	unlock()
	wg.Wait()
}

func TestNUMA(t *testing.T) {
	nodes := func(d *api.Device) int { return len(d.GetTopology().GetNodes()) }
	for _, c := range []struct {
		profile string
		lpus    int // four are behind one processor
		numa    NUMA
		want    int
	}{{"orion", 8, NUMAOff, 0}, {"orion", 8, NUMAOn, 1}, {"orion", 8, NUMAAuto, 0}, {"orion", 4, NUMAAuto, 1}, {"lpu", 4, NUMAAuto, 0}} {
		r := newRig(t, simulate.Node{Profile: c.profile, LPUs: c.lpus}, func(o *Options) { o.NUMA = c.numa })
		r.scan()
		for _, d := range r.devices() {
			if nodes(d) != c.want {
				t.Errorf("%s, numa %s: %s has %d NUMA nodes, not %d", c.profile, c.numa, d.ID, nodes(d), c.want)
			}
		}
	}
}

// TestDecisionsAreLogged: each with all that is needed to make it again.
func TestDecisionsAreLogged(t *testing.T) {
	r := orion(t)
	r.scan()
	if _, err := r.prefer(2, ids(5), ids(1, 2, 4, 5, 6)...); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(r.log.String()), "\n")
	var got struct {
		Msg                            string
		Size                           int
		Available, MustInclude, Chosen []string
		Connected                      bool
		FreeAfter, Candidates          [][]string
		Reason                         string
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatal(err)
	}
	if got.Msg != DecisionMessage || got.Size != 2 || len(got.Available) != 5 || len(got.Candidates) != 2 ||
		!got.Connected || len(got.FreeAfter) == 0 || got.Reason == "" ||
		!slices.Equal(got.MustInclude, []string{"lpu5"}) || len(got.Chosen) != 2 {
		t.Errorf("logged %+v", got)
	}
}

// TestTextLogShowsWhetherConnected: in the text format a pointer would be shown as an address.
func TestTextLogShowsWhetherConnected(t *testing.T) {
	for profile, want := range map[string]string{"orion": " connected=true ", "lpu": " connected=<nil> "} {
		r := newRig(t, simulate.Node{Profile: profile, LPUs: 8}, nil)
		r.plugin.log = slog.New(slog.NewTextHandler(r.log, nil))
		inv := r.scan()
		_, err := r.prefer(2, nil, cdi.AddressName(inv.LPUs[0].Address), cdi.AddressName(inv.LPUs[1].Address))
		if err != nil || !strings.Contains(r.log.String(), want) {
			t.Errorf("%s: %v, the log is %s", profile, err, r.log)
		}
	}
}

func TestValidate(t *testing.T) {
	for name, ok := range map[string]bool{
		"hyperaccel.ai/lpu": true, "example.com/LPU_x.1": true, "lpu": false, "": false, "kubernetes.io/lpu": false, "x.kubernetes.io/lpu": false,
		"requests.hyperaccel.ai/lpu": false, "Hyper.ai/lpu": false, "hyperaccel.ai/lpu/x": false, "hyperaccel.ai/": false, "-a.b/c": false,
	} {
		if err := ValidateResource(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := Strategy("volume").Validate(); err == nil {
		t.Error("an unknown strategy is taken")
	}
	if err := NUMA("maybe").Validate(); err == nil {
		t.Error("an unknown setting of NUMA is taken")
	}
}

// TestSameDevices: what the kubelet is not sent again.
func TestSameDevices(t *testing.T) {
	a, b := &api.Device{ID: "a", Health: api.Healthy}, &api.Device{ID: "b", Health: api.Healthy}
	sick := &api.Device{ID: "b", Health: api.Unhealthy}
	elsewhere := &api.Device{ID: "b", Health: api.Healthy, Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: 1}}}}
	for _, c := range []struct {
		was, is []*api.Device
		want    bool
	}{
		{nil, nil, true}, {[]*api.Device{a, b}, []*api.Device{b, a}, true}, {[]*api.Device{a, b}, []*api.Device{a, sick}, false},
		{[]*api.Device{a, b}, []*api.Device{a, elsewhere}, false}, {[]*api.Device{a, b}, []*api.Device{a}, false},
		{[]*api.Device{a}, []*api.Device{b}, false},
	} {
		if sameDevices(c.was, c.is) != c.want {
			t.Errorf("%v, %v: not %t", c.was, c.is, c.want)
		}
	}
}

// TestTheKubeletIsToldFirst: that a card is gone is sent before the CDI spec is written, which may have to wait for its lock; and so is
// that another one has gone meanwhile.
func TestTheKubeletIsToldFirst(t *testing.T) {
	r := orion(t)
	early := r.plugin.Node.Early
	var told [][]string
	r.plugin.Node.Early = func(s *node.Snapshot) {
		early(s)
		var unhealthy []string
		for _, d := range r.plugin.state.Load().list {
			if d.Health == api.Unhealthy {
				unhealthy = append(unhealthy, d.ID)
			}
		}
		told = append(told, unhealthy)
		data, err := r.plugin.state.Load().options.Spec.File.Read()
		if err != nil || !bytes.Contains(data, []byte(ids(2)[0])) {
			t.Errorf("the spec is written already (%v)", err)
		}
	}
	all, scans := r.scan(), 0
	r.plugin.Update(t.Context(), func(context.Context) (*discovery.Inventory, error) {
		scans++
		now := *all
		now.LPUs = slices.Clone(now.LPUs)
		for card := 2; card < 2+scans; card++ {
			l := &now.LPUs[card]
			l.Absent, l.Health, l.Usable, l.Nodes = true, discovery.Unhealthy, false, nil
		}
		return &now, nil
	})
	if want := [][]string{ids(2), ids(2, 3)}; !slices.EqualFunc(told, want, slices.Equal) {
		t.Errorf("unhealthy before the spec is written: %v, want %v", told, want)
	}
}
