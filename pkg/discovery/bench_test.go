package discovery_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// BenchmarkScan grows the number of LPUs, and beside it the number of PCI functions. 64 Orion LPUs need 236
// functions of their own, 512 need 1,804.
func BenchmarkScan(b *testing.B) {
	for _, size := range []struct{ lpus, functions int }{
		{1, 40}, {1, 400}, {8, 40}, {8, 400}, {8, 4000}, {64, 400}, {512, 1804},
	} {
		b.Run(fmt.Sprintf("lpus=%d/functions=%d", size.lpus, size.functions), func(b *testing.B) {
			root := filepath.Join(b.TempDir(), "node")
			if _, err := (simulate.Node{Profile: "orion", LPUs: size.lpus, Functions: size.functions}).Write(root); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				inv, err := discovery.Scan(context.Background(), root, discovery.Options{})
				if err != nil || len(inv.LPUs) != size.lpus {
					b.Fatal(len(inv.LPUs), err)
				}
			}
		})
	}
}
