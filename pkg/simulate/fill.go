package simulate

// vfsPerNIC is how many virtual functions a network card has at most.
const vfsPerNIC = 64

// fill adds n ordinary functions to PCI domain 0: first root ports with a device below each, spread over
// host bridges, then virtual functions of the network cards among them. It takes up to maxFill.
func (s *server) fill(n int) {
	var nics []*function
	for slot := 1; slot < 16 && n > 0; slot++ {
		for _, bus := range []int{0x10, 0x30, 0x60, 0x70, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0} {
			if n == 0 {
				break
			}
			device := ordinaryDevice(slot + bus>>4)
			port := s.rootPort(at(0, bus, slot-1, 0), bus+slot, device[0].link)
			n--
			device = device[:min(n, len(device))]
			s.add(port, at(0, bus+slot, 0, 0), device...)
			n -= len(device)
			if len(device) > 0 && device[0].class>>8 == 0x0200 {
				nics = append(nics, device[0])
			}
		}
	}
	for _, nic := range nics {
		for ; n > 0 && nic.vfs < vfsPerNIC; n-- {
			s.add(nic.parent, at(0, int(nic.address.Bus), 1+nic.vfs/8, nic.vfs%8), &function{
				ids:  ids{0x8086, 0x1889, nic.subvendor, nic.subdevice, 0x020000, 2},
				link: nic.link, driver: "iavf", physfn: nic, vf: nic.vfs,
			})
			nic.vfs++
		}
	}
}

// ordinaryDevice is the nth of a row of devices that many servers have, from function 0 on.
func ordinaryDevice(n int) []*function {
	switch n % 4 {
	case 0:
		return nvme()
	case 1:
		return nic(2)
	case 2:
		return []*function{{ // RAID controller without a driver
			ids: ids{0x1000, 0x10e2, 0x1028, 0x40b1, 0x010400, 0}, link: link{4, 8, 4, 8},
		}}
	}
	return nic(4)
}

func nvme() []*function {
	return []*function{{ids: ids{0x144d, 0xa80a, 0x144d, 0xa813, 0x010802, 0}, link: link{4, 4, 4, 4}, driver: "nvme"}}
}

// nic is a network card of several ports.
func nic(ports int) []*function {
	var functions []*function
	for range ports {
		functions = append(functions, &function{
			ids: ids{0x8086, 0x1592, 0x8086, 0x0002, 0x020000, 2}, link: link{4, 16, 4, 16}, driver: "ice",
		})
	}
	return functions
}
