package uevent

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Event is what the kernel says of one device, in the words of the kernel. "" means that
// the kernel does not say it of this device. Documentation/core-api/kobject.rst of Linux
// describes uevents, and drivers/base/core.c adds most of the keys.
type Event struct {
	// Overflow: events were lost, and only a scan can find what they said. Then no other
	// field is set.
	Overflow bool
	// Synthetic: a process wrote to the device's file "uevent", as udevadm trigger does
	// for all of them. An "add" or a "bind" is then none, and nothing may have happened
	// (SYNTH_UUID, Documentation/ABI/testing/sysfs-uevent of Linux).
	Synthetic bool

	Action string // add, remove, change, move, online, offline, bind, unbind
	// DevPath is of the device, below /sys:
	// "/devices/pci0000:40/0000:40:01.1/0000:43:00.1/uio/uio4".
	DevPath string

	Subsystem    string // SUBSYSTEM: pci, uio, ...
	DevType      string // DEVTYPE
	Driver       string // DRIVER, of a device that has one
	PCISlotName  string // PCI_SLOT_NAME, the address of a PCI function: 0000:43:00.1
	Major, Minor string // MAJOR and MINOR, decimal, of a device with a node
	DevName      string // DEVNAME, the path of the node below /dev
	// ErrorEvent is ERROR_EVENT, how far recovery is: BEGIN_RECOVERY,
	// SUCCESSFUL_RECOVERY, FAILED_RECOVERY (drivers/pci/pci-driver.c).
	ErrorEvent   string
	DeviceOnline string // DEVICE_ONLINE, with ErrorEvent: "1" or "0"
	// SeqNum is SEQNUM, decimal. It has gaps, because a process does not get the events of
	// all network namespaces.
	SeqNum string
}

// Functions yields the PCI functions that a device path leads through, from the root port
// down. The last one is the device itself, or the PCI function that a class device or
// another child belongs to. It allocates nothing.
func Functions[Path string | []byte](path Path) iter.Seq[pci.Address] {
	return func(yield func(pci.Address) bool) {
		begin := 0
		for i := range len(path) + 1 {
			if i < len(path) && path[i] != '/' {
				continue
			}
			if a, ok := pci.Find(path[begin:i]); ok && !yield(a) {
				return
			}
			begin = i + 1
		}
	}
}

// message is an event as it comes from the kernel: ACTION@DEVPATH, then KEY=VALUE, each
// with a 0 byte after it.
type message []byte

// devPath returns the path in the first part; nil if that is none.
func (m message) devPath() []byte {
	head, _, _ := bytes.Cut(m, []byte{0})
	_, path, _ := bytes.Cut(head, []byte{'@'})
	return path
}

func (m message) subsystem() []byte {
	_, rest, _ := bytes.Cut(m, []byte("\x00SUBSYSTEM="))
	value, _, _ := bytes.Cut(rest, []byte{0})
	return value
}

// parse makes an event of a message. The strings of the event share one copy of the
// message.
func (m message) parse() (Event, error) {
	text := string(m)
	head, keys, ok := strings.Cut(text, "\x00")
	action, path, isHead := strings.Cut(head, "@")
	switch {
	case !ok || !strings.HasSuffix(text, "\x00"):
		return Event{}, errors.New("uevent: it does not end with a 0 byte")
	case !isHead || action == "" || !strings.HasPrefix(path, "/"):
		return Event{}, fmt.Errorf("uevent: it begins with %.200q, which is not ACTION@DEVPATH", head)
	}
	for pair := range strings.SplitSeq(strings.TrimSuffix(keys, "\x00"), "\x00") {
		if key, _, ok := strings.Cut(pair, "="); !ok || key == "" {
			return Event{}, fmt.Errorf("uevent: %.200q is not KEY=VALUE", pair)
		}
	}
	value := func(key string) string {
		_, rest, _ := strings.Cut(text, "\x00"+key+"=")
		value, _, _ := strings.Cut(rest, "\x00")
		return value
	}
	if value("ACTION") != action || value("DEVPATH") != path {
		return Event{}, fmt.Errorf("uevent: it begins with %.200q, and the keys ACTION and DEVPATH say something else", head)
	}
	return Event{
		Synthetic: value("SYNTH_UUID") != "", Action: action, DevPath: path,
		Subsystem: value("SUBSYSTEM"), DevType: value("DEVTYPE"), Driver: value("DRIVER"), PCISlotName: value("PCI_SLOT_NAME"),
		Major: value("MAJOR"), Minor: value("MINOR"), DevName: value("DEVNAME"),
		ErrorEvent: value("ERROR_EVENT"), DeviceOnline: value("DEVICE_ONLINE"), SeqNum: value("SEQNUM"),
	}, nil
}
