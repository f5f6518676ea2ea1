package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Card is a card in a slot of the machine.
type Card struct {
	slot     int // 0 to 7
	function int // of the LPU: 1, or 0 of a card with one function
}

const pciDevices = "/sys/bus/pci/devices/"

// card is the card that is in a slot now.
func card(slot int) Card {
	c := Card{slot, 1}
	if Read(pciDevices+c.Management()+"/vendor") == "0x8086" {
		c.function = 0
	}
	return c
}

// bus is the number of the card's bus, and switchBus that of the ports of its switch.
func (c Card) bus() int       { return 0x43 + c.slot%4 + 0x40*(c.slot/4) }
func (c Card) switchBus() int { return 0x42 + 0x40*(c.slot/4) }

// Address is the PCI address of the LPU.
func (c Card) Address() string { return fmt.Sprintf("0000:%02x:00.%d", c.bus(), c.function) }

// ID is what the kubelet calls the LPU, which is one of its names in the spec too.
func (c Card) ID() string { return "pci-" + strings.ReplaceAll(c.Address(), ":", "-") }

// Management is the PCI address of function 0.
func (c Card) Management() string { return fmt.Sprintf("0000:%02x:00.0", c.bus()) }

// Port is the PCI address of the port above the card.
func (c Card) Port() string { return fmt.Sprintf("0000:%02x:%02x.0", c.switchBus(), c.slot%4) }

// Switch is the PCI address of the upstream port of the card's switch.
func (c Card) Switch() string { return fmt.Sprintf("0000:%02x:00.0", c.switchBus()-1) }

// Root is the PCI address of the root port above the switch.
func (c Card) Root() string { return fmt.Sprintf("0000:%02x:00.0", c.switchBus()-2) }

// Slot is the directory of the card's slot.
func (c Card) Slot() string { return fmt.Sprintf("/sys/bus/pci/slots/%d/", 10+c.slot) }

// Attribute is the path of an attribute of the LPU.
func (c Card) Attribute(name string) string { return pciDevices + c.Address() + "/" + name }

// Driver is the name of the driver that the LPU has, or "".
func (c Card) Driver() string {
	link, _ := os.Readlink(c.Attribute("driver"))
	if link == "" {
		return ""
	}
	return filepath.Base(link)
}

// Node is the path of the LPU's node according to the kernel, or "".
func (c Card) Node() string {
	for _, class := range []string{"lpu", "uio"} {
		if names, _ := os.ReadDir(c.Attribute(class)); len(names) == 1 {
			return "/dev/" + names[0].Name()
		}
	}
	return ""
}
