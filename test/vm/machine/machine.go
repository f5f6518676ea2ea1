// Package machine is virtual servers under QEMU, without KVM, with simulated LPU cards: PCI functions whose configuration space this
// process serves, so that the guest's kernel sees what it would see of an Alveo U55C. What the guest asks for is done to the cards.
package machine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// proxy is the device whose configuration space another process serves.
const proxy = "x-pci-proxy-dev"

// Slots is how many cards a machine takes: four behind each of two switches, on two NUMA nodes. Card K has its LPU at
// 0000:43+K:00.1 if it is one of the first four, and at 0000:83+K-4:00.1 if it is not.
const Slots = 8

// Arguments are what every guest's kernel needs to be told. tsc=reliable lets it read the time from the processor. It would read it from a
// device otherwise, which takes QEMU long.
const Arguments = "console=ttyS0 quiet panic=-1 tsc=reliable"

// Options say what a machine is made of.
type Options struct {
	Memory int // in MiB
	Cards  int // in the first slots
	Sick   int // the number of a card to which no driver binds, or -1
	// Network is how many of the cards, from the last, are network cards (e1000e) with the subsystem of an LPU card in the place
	// of LPUs: they have registers for PCI Express errors (AER), for which the configuration space of a proxy is too small.
	Network int
}

// Machine is a virtual server.
type Machine struct {
	cards  [Slots]*card
	host   *bufio.ReadWriter // the port by which the guest reports and asks
	qmp    *net.UnixConn
	events *bufio.Reader // what QEMU says on qmp
	files  []*os.File    // for QEMU to inherit
	args   []string
}

