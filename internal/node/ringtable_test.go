package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// TestRingTablesFollowTheCabling: after a change of the cables no name leads to a table of before, a
// table that was removed is made again, and where none can be written the spec names none.
func TestRingTablesFollowTheCabling(t *testing.T) {
	w := newWorld(t)
	p := w.program()
	tables := filepath.Join(w.root, cdi.RingTableDir)
	// check: each table that the spec names is there, and is that of the cabling.
	check := func(step string, want bool) {
		t.Helper()
		p.update()
		if err := w.right(); want && err != nil {
			t.Errorf("%s: %v", step, err)
		}
		named := 0
		for name, d := range w.devices() {
			for _, m := range d.ContainerEdits.Mounts {
				if m.ContainerPath != discovery.HyperdexRingTable {
					continue
				}
				named++
				if _, err := os.Stat(filepath.Join(w.root, m.HostPath)); err != nil {
					t.Errorf("%s: %s: %v", step, name, err)
				}
			}
		}
		if (named > 0) != want {
			t.Errorf("%s: the spec names %d tables", step, named)
		}
	}
	check("at first", true)
	ids := make([]string, 4)
	for i, l := range w.scan().LPUs {
		ids[i] = l.Address.String()
	}
	c := &ring.Cabling{Rings: []ring.Ring{{Cards: []int{0, 2, 1, 3}, Closed: true}}}
	c.Rings[0].Links = ring.Links(c.Rings[0].Cards, true, true)
	w.must(os.MkdirAll(filepath.Join(w.root, "etc/lpuctl"), 0o755))
	w.must(os.WriteFile(filepath.Join(w.root, discovery.InstalledRingTable), ring.WriteLpuctl(c, ids), 0o600))
	before := w.devices()["lpu0"].ContainerEdits.Mounts
	check("another cabling", true)
	if after := w.devices()["lpu0"].ContainerEdits.Mounts; after[len(after)-1].HostPath == before[len(before)-1].HostPath {
		t.Error("the same table for another cabling")
	}
	w.must(os.RemoveAll(tables))
	check("the tables are removed", true)
	w.must(os.RemoveAll(tables))
	w.must(os.WriteFile(tables, nil, 0o600))
	w.now = w.now.Add(time.Hour)
	check("no place for tables", false)
	check("still no place for tables", false)
	if !strings.Contains(p.log.String(), "containers get no ring tables of their own") {
		t.Errorf("log: %s", p.log)
	}
	writes := p.metric("lpuctl_spec_writes_total")
	check("at rest without a place", false)
	if again := p.metric("lpuctl_spec_writes_total"); again != writes {
		t.Error("the spec is written again and again")
	}
	w.must(os.Remove(tables))
	w.now = w.now.Add(time.Hour)
	check("there is a place again", true)
}
