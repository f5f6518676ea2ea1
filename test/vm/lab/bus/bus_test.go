//go:build vmlab

// Package bus has the faults that need no driver of our own: the LPUs are under uio_pci_generic, which comes with the kernel.
package bus

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/vm/lab/guest"
)

const driver = "uio_pci_generic"

func TestUnboundAndBound(t *testing.T) {
	unboundAndBound(guest.Start(t, driver))
}

// TestLongInAUserNamespace runs serve where no event of the kernel arrives (hostUsers: false in a
// pod).
func TestLongInAUserNamespace(t *testing.T) {
	unboundAndBound(guest.StartIn(t, driver, unix.CLONE_NEWNET|unix.CLONE_NEWUSER))
}

func unboundAndBound(n *guest.Node) {
	c := n.Card(0)
	node := c.Node()

	n.Fault("the driver is unbound", func() error { return n.Unbind(c) })
	n.Told(c, guest.Unhealthy)
	n.Spec(c, "")
	n.Finds(c, finding.NoDriver)

	n.Fault("the driver is bound", func() error { return n.Bind(c) })
	n.Told(c, guest.Healthy)
	n.Spec(c, node)
	n.Well(c)
}

func TestLongRemovedAndFound(t *testing.T) {
	n := guest.Start(t, driver)
	c := n.Card(1)
	node := c.Node()

	n.Fault("the LPU is removed", func() error { return n.Remove(c.Address()) })
	n.Told(c, guest.Unhealthy)
	n.Spec(c, "")
	n.Finds(c, finding.Gone, finding.Absent)

	n.Fault("the bus is scanned", n.Rescan)
	n.Told(c, guest.Healthy)
	n.Spec(c, node)
	n.Well(c)
}

func TestSlotOffAndACardPutIn(t *testing.T) {
	n := guest.Start(t, driver)
	c := n.Card(2)
	node := c.Node()

	n.Fault("the power of the slot is turned off", func() error { return n.SlotOff(c) })
	n.Told(c, guest.Unhealthy)
	n.Spec(c, "")
	n.Finds(c, finding.Gone, finding.Absent)

	n.Fault("a card is put in", func() error { return n.Ask("plug", c) })
	n.SinceEvent(c)
	n.Told(c, guest.Healthy)
	n.Spec(c, node)
	n.Well(c)
}

func TestLongUnpluggedAndPlugged(t *testing.T) {
	n := guest.Start(t, driver)
	c := n.Card(3)
	node := c.Node()

	n.Fault("the card is unplugged", func() error { return n.Ask("unplug", c) })
	n.SinceEvent(c) // the kernel lets five seconds pass, in which the button of the slot could be pressed again
	n.Told(c, guest.Unhealthy)
	n.Spec(c, "")
	n.Finds(c, finding.Gone, finding.Absent)

	n.Fault("the card is plugged", func() error { return n.Ask("plug", c) })
	n.SinceEvent(c)
	n.Told(c, guest.Healthy)
	n.Spec(c, node)
	n.Well(c)
}

func TestLink(t *testing.T) {
	n := guest.Start(t, driver)
	c := n.Card(0)
	node := c.Node()

	n.Fault("the link has four lanes", func() error { return n.Ask("link", c, 3, 4) })
	n.Finds(c, finding.LinkDegraded)
	n.Fault("the link has no lanes", func() error { return n.Ask("link", c, 0, 0) }) // which is no measure
	n.Fault("the link is whole", func() error { return n.Ask("link", c, 3, 16) })
	n.Lacks(c, finding.LinkDegraded)
	n.Quiet()
	n.SpecKeeps(c, node)
}

func TestAllOnesForASecond(t *testing.T) {
	n := guest.Start(t, driver)
	c := n.Card(4)

	n.Fault("the card answers all ones for a second", func() error { return n.Ask("away", c, 1000) })
	n.QuietFor(7 * time.Second)
	n.SpecKeeps(c, c.Node())
	n.Well(c)
}

