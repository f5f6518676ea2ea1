package discovery_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/simulate"
)

// TestRingTableOfConfigMap: a ring table that was asked for may be a file of a ConfigMap, as the kubelet mounts it: a link, through a link
// to a directory. It is still refused if others may write to it, or if the link is another user's.
func TestRingTableOfConfigMap(t *testing.T) {
	root := simulated(t, simulate.Node{Profile: "lpu", LPUs: 4})
	dir := t.TempDir()
	path, data := filepath.Join(dir, "ring.yaml"), filepath.Join(dir, "..2026_11_23", "ring.yaml")
	if err := os.Mkdir(filepath.Dir(data), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, data, "apiVersion: lpuctl.hyperaccel.ai/v1alpha1\nkind: RingTable\nrings: [[0, 1, 2, 3]]\n")
	for link, target := range map[string]string{filepath.Join(dir, "..data"): "..2026_11_23", path: "..data/ring.yaml"} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	want := func(problems ...string) {
		t.Helper()
		inv := scan(t, root, discovery.Options{RingTable: path})
		if got := ids(inv.Problems); !slices.Equal(got, problems) || (len(inv.Rings) == 1) != (problems == nil) {
			t.Errorf("problems %q, want %q; rings %v", got, problems, inv.Rings)
		}
		if inv.RingTable != nil && inv.RingTable.Path != path {
			t.Errorf("it is called %s", inv.RingTable.Path)
		}
	}
	want()
	if os.Getuid() == 0 {
		if err := os.Lchown(path, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		want("ring-unsafe")
		if err := os.Lchown(path, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(data, 0o666); err != nil {
		t.Fatal(err)
	}
	want("ring-unsafe")
}
