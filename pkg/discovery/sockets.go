package discovery

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// Sockets are the sockets (processor packages) of the NUMA nodes of LPUs. A socket can
// have several NUMA nodes. A NUMA node whose socket cannot be read is left out; so is any
// where root cannot be opened.
func Sockets(root string, inv *Inventory) map[int]int {
	sockets := map[int]int{}
	t, err := host.Root(root).Open()
	if err != nil {
		return sockets
	}
	defer t.Close()
	read := map[int]bool{}
	for _, l := range inv.LPUs {
		if l.NUMANode == nil || read[*l.NUMANode] {
			continue
		}
		read[*l.NUMANode] = true
		if socket, err := socketOf(t, *l.NUMANode); err == nil {
			sockets[*l.NUMANode] = socket
		}
	}
	return sockets
}

// socketOf is the socket of a NUMA node: that of its first processor. A NUMA node of
// memory alone has none.
func socketOf(t *host.Tree, node int) (int, error) {
	list, err := t.Line(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", node)) // "0-7,16-23"
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(list, ",")
	first, _, _ = strings.Cut(first, "-")
	cpu, err := strconv.ParseUint(first, 10, 32)
	if err != nil {
		return 0, err
	}
	text, err := t.Line(fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}
