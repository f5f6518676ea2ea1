package machine

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// card is the functions of one board: management (.0, 10ee:505c) and user (.1, 10ee:505d, the LPU).
type card [2]*function

// function is a PCI function whose configuration space this process serves.
type function struct {
	mu   sync.Mutex
	cfg  [256]byte
	mask [256]byte         // bits that can be written
	made [256]byte         // what a reset brings back
	bars map[uint64]uint64 // what was written to the memory of the function
	gone bool              // fell off the bus: answers all ones
	away time.Time         // answers all ones until then

	resets time.Duration // how long a function-level reset takes
}

// Where the capabilities of a function are.
const (
	powerCap = 0x40
	pcieCap  = 0x70

	deviceControl = pcieCap + 0x08
	startReset    = 1 << 15 // in the device control
	linkStatus    = pcieCap + 0x12
)

func newCard(sick bool) card {
	c := card{newFunction(0), newFunction(1)}
	if sick {
		c[1].refuseDriver()
	}
	for _, f := range c {
		f.made = f.cfg
	}
	return c
}

// newFunction makes function n of a card as an Alveo U55C has them: PCIe Gen3 x16, two windows of memory.
func newFunction(n uint16) *function {
	f := &function{bars: map[uint64]uint64{}}
	put16 := func(offset int, value uint16) { binary.LittleEndian.PutUint16(f.cfg[offset:], value) }
	put32 := func(offset int, value uint32) { binary.LittleEndian.PutUint32(f.cfg[offset:], value) }
	writable := func(offset int, bits ...byte) { copy(f.mask[offset:], bits) }
	put16(0x00, 0x10ee)
	put16(0x02, 0x505c+n)
	put16(0x06, 0x0010)       // status: has capabilities
	put32(0x08, 0x1200<<16)   // class: processing accelerator
	f.cfg[0x0e] = 0x80        // header: one of several functions
	put32(0x2c, 0x000e10ee)   // subsystem
	f.cfg[0x34] = powerCap    // first capability
	writable(0x04, 0x46, 0x5) // command: memory, master, parity, SERR, INTx disable
	writable(0x0c, 0xff)
	writable(0x10, 0, 0, 0xff, 0xff)    // 64 KiB
	writable(0x18, 0, 0xf0, 0xff, 0xff) // 4 KiB
	writable(0x3c, 0xff)

	put16(powerCap, 0x01|pcieCap<<8)
	put16(powerCap+2, 0x0003)
	put16(powerCap+4, 0x0008) // keeps its state
	writable(powerCap+4, 0x03)

	put16(pcieCap, 0x10)
	put16(pcieCap+0x02, 2)              // endpoint, version 2
	put32(pcieCap+0x04, 1<<28|0x8022)   // function-level reset, 512 bytes of payload, role-based errors
	put16(deviceControl, 0x2810)        // device control
	put32(pcieCap+0x0c, 3|16<<4|1<<22)  // link capabilities
	put32(pcieCap+0x2c, 0xe)            // speeds: 2.5, 5, 8 GT/s
	put16(pcieCap+0x30, 3)              // target speed
	writable(deviceControl, 0xff, 0xff) // device control
	writable(pcieCap+0x10, 0xfb, 0x0f)  // link control
	writable(pcieCap+0x30, 0x0f)        // link control 2
	put16(linkStatus, linkState(3, 16)) // negotiated
	return f
}

// linkState is the link status register for a speed (1: 2.5 GT/s, 3: 8 GT/s) and a width.
func linkState(speed, width int) uint16 { return uint16(speed | width<<4) }

// refuseDriver makes uio_pci_generic refuse the function: an interrupt that cannot be masked.
func (f *function) refuseDriver() {
	f.cfg[0x3d] = 1
	f.mask[0x05] &^= 0x04
}

// obey carries out a command of Machine.obey, with its numbers, and returns false for one that is unknown.
func (f *function) obey(command string, a, b int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch command {
	case "gone":
		f.gone = a != 0
	case "away":
		f.away = time.Now().Add(time.Duration(a) * time.Millisecond)
	case "resets":
		f.resets = time.Duration(a) * time.Millisecond
	case "link":
		binary.LittleEndian.PutUint16(f.cfg[linkStatus:], linkState(a, b))
	default:
		return false
	}
	return true
}

