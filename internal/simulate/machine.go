package simulate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Machine is a simulated node that changes while programs look at it. Each method leaves
// the tree as the kernel of such a machine would; in between, a program sees what it
// could see there too. LPUs are named by their index in ascending order of PCI addresses,
// as it was before any fault or change. The methods must not be called at the same time.
type Machine struct {
	server *server
	tree   *tree
}

// Card is the present state of an LPU's card.
type Card struct {
	Address pci.Address // of the LPU
	// Dir is the directory of the LPU's function, below the root:
	// "sys/devices/pci0000:40/...".
	Dir     string
	Node    string  // path of the device node: "/dev/dri/renderD130"
	Numbers Numbers // of the device node
	Plugged bool    // the card is on the bus
	Bound   bool    // its driver is bound. Only a card that is plugged and bound has a node
}

// Card returns the present state of a card. It is the zero Card if there is none of this
// index.
func (m *Machine) Card(i int) Card {
	if i < 0 || i >= len(m.server.cards) {
		return Card{}
	}
	c := m.server.cards[i]
	card := Card{Address: c.lpu().address, Dir: c.lpu().dir, Plugged: !c.unplugged, Bound: c.lpu().driver != ""}
	if nodes := c.nodes(); len(nodes) > 0 {
		card.Node, card.Numbers = "/dev/"+nodes[0].node(), nodes[0].numbers
	}
	return card
}

// DeviceNodes reports whether the tree has a dev, as [Result] does.
func (m *Machine) DeviceNodes() bool { return m.tree.nodes }

// LPUs returns the number of cards, whether or not they are plugged.
func (m *Machine) LPUs() int { return len(m.server.cards) }

// at returns a card by its index. The error is that there is none, or that ok refuses it.
func (m *Machine) at(i int, problem string, ok func(*card) bool) (*card, error) {
	if i < 0 || i >= len(m.server.cards) {
		return nil, fmt.Errorf("there is no LPU %d", i)
	}
	if c := m.server.cards[i]; ok(c) {
		return c, nil
	}
	return nil, fmt.Errorf("LPU %d %s", i, problem)
}

func (m *Machine) plugged(i int) (*card, error) {
	return m.at(i, "is not plugged", func(c *card) bool { return !c.unplugged })
}

func (m *Machine) driven(i int) (*card, error) {
	return m.at(i, "has no driver", func(c *card) bool { return !c.unplugged && c.lpu().driver != "" })
}

// done returns the first error of the writing since the last call.
func (m *Machine) done() error {
	err := m.tree.err
	m.tree.err = nil
	return err
}

// Unplug takes a card out of its slot.
func (m *Machine) Unplug(i int) error {
	c, err := m.plugged(i)
	if err != nil {
		return err
	}
	for _, f := range slices.Backward(c.functions) {
		f.remove(m.tree)
		f.hidden, f.condition = nil, sound
	}
	m.setPlugged(c, false)
	c.writePort(m.tree)
	return m.done()
}

// Replug puts a card back into its slot. The error is an *InvalidError if another device
// has its numbers now: Renumber the card before.
func (m *Machine) Replug(i int) error {
	c, err := m.at(i, "is plugged", func(c *card) bool { return c.unplugged })
	if err != nil {
		return err
	}
	m.setPlugged(c, true)
	if err := m.server.checkNumbers(); err != nil {
		m.setPlugged(c, false)
		return err
	}
	c.writePort(m.tree)
	for _, f := range c.functions {
		f.write(m.tree)
	}
	return m.done()
}

func (m *Machine) setPlugged(c *card, plugged bool) {
	c.unplugged = !plugged
	port, l := c.lpu().parent, c.lpu().link
	if plugged {
		m.server.functions = append(m.server.functions, c.functions...)
		port.link.gen, port.link.width = l.gen, l.width
		return
	}
	m.server.functions = slices.DeleteFunc(m.server.functions, func(f *function) bool { return slices.Contains(c.functions, f) })
	port.link.gen, port.link.width = 1, 0
}

