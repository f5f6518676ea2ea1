package discovery_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// TestDeviceNumbers: an LPU has a render node and a card node, its management function one more, and others are not among them.
func TestDeviceNumbers(t *testing.T) {
	root := simulated(t, simulate.Node{Profile: "orion"})
	inv := scan(t, root, discovery.Options{})
	seen := map[uint64]bool{}
	for _, l := range inv.LPUs {
		own, err := discovery.DeviceNumbers(root, map[pci.Address]bool{l.Address: true})
		if err != nil || len(own) != 2 || !own[unix.Mkdev(l.Nodes[0].Major, l.Nodes[0].Minor)] {
			t.Errorf("%s: %v, %v", l.Name, own, err)
		}
		both, err := discovery.DeviceNumbers(root, map[pci.Address]bool{l.Address: true, l.Management.Address: true})
		if err != nil || len(both) != 3 {
			t.Errorf("%s with its management function: %v, %v", l.Name, both, err)
		}
		for number := range both {
			if seen[number] {
				t.Errorf("%s: %d:%d is another's", l.Name, unix.Major(number), unix.Minor(number))
			}
			seen[number] = true
		}
	}
	if err := os.RemoveAll(root + "/sys/dev"); err != nil {
		t.Fatal(err)
	}
	if none, err := discovery.DeviceNumbers(root, map[pci.Address]bool{inv.LPUs[0].Address: true}); err != nil || len(none) > 0 {
		t.Errorf("without the kernel's links: %v, %v", none, err)
	}
}
