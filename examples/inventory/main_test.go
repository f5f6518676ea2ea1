package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	library "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
)

// inventory runs the program on a simulated node and returns the devices of its spec, as the CDI
// library reads them, and what it says.
func inventory(t *testing.T, node simulate.Node) (devices []string, said string) {
	t.Helper()
	root, dir := filepath.Join(t.TempDir(), "node"), t.TempDir()
	if _, err := node.Write(root); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), []string{"--root", root}, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	if err := os.WriteFile(filepath.Join(dir, "lpu.json"), stdout.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	cache, err := library.NewCache(library.WithSpecDirs(dir), library.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	for path, errs := range cache.GetErrors() {
		t.Errorf("%s: %v", path, errs)
	}
	for _, name := range cache.ListDevices() {
		device := strings.TrimPrefix(name, cdi.DefaultKind+"=")
		devices = append(devices, device)
		for _, m := range cache.GetDevice(name).ContainerEdits.Mounts {
			if strings.HasPrefix(m.HostPath, cdi.RingTableDir) {
				t.Errorf("%s mounts %s, which is not there", device, m.HostPath)
			}
		}
	}
	return devices, stderr.String()
}

func TestInventory(t *testing.T) {
	devices, said := inventory(t, simulate.Node{Profile: "orion"})
	for _, name := range []string{"lpu0", "lpu7", "pci-0000-43-00.1", "lpu6-7-0-1", "all"} {
		if !slices.Contains(devices, name) {
			t.Errorf("%s is not in the spec: %v", name, devices)
		}
	}
	if strings.Count(said, "true") != 8 || strings.Contains(said, "false") {
		t.Errorf("it should say that eight LPUs are usable:\n%s", said)
	}
}

// TestABrokenCard: the LPU keeps its line and its index, and leaves the spec.
func TestABrokenCard(t *testing.T) {
	devices, said := inventory(t, simulate.Node{Profile: "orion", Faults: []simulate.Fault{{Name: "unbound", Index: 2}}})
	if slices.Contains(devices, "lpu2") || !slices.Contains(devices, "lpu7") {
		t.Errorf("lpu7 should be in the spec, and lpu2 not: %v", devices)
	}
	for _, want := range []string{"[no-driver]", "[left-out]"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
}

func TestNoNode(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--root", t.TempDir()}, &out, &out); err == nil {
		t.Errorf("a directory without a node is no error:\n%s", &out)
	}
}

// TestAsAnOutsider: another module can import what the program imports.
func TestAsAnOutsider(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "main.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range file.Imports {
		if strings.Contains(i.Path.Value, "/internal/") {
			t.Errorf("%s cannot be imported from outside", i.Path.Value)
		}
	}
}