// writePort writes what the port of a card's slot says of the card.
func (c *card) writePort(t *tree) {
	port := c.lpu().parent
	t.attributes(port.dir, port.linkAttributes())
	t.bytes(port.dir+"/config", port.config(), 0o644)
	adapter := "1"
	if c.unplugged {
		adapter = "0"
	}
	t.text(fmt.Sprint("sys/bus/pci/slots/", port.slot, "/adapter"), adapter)
}

// Unbind takes the driver from an LPU, and with it all that the driver made.
func (m *Machine) Unbind(i int) error {
	c, err := m.driven(i)
	if err != nil {
		return err
	}
	f := c.lpu()
	f.removeOfDriver(m.tree)
	m.tree.remove(f.dir+"/driver", driverLink(f.driver, f.address.String()))
	c.unbound, f.binding = f.binding, binding{}
	m.writeBinding(f)
	return m.done()
}

// Bind gives an LPU the driver back that Unbind took. The error is an *InvalidError if
// another device has its numbers now.
func (m *Machine) Bind(i int) error {
	c, err := m.at(i, "is not unbound", func(c *card) bool { return !c.unplugged && c.unbound.driver != "" })
	if err != nil {
		return err
	}
	f := c.lpu()
	f.binding, c.unbound = c.unbound, f.binding
	if err := m.server.checkNumbers(); err != nil {
		f.binding, c.unbound = c.unbound, f.binding
		return err
	}
	f.disabled = false // which the driver does when it is bound
	m.tree.links(f.dir, "driver", "sys/bus/pci/drivers/"+f.driver, f.address.String())
	m.writeBinding(f)
	f.writeOfDriver(m.tree)
	return m.done()
}

// writeBinding writes what the core says of the driver.
func (m *Machine) writeBinding(f *function) {
	m.tree.attributes(f.dir, f.visible(f.driverAttributes()))
	m.tree.bytes(f.dir+"/config", f.config(), 0o644)
	if !slices.Contains(f.hidden, "uevent") {
		m.tree.text(f.dir+"/uevent", f.attribute("uevent"))
	}
}

// change changes something of a plugged card that the PCI core shows.
func (m *Machine) change(i int, change func(*card)) error {
	c, err := m.plugged(i)
	if err != nil {
		return err
	}
	change(c)
	c.writePort(m.tree)
	for _, f := range c.functions {
		m.tree.attributes(f.dir, f.visible(f.driverAttributes()+f.linkAttributes()))
		m.tree.bytes(f.dir+"/config", f.config(), 0o644)
		f.writeErrors(m.tree)
	}
	return m.done()
}

// visible are those lines NAME=TEXT whose attributes are not hidden.
func (f *function) visible(lines string) (shown string) {
	for line := range strings.Lines(lines) {
		if name, _, _ := strings.Cut(line, "="); !slices.Contains(f.hidden, name) {
			shown += line
		}
	}
	return shown
}

// AllOnes makes a card answer nothing, or answer again: reads of it give all ones. Ids
// stay, because the kernel has read them before. A reset looks so while it lasts, and a
// dead card for ever.
func (m *Machine) AllOnes(i int, ones bool) error {
	return m.change(i, mute(ones))
}

// Power sets what the kernel says of a card's power: power_state, such as "D3cold", while
// a driver is bound, and power/runtime_status, such as "suspended". Of a new card they
// are "D0" and "active".
func (m *Machine) Power(i int, state, status string) error {
	return m.change(i, setPower(state, status))
}

// LinkNow trains a card's link again: generation 1 to 5 and lanes. 0: as it is.
func (m *Machine) LinkNow(i int, generation, width uint16) error {
	return m.change(i, trainLink(generation, width))
}

// CountErrors adds to the errors that the kernel has counted of an LPU: correctable,
// nonfatal or fatal ones.
func (m *Machine) CountErrors(i int, kind string, n uint64) error {
	return m.change(i, countErrors(kind, n))
}

