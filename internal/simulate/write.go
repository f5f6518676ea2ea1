package simulate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/ring"
)

const iommu = "sys/devices/virtual/iommu/dmar0"

// write makes the whole tree.
func (s *server) write(t *tree) {
	t.dev()
	for i, f := range s.functions {
		if host := path.Dir(f.dir); f.parent == nil && !t.made[host] {
			writeBus(t, host, strings.TrimPrefix(host, "sys/devices/pci"), f.near())
			t.text(host+"/uevent", "")
		}
		f.write(t)
		if s.Progress != nil && t.err == nil {
			t.err = s.Progress(i+1, len(s.functions))
		}
		if t.err != nil {
			return
		}
	}
	for _, f := range s.card(s.cards[0]) { // as it is without a fault
		writeDriver(t, f.driver)
	}
	s.writeNUMA(t)
	t.dir("sys/class/" + s.class)
	t.text(iommu+"/uevent", "")
	t.links(iommu, "subsystem", "sys/class/iommu", "dmar0")
	t.text("etc/hostname", s.Name+"-simulated")
	t.attributes(".", systemFiles+s.software)
	if s.config != "" {
		t.text("etc/lpuctl/config.yaml", s.config)
	}
	if s.ring && len(s.cards) > 1 {
		t.bytes("opt/hyperdex/hrt/xclbin/table.json", s.ringTable(), 0o644)
	}
}

// writeDriver writes a PCI driver and its module, unless they are written already.
func writeDriver(t *tree, driver string) {
	dir := "sys/bus/pci/drivers/" + driver
	if driver == "" || t.made[dir] {
		return
	}
	t.dir(dir)
	if driver == "pcieport" { // built into the kernel
		return
	}
	module := "sys/module/" + strings.ReplaceAll(driver, "-", "_")
	t.links(dir, "module", module, "drivers/pci:"+driver)
	t.text(module+"/initstate", "live")
}

func (s *server) writeNUMA(t *tree) {
	const dir = "sys/devices/system/node"
	nodes, distances := "0", []string{"10"}
	if len(s.cpus) > 2 {
		nodes, distances = "0-1", []string{"10 21", "21 10"}
	}
	t.attributes(dir, fmt.Sprintf("online=%s\npossible=%[1]s\nhas_cpu=%[1]s\nhas_memory=%[1]s", nodes))
	for i, c := range s.cpus[1:] {
		node := fmt.Sprint(dir, "/node", i)
		t.attributes(node, fmt.Sprintf("cpulist=%s\ncpumap=%s\ndistance=%s", c.list, c.mask, distances[i]))
		first, _, _ := strings.Cut(c.list, "-")
		t.text("sys/devices/system/cpu/cpu"+first+"/topology/physical_package_id", fmt.Sprint(i))
		t.text(node+"/meminfo", fmt.Sprintf("Node %d MemTotal:       263856128 kB\nNode %[1]d MemFree:        251658240 kB", i))
	}
}

// ringTable is the table of cables that hyperdex-net writes. The cards are in rings of 8
// by their indices before the faults; the table numbers them as XRT does, in the order of
// their PCI addresses now.
func (s *server) ringTable() []byte {
	order := slices.SortedFunc(slices.Values(s.cards), func(a, b *card) int { return a.address.Compare(b.address) })
	cabling := &ring.Cabling{}
	for cards := range slices.Chunk(s.cards, 8) {
		r := ring.Ring{Closed: true}
		for i, c := range cards {
			from, to := slices.Index(order, c), slices.Index(order, cards[(i+1)%len(cards)])
			r.Cards = append(r.Cards, from)
			if from != to {
				r.Links = append(r.Links, [2]int{from, to})
			}
		}
		cabling.Rings = append(cabling.Rings, r)
	}
	return ring.WriteHyperdex(cabling)
}
