package discovery

import (
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// TestNodeRemedies: the commands that bring a node back to /dev. That they work on a real kernel is tested in test/vm.
func TestNodeRemedies(t *testing.T) {
	const drivers = "/sys/bus/pci/drivers"
	const rebind = "in a container, hand the node in; else rebind the driver, which ends what uses the card: "
	const again = "echo 0000:43:00.1 > " + drivers + "/xocl/unbind; echo 0000:43:00.1 > " + drivers + "/xocl/bind"
	for id, want := range map[finding.ID]string{
		finding.NodeMissing: rebind + again, finding.NodeMismatch: rebind + "rm /dev/dri/renderD128; " + again,
	} {
		l := LPU{Address: pci.Address{Bus: 0x43, Function: 1}, Driver: "xocl"}
		if got := l.remake(&Node{Path: "/dev/dri/renderD128"}, id); got != want {
			t.Errorf("%s: %s", id, got)
		}
	}
}
