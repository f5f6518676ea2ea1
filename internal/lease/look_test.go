package lease_test

import (
	"testing"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/person"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestAShortageEndsNoContainer: where the processes cannot be read for want of descriptors, no container is taken for ended.
func TestAShortageEndsNoContainer(t *testing.T) {
	const id = "0123456789abcdef"
	root := host.Root(plant.Tree(t, map[string]string{"proc/7/cgroup": "0::/libpod-" + id + ".scope\n"}))
	looker := lease.Looker{Root: root, People: person.In(root, "lpu")}
	for left := 0; ; left++ {
		restore := plant.LeaveDescriptors(t, left)
		view, err := looker.Look(t.Context(), &discovery.Inventory{}, lease.Seek{Containers: []string{id}})
		restore()
		if err == nil {
			if len(view.Containers[id]) == 0 {
				t.Errorf("with %d descriptors the container has ended", left)
			}
			return
		}
		if !host.IsShortage(err) {
			t.Fatal(err)
		}
	}
}
