package machine

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/simulate"
)

// DeviceNumbers are device numbers for the nodes of n LPUs. Each is that of a real device that opens for reading and writing on
// this kernel, so a node that opens in a container is one that the container was given. Those of memory (major 1) are taken
// last, because the device cgroup lets every container open them.
func DeviceNumbers(t *testing.T, n int) []simulate.Numbers {
	t.Helper()
	const probe = "/dev/.probe"
	var found []simulate.Numbers
	for _, d := range [][2]uint32{
		{10, 229}, {10, 237}, {10, 235}, {10, 234}, {10, 232}, {10, 236}, {10, 200}, // FUSE, loop, autofs, btrfs, KVM, device mapper, tun
		{1, 9}, {1, 8}, {1, 7}, {1, 5}, {1, 3}, // urandom, random, full, zero, null
	} {
		if err := MakeNode(probe, d[0], d[1]); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(probe, os.O_RDWR|unix.O_NONBLOCK, 0)
		if err == nil {
			f.Close()
			found = append(found, simulate.Numbers{Major: d[0], Minor: d[1]})
		}
		if err := os.Remove(probe); err != nil {
			t.Fatal(err)
		}
	}
	if len(found) < n {
		t.Fatalf("only %d devices of this kernel can be opened: %v", len(found), found)
	}
	return found[:n]
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
