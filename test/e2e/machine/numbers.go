package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/simulate"
)

// DeviceNumbers are device numbers for the nodes of n LPUs. Each is that of a real device that opens for reading and writing on
// this kernel, so a node that opens in a container is one that the container was given; and that no process has open, because
// that would be a user of the LPU.
func DeviceNumbers(t *testing.T, n int) []simulate.Numbers {
	t.Helper()
	found, err := unusedDevices()
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < n {
		t.Fatalf("only %d devices of this kernel can be opened, and are not open: %v", len(found), found)
	}
	return found[:n]
}

// misc are names of devices of major 10 in /proc/misc. FUSE is not among them, because tests have it open.
//
//nolint:gochecknoglobals // a table
var misc = []string{
	"loop-control", "autofs", "btrfs-control", "kvm", "device-mapper", "tun", "vga_arbiter", "userfaultfd", "vsock", "cpu_dma_latency",
}

// candidates are the devices of this kernel that may be opened. Those of memory (major 1) come last, because the device cgroup
// lets every container open them.
func candidates() (devices []simulate.Numbers, err error) {
	list, err := os.ReadFile("/proc/misc")
	if err != nil {
		return nil, err
	}
	minors := map[string]uint32{}
	for line := range strings.Lines(string(list)) {
		var minor uint32
		var name string
		if _, err := fmt.Sscan(line, &minor, &name); err == nil {
			minors[name] = minor
		}
	}
	for _, name := range misc {
		if minor, is := minors[name]; is {
			devices = append(devices, simulate.Numbers{Major: 10, Minor: minor})
		}
	}
	for _, minor := range []uint32{9, 8, 7, 5} { // urandom, random, full, zero
		devices = append(devices, simulate.Numbers{Major: 1, Minor: minor})
	}
	return devices, nil
}

// unusedDevices finds those of the candidates that open and are not open, once: later some are open as nodes of LPUs.
//
//nolint:gochecknoglobals // a value that is made when it is needed
var unusedDevices = sync.OnceValues(func() (found []simulate.Numbers, err error) {
	const probe = "/dev/.probe"
	devices, err := candidates()
	if err != nil {
		return nil, err
	}
	open := openDevices()
	for _, d := range devices {
		if err := MakeNode(probe, d.Major, d.Minor); err != nil {
			return nil, err
		}
		f, failed := os.OpenFile(probe, os.O_RDWR|unix.O_NONBLOCK, 0)
		if failed == nil {
			f.Close()
		}
		if failed == nil && !open[unix.Mkdev(d.Major, d.Minor)] {
			found = append(found, d)
		}
		if err := os.Remove(probe); err != nil {
			return nil, err
		}
	}
	return found, nil
})

// openDevices are the numbers of devices that processes have open.
func openDevices() map[uint64]bool {
	open := map[uint64]bool{}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, file := range files {
		if target, _ := os.Readlink(file); !strings.HasPrefix(target, "/dev/") {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(file, &st) == nil {
			open[st.Rdev] = true
		}
	}
	return open
}

// Numbers is the value of simulate's --numbers for n LPUs, see [DeviceNumbers].
func Numbers(t *testing.T, n int) string {
	t.Helper()
	var list []string
	for _, d := range DeviceNumbers(t, n) {
		list = append(list, d.String())
	}
	return strings.Join(list, ",")
}

// Inspected is what [Inspect] prints of one LPU of profile lpu, by its index, if a container has its node, with its numbers.
func Inspected(t *testing.T, index int) string {
	t.Helper()
	d := DeviceNumbers(t, index+1)[index]
	return fmt.Sprintf("node /dev/lpu%d %x:%x\nopens /dev/lpu%[1]d\n", index, d.Major, d.Minor)
}
