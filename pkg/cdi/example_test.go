package cdi_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Spec makes the CDI spec of an inventory; Marshal writes it.
func ExampleSpec() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	root := filepath.Join(dir, "node")
	if _, err := (simulate.Node{Profile: "lpu", LPUs: 1}).Write(root); err != nil {
		panic(err)
	}
	inv, err := discovery.Scan(context.Background(), root, discovery.Options{})
	if err != nil {
		panic(err)
	}

	spec, findings, err := cdi.Spec(inv, cdi.Options{TablesIn: "/"})
	if err != nil || len(findings) > 0 {
		panic(fmt.Sprint(err, findings))
	}
	fmt.Println(spec.Kind)
	for _, d := range spec.Devices {
		fmt.Println(d.Name, d.ContainerEdits.DeviceNodes[0].Path)
	}
	// Output:
	// hyperaccel.ai/lpu
	// lpu0 /dev/lpu0
	// pci-0000-43-00.0 /dev/lpu0
	// all /dev/lpu0
}
