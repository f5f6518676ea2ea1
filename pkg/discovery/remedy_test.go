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
	l := LPU{Address: pci.Address{Bus: 0x43, Function: 1}, Driver: "xocl"}
	got := l.remake(&Node{Path: "/dev/dri/renderD128", Directory: true}, finding.NodeMismatch)
	if want := rebind + "rm -d /dev/dri/renderD128; " + again; got != want {
		t.Errorf("a directory: %s", got)
	}
}

// TestRemediesOfTheCard: what the table says of any card names this one and its driver.
func TestRemediesOfTheCard(t *testing.T) {
	const again = "echo 0000:43:00.1 > /sys/bus/pci/drivers/xocl/unbind; echo 0000:43:00.1 > /sys/bus/pci/drivers/xocl/bind"
	for id, want := range map[finding.ID]string{
		finding.ResetBehindDriver: "rebind the driver: " + again,
		finding.PowerLost:         "when it has power again, rebind the driver, by unbind and bind in /sys/bus/pci/drivers/xocl",
		finding.BadState:          "if this does not help, power-cycle the server: xbutil reset --device 0000:43:00.1",
	} {
		l := LPU{Address: pci.Address{Bus: 0x43, Function: 1}, Driver: "xocl"}
		l.reason(id, "", "")
		if l.addressRemedies(); l.Reasons[0].Remedy != want {
			t.Errorf("%s: %s", id, l.Reasons[0].Remedy)
		}
	}
	l := LPU{Driver: "ha"}
	l.reason(finding.BadState, "", "")
	if l.addressRemedies(); l.Reasons[0].Remedy == "" || l.Reasons[0].Remedy[:14] != "reset the card" {
		t.Errorf("a card without XRT: %s", l.Reasons[0].Remedy)
	}
}
