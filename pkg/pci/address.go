// Package pci has the identity of an LPU: the PCI address of its function, its one text
// form and its one order, and where the kernel shows the function.
package pci

import (
	"cmp"
	"fmt"
	"strings"
)

// Devices is where the kernel shows all PCI functions, relative to the root of the file
// system (Documentation/ABI/testing/sysfs-bus-pci).
const Devices = "sys/bus/pci/devices"

// Address is the PCI address of a function. Its text form is the kernel's, "0000:b1:00.1"
// (drivers/pci/probe.c, dev_set_name "%04x:%02x:%02x.%d"); a domain above ffff, as Intel
// VMD makes them, has as many digits as it needs ("10000:01:00.0").
type Address struct {
	Domain   uint32
	Bus      uint8
	Device   uint8 // 0 to 31
	Function uint8 // 0 to 7
}

// Parse parses the text form, and no other: hexadecimal digits of either case, four to
// eight for the domain. The error names the text and the form expected.
func Parse(text string) (Address, error) {
	if a, ok := Find(text); ok {
		return a, nil
	}
	return Address{}, fmt.Errorf("%q is not a PCI address (expected a form like 0000:b1:00.1)", text)
}

// ParseLoose parses an address as people write it: without the domain, as lspci shortens
// domain 0000, or without the function, where the whole card is meant; then hasFunction
// is false and the function 0.
func ParseLoose(text string) (a Address, hasFunction, ok bool) {
	hasFunction = strings.Contains(text, ".")
	if !hasFunction {
		text += ".0"
	}
	if strings.Count(text, ":") == 1 {
		text = "0000:" + text
	}
	a, ok = Find(text)
	return a, hasFunction, ok
}

// Find parses as [Parse] does, for those to whom another text is no error: it allocates
// nothing.
func Find[Text string | []byte](text Text) (a Address, ok bool) {
	n := len(text)
	if n < len("0000:43:00.1") || n > len("10000000:43:00.1") || n > len("0000:43:00.1") && text[0] == '0' ||
		text[n-8] != ':' || text[n-5] != ':' || text[n-2] != '.' {
		return a, false
	}
	domain, ok1 := hexadecimal(text[:n-8])
	bus, ok2 := hexadecimal(text[n-7 : n-5])
	device, ok3 := hexadecimal(text[n-4 : n-2])
	function, ok4 := hexadecimal(text[n-1:])
	if !ok1 || !ok2 || !ok3 || !ok4 || device > 31 || function > 7 {
		return a, false
	}
	return Address{domain, uint8(bus), uint8(device), uint8(function)}, true
}

// hexadecimal reads up to eight digits of either case.
func hexadecimal[Text string | []byte](digits Text) (value uint32, ok bool) {
	for i := range len(digits) {
		c := digits[i]
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		value = value<<4 | uint32(c)
	}
	return value, true
}

// String returns the text form of the kernel, in lower case.
func (a Address) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%d", a.Domain, a.Bus, a.Device, a.Function)
}

// Dir returns the directory of the function in sysfs, relative to the root of the file
// system: a link into the tree of devices.
func (a Address) Dir() string { return Devices + "/" + a.String() }

// IsCalled reports whether a word in lower case is the address, with or without the
// domain.
func (a Address) IsCalled(word string) bool {
	full := a.String()
	_, short, _ := strings.Cut(full, ":")
	return word == full || word == short
}

// Sibling returns the address of another function of the same card.
func (a Address) Sibling(function uint8) Address {
	a.Function = function
	return a
}

// SameCard reports whether two functions are of one card: domain, bus and device are the
// same.
func (a Address) SameCard(b Address) bool { return a.Sibling(0) == b.Sibling(0) }

// Compare orders addresses as hyperdex-smi and lspci list them: domain, bus, device,
// function.
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

// UnmarshalText parses the address as [Parse] does, for JSON.
func (a *Address) UnmarshalText(text []byte) (err error) {
	*a, err = Parse(string(text))
	return err
}
