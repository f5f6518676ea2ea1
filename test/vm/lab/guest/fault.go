package guest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/await"
)

// Card is the card in a slot, 0 to 7.
func (n *Node) Card(slot int) Card { return card(slot) }

// Fault does something to the hardware, or to the kernel. From now on times are counted from its beginning.
func (n *Node) Fault(what string, do func() error) {
	n.t.Helper()
	n.mark(time.Now())
	n.say("FAULT: %s", what)
	n.Must(do())
	n.say("done")
}

// Ask has the machine do something to a card, as machine.Machine describes: "gone", 1.
func (n *Node) Ask(command string, c Card, numbers ...any) error {
	return n.host.ask(fmt.Sprintln(append([]any{command, c.slot}, numbers...)...))
}

// Unbind takes the driver from an LPU.
func (n *Node) Unbind(c Card) error { return Write(c.Attribute("driver/unbind"), c.Address()) }

// Bind gives an LPU the driver.
func (n *Node) Bind(c Card) error { return Write(n.driverFile("bind"), c.Address()) }

// Rebind does both, one after the other.
func (n *Node) Rebind(c Card) error { return errors.Join(n.Unbind(c), n.Bind(c)) }

// Remove takes a PCI function from the kernel, and what is behind it.
func (n *Node) Remove(address string) error { return Write(pciDevices+address+"/remove", "1") }

// Rescan has the kernel look for PCI functions.
func (n *Node) Rescan() error { return Write("/sys/bus/pci/rescan", "1") }

// Reset has the kernel reset an LPU (function-level reset), and returns when it has.
func (n *Node) Reset(c Card) error { return Write(c.Attribute("reset"), "1") }

// BusReset has the port above a card reset its bus, of which nothing in the kernel knows: it sets and clears the bit for it in the
// bridge control (PCI-to-PCI Bridge Architecture Specification, 3.2.5.18), as setpci can.
func (n *Node) BusReset(c Card) error {
	port, err := os.OpenFile(pciDevices+c.Port()+"/config", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer port.Close()
	var control [1]byte
	_, err = port.ReadAt(control[:], 0x3e)
	for _, reset := range []byte{1 << 6, 0} {
		if err == nil {
			_, err = port.WriteAt([]byte{control[0] | reset}, 0x3e)
			time.Sleep(10 * time.Millisecond)
		}
	}
	return err
}

// Sleep has the kernel put an LPU to sleep, which needs a driver that lets it.
func (n *Node) Sleep(c Card) error {
	err := Write(c.Attribute("power/control"), "auto")
	if err == nil {
		n.Until(c.Address()+" sleeps", func() bool { return Read(c.Attribute("power/runtime_status")) == "suspended" })
	}
	return err
}

// Errors that a function can report, as bits of its registers (PCI Express Base Specification, 7.8.4).
const (
	ReceiverError     = 1 << 0  // correctable
	CompletionTimeout = 1 << 14 // uncorrectable, not fatal
	MalformedTLP      = 1 << 18 // uncorrectable, fatal
)

// Inject lets the kernel find errors in the registers of a function (drivers/pci/pcie/aer_inject.c, struct aer_error_inj).
func (n *Node) Inject(address string, uncorrectable, correctable uint32) error {
	a, err := pci.Parse(address)
	if err != nil {
		return err
	}
	message := []byte{a.Bus, a.Device, a.Function, 0}
	message = binary.NativeEndian.AppendUint32(message, uncorrectable)
	message = binary.NativeEndian.AppendUint32(message, correctable)
	return Write("/dev/aer_inject", string(append(message, make([]byte, 20)...)))
}

// SlotOff turns the power of a slot off. QEMU then takes the card out.
func (n *Node) SlotOff(c Card) error {
	return errors.Join(Write(c.Slot()+"power", "0"), n.Ask("eject", c))
}

func (n *Node) driverFile(name string) string { return "/sys/bus/pci/drivers/" + n.driver + "/" + name }

// SinceEvent counts times from the first event of the kernel about an LPU after the last fault, or the first with a variable such as
// ERROR_EVENT=FAILED_RECOVERY: some faults take the kernel seconds.
func (n *Node) SinceEvent(c Card, variable ...string) {
	n.t.Helper()
	var first time.Time
	n.Until("the kernel tells of "+c.Address()+strings.Join(variable, " "), func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		i := slices.IndexFunc(n.uevents, func(e uevent) bool {
			return e.at.After(n.fault) && strings.Contains(e.header, c.Address()) &&
				(len(variable) == 0 || slices.Contains(e.variables, variable[0]))
		})
		if i >= 0 {
			first = n.uevents[i].at
		}
		return i >= 0
	})
	n.mark(first)
}

// SinceNow counts times from now, because what was asked for took long.
func (n *Node) SinceNow() { n.mark(time.Now()) }

// Until waits until something holds.
func (n *Node) Until(what string, holds func() bool) {
	n.t.Helper()
	await.For(n.t, what, holds)
}

// Hang has reads of the stand-in driver's attribute for a card hang, until LetGo.
func (n *Node) Hang(c Card) error {
	return errors.Join(Write(letGo, "N"), Write(c.Attribute("hang"), "1"))
}

// Read has a process of its own read what hangs, and returns when it sleeps in the kernel.
func (n *Node) Read(c Card) error {
	n.t.Helper()
	reader := exec.Command("cat", c.Attribute("rom.u.0/VBNV"))
	if err := reader.Start(); err != nil {
		return err
	}
	n.running.Go(func() { _ = reader.Wait() }) // it ends when the reads do
	n.Until("a process sleeps in a read", func() bool {
		_, state, _ := strings.Cut(Read(fmt.Sprintf("/proc/%d/stat", reader.Process.Pid)), ") ")
		return strings.HasPrefix(state, "D")
	})
	return nil
}

// LetGo ends all reads that hang.
func (n *Node) LetGo() error { return Write(letGo, "Y") }

const letGo = "/sys/module/lpu_sim/parameters/let_go"

// repair undoes what an earlier test may have left, and gives all LPUs the driver.
func (n *Node) repair() {
	n.try(n.Rescan())
	for _, id := range []string{"10ee 505d", "8086 10d3"} {
		n.try(Write(n.driverFile("new_id"), id)) // which binds those that have no driver
	}
	for slot := range slots {
		c := card(slot)
		if !exists(pciDevices + c.Management()) {
			n.Must(n.Ask("plug", c))
			n.Until(c.Address()+" has a driver", func() bool { return exists(c.Attribute("driver")) })
		}
		n.try(Write(c.Attribute("power/control"), "on"))
		if c.function == 1 {
			n.Must(errors.Join(n.Ask("gone", c, 0), n.Ask("away", c, 0), n.Ask("resets", c, 0), n.Ask("link", c, 3, 16)))
		}
		n.rebind(c)
	}
}

// rebind gives an LPU the driver if it has another one, or was dead when it got it.
func (n *Node) rebind(c Card) {
	if c.Driver() == n.driver && Read(c.Attribute("power_state")) != "D3cold" {
		return
	}
	if c.Driver() != "" {
		n.try(n.Unbind(c))
	}
	n.Must(n.Bind(c))
}