func TestAllOnesForGood(t *testing.T) {
	n := guest.Start(t, driver)
	c := n.Card(4)

	n.Fault("the card answers all ones", func() error { return n.Ask("gone", c, 1) })
	n.Finds(c, finding.NoAnswer)
	n.QuietFor(3 * time.Second) // it may be a reset
	n.Preferred(c)
	n.Told(c, guest.Unhealthy)
	n.SpecKeeps(c, c.Node())
	n.Preferred(c)

	n.Fault("the card answers", func() error { return n.Ask("gone", c, 0) })
	n.Told(c, guest.Healthy)
	n.SpecKeeps(c, c.Node())
	n.Well(c)
}

func TestDeadAndRebound(t *testing.T) {
	n := guest.Start(t, driver)
	c := n.Card(0)
	for range 2 { // the kernel keeps D3cold, so a second time may look otherwise
		n.Fault("the card answers all ones", func() error { return n.Ask("gone", c, 1) })
		n.Fault("its driver is unbound and bound", func() error { return n.Rebind(c) })
		n.Never(c, guest.Healthy, 7*time.Second) // it would be healthy again after three good seconds
		n.Told(c, guest.Unhealthy)
		n.Finds(c, finding.PowerLost, finding.NoAnswer)

		n.Fault("the card answers", func() error { return n.Ask("gone", c, 0) })
		n.Finds(c, finding.PowerLost)
		n.Fault("its driver is unbound and bound", func() error { return n.Rebind(c) })
		n.Told(c, guest.Healthy)
		n.Spec(c, c.Node())
		n.Well(c)
	}
}

func TestLongResetOfATenthOfASecond(t *testing.T) {
	n := guest.Start(t, driver)
	c := n.Card(0)
	n.Must(n.Ask("resets", c, 100))

	n.Fault("the kernel resets the LPU", func() error { return n.Reset(c) })
	n.QuietFor(4 * time.Second)
	n.SpecKeeps(c, c.Node())
	n.Well(c)
}

func TestResetOf6Seconds(t *testing.T) { reset(t, 6*time.Second) }

func TestLongResetOf70Seconds(t *testing.T) { reset(t, 70*time.Second) }

// reset lets the kernel reset an LPU, meanwhile commands run, and serve is ended and started again.
func reset(t *testing.T, takes time.Duration) {
	n := guest.Start(t, driver)
	c := n.Card(5)
	node := c.Node()
	n.Must(n.Ask("resets", c, int(takes.Milliseconds())))
	t.Cleanup(func() { n.Must(n.Ask("resets", c, 0)) })

	done := make(chan error)
	n.Fault("the kernel resets the LPU", func() error {
		go func() { done <- n.Reset(c) }()
		return nil
	})
	time.Sleep(300 * time.Millisecond)
	n.Run("cdi", "refresh")
	n.Run("list")
	n.SpecKeeps(c, node)
	n.EndServe()
	n.Serve()
	n.QuietFor(4*time.Second, c)
	n.SpecKeeps(c, node)
	if takes > 10*time.Second {
		n.Told(c, guest.Unhealthy)
		n.Run("cdi", "refresh")
		n.EndServe()
		n.Serve()
	}
	n.Fault("the reset is over", func() error {
		err := <-done
		if err == nil {
			return nil
		}
		t.Logf("the kernel gives up: %v", err) // after 65 seconds
		n.Until("the LPU answers", func() bool { return guest.Read(c.Attribute("current_link_width")) == "16" })
		return n.Rebind(c)
	})
	n.SinceNow()
	n.Told(c, guest.Healthy)
	n.Spec(c, c.Node())
	n.Well(c)
}

