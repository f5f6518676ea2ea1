package discovery

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/pci"
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
	root := plant.Capture(t, u55c)
	inv := scanOf(t, root, captureModels())
	plant.File(t, filepath.Join(root, "usr/share/misc/pci.ids"), someNames)
	if err := os.Remove(filepath.Join(root, pci.Devices, "0000:44:00.1/modalias")); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(root, pci.Devices, "0000:45:00.1/modalias"), 1<<30); err != nil {
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
	lpu := &LPU{IDs: IDs{Vendor: "10ee", Device: "505d"}}
	for name, roots := range map[string][]host.Root{"plain": {plain}, "packed": {gzipped}, "the second root": {none, plain}} {
		if vendor, product, err := names(lpu, roots...); vendor != "Xilinx Corporation" || product != "Alveo U55C" || err != nil {
			t.Errorf("%s: %q %q %v", name, vendor, product, err)
		}
	}
	vendor, product, err := names(&LPU{IDs: IDs{Vendor: "10ee", Device: "505e"}}, plain)
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
	root := plant.Capture(t, u55c)
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
	for range 100 {
		look()
	}
	if after := open(); after > before {
		t.Errorf("%d descriptors after one scan, %d after 101", before, after)
	}
}

// TestVMD: below Intel VMD there is a host bridge of its own, and what is above that is no switch of the LPU's.
func TestVMD(t *testing.T) {
	const host, vmd = "/sys/devices/pci0000:64/", "/sys/devices/pci0000:64/0000:64:00.5/pci10000:00/"
	for dir, want := range map[string]string{
		vmd + "10000:00:02.0/10000:01:00.0":                             "",
		vmd + "10000:00:02.0/10000:01:00.0/10000:02:00.0":               "",
		vmd + "10000:00:02.0/10000:01:00.0/10000:02:00.0/10000:03:00.0": "10000:01:00.0",
		host + "0000:64:01.0/0000:65:00.0":                              "",
		host + "0000:64:01.0/0000:65:00.0/0000:66:00.0/0000:67:00.0":    "0000:65:00.0",
	} {
		root := plant.Tree(t, map[string]string{
			"sys/bus/pci/devices/" + path.Base(dir): "-> ../../../../" + dir, dir + "/vendor": "0x10ee\n", dir + "/device": "0x505d\n",
		})
		l := scanOf(t, root, nil).LPUs[0]
		if got := fmt.Sprint(l.Switch); l.Switch == nil && want != "" || l.Switch != nil && got != want || l.PCIeRoot != "pci0000:64" {
			t.Errorf("%s: switch %s, want %s; root %s", dir, got, want, l.PCIeRoot)
		}
	}
}

// TestDriverOverride: where the kernel may bind one other driver only, that is named, and the remedy ends it.
func TestDriverOverride(t *testing.T) {
	root := plant.Capture(t, u55c)
	dir := filepath.Join(root, "sys/bus/pci/devices/0000:45:00.1")
	for _, c := range []struct{ driver, override, message, remedy string }{
		{"", "", "no driver is bound to it (it needs uio_pci_generic)", "modprobe uio_pci_generic; PROBE"},
		{"", "(null)", "no driver is bound to it (it needs uio_pci_generic)", "modprobe uio_pci_generic; PROBE"},
		{"", "uio_pci_generic", "no driver is bound to it (it needs uio_pci_generic)", "modprobe uio_pci_generic; PROBE"},
		{"", "xocl", "no driver is bound to it (it needs uio_pci_generic); driver_override lets only xocl have it",
			"INSIST; modprobe uio_pci_generic; PROBE"},
		{"xocl", "xocl", "driver xocl is bound to it (it needs uio_pci_generic)",
			"INSIST; UNBIND; modprobe uio_pci_generic; PROBE"},
		{"vfio-pci", "", "it is given to a virtual machine (driver vfio-pci)",
			"to take it back: INSIST; UNBIND; modprobe uio_pci_generic; PROBE"},
	} {
		t.Run(c.driver+" "+c.override, func(t *testing.T) {
			link := ""
			if c.driver != "" {
				link = "-> ../x/" + c.driver
			}
			replace(t, filepath.Join(dir, "driver"), link)
			if c.driver == "" {
				replace(t, filepath.Join(dir, "power_state"), "unknown\n")
			}
			if c.override != "" {
				plant.File(t, filepath.Join(dir, "driver_override"), c.override+"\n")
				t.Cleanup(func() { _ = os.Remove(filepath.Join(dir, "driver_override")) })
			}
			remedy := strings.NewReplacer(
				"INSIST", "echo uio_pci_generic > /sys/bus/pci/devices/0000:45:00.1/driver_override",
				"UNBIND", "echo 0000:45:00.1 > /sys/bus/pci/devices/0000:45:00.1/driver/unbind",
				"PROBE", "echo 0000:45:00.1 > /sys/bus/pci/drivers_probe",
			).Replace(c.remedy)
			r := scanOf(t, root, captureModels()).LPUs[2].Reasons
			if len(r) != 1 || r[0].Message != c.message || r[0].Remedy != remedy {
				t.Errorf("%+v", r)
			}
		})
	}
	anyDriver := Model{Name: "any", Match: []Match{{Vendor: "10ee", Device: "505d"}}, Nodes: []string{"class:uio"}}
	replace(t, filepath.Join(dir, "driver"), "")
	plant.File(t, filepath.Join(dir, "driver_override"), "vfio-pci\n")
	if r := scanOf(t, root, []Model{anyDriver}).LPUs[2].Reasons; len(r) != 0 {
		t.Errorf("while a driver is being unbound: %+v", r) // what is asked for then does not answer
	}
	replace(t, filepath.Join(dir, "enable"), "0\n")
	replace(t, filepath.Join(dir, "current_link_width"), "63\n")
	if r := scanOf(t, root, []Model{anyDriver}).LPUs[2].Reasons; len(r) != 1 || r[0].ID != "no-answer" {
		t.Errorf("while it is being reset: %+v", r)
	}
	plant.File(t, filepath.Join(dir, "current_link_width"), "16\n")
	r := scanOf(t, root, []Model{anyDriver}).LPUs[2].Reasons
	if len(r) != 1 || !strings.Contains(r[0].Message, "driver_override lets only vfio-pci have it") {
		t.Errorf("that no driver has had since the boot: %+v", r)
	}
	replace(t, filepath.Join(dir, "power_state"), "unknown\n")
	plant.File(t, filepath.Join(dir, "enable"), "1\n")
	r = scanOf(t, root, []Model{anyDriver}).LPUs[2].Reasons
	const remedy = "echo > /sys/bus/pci/devices/0000:45:00.1/driver_override; echo 0000:45:00.1 > /sys/bus/pci/drivers_probe"
	if len(r) != 1 || r[0].Remedy != remedy {
		t.Errorf("%+v", r)
	}
}
