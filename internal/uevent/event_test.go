package uevent

import (
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// said makes a message of its parts, as the kernel does.
func said(parts ...string) message { return message(strings.Join(parts, "\x00") + "\x00") }

const function = "/devices/pci0000:40/0000:40:01.1/0000:42:00.0/0000:43:00.1"

// unbound, failed, and so on are what Linux 6.1 and 6.18 say of a PCI function and its children.
var (
	unbound = said("unbind@"+function, "ACTION=unbind", "DEVPATH="+function, "SUBSYSTEM=pci", "PCI_CLASS=120000", "PCI_ID=10EE:505D",
		"PCI_SUBSYS_ID=10EE:000E", "PCI_SLOT_NAME=0000:43:00.1", "MODALIAS=pci:v000010EEd0000505Dsv000010EEsd0000000Ebc12sc00i00", "SEQNUM=1410")
	nodeGone = said("remove@"+function+"/uio/uio4", "ACTION=remove", "DEVPATH="+function+"/uio/uio4", "SUBSYSTEM=uio", "MAJOR=244", "MINOR=4",
		"DEVNAME=uio4", "SEQNUM=1409")
	failed = said("change@"+function, "ACTION=change", "DEVPATH="+function, "SUBSYSTEM=pci", "ERROR_EVENT=FAILED_RECOVERY", "DEVICE_ONLINE=0",
		"DRIVER=uio_pci_generic", "PCI_CLASS=120000", "PCI_ID=10EE:505D", "PCI_SLOT_NAME=0000:43:00.1", "SEQNUM=1502")
	triggered = said("add@"+function, "ACTION=add", "DEVPATH="+function, "SUBSYSTEM=pci", "SYNTH_UUID=0", "DRIVER=uio_pci_generic",
		"PCI_SLOT_NAME=0000:43:00.1", "SEQNUM=1600")
	disk = said("change@/devices/pci0000:00/0000:00:1d.0/0000:3b:00.0/nvme/nvme0/nvme0n1", "ACTION=change",
		"DEVPATH=/devices/pci0000:00/0000:00:1d.0/0000:3b:00.0/nvme/nvme0/nvme0n1", "SUBSYSTEM=block", "MAJOR=259", "MINOR=0",
		"DEVNAME=nvme0n1", "DEVTYPE=disk", "DISKSEQ=9", "SEQNUM=2668")
)

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		message message
		want    Event
	}{
		"driver unbound": {unbound, Event{
			Action: "unbind", DevPath: function, Subsystem: "pci", PCISlotName: "0000:43:00.1", SeqNum: "1410",
		}},
		"node gone": {nodeGone, Event{
			Action: "remove", DevPath: function + "/uio/uio4", Subsystem: "uio", Major: "244", Minor: "4", DevName: "uio4", SeqNum: "1409",
		}},
		"recovery failed": {failed, Event{
			Action: "change", DevPath: function, Subsystem: "pci", Driver: "uio_pci_generic", PCISlotName: "0000:43:00.1",
			ErrorEvent: "FAILED_RECOVERY", DeviceOnline: "0", SeqNum: "1502",
		}},
		"asked for by udevadm trigger": {triggered, Event{
			Synthetic: true, Action: "add", DevPath: function, Subsystem: "pci", Driver: "uio_pci_generic", PCISlotName: "0000:43:00.1",
			SeqNum: "1600",
		}},
		"disk": {disk, Event{
			Action: "change", DevPath: "/devices/pci0000:00/0000:00:1d.0/0000:3b:00.0/nvme/nvme0/nvme0n1", Subsystem: "block",
			DevType: "disk", Major: "259", Minor: "0", DevName: "nvme0n1", SeqNum: "2668",
		}},
		"a value with the words of a key": {
			said("add@/a", "ACTION=add", "DEVPATH=/a", "MODALIAS=DRIVER=x", "XDRIVER=y", "EMPTY=", "SEQNUM=1"),
			Event{Action: "add", DevPath: "/a", SeqNum: "1"},
		},
		"a path with @": {said("add@/a@b", "ACTION=add", "DEVPATH=/a@b"), Event{Action: "add", DevPath: "/a@b"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.message.parse()
			if err != nil || got != c.want {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
			if path, subsystem := string(c.message.devPath()), string(c.message.subsystem()); path != got.DevPath || subsystem != got.Subsystem {
				t.Errorf("the filter is asked about %q of %q, the event says %q of %q", path, subsystem, got.DevPath, got.Subsystem)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for name, m := range map[string]message{
		"nothing":            message(""),
		"cut":                unbound[:len(unbound)-2],
		"no path":            said("add", "ACTION=add"),
		"no action":          said("@/a", "ACTION=", "DEVPATH=/a"),
		"relative":           said("add@a", "ACTION=add", "DEVPATH=a"),
		"header alone":       said("add@/a"),
		"another action":     said("add@/a", "ACTION=remove", "DEVPATH=/a"),
		"another path":       said("add@/a", "ACTION=add", "DEVPATH=/b"),
		"no value":           said("add@/a", "ACTION=add", "DEVPATH=/a", "SUBSYSTEM"),
		"no key":             said("add@/a", "ACTION=add", "DEVPATH=/a", "=pci"),
		"an empty part":      said("add@/a", "ACTION=add", "DEVPATH=/a", "", "SUBSYSTEM=pci"),
		"of udev, not Linux": append(message("libudev\x00\xfe\xed\xca\xfe"), unbound...),
	} {
		if got, err := m.parse(); err == nil {
			t.Errorf("%s: %+v, want an error", name, got)
		}
	}
}

func TestFunctions(t *testing.T) {
	for path, want := range map[string][]string{
		function:               {"0000:40:01.1", "0000:42:00.0", "0000:43:00.1"},
		function + "/uio/uio4": {"0000:40:01.1", "0000:42:00.0", "0000:43:00.1"},
		"/devices/pci10000:00/10000:00:02.0/10000:01:00.0":        {"10000:00:02.0", "10000:01:00.0"},
		"/devices/pci0000:00/0000:00:1c.0/0000:00:1c.0:pcie001":   {"0000:00:1c.0"},
		"/devices/platform/40000000.pcie/pci0000:00/0000:00:01.0": {"0000:00:01.0"},
		"/devices/pci0000:40/0000:40:01.1/xmc.u.8912896":          {"0000:40:01.1"},
		"/devices/virtual/mem/null":                               nil,
		"/devices/virtual/bdi/259:0":                              nil,
		"/module/xocl":                                            nil,
		"":                                                        nil,
		"/":                                                       nil,
		"/0000-43:00.1/0000:43-00.1/0000:43:00:1/0000:43:00.g/000:043:00.1": nil,
		"/0000:43:00.10/0000:43:00./000:43:00.1/100000000:43:00.1":          nil,
		"/devices/pci0000:40//0000:40:01.1/":                                {"0000:40:01.1"},
	} {
		texts := func(functions iter.Seq[pci.Address]) (all []string) {
			for f := range functions {
				all = append(all, f.String())
			}
			return all
		}
		if got := texts(Functions(path)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
		if got := texts(Functions([]byte(path))); !slices.Equal(got, want) {
			t.Errorf("%s as bytes: %q, want %q", path, got, want)
		}
	}
	for first := range Functions(function) {
		if first.String() != "0000:40:01.1" {
			t.Errorf("the first is %s", first)
		}
		break
	}
}

// ofOurs is a filter as a program has it that knows which functions are its own.
func ofOurs(devPath, subsystem []byte) bool {
	if string(subsystem) == "pci" {
		return true
	}
	for f := range Functions(devPath) {
		if f == (pci.Address{Bus: 0x43, Function: 1}) {
			return true
		}
	}
	return false
}

// TestForeignEventsAreCheap: to look at one that is not wanted makes nothing on the heap.
func TestForeignEventsAreCheap(t *testing.T) {
	listener := Listener{wanted: ofOurs}
	if n := testing.AllocsPerRun(100, func() {
		if !listener.take(t.Context(), disk) {
			t.Error("it is wanted")
		}
	}); n != 0 {
		t.Errorf("%v allocations for each", n)
	}
}

func BenchmarkForeignEvent(b *testing.B) {
	listener := Listener{wanted: ofOurs}
	b.ReportAllocs()
	for b.Loop() {
		listener.take(b.Context(), disk)
	}
}

func BenchmarkWantedEvent(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := failed.parse(); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzParse: whatever a message is, an event says only what the message has, and what the filter was asked about.
func FuzzParse(f *testing.F) {
	for _, m := range []message{unbound, nodeGone, failed, triggered, disk, unbound[:40], nil} {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := message(data)
		path, subsystem := string(m.devPath()), string(m.subsystem())
		for address := range Functions(path) {
			if !strings.Contains(strings.ToLower(path), address.String()) {
				t.Errorf("%q is said to be in %q", address, path)
			}
		}
		event, err := m.parse()
		if err != nil {
			if event != (Event{}) {
				t.Errorf("%+v comes with the error %v", event, err)
			}
			return
		}
		if event.DevPath != path || event.Subsystem != subsystem {
			t.Errorf("the filter is asked about %q of %q, the event says %q of %q", path, subsystem, event.DevPath, event.Subsystem)
		}
		parts := strings.Split(string(data), "\x00")
		for key, value := range map[string]string{
			"ACTION": event.Action, "DEVPATH": event.DevPath, "SUBSYSTEM": event.Subsystem, "DEVTYPE": event.DevType, "DRIVER": event.Driver,
			"PCI_SLOT_NAME": event.PCISlotName, "MAJOR": event.Major, "MINOR": event.Minor, "DEVNAME": event.DevName,
			"ERROR_EVENT": event.ErrorEvent, "DEVICE_ONLINE": event.DeviceOnline, "SEQNUM": event.SeqNum,
		} {
			if value != "" && !slices.Contains(parts[1:], key+"="+value) {
				t.Errorf("%s is %q, which the message does not say", key, value)
			}
		}
	})
}