// New makes a machine, which does not run yet.
func New(o Options) (*Machine, error) {
	m := &Machine{}
	qmp, err := m.socket("qmp")
	if err != nil {
		return nil, err
	}
	m.qmp, m.events = qmp, bufio.NewReader(qmp)
	node := o.Memory / 2
	m.Add("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35", "-smp", "2",
		// One thread runs both processors in turn. With a thread for each (QEMU 7.2) one of some two hundred boots stood still, and a
		// guest in which a card was removed and found again and again lost its timers, or QEMU crashed, in two of three runs.
		"-accel", "tcg,thread=single",
		"-m", fmt.Sprint(o.Memory, "M"),
		// The proxies want memory they could share, and two nodes make a server.
		"-object", fmt.Sprintf("memory-backend-memfd,id=m0,size=%dM,share=on", node),
		"-object", fmt.Sprintf("memory-backend-memfd,id=m1,size=%dM,share=on", node),
		"-numa", "node,nodeid=0,cpus=0,memdev=m0", "-numa", "node,nodeid=1,cpus=1,memdev=m1",
		"-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off", // PCIe hot-plug, as servers have it
		"-mon", "chardev=qmp,mode=control", "-device", "virtio-serial-pci,bus=pcie.0")
	host, err := m.port("host")
	if err != nil {
		return nil, err
	}
	m.host = bufio.NewReadWriter(bufio.NewReader(host), bufio.NewWriter(host))
	for s := range 2 {
		m.device("pxb-pcie,id=pxb%d,bus=pcie.0,bus_nr=%d,numa_node=%d", s, 0x40+0x40*s, s)
		m.device("pcie-root-port,id=rp%d,bus=pxb%d,chassis=%d,slot=%d,x-speed=16,x-width=16", s, s, 1+s, 1+s)
		m.device("x3130-upstream,id=up%d,bus=rp%d", s, s)
		for p := range Slots / 2 {
			k := s*Slots/2 + p
			m.device("xio3130-downstream,id=dp%d,bus=up%d,chassis=%d,slot=%d,addr=%d", k, s, 10+k, 10+k, p)
		}
	}
	for k := range o.Cards {
		if k >= o.Cards-o.Network {
			m.device("e1000e,subsys_ven=0x10ee,subsys=0x505c,bus=dp%d", k)
		} else if err := m.equip(k, k == o.Sick); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// equip puts a card into a slot of a machine that does not run yet.
func (m *Machine) equip(k int, sick bool) error {
	c := newCard(sick)
	m.cards[k] = &c
	for fn, f := range c {
		end, err := f.plug()
		if err != nil {
			return err
		}
		m.device(proxy+",fd=%d,id=%s,bus=dp%d,addr=0.%d,multifunction=%s", m.inherit(end), functionID(k, fn), k, fn, onOff(fn == 0))
	}
	return nil
}

// Add adds arguments of QEMU.
func (m *Machine) Add(args ...string) { m.args = append(m.args, args...) }

func (m *Machine) device(device string, args ...any) { m.Add("-device", fmt.Sprintf(device, args...)) }

// port gives the guest a port, /dev/virtio-ports/NAME where udev runs, and returns our end of it.
func (m *Machine) port(name string) (io.ReadWriteCloser, error) {
	conn, err := m.socket(name)
	m.device("virtserialport,chardev=%s,name=%s", name, name)
	return conn, err
}

// inherit returns the number that a file has in QEMU.
func (m *Machine) inherit(f *os.File) int {
	m.files = append(m.files, f)
	return 2 + len(m.files)
}

// socket is our end of a connection to QEMU, which knows it by a name.
func (m *Machine) socket(name string) (*net.UnixConn, error) {
	ours, theirs, err := socketPair()
	if err == nil {
		m.Add("-chardev", fmt.Sprintf("socket,id=%s,fd=%d", name, m.inherit(theirs)))
	}
	return ours, err
}

// functionID names a function to QEMU.
func functionID(k, fn int) string { return fmt.Sprintf("%s%d", [...]string{"mgmt", "lpu"}[fn], k) }

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// Boot boots the machine, waits until it is powered off, and hands each line of the guest's report to say. A guest that
// ends with a code of its own is an error with an [exec.ExitError]. [Again] is for the error of a QEMU that crashes.
func (m *Machine) Boot(ctx context.Context, say func(line string)) error {
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", m.args...)
	cmd.ExtraFiles = m.files
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return err
	}
	for _, f := range m.files {
		f.Close()
	}
	if err := m.greet(); err != nil {
		_ = cmd.Process.Kill()
		return errors.Join(err, cmd.Wait(), errors.New(beginning(said.Bytes())))
	}
	m.listen(say)
	err := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return nil
	case cmd.ProcessState.ExitCode() < 0: // a signal
		err = fmt.Errorf("%w: %w", errCrashed, err)
	}
	return fmt.Errorf("%w: %s", err, beginning(said.Bytes()))
}

// beginning is enough of what QEMU complains of.
func beginning(said []byte) string { return string(said[:min(len(said), 1000)]) }