func TestNodesSwapped(t *testing.T) {
	n := guest.Start(t, driver)
	a, b := n.Card(0), n.Card(1)
	nodes := [2]string{a.Node(), b.Node()}
	held, err := os.Open(nodes[0]) // by a process from before
	n.Must(err)
	defer held.Close()

	n.Fault("two LPUs swap their nodes", func() error {
		return errors.Join(n.Unbind(a), n.Unbind(b), n.Bind(b), n.Bind(a))
	})
	if a.Node() != nodes[1] || b.Node() != nodes[0] {
		t.Fatalf("%s and %s are %s and %s", nodes[0], nodes[1], a.Node(), b.Node())
	}
	n.Spec(a, nodes[1])
	n.Spec(b, nodes[0])
	n.Finds(a, finding.Rebound)
	n.Quiet(a, b)
}

func TestLongReboundWhileUsed(t *testing.T) {
	n := guest.Start(t, driver)
	c := n.Card(6)
	held, err := os.Open(c.Node()) // by a process from before
	n.Must(err)

	n.Fault("the driver is unbound and bound", func() error { return n.Rebind(c) })
	n.Told(c, guest.Healthy)
	n.Finds(c, finding.Rebound)
	time.Sleep(20 * time.Second) // serve looks for processes each ten
	n.Finds(c, finding.Rebound)
	n.Must(held.Close())
	n.Lacks(c, finding.Rebound)
	n.Well(c)
}

func TestLongSwitchRemoved(t *testing.T) {
	n := guest.Start(t, driver)
	cards := []guest.Card{n.Card(4), n.Card(5), n.Card(6), n.Card(7)}

	n.Fault("four cards are removed with their switch", func() error { return n.Remove(cards[0].Switch()) })
	for _, c := range cards {
		n.Told(c, guest.Unhealthy)
		n.Spec(c, "")
	}
	n.Quiet(cards...)
	n.Finds(cards[0], finding.Gone, finding.Absent)

	n.Fault("the bus is scanned", n.Rescan)
	n.SinceEvent(cards[3])
	for _, c := range cards {
		n.Told(c, guest.Healthy)
		n.Spec(c, c.Node())
	}
	n.Well(cards[0])
}

func TestThreeFaultsAtOnce(t *testing.T) {
	n := guest.Start(t, driver)
	dead, removed, unbound := n.Card(0), n.Card(1), n.Card(5)

	n.Fault("one card answers all ones, one is removed, one loses its driver", func() error {
		return errors.Join(n.Ask("gone", dead, 1), n.Remove(removed.Address()), n.Unbind(unbound))
	})
	n.Told(removed, guest.Unhealthy)
	n.Told(unbound, guest.Unhealthy)
	n.Finds(removed, finding.Gone, finding.Absent)
	n.Finds(unbound, finding.NoDriver)
	n.Finds(dead, finding.NoAnswer)
	n.Told(dead, guest.Unhealthy)
	n.Quiet(dead, removed, unbound)

	n.Fault("all come back", func() error { return errors.Join(n.Ask("gone", dead, 0), n.Rescan(), n.Bind(unbound)) })
	for _, c := range []guest.Card{dead, removed, unbound} {
		n.Told(c, guest.Healthy)
		n.Spec(c, c.Node())
		n.Well(c)
	}
}

func TestLongRemovalsDuringScans(t *testing.T) {
	n := guest.Start(t, driver)
	removed, unbound := n.Card(1), n.Card(4)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			for _, lpu := range n.List().LPUs {
				if lpu.Health != "healthy" && lpu.Address != removed.Address() && lpu.Address != unbound.Address() {
					t.Errorf("during removals of other LPUs list says %+v", lpu)
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()

	n.Fault("one LPU is removed and found, one loses its driver and gets it again, 25 times", func() error {
		var err error
		for range 25 {
			err = errors.Join(err, n.Remove(removed.Address()), n.Rescan(), n.Rebind(unbound))
		}
		return err
	})
	close(stop)
	<-stopped
	n.Fault("they stay", func() error { return nil })
	for _, c := range []guest.Card{removed, unbound} {
		n.Told(c, guest.Healthy)
		n.Spec(c, c.Node())
		n.Well(c)
	}
	n.Quiet(removed, unbound)
}
