package cdi_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

func variable(d specs.Device, name string) string {
	for _, v := range d.ContainerEdits.Env {
		if value, is := strings.CutPrefix(v, name+"="); is {
			return value
		}
	}
	return ""
}

// tableMount is the mount over HyperDex' table; nil if there is none.
func tableMount(d specs.Device) *specs.Mount {
	for _, m := range d.ContainerEdits.Mounts {
		if m.ContainerPath == discovery.HyperdexRingTable {
			return m
		}
	}
	return nil
}

// TestRingTablesOfASpec: each device of several LPUs that are connected mounts a file by which
// HyperDex takes them in the order of LPU_RING_ORDER, over cables that are there. A device by address
// mounts none, because it can be one of several.
func TestRingTablesOfASpec(t *testing.T) {
	for _, o := range []simulate.Node{{Profile: "orion"}, {Profile: "orion", LPUs: 16}, {Profile: "edge"}} {
		root := filepath.Join(t.TempDir(), "node")
		if _, err := o.Write(root); err != nil {
			t.Fatal(err)
		}
		inv, err := discovery.Scan(t.Context(), root, discovery.Options{})
		if err != nil {
			t.Fatal(err)
		}
		spec, _, err := cdi.Spec(inv, cdi.Options{})
		if err != nil {
			t.Fatal(err)
		}
		file, err := cdi.Locate(root, cdi.DefaultSpecDir, cdi.DefaultKind)
		if err != nil {
			t.Fatal(err)
		}
		held, err := file.Hold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := held.Write(spec); err == nil {
			t.Error("a spec is written whose ring tables are not there")
		}
		if err := unwritten(cdi.SpecAndTables(file.Root, inv, cdi.Options{})); err != nil {
			t.Fatal(err)
		}
		if err := held.Write(spec); err != nil {
			t.Error(err)
		}
		held.Release()
		for _, d := range spec.Devices {
			m := tableMount(d)
			if byAddress := strings.HasPrefix(d.Name, "pci-"); byAddress || m == nil {
				if byAddress != (m == nil) {
					t.Errorf("%s mounts %v", d.Name, m)
				}
				continue
			}
			want := variable(d, "LPU_RING_ORDER")
			if strings.Contains(want, ",") && variable(d, "LPU_CONNECTED") != "true" {
				continue
			}
			if got, err := taken(root, m.HostPath, len(d.ContainerEdits.DeviceNodes)); err != nil || got != want {
				t.Errorf("%d LPUs, %s: HyperDex takes %q, and LPU_RING_ORDER is %q: %v", len(inv.LPUs), d.Name, got, want, err)
			}
		}
	}
}

// taken is the cards that HyperDex takes by a table, in its order. The error says that one hop has no
// cable.
func taken(root, table string, n int) (string, error) {
	data, err := os.ReadFile(filepath.Join(root, table))
	if err != nil {
		return "", err
	}
	parsed, findings := ring.Parse(table, data)
	if len(findings) > 0 {
		return "", fmt.Errorf("%v", findings)
	}
	reading, err := parsed.Read(n)
	if err != nil {
		return "", err
	}
	for _, h := range parsed.Hops(reading) {
		if !h.Cabled {
			return "", fmt.Errorf("no cable from %d to %d", h.From, h.To)
		}
	}
	var ids []string
	for _, id := range reading.IDs {
		ids = append(ids, strconv.Itoa(id))
	}
	return strings.Join(ids, ","), nil
}

// TestRingTableThatCannotBeWritten: then containers get none, and no spec names one.
func TestRingTableThatCannotBeWritten(t *testing.T) {
	root, v := machine(t)
	if err := os.RemoveAll(filepath.Join(root, cdi.RingTableDir)); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(root, cdi.RingTableDir), "a file in the place of the directory")
	if err := unwritten(cdi.SpecAndTables(host.Root(root), v.Inventory, cdi.Options{})); err == nil {
		t.Error("they are written")
	}
	if err := unwritten(cdi.SpecAndTables("", v.Inventory, cdi.Options{})); err == nil {
		t.Error("without a root they are written to this machine")
	}
	spec, _, err := cdi.Spec(v.Inventory, cdi.Options{TablesIn: host.Root(root)})
	if err != nil || slices.ContainsFunc(spec.Devices, func(d specs.Device) bool { return tableMount(d) != nil }) {
		t.Errorf("%v, %v", spec, err)
	}
}

