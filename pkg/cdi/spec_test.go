package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// seedNode is the node of the published example: one LPU, driver 1.0.0, one mount.
func seedNode() *discovery.Inventory { return node(1) }

// node is an inventory of n usable LPUs in the form of the published example.
func node(n int) *discovery.Inventory {
	inv := &discovery.Inventory{}
	for i := range n {
		inv.LPUs = append(inv.LPUs, discovery.LPU{
			Name: fmt.Sprintf("lpu%d", i), Index: i, Model: "lpu", Address: pci.Address{Bus: uint8(0x43 + i), Function: 1},
			Driver: "lpu", DriverVersion: "1.0.0", Usable: true, Health: discovery.Healthy,
			Nodes: []discovery.Node{{Path: fmt.Sprintf("/dev/lpu%d", i), Major: 511, Minor: uint32(i)}},
			Place: discovery.Place{Management: &discovery.Management{Nodes: []discovery.Node{{Path: fmt.Sprintf("/dev/mgmt%d", i)}}}},
			Equipment: discovery.Equipment{
				Mounts: []discovery.Mount{{HostPath: "/opt/hyperaccel/lib", ContainerPath: "/usr/lib/hyperaccel", Present: true}},
			},
		})
	}
	return inv
}

func mustSpec(t *testing.T, inv *discovery.Inventory, o Options) *specs.Spec {
	t.Helper()
	spec, _, err := Spec(inv, o)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func seedSpec(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile("../../testdata/seed-spec.json")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestTheSeedsExampleIsWhatWeWrite(t *testing.T) {
	spec := mustSpec(t, seedNode(), Options{Version: "0.6.0", Devices: []string{"lpu0"}})
	ours, err := Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	// The example is older than the variable that has the container's index of the LPU.
	ours = bytes.ReplaceAll(ours, []byte(",\n          \"LPU_RING_ORDER=0\""), nil)
	var got, want any
	for data, into := range map[*[]byte]*any{&ours: &got, new(seedSpec(t)): &want} {
		if err := json.Unmarshal(*data, into); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// cacheOf is a runtime's cache of one spec. The node on the host is /dev/null in place of /dev/lpuN, because the library looks
// it up.
func cacheOf(t *testing.T, spec []byte) *cdi.Cache {
	t.Helper()
	raw, err := cdi.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range raw.Devices {
		for _, n := range d.ContainerEdits.DeviceNodes {
			n.HostPath = "/dev/null"
		}
	}
	raw.Version = specs.CurrentVersion
	data, err := json.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "spec.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	return cache
}

// inject gives a container the devices, as a runtime does with the CDI library.
func inject(t *testing.T, cache *cdi.Cache, devices ...string) *oci.Spec {
	t.Helper()
	container := &oci.Spec{}
	if unresolved, err := cache.InjectDevices(container, devices...); err != nil {
		t.Fatalf("%v: %v, %v", unresolved, err, cache.GetErrors())
	}
	return container
}

func TestInjectingOursEqualsInjectingTheSeeds(t *testing.T) {
	ours, err := Marshal(mustSpec(t, seedNode(), Options{}))
	if err != nil {
		t.Fatal(err)
	}
	want := inject(t, cacheOf(t, seedSpec(t)), "hyperaccel.ai/lpu=lpu0")
	want.Process.Env = append(want.Process.Env, "LPU_RING_ORDER=0") // the example is older than this variable
	got := inject(t, cacheOf(t, ours), "hyperaccel.ai/lpu=lpu0")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !slices.Contains(got.Process.Env, "LPU_VISIBLE_DEVICES=0") || got.Linux.Devices[0].Path != "/dev/lpu0" {
		t.Errorf("injected %+v", got)
	}
}

func TestFamilies(t *testing.T) {
	spec := mustSpec(t, node(3), Options{})
	var names []string
	for _, d := range spec.Devices {
		names = append(names, d.Name)
	}
	want := []string{"lpu0", "lpu1", "lpu2", "pci-0000-43-00.1", "pci-0000-44-00.1", "pci-0000-45-00.1", "all"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if spec.Version != "0.3.0" {
		t.Errorf("cdiVersion %s, want the lowest", spec.Version)
	}
	all := spec.Devices[6].ContainerEdits
	wantEnv := []string{"LPU_VISIBLE_DEVICES=0,1,2", "NUM_LPU_DEVICES=3"}
	if diff := cmp.Diff(wantEnv, all.Env); diff != "" || len(all.DeviceNodes) != 3 || len(all.Mounts) != 1 {
		t.Errorf("all: %+v\n%s", all, diff)
	}
}

// TestBuildingBlocksCompose: two of them together set no variable twice, whatever the order.
func TestBuildingBlocksCompose(t *testing.T) {
	data, err := Marshal(mustSpec(t, node(2), Options{}))
	if err != nil {
		t.Fatal(err)
	}
	a, b := "hyperaccel.ai/lpu=pci-0000-43-00.1", "hyperaccel.ai/lpu=pci-0000-44-00.1"
	for _, order := range [][]string{{a, b}, {b, a}} {
		got := inject(t, cacheOf(t, data), order...)
		if diff := cmp.Diff([]string{"LPU_DRIVER_VERSION=1.0.0"}, got.Process.Env); diff != "" || len(got.Linux.Devices) != 2 {
			t.Errorf("%v: %s", order, diff)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Run("management", func(t *testing.T) {
		d := mustSpec(t, node(1), Options{Management: true}).Devices[0]
		if n := d.ContainerEdits.DeviceNodes; len(n) != 2 || n[1].Path != "/dev/mgmt0" {
			t.Errorf("nodes %+v", n)
		}
		if n := mustSpec(t, node(1), Options{}).Devices[0].ContainerEdits.DeviceNodes; len(n) != 1 {
			t.Errorf("the management node is handed out unasked: %+v", n)
		}
	})
	t.Run("mounts", func(t *testing.T) {
		inv := node(2)
		for i := range inv.LPUs {
			inv.LPUs[i].Mounts[0].Present = false
		}
		spec, findings, err := Spec(inv, Options{})
		if err != nil || len(spec.Devices[0].ContainerEdits.Mounts) != 0 || len(findings) != 1 || findings[0].ID != "mount-left-out" {
			t.Errorf("%v, %v, %v", spec, findings, err)
		}
		spec, findings, err = Spec(inv, Options{UncheckedMounts: true})
		if err != nil || len(spec.Devices[0].ContainerEdits.Mounts) != 1 || len(findings) != 0 {
			t.Errorf("%v, %v, %v", spec, findings, err)
		}
	})
	t.Run("annotations", func(t *testing.T) {
		spec := mustSpec(t, node(1), Options{Annotations: true})
		if spec.Version != "0.6.0" || spec.Devices[0].Annotations["lpuctl.hyperaccel.ai/address"] != "0000:43:00.1" {
			t.Errorf("%s %v", spec.Version, spec.Devices[0].Annotations)
		}
		if _, _, err := Spec(node(1), Options{Annotations: true, Version: "0.5.0"}); err == nil {
			t.Error("annotations went into cdiVersion 0.5.0")
		}
	})
	t.Run("devices", func(t *testing.T) {
		spec := mustSpec(t, node(3), Options{Devices: []string{"all", "0000:44:00.1", "lpu2"}})
		var names []string
		for _, d := range spec.Devices {
			names = append(names, d.Name)
		}
		if diff := cmp.Diff([]string{"lpu2", "pci-0000-44-00.1", "all"}, names); diff != "" {
			t.Error(diff)
		}
		if _, _, err := Spec(node(3), Options{Devices: []string{"lpu3"}}); err == nil || !strings.Contains(err.Error(), `no LPU "lpu3"`) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("version", func(t *testing.T) {
		if _, _, err := Spec(node(1), Options{Version: "0.9.9"}); err == nil {
			t.Error("an unknown version is taken")
		}
		if n := mustSpec(t, node(1), Options{Version: "v0.4.0"}).Devices[0].ContainerEdits.DeviceNodes[0]; n.HostPath != "" {
			t.Error("hostPath in a version that does not know it")
		}
	})
	t.Run("kind", func(t *testing.T) {
		for _, kind := range []string{"hyperaccel.ai", "a/lpu", "hyperaccel.ai/l", "/", "hyper accel/lpu", "hyperaccel.ai/lpu/x"} {
			if _, _, err := Spec(node(1), Options{Kind: kind}); err == nil {
				t.Errorf("kind %q is taken", kind)
			}
		}
		if spec := mustSpec(t, node(1), Options{Kind: "hyperaccel.ai/bertha"}); spec.Kind != "hyperaccel.ai/bertha" {
			t.Errorf("kind %s", spec.Kind)
		}
	})
}

func TestDriverVersionsThatDifferMoveIntoTheDevices(t *testing.T) {
	inv := node(2)
	inv.LPUs[1].DriverVersion = "2.0.0"
	spec := mustSpec(t, inv, Options{})
	if len(spec.ContainerEdits.Env) != 0 {
		t.Errorf("common edits %v", spec.ContainerEdits.Env)
	}
	for i, want := range []string{"LPU_DRIVER_VERSION=1.0.0", "LPU_DRIVER_VERSION=2.0.0"} {
		if !slices.Contains(spec.Devices[i].ContainerEdits.Env, want) {
			t.Errorf("lpu%d lacks %s", i, want)
		}
	}
	for _, d := range spec.Devices[2:] { // several LPUs, and devices that can be combined with others
		if env := strings.Join(d.ContainerEdits.Env, " "); strings.Contains(env, "LPU_DRIVER_VERSION") {
			t.Errorf("%s has %s", d.Name, env)
		}
	}
}

func TestAnLPUWithoutANodeIsLeftOut(t *testing.T) {
	inv := node(3)
	inv.LPUs[1].Nodes = nil
	inv.LPUs[1].Reasons = finding.List{
		{Severity: finding.Warning, Message: "warm"},
		{Severity: finding.Error, Message: "no driver is bound", Remedy: "modprobe lpu"},
	}
	spec, findings, err := Spec(inv, Options{})
	if err != nil || len(spec.Devices) != 5 || spec.Devices[1].Name != "lpu2" {
		t.Fatalf("%v, %v", spec, err)
	}
	want := finding.List{{
		Severity: finding.Warning, ID: "left-out", Subject: "lpu1",
		Message: "left out of the spec: no driver is bound", Remedy: "modprobe lpu",
	}}
	if diff := cmp.Diff(want, findings); diff != "" {
		t.Error(diff)
	}
	for i := range inv.LPUs {
		inv.LPUs[i].Nodes = nil
	}
	if _, findings, err := Spec(inv, Options{}); !errors.Is(err, ErrNoDevices) || len(findings) != 3 {
		t.Errorf("%v, %v", findings, err)
	}
}

func TestBytesAreTheSameEachTime(t *testing.T) {
	first, _ := Marshal(mustSpec(t, node(8), Options{Annotations: true}))
	for range 20 {
		if again, _ := Marshal(mustSpec(t, node(8), Options{Annotations: true})); !bytes.Equal(again, first) {
			t.Fatal("two specs of one inventory differ")
		}
	}
}
