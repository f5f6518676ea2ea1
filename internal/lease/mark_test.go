package lease

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestMarkHasTimes by the clock, of leases and reservations.
func TestMarkHasTimes(t *testing.T) {
	of := []LPU{{address(0), "lpu0"}}
	since, until := host.SinceBoot()-time.Hour, host.SinceBoot()+time.Hour
	leases := &Record{Boot: "b", Leases: []*entry{{Lease: Lease{ID: "l1", LPUs: of, Since: since, Until: until}, Grant: &Grant{}}}}
	reservations := &Record{Boot: "b", Reservations: []Reservation{{ID: "r1", LPUs: of, Since: since, Until: until}}}
	inv := &discovery.Inventory{LPUs: []discovery.LPU{{Address: address(0)}}}
	l := Mark(host.Root(t.TempDir()), inv, leases, reservations, host.Moment{Boot: "b", SinceBoot: host.SinceBoot()}).LPUs[0]
	for _, h := range []*discovery.Holder{l.Leased, l.Reserved} {
		length := h.Until.Sub(h.Since) - 2*time.Hour // each is rounded
		if length.Abs() > time.Second || h.Since.Location() != time.UTC || h.Since.After(time.Now()) || h.Until.Before(time.Now()) {
			t.Errorf("%+v", h)
		}
	}
}

// TestMarkOfAnEndedContainer: nobody may have told the arbiter that a container has ended. Where processes are hidden it counts as running.
func TestMarkOfAnEndedContainer(t *testing.T) {
	root := t.TempDir()
	address, err := pci.Parse("0000:43:00.1")
	if err != nil {
		t.Fatal(err)
	}
	id := strings.Repeat("0123456789abcdef", 4)
	inv := &discovery.Inventory{LPUs: []discovery.LPU{{Name: "lpu0", Address: address}}}
	held := &entry{Lease: Lease{ID: "l1", LPUs: []LPU{{address, "lpu0"}}, Container: id}, Grant: &Grant{}, Gone: true}
	leases, now := &Record{Boot: "b", Leases: []*entry{held}}, host.Moment{Boot: "b"}
	want := func(when string, leased bool) {
		t.Helper()
		if l := Mark(host.Root(root), inv, leases, nil, now).LPUs[0]; (l.Leased != nil) != leased {
			t.Errorf("%s: leased is %+v", when, l.Leased)
		}
	}
	want("no processes are seen", true)
	plant.File(t, filepath.Join(root, "proc/1/cgroup"), "3:pids:/\n0::/init.scope\n")
	plant.File(t, filepath.Join(root, "proc/77/cgroup"), "0::/system.slice/nerdctl-"+id+".scope\n")
	want("a process of it runs", true)
	if err := os.RemoveAll(filepath.Join(root, "proc/77")); err != nil {
		t.Fatal(err)
	}
	want("it has ended", false)
	held.Gone = false
	want("the connection is open", true)
}
