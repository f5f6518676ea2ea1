package discovery

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Address is the place of a PCI function in the machine: domain, bus, device, function.
// Its text form is the kernel's, "0000:b1:00.1" (drivers/pci/probe.c, dev_set_name "%04x:%02x:%02x.%d");
// a domain above ffff, as Intel VMD makes them, has as many digits as it needs ("10000:01:00.0").
type Address struct {
	Domain   uint32
	Bus      uint8
	Device   uint8 // 0 to 31
	Function uint8 // 0 to 7
}

// ParseAddress reads the text form, and no other: hexadecimal digits of either case, four to eight
// for the domain. The error names the text and the form expected.
func ParseAddress(text string) (Address, error) {
	domain, rest, ok1 := strings.Cut(text, ":")
	bus, rest, ok2 := strings.Cut(rest, ":")
	device, function, ok3 := strings.Cut(rest, ".")
	if !ok1 || !ok2 || !ok3 || len(domain) < 4 || len(domain) > 4 && domain[0] == '0' ||
		len(bus) != 2 || len(device) != 2 || len(function) != 1 {
		return Address{}, notAnAddress(text)
	}
	var a Address
	var err [4]error
	a.Domain, err[0] = parseHex[uint32](domain, 32)
	a.Bus, err[1] = parseHex[uint8](bus, 8)
	a.Device, err[2] = parseHex[uint8](device, 5)
	a.Function, err[3] = parseHex[uint8](function, 3)
	for _, e := range err {
		if e != nil {
			return Address{}, notAnAddress(text)
		}
	}
	return a, nil
}

func notAnAddress(text string) error {
	return fmt.Errorf("%q is not a PCI address (expected a form like 0000:b1:00.1)", text)
}

func parseHex[T uint8 | uint32](digits string, bits int) (T, error) {
	v, err := strconv.ParseUint(digits, 16, bits)
	return T(v), err
}

// String is the kernel's spelling, lower case.
func (a Address) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%d", a.Domain, a.Bus, a.Device, a.Function)
}

// Sibling is another function of the same card.
func (a Address) Sibling(function uint8) Address {
	a.Function = function
	return a
}

// Compare orders addresses as hyperdex-smi and lspci list them: domain, bus, device, function.
func (a Address) Compare(b Address) int {
	return cmp.Or(
		cmp.Compare(a.Domain, b.Domain),
		cmp.Compare(a.Bus, b.Bus),
		cmp.Compare(a.Device, b.Device),
		cmp.Compare(a.Function, b.Function),
	)
}

// MarshalText makes an Address a JSON string.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText is ParseAddress.
func (a *Address) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAddress(string(text))
	return err
}
