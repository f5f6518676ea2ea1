package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// proxy is the device whose configuration space another process serves.
const proxy = "x-pci-proxy-dev"

// slots is how many cards a machine takes: four behind each of two switches, on two NUMA nodes.
const slots = 8

// machine is a virtual server.
type machine struct {
	cards  [slots]*card
	host   *bufio.ReadWriter // the port by which the guest reports and asks
	qmp    *net.UnixConn
	events *bufio.Reader // what QEMU says on qmp
	files  []*os.File    // for QEMU to inherit
	args   []string
}

// newMachine is a server with n cards, of which one may be sick (-1: none).
func newMachine(n, sick int) (*machine, error) {
	m := &machine{}
	host, err := m.socket()
	if err != nil {
		return nil, err
	}
	m.host = bufio.NewReadWriter(bufio.NewReader(host), bufio.NewWriter(host))
	if m.qmp, err = m.socket(); err != nil {
		return nil, err
	}
	m.events = bufio.NewReader(m.qmp)
	m.args = []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35", "-accel", "tcg", "-smp", "2", "-m", "1536M",
		// The proxies want memory they could share, and two nodes make a server.
		"-object", "memory-backend-memfd,id=m0,size=768M,share=on", "-object", "memory-backend-memfd,id=m1,size=768M,share=on",
		"-numa", "node,nodeid=0,cpus=0,memdev=m0", "-numa", "node,nodeid=1,cpus=1,memdev=m1",
		"-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off", // PCIe hot-plug, as servers have it
		"-chardev", "socket,id=host,fd=3", "-device", "virtio-serial-pci,bus=pcie.0", "-device", "virtserialport,chardev=host,name=host",
		"-chardev", "socket,id=qmp,fd=4", "-mon", "chardev=qmp,mode=control",
	}
	for s := range 2 {
		m.add("pxb-pcie,id=pxb%d,bus=pcie.0,bus_nr=%d,numa_node=%d", s, 0x40+0x40*s, s)
		m.add("pcie-root-port,id=rp%d,bus=pxb%d,chassis=%d,slot=%d,x-speed=16,x-width=16", s, s, 1+s, 1+s)
		m.add("x3130-upstream,id=up%d,bus=rp%d", s, s)
		for p := range slots / 2 {
			k := s*slots/2 + p
			m.add("xio3130-downstream,id=dp%d,bus=up%d,chassis=%d,slot=%d,addr=%d", k, s, 10+k, 10+k, p)
		}
	}
	for k := range n {
		c := newCard(k == sick)
		m.cards[k] = &c
		for fn, f := range c {
			end, err := f.plug()
			if err != nil {
				return nil, err
			}
			m.add(proxy+",fd=%d,id=%s,bus=dp%d,addr=0.%d,multifunction=%s", m.inherit(end), functionID(k, fn), k, fn, onOff(fn == 0))
		}
	}
	return m, nil
}

func (m *machine) add(device string, args ...any) {
	m.args = append(m.args, "-device", fmt.Sprintf(device, args...))
}

// inherit returns the number that a file has in QEMU.
func (m *machine) inherit(f *os.File) int {
	m.files = append(m.files, f)
	return 2 + len(m.files)
}

// socket is our end of a connection to QEMU.
func (m *machine) socket() (*net.UnixConn, error) {
	ours, theirs, err := socketPair()
	if err == nil {
		m.inherit(theirs)
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

// boot boots the machine, until it is powered off, and hands each line of the guest's report to say.
func (m *machine) boot(ctx context.Context, root, disk, payload, console, kernelArgs string, say func(line string)) error {
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", append(m.args,
		"-kernel", filepath.Join(root, "vmlinuz"), "-initrd", filepath.Join(root, "initrd.img"),
		"-append", "root=/dev/vda rw console=ttyS0 quiet panic=-1 "+kernelArgs, "-serial", "file:"+console,
		"-drive", "if=none,id=disk,format=raw,cache=unsafe,file="+disk, "-device", "virtio-blk-pci,bus=pcie.0,drive=disk",
		"-drive", "if=none,id=payload,format=raw,read-only=on,file="+payload, "-device", "virtio-blk-pci,bus=pcie.0,drive=payload")...)
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
	if err := cmd.Wait(); ctx.Err() != nil {
		return ctx.Err()
	} else if err != nil {
		return fmt.Errorf("%w: %s", err, beginning(said.Bytes()))
	}
	return nil
}

// beginning is enough of what QEMU complains of.
func beginning(said []byte) string { return string(said[:min(len(said), 1000)]) }

// listen reads what the guest says, until QEMU ends. A line "ask COMMAND" wants one line of an answer.
func (m *machine) listen(say func(line string)) {
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
//	link K SPEED WIDTH  its link is negotiated anew
//	unplug K, plug K    it is taken out of its slot, or put into it
func (m *machine) obey(command []string) error {
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
	if k < 0 || k >= slots || (m.cards[k] == nil) != (command[0] == "plug") {
		return fmt.Errorf("%s card %d: there is none, or one already", command[0], k)
	}
	switch command[0] {
	case "gone":
		for _, f := range m.cards[k] {
			f.setGone(n[1] != 0)
		}
	case "link":
		for _, f := range m.cards[k] {
			f.setLink(n[1], n[2])
		}
	case "unplug":
		return m.unplug(k)
	case "plug":
		return m.plug(k)
	default:
		return fmt.Errorf("what is %s?", command[0])
	}
	return nil
}

// unplug takes card k out of its slot, and returns when the guest has let it go.
func (m *machine) unplug(k int) error {
	m.cards[k] = nil
	// Function 0 takes the other one along.
	if err := m.call("device_del", map[string]any{"id": functionID(k, 0)}, nil); err != nil {
		return err
	}
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
func (m *machine) plug(k int) error {
	if err := m.call("stop", nil, nil); err != nil {
		return err
	}
	return errors.Join(m.addCard(k), m.call("cont", nil, nil))
}

func (m *machine) addCard(k int) error {
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
func (m *machine) greet() error {
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

func (m *machine) next() (message, error) {
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
func (m *machine) call(command string, arguments map[string]any, file *os.File) error {
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