// silent tells whether the function answers nobody. The caller has locked it.
func (f *function) silent() bool { return f.gone || time.Now().Before(f.away) }

// reset makes the registers what they were, but for the link, which stays as it is. The caller has locked the function.
func (f *function) reset() {
	link := [2]byte(f.cfg[linkStatus:])
	f.cfg = f.made
	copy(f.cfg[linkStatus:], link[:])
}

func (f *function) read(offset, size uint32) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.silent() || size > 8 || offset > 256-size {
		return 1<<(8*size) - 1
	}
	var value uint64
	for i := range size {
		value |= uint64(f.cfg[offset+i]) << (8 * i)
	}
	return value
}

func (f *function) write(offset, value, size uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.silent() || size > 4 || offset > 256-size {
		return
	}
	if offset == deviceControl && value&startReset != 0 {
		f.reset()
		f.away = time.Now().Add(f.resets)
		return
	}
	for i := range size {
		o := offset + i
		f.cfg[o] = f.cfg[o]&^f.mask[o] | byte(value>>(8*i))&f.mask[o]
	}
}

// plug returns the end of a socket by which QEMU reaches the function.
func (f *function) plug() (*os.File, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	go func() {
		_ = f.serve(ours) // ends when QEMU goes or takes the card away
		_ = ours.Close()
	}()
	return theirs, nil
}

// Commands of QEMU's multi-process protocol.
const (
	syncMemory = iota
	answer
	configWrite
	configRead
	barWrite
	barRead
	setInterrupt
	busReset
)

// serve answers QEMU's x-pci-proxy-dev: a header of command and size, then a body; an answer to most.
func (f *function) serve(conn *net.UnixConn) error {
	var header [16]byte
	body := make([]byte, 4096)
	for {
		if err := readClosing(conn, header[:]); err != nil {
			return err
		}
		size := binary.LittleEndian.Uint64(header[8:])
		if size > uint64(len(body)) {
			return fmt.Errorf("a message of %d bytes", size)
		}
		if _, err := io.ReadFull(conn, body[:size]); err != nil {
			return err
		}
		command := binary.LittleEndian.Uint32(header[:])
		if command == syncMemory || command == setInterrupt {
			continue // wants no answer
		}
		var out [24]byte
		binary.LittleEndian.PutUint32(out[0:], answer)
		binary.LittleEndian.PutUint64(out[8:], 8)
		binary.LittleEndian.PutUint64(out[16:], f.do(command, body))
		if _, err := conn.Write(out[:]); err != nil {
			return err
		}
	}
}

func (f *function) do(command uint32, body []byte) uint64 {
	word := func(n int) uint32 { return binary.LittleEndian.Uint32(body[4*n:]) }
	long := func(n int) uint64 { return binary.LittleEndian.Uint64(body[8*n:]) }
	switch command {
	case configRead:
		return f.read(word(0), word(2))
	case configWrite:
		f.write(word(0), word(1), word(2))
	case barRead:
		return f.bars[long(0)]
	case barWrite:
		f.bars[long(0)] = long(1)
	case busReset:
		f.mu.Lock()
		f.reset()
		f.mu.Unlock()
	}
	return 0
}

// readClosing fills b, and closes the files that come along: the guest's memory and interrupts, not needed here.
func readClosing(conn *net.UnixConn, b []byte) error {
	control := make([]byte, 256)
	n, got, _, _, err := conn.ReadMsgUnix(b, control)
	if err != nil {
		return err
	}
	if n == 0 {
		return io.EOF
	}
	messages, err := syscall.ParseSocketControlMessage(control[:got])
	if err != nil {
		return err
	}
	for i := range messages {
		files, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			return err
		}
		for _, file := range files {
			_ = syscall.Close(file)
		}
	}
	_, err = io.ReadFull(conn, b[n:])
	return err
}

// socketPair is a connection between us and a QEMU that is started with the second end.
func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs = os.NewFile(uintptr(pair[1]), "qemu")
	file := os.NewFile(uintptr(pair[0]), "vm")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}
