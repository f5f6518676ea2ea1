package simulate

import (
	"fmt"
	"slices"
	"strings"
)

const iommu = "sys/devices/virtual/iommu/dmar0"

// write makes the whole tree; it tells whether that has device nodes.
func (s *server) write(t *tree, progress func(done, total int) error) bool {
	drivers := slices.Clone(s.modules)
	for i, f := range s.functions {
		f.write(t, s.near(f.numa))
		drivers = append(drivers, f.driver)
		if host := f.host(); !t.made[host+"/pci_bus"] {
			writeBus(t, host, strings.TrimPrefix(host, "sys/devices/pci"), s.near(s.numaNode(f.address)))
			t.text(host+"/uevent", "")
		}
		if f.slot > 0 {
			f.writeSlot(t)
		}
		if progress != nil && t.err == nil {
			t.err = progress(i+1, len(s.functions))
		}
		if t.err != nil {
			return false
		}
	}
	slices.Sort(drivers)
	for _, d := range slices.Compact(drivers) {
		writeDriver(t, d)
	}
	s.writeNUMA(t)
	t.dir("sys/class/" + s.class)
	t.text(iommu+"/uevent", "")
	t.link(iommu+"/subsystem", "sys/class/iommu")
	t.link("sys/class/iommu/dmar0", iommu)
	t.text("etc/hostname", s.Name+"-simulated")
	for p, text := range s.files {
		t.text(p, text)
	}
	if s.ring {
		s.writeRing(t)
	}
	return s.writeNodes(t)
}

// near are the processors near a NUMA node; near an unknown one they are all.
func (s *server) near(node int) cpus {
	if node < 0 {
		return s.allCPUs
	}
	return s.cpus[node]
}

// writeDriver writes a PCI driver and its module.
func writeDriver(t *tree, driver string) {
	if driver == "" {
		return
	}
	dir := "sys/bus/pci/drivers/" + driver
	t.dir(dir)
	if driver == "pcieport" { // built into the kernel
		return
	}
	module := "sys/module/" + strings.ReplaceAll(driver, "-", "_")
	t.link(dir+"/module", module)
	t.link(module+"/drivers/pci:"+driver, dir)
	t.text(module+"/initstate", "live")
	if version := moduleVersion(driver); version != "" {
		t.text(module+"/version", version)
	}
}

// moduleVersion is the MODULE_VERSION of a driver; "" when it has none.
func moduleVersion(driver string) string {
	switch driver {
	case "xocl", "xclmgmt":
		return "2.15.225,51a1c0de51a1c0de51a1c0de51a1c0de51a1c0de" // XRT version and commit
	case "lpu":
		return "1.0.0"
	case "ha":
		return "0.9.0"
	case "nvidia":
		return "550.163.01"
	case "rebellions":
		return "1.2.92"
	case "nvme":
		return "1.0"
	case "ahci":
		return "3.0"
	}
	return ""
}

func (s *server) writeNUMA(t *tree) {
	const dir = "sys/devices/system/node"
	online, distances := "0", []string{"10"}
	if len(s.cpus) == 2 {
		online, distances = "0-1", []string{"10 21", "21 10"}
	}
	for _, list := range []string{"online", "possible", "has_cpu", "has_memory"} {
		t.text(dir+"/"+list, online)
	}
	for i, c := range s.cpus {
		node := fmt.Sprint(dir, "/node", i)
		t.text(node+"/cpulist", c.list)
		t.text(node+"/cpumap", c.mask)
		t.text(node+"/distance", distances[i])
		t.text(node+"/meminfo", fmt.Sprintf("Node %d MemTotal:       263856128 kB\nNode %d MemFree:        251658240 kB", i, i))
	}
}

// writeRing writes the table of cables as hyperdex-net does: LPUs by index, each link once, rings of 8.
func (s *server) writeRing(t *tree) {
	order := slices.SortedFunc(slices.Values(s.cards), func(a, b *card) int { return a.address.Compare(b.address) })
	position := make([]int, len(order)) // of a card, by its index before the faults
	for i, c := range order {
		position[c.index] = i
	}
	var links []string
	for i := range s.cards {
		start := i - i%8
		next := start + (i+1-start)%min(8, len(s.cards)-start)
		if next != i {
			links = append(links, fmt.Sprintf("\t\t{\n\t\t\t\"direction\" : \"Right\",\n\t\t\t\"dst_id\" : %d,\n\t\t\t\"src_id\" : %d\n\t\t}",
				position[next], position[i]))
		}
	}
	if len(links) > 0 { // a single card has no table
		t.text("opt/hyperdex/hrt/xclbin/table.json",
			fmt.Sprintf("{\n\t\"network\" : \n\t[\n%s\n\t],\n\t\"num_device\" : %d\n}", strings.Join(links, ",\n"), len(s.cards)))
	}
}

// writeNodes makes dev, if the caller may; it tells whether.
func (s *server) writeNodes(t *tree) bool {
	if t.err != nil || !t.canMakeNodes() {
		return false
	}
	for _, f := range s.functions {
		for _, c := range f.children {
			if c.node != nil {
				c.node.write(t)
			}
		}
	}
	return true
}
