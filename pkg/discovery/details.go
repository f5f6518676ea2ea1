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
	"github.com/hyperaccel/lpuctl/internal/stall"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Details is more about an LPU than its inventory entry has: names and vital product
// data. Fields that are not known are empty.
type Details struct {
	VendorName string `json:"vendorName,omitempty"` // vendor, looked up in pci.ids
	// ProductName is device, looked up in pci.ids, which does not have every LPU.
	ProductName string `json:"productName,omitempty"`
	// Path is the PCI functions from the root port down to the LPU.
	Path        []pci.Address `json:"path,omitempty"`
	Board       string        `json:"board,omitempty"`       // vpd, the identifier string
	PartNumber  string        `json:"partNumber,omitempty"`  // vpd, field PN
	BoardSerial string        `json:"boardSerial,omitempty"` // vpd, field SN
}

// ErrNoNames is the error where neither the root nor this machine has a list of PCI names
// (pci.ids).
var ErrNoNames = errors.New("there is no pci.ids here: names of vendor and product are left out (package pci.ids or hwdata has them)")

// Describe reads the details of an LPU: its path in the PCI tree, its vital product data
// and its names. If the reads do not end within limit, the details are empty and the
// error says so. With ErrNoNames only the names are missing.
func Describe(ctx context.Context, root string, lpu *LPU, limit time.Duration) (Details, error) {
	return stall.Within(ctx, &stall.Reads{}, "details", limit, func() (Details, error) { return describe(host.Root(root), lpu, limit) })
}

func describe(root host.Root, lpu *LPU, limit time.Duration) (d Details, err error) {
	t, err := root.Open()
	if err != nil {
		return d, err
	}
	defer t.Close()
	// The kernel reads vpd through the configuration space.
	patient := t.Through((&Apart{}).one(limit / 2))
	if dir, err := patient.Dir(lpu.Address.Dir()); err == nil {
		readVPD(dir, &d)
		dir.Close()
	}
	_, d.Path = pciPath(t, lpu.Address)
	d.VendorName, d.ProductName, err = names(lpu, root, "/")
	return d, err
}

// names looks the names of an LPU up in the first list that one of the roots has where
// distributions install it.
func names(lpu *LPU, roots ...host.Root) (vendor, product string, err error) {
	for _, root := range roots {
		for _, p := range []string{
			"/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids", "/usr/share/misc/pci.ids.gz", "/usr/share/hwdata/pci.ids.gz",
		} {
			if lines, err := openNames(root, p); err == nil {
				vendor, product = findNames(lines, lpu.Vendor, lpu.Device)
				return vendor, product, nil
			}
		}
	}
	return "", "", ErrNoNames
}

// pciIDsMax is the most bytes that are read of a list of PCI names. The list had 1.5 MiB
// in 2026.
const pciIDsMax = 16 << 20

// openNames reads a list of PCI names.
func openNames(root host.Root, p string) (*bufio.Scanner, error) {
	data, err := root.Read(p, pciIDsMax)
	var text io.Reader = bytes.NewReader(data)
	if err == nil && strings.HasSuffix(p, ".gz") {
		text, err = gzip.NewReader(text)
	}
	return bufio.NewScanner(io.LimitReader(text, pciIDsMax)), err
}

// findNames reads the format of https://pci-ids.ucw.cz. A vendor is a line such as "10ee
// Xilinx Corporation". The lines after it are its devices: a tab and "5000  Alveo U200
// XDMA Platform". A line with two tabs is a subsystem.
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
