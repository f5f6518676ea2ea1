package discovery

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// Details are what people like to know of an LPU beyond its inventory entry.
type Details struct {
	VendorName  string    `json:"vendorName,omitempty"`  // from pci.ids
	ProductName string    `json:"productName,omitempty"` // likewise; pci.ids does not know every LPU
	Path        []Address `json:"path,omitempty"`        // PCI functions from the root port down to the LPU
	Board       string    `json:"board,omitempty"`       // identifier string of vpd
	PartNumber  string    `json:"partNumber,omitempty"`  // PN of vpd
	BoardSerial string    `json:"boardSerial,omitempty"` // SN of vpd
}

// ErrNoNames says that neither the root nor this machine has a list of PCI names.
var ErrNoNames = errors.New("there is no pci.ids here: names of vendor and product are left out (package pci.ids or hwdata has them)")

// Describe reads the details of an LPU: its place in the PCI tree, vital product data, and names. What it cannot read
// within limit is left out, and the error says why; ErrNoNames says that there are no names to look up.
func Describe(ctx context.Context, root string, lpu *LPU, limit time.Duration) (Details, error) {
	return within(ctx, &readers{}, "details", limit, func() (Details, error) { return describe(host.Root(root), lpu) })
}

func describe(root host.Root, lpu *LPU) (d Details, err error) {
	t, err := root.Open()
	if err != nil {
		return d, err
	}
	defer t.Close()
	if dir, err := t.Dir(pciDevices + "/" + lpu.Address.String()); err == nil {
		readVPD(dir, &d)
		dir.Close()
	}
	_, d.Path = pciPath(t, lpu.Address)
	d.VendorName, d.ProductName, err = names(lpu, root, "/")
	return d, err
}

// names looks the names of an LPU up in the first list that one of the roots has where distributions install it.
func names(lpu *LPU, roots ...host.Root) (vendor, product string, err error) {
	for _, root := range roots {
		for _, p := range []string{
			"/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids", "/usr/share/misc/pci.ids.gz", "/usr/share/hwdata/pci.ids.gz",
		} {
			if vendor, product, err = lookUp(root, p, lpu.Vendor, lpu.Device); err == nil {
				return vendor, product, nil
			}
		}
	}
	return "", "", ErrNoNames
}

// pciIDsMax is far more than the list has: 1.5 MiB in 2026.
const pciIDsMax = 16 << 20

// lookUp searches a list of PCI names for a vendor and one of its devices.
func lookUp(root host.Root, p, vendor, device string) (vendorName, deviceName string, err error) {
	data, err := root.Read(p, pciIDsMax)
	if err != nil {
		return "", "", err
	}
	var text io.Reader = bytes.NewReader(data)
	if strings.HasSuffix(p, ".gz") {
		if text, err = gzip.NewReader(text); err != nil {
			return "", "", err
		}
	}
	vendorName, deviceName = findNames(bufio.NewScanner(io.LimitReader(text, pciIDsMax)), vendor, device)
	return vendorName, deviceName, nil
}

// findNames reads the format of https://pci-ids.ucw.cz: "10ee  Xilinx Corporation" at the start of a line, and on the lines
// that follow a tab and "5000  Alveo U200 XDMA Platform". A line with two tabs is a subsystem.
func findNames(lines *bufio.Scanner, vendor, device string) (vendorName, deviceName string) {
	for lines.Scan() {
		line := lines.Text()
		switch {
		case vendorName == "":
			if name, ok := strings.CutPrefix(line, vendor+"  "); ok {
				vendorName = printable(name)
			}
		case strings.HasPrefix(line, "\t"):
			if name, ok := strings.CutPrefix(line, "\t"+device+"  "); ok {
				return vendorName, printable(name)
			}
		case line != "" && line[0] != '#':
			return vendorName, "" // the next vendor
		}
	}
	return vendorName, ""
}
