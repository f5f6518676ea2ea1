package discovery_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// TestTablePlace: whether a container gets a ring table of its own is decided by the host alone. A
// table is mounted in a directory of the host only on a file.
func TestTablePlace(t *testing.T) {
	const at = discovery.HyperdexRingTable
	for what, c := range map[string]struct {
		change func(file string) error
		model  discovery.Model
		want   discovery.TablePlace
	}{
		"a file":  {nil, discovery.Model{}, discovery.TablePlace{Path: at}},
		"nothing": {os.Remove, discovery.Model{}, discovery.TablePlace{Path: at, Unfit: "there is no " + at}},
		"a directory": {func(file string) error {
			return errors.Join(os.Remove(file), os.Mkdir(file, 0o755))
		}, discovery.Model{}, discovery.TablePlace{Path: at, Unfit: at + " is no file"}},
		"a link": {func(file string) error {
			return errors.Join(os.Rename(file, file+".old"), os.Symlink("table.json.old", file))
		}, discovery.Model{}, discovery.TablePlace{Path: at, Unfit: at + " is a link"}},
		"a link on the way": {func(file string) error {
			dir := filepath.Dir(file)
			return errors.Join(os.Rename(dir, dir+".old"), os.Symlink("xclbin.old", dir))
		}, discovery.Model{}, discovery.TablePlace{Path: at, Unfit: at + " is a link"}},
		"no directory of the host": {func(file string) error {
			return os.RemoveAll(filepath.Dir(filepath.Dir(filepath.Dir(file))))
		}, discovery.Model{}, discovery.TablePlace{Path: at}},
		"another place": {nil, discovery.Model{RingTable: "/table.json"}, discovery.TablePlace{Path: "/table.json"}},
		"off":           {nil, discovery.Model{RingTable: "off"}, discovery.TablePlace{}},
	} {
		root := simulated(t, simulate.Node{Profile: "orion", LPUs: 2})
		if c.change != nil {
			if err := c.change(filepath.Join(root, at)); err != nil {
				t.Fatal(err)
			}
		}
		c.model.Name = "orion-u55c"
		models := discovery.MergeModels(discovery.BuiltinModels(), []discovery.Model{c.model})
		for _, l := range scan(t, root, discovery.Options{Models: models}).LPUs {
			l.RingTable.HostPath = "" // see TestLostTables
			if l.RingTable != c.want {
				t.Errorf("%s: %+v", what, l.RingTable)
			}
		}
	}
	if faults := (&discovery.Model{Name: "x", RingTable: "table.json"}).Validate(); len(faults) != 1 || faults[0].Path != "ringTable" {
		t.Errorf("a relative path: %v", faults)
	}
}
