package simulate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Offsets of the capabilities in the configuration space.
const (
	capPM      = 0x40
	capVPD     = 0x60
	capExpress = 0x70
)

// space is the configuration space of a PCI function, as in its file config.
type space [256]byte

// put writes integers, little-endian and one after the other, from an offset on.
func (s *space) put(offset int, values ...any) {
	for _, v := range values {
		// It fails only if v is not an integer of fixed size.
		n, _ := binary.Encode(s[offset:], binary.LittleEndian, v)
		offset += n
	}
}

// config is the configuration space (PCI Local Bus 3.0 chapter 6, PCI Express Base
// chapter 7). lspci reads from its bytes what the text attributes say, so the two must
// agree.
func (f *function) config() []byte {
	s := &space{}
	if f.mute {
		return bytes.Repeat([]byte{0xff}, len(s))
	}
	s.put(0x00, f.vendor, f.device)
	s.put(0x08, f.class<<8|uint32(f.revision))
	s[0x0c] = 16 // cache line, in 4 bytes
	if f.several {
		s[0x0e] = 0x80
	}
	if f.secondary > 0 {
		f.putBridge(s)
	} else {
		f.putEndpoint(s)
	}
	if f.driver != "" && !f.disabled {
		s.put(0x04, uint16(0x0406)) // memory and bus mastering are on, legacy interrupts are off
		s.put(0x3c, uint8(f.irq()), uint8(1))
	}
	if f.link.maxWidth > 0 {
		f.putCapabilities(s)
	}
	return s[:]
}

func (f *function) putEndpoint(s *space) {
	s.put(0x2c, f.subvendor, f.subdevice)
	if f.link.maxWidth > 0 {
		s.put(0x10, memory(f.address)|0xc) // 64 bits, prefetchable
	}
}

func (f *function) putBridge(s *space) {
	s[0x0e] |= 1
	s.put(0x18, f.address.Bus, f.secondary, f.subordinate)
	s[0x1c] = 0xf0              // no I/O window: its base is above its limit
	s.put(0x20, uint16(0xfff0)) // nor one of 32-bit memory
	start, end := f.window()
	s.put(0x24, uint16(start>>16)&0xfff0|1, uint16(end>>16)&0xfff0|1, uint32(start>>32), uint32(end>>32))
}

func (f *function) putCapabilities(s *space) {
	s[0x06] = 0x10 // status: has capabilities
	s[0x34] = capPM
	copy(s[capPM:], []byte{0x01, capExpress, 0x03, 0, 0x08})
	if f.vpd != nil {
		s[capPM+1] = capVPD
		copy(s[capVPD:], []byte{0x03, capExpress})
	}
	flags := f.port<<4 | 2
	capabilities := uint32(f.link.maxGen | f.link.maxWidth<<4)
	status := f.link.gen | f.link.width<<4
	if f.slot > 0 {
		flags |= 0x100
		capabilities |= 1 << 20 // reports whether the link is up
		status |= 0x2000
		s.put(capExpress+0x14, uint32(f.slot)<<19|0x60) // hot-plug
		if f.link.width > 0 {
			s[capExpress+0x1a] = 0x40 // card present
		}
	}
	// Device capabilities: role-based errors, 256 bytes of payload. Device control: all
	// errors reported, 256 bytes of payload, 512 of read request.
	s.put(capExpress, uint16(0x10), flags, uint32(0x8001), uint32(0x202f), capabilities)
	s.put(capExpress+0x12, status)
	// Every generation up to the last.
	s.put(capExpress+0x2c, uint32(1<<(f.link.maxGen+1)-2), f.link.maxGen)
}

// memory is the address where the 64 KiB of memory of a function begin. It is computed,
// so that every bus has a range of its own and the window of a bridge follows from its
// buses.
func memory(a pci.Address) uint64 {
	return 1<<45 + uint64(a.Domain)<<32 + uint64(a.Bus)<<24 + uint64(a.Device)<<19 + uint64(a.Function)<<16
}

// window is the memory behind a bridge, first and last byte.
func (f *function) window() (first, last uint64) {
	bus := f.below(0)
	first = memory(bus)
	bus.Bus = f.subordinate
	return first, memory(bus) + 1<<24 - 1
}

// resource has a line for each base address register, for the expansion ROM, for six
// SR-IOV registers and for the windows of a bridge (include/linux/pci.h; the flags are
// those of include/linux/ioport.h).
func (f *function) resource() string {
	line := func(start, end, flags uint64) string {
		return fmt.Sprintf("0x%016x 0x%016x 0x%016x\n", start, end, flags)
	}
	none := line(0, 0, 0)
	text := strings.Repeat(none, 13)
	if f.secondary > 0 {
		start, end := f.window()
		text += none + none + line(start, end, 0x102201) + none
	} else if f.link.maxWidth > 0 {
		start := memory(f.address)
		text = line(start, start+0xffff, 0x14220c) + text[len(none):]
	}
	return strings.TrimSuffix(text, "\n")
}

// productData is the vital product data of a card (PCI Local Bus 3.0 appendix I): a name,
// part and serial number, and a byte that makes the sum 0. No field may be longer than
// 127 bytes.
func productData(part, serial string) []byte {
	const name = "HyperAccel LPU (simulated)"
	fields := fmt.Sprintf("PN%c%sSN%c%sRV\x01", len(part), part, len(serial), serial)
	data := fmt.Appendf(nil, "\x82%c\x00%s\x90%c\x00%s", len(name), name, len(fields)+1, fields)
	var sum byte
	for _, v := range data {
		sum += v
	}
	return append(data, -sum, 0x78)
}
