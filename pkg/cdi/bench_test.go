package cdi

import (
	"fmt"
	"testing"
)

func BenchmarkSpec(b *testing.B) {
	for _, lpus := range []int{1, 8, 64} {
		inv := node(lpus)
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
