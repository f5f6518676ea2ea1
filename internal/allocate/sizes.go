package allocate

import (
	"fmt"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Unusable returns why a program cannot use LPUs together, given as positions in the
// inventory, and how many it can; "" if nothing is known against it. The models of the
// LPUs say it ([discovery.Model.UsableSizes]). Where none does, it is what is known of
// HyperDex' memory mapper, which wants a power of two: HW-50 of docs/hardware.md.
func Unusable(inv *discovery.Inventory, cards []int) string {
	known := false
	for _, card := range cards {
		l := &inv.LPUs[card]
		if !l.UsableSizes.Allow(len(cards)) {
			return unusable("a program with LPUs of model "+l.Model, len(cards), l.UsableSizes)
		}
		known = known || len(l.UsableSizes) > 0
	}
	if n := len(cards); !known && n&(n-1) != 0 {
		return unusable("HyperDex' memory mapper", n, discovery.Sizes{1, 2, 4, 8})
	}
	return ""
}

func unusable(who string, n int, sizes discovery.Sizes) string {
	list := strings.ReplaceAll(strings.Trim(fmt.Sprint(sizes), "[]"), " ", ", ")
	return fmt.Sprintf("%s cannot use %s together, only %s", who, lpus(n), list)
}
