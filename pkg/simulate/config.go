package simulate

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Offsets of the capabilities in config.
const (
	capPM      = 0x40
	capVPD     = 0x60
	capExpress = 0x70
)

// config is the configuration space (PCI Local Bus 3.0 chapter 6, PCI Express Base chapter 7): what the
// text attributes say, in the bytes from which lspci reads it.
func (f *function) config() []byte {
	c := make([]byte, 256)
	put16(c[0x00:], f.vendor)
	put16(c[0x02:], f.device)
	put16(c[0x04:], f.command())
	put32(c[0x08:], f.class<<8|uint32(f.revision))
	c[0x0c] = 16 // cache line, in 4 bytes
	if f.several {
		c[0x0e] = 0x80
	}
	if f.secondary > 0 {
		f.putBridge(c)
	} else {
		f.putEndpoint(c)
	}
	if f.driver != "" {
		c[0x3c], c[0x3d] = byte(f.irq()), 1
	}
	if f.link.maxWidth > 0 {
		f.putCapabilities(c)
	}
	return c
}

// command has memory and bus mastering on and legacy interrupts off under a driver.
func (f *function) command() uint16 {
	if f.driver == "" {
		return 0
	}
	return 0x0406
}

func (f *function) putEndpoint(c []byte) {
	put16(c[0x2c:], f.subvendor)
	put16(c[0x2e:], f.subdevice)
	if f.link.maxWidth > 0 {
		start := memory(f.address)
		put32(c[0x10:], uint32(start)|0xc) // 64 bits, prefetchable
		put32(c[0x14:], uint32(start>>32))
	}
}

func (f *function) putBridge(c []byte) {
	c[0x0e] |= 1
	c[0x18], c[0x19], c[0x1a] = f.address.Bus, f.secondary, f.subordinate
	c[0x1c] = 0xf0          // no I/O window: its base is above its limit
	put16(c[0x20:], 0xfff0) // nor one of 32-bit memory
	start, end := f.window()
	put16(c[0x24:], uint16(start>>16)&0xfff0|1)
	put16(c[0x26:], uint16(end>>16)&0xfff0|1)
	put32(c[0x28:], uint32(start>>32))
	put32(c[0x2c:], uint32(end>>32))
}

func (f *function) putCapabilities(c []byte) {
	c[0x06] = 0x10 // status: has capabilities
	c[0x34] = capPM
	copy(c[capPM:], []byte{0x01, capExpress, 0x03, 0, 0x08})
	if f.vpd != nil {
		c[capPM+1] = capVPD
		copy(c[capVPD:], []byte{0x03, capExpress})
	}
	e := c[capExpress:]
	e[0] = 0x10
	put16(e[0x02:], uint16(f.port)<<4|2)
	put32(e[0x04:], 0x8001) // role-based errors, 256 bytes of payload
	put16(e[0x08:], 0x202f) // all errors reported, 256 bytes of payload, 512 of read request
	put32(e[0x0c:], uint32(f.link.maxGen|f.link.maxWidth<<4))
	status := uint16(f.link.gen | f.link.width<<4)
	if f.slot > 0 {
		put16(e[0x02:], uint16(f.port)<<4|2|0x100)
		e[0x0e] |= 0x10 // can tell that the link is up
		status |= 0x2000
		put32(e[0x14:], uint32(f.slot)<<19|0x60) // hot-plug
		e[0x1a] = 0x40                           // card present
	}
	put16(e[0x12:], status)
	put32(e[0x2c:], 1<<(f.link.maxGen+1)-2) // every generation up to the last
	put16(e[0x30:], uint16(f.link.maxGen))
}

// memory is where the 64 KiB of memory of a function begin: computed, so that every bus has a range of its
// own and no bridge window needs to be looked for.
func memory(a discovery.Address) uint64 {
	return 1<<45 + uint64(a.Domain)<<32 + uint64(a.Bus)<<24 + uint64(a.Device)<<19 + uint64(a.Function)<<16
}

// window is the memory behind a bridge, first and last byte.
func (f *function) window() (uint64, uint64) {
	first := discovery.Address{Domain: f.address.Domain, Bus: f.secondary}
	last := discovery.Address{Domain: f.address.Domain, Bus: f.subordinate, Device: 31, Function: 7}
	return memory(first), memory(last) + 0xffff
}

// resource has a line for each base address register, for the expansion ROM, for six SR-IOV registers and
// for the windows of a bridge (include/linux/pci.h; the flags are those of include/linux/ioport.h).
func (f *function) resource() string {
	lines := make([][3]uint64, 13)
	switch {
	case f.secondary > 0:
		lines = make([][3]uint64, 17)
		start, end := f.window()
		lines[15] = [3]uint64{start, end, 0x102201}
	case f.link.maxWidth > 0:
		start := memory(f.address)
		lines[0] = [3]uint64{start, start + 0xffff, 0x14220c}
	}
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "0x%016x 0x%016x 0x%016x\n", l[0], l[1], l[2])
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// productData is the vital product data of a card (PCI Local Bus 3.0 appendix I): a name, part and serial
// number, and a byte that makes the sum 0.
func productData(name, part, serial string) []byte {
	var fields []byte
	for _, f := range [][2]string{{"PN", part}, {"SN", serial}} {
		fields = append(append(fields, f[0]...), byte(len(f[1])))
		fields = append(fields, f[1]...)
	}
	b := append([]byte{0x82, byte(len(name)), 0}, name...)
	b = append(append(b, 0x90, byte(len(fields)+4), 0), fields...)
	b = append(b, 'R', 'V', 1)
	var sum byte
	for _, v := range b {
		sum += v
	}
	return append(b, -sum, 0x78)
}

func put16(b []byte, v uint16) { binary.LittleEndian.PutUint16(b, v) }
func put32(b []byte, v uint32) { binary.LittleEndian.PutUint32(b, v) }
