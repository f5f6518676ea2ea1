package discovery

import (
	"strings"

	"github.com/jaypipes/ghw/pkg/pci"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// vpdMax is the size of the VPD address space, 32 KiB (PCI Local Bus Specification 3.0,
// appendix I).
const vpdMax = 32 << 10

// readVPD reads the vital product data of an LPU (sysfs attribute vpd). Only root may
// read it. If a card has none, or if ghw cannot parse it, the details stay empty.
func readVPD(dir *host.Dir, d *Details) {
	data, err := dir.Head("vpd", vpdMax)
	if err != nil {
		return
	}
	vpd, err := pci.ParseVPD(data)
	if err != nil {
		return
	}
	d.Board = printable(vpd.Identifier)
	d.PartNumber, d.BoardSerial = printable(vpd.ReadOnly["PN"]), printable(vpd.ReadOnly["SN"])
}

// printable removes the characters that sysfs attributes cannot have.
func printable(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if host.NotText(r) {
			return -1
		}
		return r
	}, text))
}
