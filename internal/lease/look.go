package lease

import (
	"cmp"
	"context"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Seek is what the arbiter asks a look for besides what it always shows.
type Seek struct {
	Containers []string     // ids: which of them run?
	Users      map[int]bool // uids: which of their processes may use LPUs unseen?
}

// Look is a look at the machine under root. The inventory is a new one, with the cordons
// of the LPUs, and gets their users. In a shortage ([host.IsShortage]) it fails: a
// container that cannot be seen is not taken for ended.
func Look(
	ctx context.Context, root host.Root, inv *discovery.Inventory, seek Seek, hidden *discovery.Hidden,
) (View, error) {
	if err := host.Spare(); err != nil {
		return View{}, err
	}
	discovery.FindUsers(ctx, string(root), inv)
	v := View{Inventory: inv, Sockets: discovery.Sockets(string(root), inv), Containers: map[string]bool{}}
	t, err := root.Open()
	if err != nil {
		return v, err
	}
	defer t.Close()
	if len(seek.Containers) > 0 {
		v.Containers = running(t, seek.Containers)
	}
	var failed error
	v.Unclear, failed = hidden.Find(ctx, string(root), inv, seek.Users)
	return v, cmp.Or(ctx.Err(), t.Shortage(), failed)
}

// running returns of which of these containers a process runs: the path of its control
// group has the id of the container (/proc/PID/cgroup, cgroups(7)).
func running(t *host.Tree, containers []string) map[string]bool {
	run := map[string]bool{}
	names, _ := t.Names("proc")
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		process, err := t.Dir("proc/" + name)
		if err != nil {
			continue // it has ended
		}
		cgroup, _ := process.Text("cgroup")
		process.Close()
		for _, id := range containers {
			if strings.Contains(cgroup, id) {
				run[id] = true
			}
		}
	}
	return run
}