// ResetBehindDriver resets a card without its driver, so that its command register is 0.
// Unbind and Bind mend it.
func (m *Machine) ResetBehindDriver(i int) error {
	return m.change(i, resetBehindDriver)
}

// Set gives an attribute that the LPU's driver made another value: "device_bad_state" or,
// of a device below the function, "mig.u/ecc_ue_cnt", "hwmon/temp1_input", "ha/state".
func (m *Machine) Set(i int, name, text string) error {
	c, err := m.driven(i)
	if err != nil {
		return err
	}
	file := c.lpu().set(name, text)
	if file == "" {
		return fmt.Errorf("LPU %d has no attribute %s", i, name)
	}
	m.tree.text(file, text)
	return m.done()
}

// Renumber gives the node of an LPU other device numbers, as when its driver is loaded
// again after others. A DRM node with numbers of DRM gets the name that belongs to them.
// The error is an *InvalidError if another device has the numbers.
func (m *Machine) Renumber(i int, n Numbers) error {
	c, err := m.at(i, "has no node", func(c *card) bool { return len(c.nodes()) > 0 })
	if err != nil {
		return err
	}
	node := c.nodes()[0]
	name := node.name
	if node.class == "drm" && n.Major == drmMajor {
		name = fmt.Sprint("renderD", n.Minor)
	}
	other := &child{name: name, numbers: n}
	return m.rename(func() { node.swap(other) }, c)
}

// SwapNodes gives each of two cards the nodes of the other, names and numbers, as when
// the driver meets them in another order.
func (m *Machine) SwapNodes(i, j int) error {
	ok := func(c *card) bool { return len(c.nodes()) > 0 }
	a, err1 := m.at(i, "has no node", ok)
	b, err2 := m.at(j, "has no node", ok)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if len(a.nodes()) != len(b.nodes()) {
		return fmt.Errorf("LPU %d and LPU %d do not have the same number of nodes", i, j)
	}
	return m.rename(func() {
		for i, n := range a.nodes() {
			n.swap(b.nodes()[i])
		}
	}, a, b)
}

// rename gives the nodes of some cards other names and numbers, with a swap that a second
// one takes back. Where the driver is bound it lets go of the nodes of all of them before
// it makes new ones.
func (m *Machine) rename(swap func(), cards ...*card) error {
	swap()
	err := m.server.checkNumbers()
	swap()
	if err != nil {
		return err
	}
	cards = slices.DeleteFunc(cards, func(c *card) bool { return c.unplugged })
	for _, c := range cards {
		for _, n := range c.lpu().nodes() {
			n.remove(m.tree, c.lpu().dir)
		}
	}
	swap()
	for _, c := range cards {
		for _, n := range c.lpu().nodes() {
			n.write(m.tree, c.lpu().dir)
		}
	}
	return m.done()
}

// Hide makes attributes of the LPU's function unreadable, such as "vendor", "uevent" and
// "modalias". Show or Unplug ends it.
func (m *Machine) Hide(i int, attributes ...string) error {
	c, err := m.plugged(i)
	if err != nil {
		return err
	}
	f := c.lpu()
	for _, name := range attributes {
		if !slices.Contains(f.hidden, name) {
			f.hidden = append(f.hidden, name)
			m.tree.hide(f.dir + "/" + name)
		}
	}
	return m.done()
}

// Show makes all hidden attributes of the LPU's function readable again.
func (m *Machine) Show(i int) error {
	c, err := m.plugged(i)
	if err != nil {
		return err
	}
	f := c.lpu()
	for _, name := range f.hidden {
		m.tree.text(f.dir+"/"+name, f.attribute(name))
	}
	f.hidden = nil
	return m.done()
}

// attribute returns the text of an attribute of the PCI core.
func (f *function) attribute(name string) string {
	if name == "uevent" {
		return ueventOf(f.driver, f.uevent())
	}
	for line := range strings.Lines(f.attributes()) {
		if text, ok := strings.CutPrefix(line, name+"="); ok {
			return strings.TrimSuffix(text, "\n")
		}
	}
	return ""
}
