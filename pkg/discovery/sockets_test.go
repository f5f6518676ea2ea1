package discovery_test

import (
	"maps"
	"os"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// TestSockets: two NUMA nodes can be on one socket, and one whose socket cannot be read is left out.
func TestSockets(t *testing.T) {
	root := simulated(t, simulate.Node{Profile: "orion"})
	inv := scan(t, root, discovery.Options{})
	write := func(file, text string) {
		if err := os.WriteFile(root+"/sys/devices/system/"+file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(want map[int]int) {
		t.Helper()
		if got := discovery.Sockets(root, inv); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	want(map[int]int{0: 0, 1: 1})
	write("cpu/cpu32/topology/physical_package_id", "0\n")
	want(map[int]int{0: 0, 1: 0})
	write("node/node1/cpulist", "32,34-40\n")
	want(map[int]int{0: 0, 1: 0})
	write("node/node1/cpulist", "\n") // memory alone
	want(map[int]int{0: 0})
	write("cpu/cpu0/topology/physical_package_id", "x\n")
	want(map[int]int{})
}
