package discovery_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Scan reads the machine at a root, here a simulated one. On a real one the root is "/".
func ExampleScan() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	root := filepath.Join(dir, "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: 2}).Write(root); err != nil {
		panic(err)
	}

	inv, err := discovery.Scan(context.Background(), root, discovery.Options{})
	if err != nil {
		panic(err)
	}
	for _, l := range inv.LPUs {
		fmt.Println(l.Name, l.Address, l.Model, l.Health)
	}
	// Output:
	// lpu0 0000:43:00.1 orion-u55c healthy
	// lpu1 0000:44:00.1 orion-u55c healthy
}
