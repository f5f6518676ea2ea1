package simulate

const (
	nicDriver = "ice"
	vfsPerNIC = 64 // virtual functions that a network card has at most
)

// fill adds functions that are no LPUs to PCI domain 0, until the server has total of
// them or maxFill are added: first root ports with a device below each, spread over host
// bridges, then virtual functions of the network cards among them.
func (s *server) fill(total int) {
	before := len(s.functions)
	for slot := 1; slot < 16; slot++ {
		for _, bus := range []int{0x10, 0x30, 0x60, 0x70, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0} {
			if len(s.functions) >= total {
				return
			}
			device := ordinaryDevice(slot + bus>>4)
			port := s.rootPort(at(0, bus, slot-1), bus+slot, device[0].link)
			s.add(port, port.below(0), device[:min(total-len(s.functions), len(device))]...)
		}
	}
	for _, nic := range s.functions[before:] {
		if nic.driver != nicDriver || nic.address.Function > 0 {
			continue
		}
		for ; nic.vfs < vfsPerNIC && len(s.functions) < total; nic.vfs++ {
			s.add(nic.parent, nic.parent.below(1+nic.vfs/8).Sibling(uint8(nic.vfs%8)), &function{
				ids:  ids{0x8086, 0x1889, nic.subvendor, nic.subdevice, 0x020000, 2},
				link: nic.link, binding: binding{driver: "iavf"}, physfn: nic, vf: nic.vfs,
			})
		}
	}
}

// ordinaryDevice makes one of four devices that many servers have, in turn; its functions
// start with function 0.
func ordinaryDevice(n int) []*function {
	// It has no driver.
	raid := &function{ids: ids{0x1000, 0x10e2, 0x1028, 0x40b1, 0x010400, 0}, link: link{4, 8, 4, 8}}
	return [][]*function{nvme(), nic(2), {raid}, nic(4)}[n%4]
}

func nvme() []*function {
	return []*function{{ids: ids{0x144d, 0xa80a, 0x144d, 0xa813, 0x010802, 0}, link: link{4, 4, 4, 4}, binding: binding{driver: "nvme"}}}
}

// nic is a network card of several ports.
func nic(ports int) []*function {
	var functions []*function
	for range ports {
		functions = append(functions, &function{
			ids: ids{0x8086, 0x1592, 0x8086, 0x0002, 0x020000, 2}, link: link{4, 16, 4, 16}, binding: binding{driver: nicDriver},
		})
	}
	return functions
}