// listen reads what the guest says, until QEMU ends. A line "ask COMMAND" wants one line of an answer.
func (m *Machine) listen(say func(line string)) {
	for {
		line, err := m.host.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\n")
		command, isAsk := strings.CutPrefix(line, "ask ")
		if !isAsk {
			say(line)
			continue
		}
		reply := "ok"
		if err := m.obey(strings.Fields(command)); err != nil {
			reply = strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		_, _ = m.host.WriteString(reply + "\n")
		_ = m.host.Flush() // if QEMU is gone the next read says so
	}
}

// obey does to the hardware what the guest asks for:
//
//	gone K 0|1          card K falls off the bus, or comes back
//	away K MS           card K answers all ones for that long
//	resets K MS         function-level resets of card K take that long, all ones meanwhile
//	link K SPEED WIDTH  its link is negotiated anew
//	unplug K, plug K    it is taken out of its slot, or put into it
//	eject K             the guest has taken the power from its slot: that takes it out
func (m *Machine) obey(command []string) error {
	if len(command) < 2 {
		return errors.New("what, of which card?")
	}
	var n [4]int
	for i, word := range command[1:min(len(command), len(n))] {
		var err error
		if n[i], err = strconv.Atoi(word); err != nil {
			return err
		}
	}
	k := n[0]
	if k < 0 || k >= Slots || (m.cards[k] == nil) != (command[0] == "plug") {
		return fmt.Errorf("%s card %d: there is none, or one already", command[0], k)
	}
	switch command[0] {
	case "unplug":
		// Function 0 takes the other one along.
		return errors.Join(m.call("device_del", map[string]any{"id": functionID(k, 0)}, nil), m.eject(k))
	case "eject":
		return m.eject(k)
	case "plug":
		return m.plug(k)
	}
	for _, f := range m.cards[k] {
		if !f.obey(command[0], n[1], n[2]) {
			return fmt.Errorf("what is %s?", command[0])
		}
	}
	return nil
}

// eject waits until card k is out of its slot, because the guest has let it go.
func (m *Machine) eject(k int) error {
	m.cards[k] = nil
	// The slot is free when both are gone: of a card that is put in earlier, QEMU would take away a part.
	for left := len(card{}); left > 0; {
		said, err := m.next()
		if err != nil {
			return err
		}
		if said.Event == "DEVICE_DELETED" && said.Data.Device != "" {
			left--
		}
	}
	return nil
}

// plug puts a new card into slot k. Meanwhile the guest stands still: QEMU takes the power from both functions, one after
// the other, and lets the guest run while it waits for us; a guest that gave them power in between lost a function.
func (m *Machine) plug(k int) error {
	if err := m.call("stop", nil, nil); err != nil {
		return err
	}
	return errors.Join(m.addCard(k), m.call("cont", nil, nil))
}

func (m *Machine) addCard(k int) error {
	c := newCard(false)
	for _, fn := range []int{1, 0} { // the slot comes up when function 0 arrives
		end, err := c[fn].plug()
		if err != nil {
			return err
		}
		id := functionID(k, fn)
		device := map[string]any{
			"driver": proxy, "fd": id, "id": id, "bus": fmt.Sprintf("dp%d", k), "addr": fmt.Sprintf("0.%d", fn), "multifunction": fn == 0,
		}
		err = m.call("getfd", map[string]any{"fdname": id}, end)
		if err == nil {
			err = m.call("device_add", device, nil)
		}
		end.Close()
		if err != nil {
			return err
		}
	}
	m.cards[k] = &c
	return nil
}

// greet begins the conversation with QEMU.
func (m *Machine) greet() error {
	if _, err := m.next(); err != nil {
		return fmt.Errorf("QEMU does not greet: %w", err)
	}
	return m.call("qmp_capabilities", nil, nil)
}

// message is what QEMU says: the answer to a command, or an event.
type message struct {
	Return json.RawMessage
	Error  *struct{ Desc string }
	Event  string
	Data   struct{ Device string }
}

func (m *Machine) next() (message, error) {
	var said message
	_ = m.qmp.SetReadDeadline(time.Now().Add(2 * time.Minute))
	line, err := m.events.ReadBytes('\n')
	if err != nil {
		return said, err
	}
	err = json.Unmarshal(line, &said)
	return said, err
}

// call gives QEMU a command, with a file or without.
func (m *Machine) call(command string, arguments map[string]any, file *os.File) error {
	text, err := json.Marshal(struct {
		Execute   string         `json:"execute"`
		Arguments map[string]any `json:"arguments,omitempty"`
	}{command, arguments})
	if err != nil {
		return err
	}
	var rights []byte
	if file != nil {
		rights = syscall.UnixRights(int(file.Fd()))
	}
	if _, _, err := m.qmp.WriteMsgUnix(append(text, '\n'), rights, nil); err != nil {
		return err
	}
	for {
		said, err := m.next()
		if err != nil {
			return err
		}
		if said.Error != nil {
			return fmt.Errorf("%s: %s", command, said.Error.Desc)
		}
		if said.Return != nil {
			return nil
		}
	}
}
