package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/jaypipes/ghw"
	"github.com/jaypipes/ghw/pkg/pci"
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

// vpdMax is the size of the VPD address space, 32 KiB (PCI Local Bus Specification 3.0, appendix I).
const vpdMax = 32 << 10

// Describe looks an LPU up in ghw: names, the path through the PCI tree, and vital product data. ghw
// decides nothing: it returns no device at all when one has no modalias, and needs pci.ids. So whatever
// it does not say within limit is left out, and the error says why; the other details are there all the same.
func Describe(ctx context.Context, root string, lpu *LPU, limit time.Duration) (Details, error) {
	return within(ctx, &readers{}, "details", limit, func() (Details, error) { return describe(root, lpu) })
}

func describe(root string, lpu *LPU) (Details, error) {
	var d Details
	t, err := openTree(root)
	if err != nil {
		return d, err
	}
	t.readVPD(lpu, &d)
	absolute, err := filepath.Abs(root)
	if err != nil {
		return d, err
	}
	if odd := t.oddForGHW(); odd != "" {
		return d, fmt.Errorf("no names and no PCI path: %s is no sysfs attribute", odd)
	}
	info, err := ghw.PCI(ghw.WithChroot(absolute), ghw.WithDisableTopology(), ghw.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return d, fmt.Errorf("no names: %w", err)
	}
	device := info.GetDevice(lpu.Address.String())
	if device == nil {
		return d, fmt.Errorf("no names and no PCI path: ghw read %d PCI devices, and not this one (one without a modalias makes it give up)", len(info.Devices))
	}
	d.VendorName, d.ProductName = known(device.Vendor.Name), known(device.Product.Name)
	for _, ancestor := range device.Ancestors() {
		if a, err := ParseAddress(ancestor.Address); err == nil {
			d.Path = append([]Address{a}, d.Path...)
		}
	}
	d.Path = append(d.Path, lpu.Address)
	return d, nil
}

// oddForGHW names a file that no kernel makes among those that ghw reads of every PCI function. ghw reads files
// whole, whatever they are and however large, so then it is not asked.
func (t *tree) oddForGHW() string {
	addresses, err := (&scan{tree: t}).list()
	if err != nil {
		return ""
	}
	for _, a := range addresses {
		for _, attribute := range []string{"modalias", "revision"} {
			p := pciDevices + "/" + a.String() + "/" + attribute
			st, err := t.lstat(p)
			if err == nil && (fileKind(st.Mode) != "" || st.Size > attributeMax) {
				return filepath.Join(t.root, p)
			}
		}
	}
	return ""
}

// known turns ghw's word for a name it does not have into nothing.
func known(name string) string {
	if name == "unknown" {
		return ""
	}
	return name
}

func (t *tree) readVPD(lpu *LPU, d *Details) {
	dir, err := t.open(pciDevices + "/" + lpu.Address.String())
	if err != nil {
		return
	}
	defer dir.close()
	data, err := dir.head("vpd", vpdMax)
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

func printable(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if notText(r) {
			return -1
		}
		return r
	}, text))
}
