package pci_test

import (
	"fmt"

	"github.com/hyperaccel/lpuctl/pkg/pci"
)

func ExampleParse() {
	a, err := pci.Parse("0000:B1:00.1")
	fmt.Println(a, err, a.Dir())
	fmt.Println(a.SameCard(a.Sibling(0)))
	_, err = pci.Parse("b1:00.1")
	fmt.Println(err)
	// Output:
	// 0000:b1:00.1 <nil> sys/bus/pci/devices/0000:b1:00.1
	// true
	// "b1:00.1" is not a PCI address (expected a form like 0000:b1:00.1)
}
