package discovery

import (
	"cmp"
	"fmt"
	"strconv"
)

// Address is the PCI address of a function: domain, bus, device, function.
// Its text form is the kernel's, "0000:b1:00.1" (drivers/pci/probe.c, dev_set_name "%04x:%02x:%02x.%d");
// a domain above ffff, as Intel VMD makes them, has as many digits as it needs ("10000:01:00.0").
type Address struct {
	Domain   uint32
	Bus      uint8
	Device   uint8 // 0 to 31
	Function uint8 // 0 to 7
}

// ParseAddress parses the text form, and no other: hexadecimal digits of either case, four to eight
// for the domain. The error names the text and the form expected.
func ParseAddress(text string) (Address, error) {
	if n := len(text); n >= 12 && n <= 16 && (n == 12 || text[0] != '0') && text[n-8] == ':' && text[n-5] == ':' && text[n-2] == '.' {
		all, err := strconv.ParseUint(text[:n-8]+text[n-7:n-5]+text[n-4:n-2]+text[n-1:], 16, 64)
		a := Address{uint32(all >> 20), uint8(all >> 12), uint8(all >> 4), uint8(all & 0xf)}
		if err == nil && a.Device < 32 && a.Function < 8 {
			return a, nil
		}
	}
	return Address{}, fmt.Errorf("%q is not a PCI address (expected a form like 0000:b1:00.1)", text)
}

// String returns the text form of the kernel, in lower case.
func (a Address) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%d", a.Domain, a.Bus, a.Device, a.Function)
}

// Sibling returns the address of another function of the same card.
func (a Address) Sibling(function uint8) Address {
	a.Function = function
	return a
}

// sameCard tells whether two functions are of one card: domain, bus and device are the same.
func (a Address) sameCard(b Address) bool { return a.Sibling(0) == b.Sibling(0) }

// Compare orders addresses as hyperdex-smi and lspci list them: domain, bus, device, function.
func (a Address) Compare(b Address) int {
	return cmp.Or(
		cmp.Compare(a.Domain, b.Domain),
		cmp.Compare(a.Bus, b.Bus),
		cmp.Compare(a.Device, b.Device),
		cmp.Compare(a.Function, b.Function),
	)
}

// MarshalText writes the address as String does, for JSON.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText parses the address as ParseAddress does, for JSON.
func (a *Address) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAddress(string(text))
	return err
}