// TestRingTableIsMadeAgain: one that was cut is not taken for the table of its name.
func TestRingTableIsMadeAgain(t *testing.T) {
	root, v := machine(t)
	table := cdi.RingTableOf(v.Inventory, []int{0, 1})
	path := filepath.Join(root, table.HostPath)
	for _, damage := range []func() error{
		func() error { return os.Truncate(path, 10) },
		func() error { return os.Remove(path) },
		func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o755)) },
		func() error { return os.WriteFile(path, append(slices.Clone(table.Data), 'x'), 0o600) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if err := table.Write(host.Root(root)); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		info, statErr := os.Stat(path)
		if err != nil || statErr != nil || !bytes.Equal(data, table.Data) || info.Mode() != 0o644 {
			t.Errorf("%q %v %v %v", data, err, statErr, info.Mode())
		}
	}
}

// TestRingTableAfterABoot: the refresh makes a table again that a container names by its path, unless
// the cables are others than then.
func TestRingTableAfterABoot(t *testing.T) {
	root, v := machine(t)
	write := func() {
		t.Helper()
		inv, err := discovery.Scan(t.Context(), root, discovery.Options{})
		if err == nil {
			err = unwritten(cdi.SpecAndTables(host.Root(root), inv, cdi.Options{}))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	table := cdi.RingTableOf(v.Inventory, []int{0, 2, 3, 6}) // of three pieces: no device has them
	if err := errors.Join(table.Write(host.Root(root)), table.Keep(host.Root(root))); err != nil {
		t.Fatal(err)
	}
	boot := func() {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(root, cdi.RingTableDir)); err != nil {
			t.Fatal(err)
		}
		write()
	}
	made := func() bool {
		data, err := os.ReadFile(filepath.Join(root, table.HostPath))
		return err == nil && bytes.Equal(data, table.Data)
	}
	if boot(); !made() {
		t.Error("it is not made again")
	}
	cables, err := os.ReadFile(filepath.Join(root, discovery.HyperdexRingTable))
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(root, discovery.HyperdexRingTable), ringOf(0, 2, 4, 6, 1, 3, 5, 7))
	if boot(); made() {
		t.Error("it is made again for cables that are gone")
	}
	put(t, filepath.Join(root, discovery.HyperdexRingTable), string(cables))
	if boot(); !made() {
		t.Error("it is not made again after its cables came back")
	}
}

// ringOf is HyperDex' table of a ring of LPUs in this order.
func ringOf(lpus ...int) string {
	var links []string
	for i, l := range lpus {
		links = append(links, fmt.Sprintf(`{"src_id": %d, "dst_id": %d, "direction": "Right"}`, l, lpus[(i+1)%len(lpus)]))
	}
	return fmt.Sprintf(`{"network": [%s], "num_device": %d}`, strings.Join(links, ", "), len(lpus))
}

// TestKeptRingTablesAreFew: the oldest are forgotten.
func TestKeptRingTablesAreFew(t *testing.T) {
	root, v := machine(t)
	dir := filepath.Join(root, "/var/lib/lpuctl/ring")
	for i := range 300 {
		old := filepath.Join(dir, fmt.Sprintf("%032x.json", i))
		put(t, old, "[]")
		at := time.Unix(int64(i), 0)
		if err := os.Chtimes(old, at, at); err != nil {
			t.Fatal(err)
		}
	}
	table := cdi.RingTableOf(v.Inventory, []int{0, 2})
	if err := table.Keep(host.Root(root)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 256 {
		t.Errorf("%d files, %v", len(entries), err)
	}
	if _, err := os.Stat(filepath.Join(dir, filepath.Base(table.HostPath))); err != nil {
		t.Error(err)
	}
}

// unwritten is why ring tables could not be put in place; nil if they are.
func unwritten(_ *specs.Spec, _ finding.List, tables, _ error) error { return tables }
