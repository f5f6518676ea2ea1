package discovery_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// enough is how many descriptors are more than any scan of these nodes needs.
const enough = 200

// spent is a simulated node, looked at by a process that has few descriptors left.
func spent(t *testing.T, lpus int) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: lpus}).Write(root); err != nil {
		t.Fatal(err)
	}
	return root
}

func textOf(t *testing.T, inv *discovery.Inventory) string {
	t.Helper()
	data, err := json.Marshal(inv)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestAScanIsRightOrFails: whatever number of descriptors is left, no card is called broken or absent because a file could not be opened.
func TestAScanIsRightOrFails(t *testing.T) {
	root := spent(t, 16)
	options := discovery.Options{Management: true}
	whole, err := discovery.Scan(t.Context(), root, options)
	if err != nil {
		t.Fatal(err)
	}
	right, failures := textOf(t, whole), 0
	for n := range 24 {
		restore := plant.LeaveDescriptors(t, n)
		inv, err := discovery.Scan(t.Context(), root, options)
		restore()
		switch {
		case err != nil && !host.IsShortage(err):
			t.Errorf("with %d descriptors: %v", n, err)
		case err != nil:
			failures++
			if remedy := discovery.Remedy(err); !strings.Contains(remedy, "ulimit -n") {
				t.Errorf("the remedy is %q", remedy)
			}
		case textOf(t, inv) != right:
			t.Errorf("with %d descriptors the inventory is another one", n)
		}
	}
	if failures == 0 {
		t.Error("no scan has failed")
	}
	plant.LeaveDescriptors(t, enough)
	if inv, err := discovery.Scan(t.Context(), root, options); err != nil || textOf(t, inv) != right {
		t.Errorf("with enough descriptors: %v", err)
	}
}
