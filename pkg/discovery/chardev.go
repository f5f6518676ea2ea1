package discovery

import (
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// DeviceNumbers returns the numbers (st_rdev) of all character devices of some PCI
// functions: those to which the kernel's links sys/dev/char/MAJOR:MINOR lead. A function
// may have more than the node that a container gets: DRM makes a card node beside each
// render node, and the driver of a management function one of its own.
func DeviceNumbers(root string, functions map[pci.Address]bool) (map[uint64]bool, error) {
	t, err := host.Root(root).Open()
	if err != nil {
		return nil, err
	}
	defer t.Close()
	links, err := t.Links(CharDevices)
	if host.IsAbsent(err) {
		err = nil // a tree without them
	}
	numbers := map[uint64]bool{}
	for name, device := range links {
		major, minor, ok := parseDev(name)
		if function, owned := functionOf(device); ok && owned && functions[function] {
			numbers[unix.Mkdev(major, minor)] = true
		}
	}
	return numbers, err
}
