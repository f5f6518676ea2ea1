package ring_test

import (
	"fmt"

	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// Parse reads a table, and Bind finds the cards of a machine that it names.
func ExampleBind() {
	table, findings := ring.Parse("table.yaml", []byte(`
apiVersion: lpuctl.hyperaccel.ai/v1alpha1
kind: RingTable
rings:
- ["0000:43:00.1", "0000:44:00.1", "0000:45:00.1"]
`))
	fmt.Println(table.Format, len(table.IDs), findings)

	var cards []ring.Card
	for i := range 3 {
		cards = append(cards, ring.Card{Name: ring.Name(i), Address: pci.Address{Bus: uint8(0x43 + i), Function: 1}})
	}
	cabling, findings := ring.Bind(table, cards)
	for _, r := range cabling.Rings {
		fmt.Println(r.Cards, r.Closed, findings)
	}
	// Output:
	// lpuctl 3 []
	// [0 1 2] true []
}
