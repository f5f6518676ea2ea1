package dra_test

import (
	"slices"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/dra"
)

// TestEachArcOnce: every arc of a ring or chain is published, and once.
func TestEachArcOnce(t *testing.T) {
	for n := 1; n <= 32; n++ {
		for size := 1; size <= n; size++ {
			for _, closed := range []bool{false, true} {
				count := n - size + 1
				if closed && size < n {
					count = n
				}
				var all []int
				for start := range count {
					all = append(all, start)
				}
				if got := slices.Sorted(slices.Values(dra.Starts(n, size, closed))); !slices.Equal(got, all) {
					t.Errorf("%d of %d, closed %v: %v", size, n, closed, got)
				}
			}
		}
	}
}
