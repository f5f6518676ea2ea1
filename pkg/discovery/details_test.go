package discovery

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/test/plant"
)

const someNames = `# a list
0010  Allied Telesis
	505d  Not this one
10ee  Xilinx Corporation
	505c  Not this one either
		10ee 505d  A subsystem
	505d  Alveo U55C
10ef  The next vendor
	505d  Nor this
`

// TestDescribe reads the details of a simulated card: one PCI function without modalias, or with a huge one, is no
// concern of it.
func TestDescribe(t *testing.T) {
	root := unpack(t, u55c)
	inv := scanOf(t, root, captureModels())
	plant.File(t, filepath.Join(root, "usr/share/misc/pci.ids"), someNames)
	if err := os.Remove(filepath.Join(root, pciDevices, "0000:44:00.1/modalias")); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(root, pciDevices, "0000:45:00.1/modalias"), 1<<30); err != nil {
		t.Fatal(err)
	}
	d, err := Describe(context.Background(), root, &inv.LPUs[0], time.Minute)
	if err != nil || len(d.Path) != 4 || d.Path[3] != inv.LPUs[0].Address ||
		d.BoardSerial != "HXSIM0000" || d.VendorName != "Xilinx Corporation" || d.ProductName != "Alveo U55C" {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestNames: the first list counts, packed or not; what it does not know has no name.
func TestNames(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(someNames))
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	none := host.Root(t.TempDir())
	plain := host.Root(plant.Tree(t, map[string]string{
		"usr/share/misc/pci.ids": "-> /usr/share/hwdata/pci.ids", "usr/share/hwdata/pci.ids": someNames,
	}))
	gzipped := host.Root(plant.Tree(t, map[string]string{"usr/share/hwdata/pci.ids.gz": packed.String()}))
	lpu := &LPU{Vendor: "10ee", Device: "505d"}
	for name, roots := range map[string][]host.Root{"plain": {plain}, "packed": {gzipped}, "the second root": {none, plain}} {
		if vendor, product, err := names(lpu, roots...); vendor != "Xilinx Corporation" || product != "Alveo U55C" || err != nil {
			t.Errorf("%s: %q %q %v", name, vendor, product, err)
		}
	}
	vendor, product, err := names(&LPU{Vendor: "10ee", Device: "505e"}, plain)
	if vendor != "Xilinx Corporation" || product != "" || err != nil {
		t.Errorf("an unknown product: %q %q %v", vendor, product, err)
	}
	if _, _, err := names(lpu, none); !errors.Is(err, ErrNoNames) {
		t.Errorf("without a list: %v", err)
	}
	fifo := host.Root(plant.Tree(t, map[string]string{"usr/share/misc/pci.ids": "fifo"}))
	if _, _, err := names(lpu, fifo); err != nil && !errors.Is(err, ErrNoNames) {
		t.Errorf("a FIFO: %v", err)
	}
}

// TestScansHoldNoDescriptors (garbage collection off, so that nothing is closed by it).
func TestScansHoldNoDescriptors(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	root := unpack(t, u55c)
	open := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	look := func() {
		inv := scanOf(t, root, captureModels())
		FindUsers(context.Background(), root, inv)
		_, _ = Describe(context.Background(), root, &inv.LPUs[0], time.Minute) // whether it finds names does not matter
	}
	look()
	before := open()
	for range 1000 {
		look()
	}
	if after := open(); after > before {
		t.Errorf("%d descriptors after one scan, %d after 1,001", before, after)
	}
}
