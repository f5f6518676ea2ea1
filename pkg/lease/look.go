package lease

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Look is a look at the machine under root. The inventory is a new one, with the cordons of the LPUs, and gets their users.
func Look(ctx context.Context, root host.Root, inv *discovery.Inventory, containers []string) (View, error) {
	discovery.FindUsers(ctx, string(root), inv)
	v := View{Inventory: inv, Sockets: map[int]int{}, Containers: map[string]bool{}}
	t, err := root.Open()
	if err != nil {
		return v, err
	}
	defer t.Close()
	for _, l := range inv.LPUs {
		if l.NUMANode == nil {
			continue
		}
		v.Sockets[*l.NUMANode] = -1 - *l.NUMANode // where it cannot be read, a NUMA node is a package of its own
		if socket, known := socketOf(t, *l.NUMANode); known {
			v.Sockets[*l.NUMANode] = socket
		}
	}
	if len(containers) > 0 {
		v.Containers = running(t, containers)
	}
	return v, ctx.Err()
}

// socketOf is the processor package of a NUMA node: that of its first processor.
func socketOf(t *host.Tree, node int) (socket int, known bool) {
	list, err := t.Line(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", node)) // "0-7,16-23"
	if err != nil {
		return 0, false
	}
	first, _, _ := strings.Cut(list, ",")
	first, _, _ = strings.Cut(first, "-")
	if _, err := strconv.ParseUint(first, 10, 32); err != nil {
		return 0, false
	}
	text, err := t.Line("sys/devices/system/cpu/cpu" + first + "/topology/physical_package_id")
	if err != nil {
		return 0, false
	}
	socket, err = strconv.Atoi(text)
	return socket, err == nil
}

// running tells of which of these containers a process runs: its control group has the id in its path (/proc/PID/cgroup, cgroups(7)).
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
