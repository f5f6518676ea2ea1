package discovery

import (
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// TestDriverRemedies: the commands that bring an LPU back to its driver, and its node back to /dev. That they work on a real kernel
// is tested in test/vm.
func TestDriverRemedies(t *testing.T) {
	const devices, drivers = "/sys/bus/pci/devices/0000:43:00.1", "/sys/bus/pci/drivers"
	xocl, anyDriver := Model{Drivers: []string{"xocl", "xocl2"}}, Model{}
	for name, c := range map[string]struct {
		driver string
		model  *Model
		want   string
	}{
		"no driver": {"", &xocl, "modprobe xocl; echo > " + devices + "/driver_override; echo 0000:43:00.1 > /sys/bus/pci/drivers_probe"},
		"another driver": {"uio_pci_generic", &xocl, "modprobe xocl; echo 0000:43:00.1 > " + drivers + "/uio_pci_generic/unbind; echo > " +
			devices + "/driver_override; echo 0000:43:00.1 > " + drivers + "/xocl/bind"},
		"any driver will do": {"vfio-pci", &anyDriver, "echo 0000:43:00.1 > " + drivers + "/vfio-pci/unbind; echo > " +
			devices + "/driver_override; echo 0000:43:00.1 > /sys/bus/pci/drivers_probe"},
	} {
		l := LPU{Address: Address{Bus: 0x43, Function: 1}, Driver: c.driver}
		if got := l.bind(c.model); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	const rebind = "in a container, hand the node in; else rebind the driver, which ends what uses the card: "
	const again = "echo 0000:43:00.1 > " + drivers + "/xocl/unbind; echo 0000:43:00.1 > " + drivers + "/xocl/bind"
	for id, want := range map[finding.ID]string{
		finding.NodeMissing: rebind + again, finding.NodeMismatch: rebind + "rm /dev/dri/renderD128; " + again,
	} {
		l := LPU{Address: Address{Bus: 0x43, Function: 1}, Driver: "xocl"}
		if got := l.remake(&Node{Path: "/dev/dri/renderD128"}, id); got != want {
			t.Errorf("%s: %s", id, got)
		}
	}
}
