package cdi

import (
	"fmt"
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// ringsOf8 is a node whose LPUs are on rings of eight, as on Orion servers.
func ringsOf8(lpus int) *discovery.Inventory {
	inv := node(lpus)
	inv.RingTable = &discovery.TableRef{}
	for i := range inv.LPUs {
		if i%8 == 0 {
			inv.Rings = append(inv.Rings, discovery.Ring{ID: fmt.Sprintf("ring%d", i/8), Closed: true})
		}
		r := &inv.Rings[len(inv.Rings)-1]
		inv.LPUs[i].Ring = &discovery.RingPlace{ID: r.ID, Position: len(r.Members)}
		r.Members = append(r.Members, inv.LPUs[i].Name)
	}
	return inv
}

func BenchmarkSpec(b *testing.B) {
	for _, lpus := range []int{1, 8, 64} {
		inv := ringsOf8(lpus)
		b.Run(fmt.Sprintf("lpus=%d", lpus), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				spec, _, err := Spec(inv, Options{})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := Marshal(spec); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
