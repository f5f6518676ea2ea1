//go:build vmlab

// Package standin has the faults for which the LPUs need a driver that does more than a generic one: test/vm/lab/driver.
package standin

import (
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/vm/lab/guest"
)

const driver = "lpu_sim"

func TestSuspendedAndDead(t *testing.T) {
	n := guest.Start(t, driver)
	c := n.Card(0)
	node := c.Node()

	n.Fault("the kernel puts the LPU to sleep", func() error { return n.Sleep(c) })
	n.Finds(c, finding.Asleep)
	n.Fault("it answers all ones", func() error { return n.Ask("gone", c, 1) })
	n.QuietFor(8 * time.Second) // it is not read, and nobody uses it
	n.Finds(c, finding.Asleep)
	n.Preferred()

	n.Fault("it is woken", func() error { return guest.Write(c.Attribute("power/control"), "on") })
	n.Told(c, guest.Unhealthy)
	n.Finds(c, finding.PowerLost)
	n.SpecKeeps(c, node)

	n.Fault("it answers", func() error { return n.Ask("gone", c, 0) })
	n.Fault("its driver is unbound and bound, as the remedy says", func() error { return n.Rebind(c) })
	n.Told(c, guest.Healthy)
	n.Spec(c, c.Node())
	n.Well(c)
}

func TestAReadThatHangsDuringUnbind(t *testing.T) {
	n := guest.Start(t, driver)
	hanging, other := n.Card(1), n.Card(2)
	t.Cleanup(func() { n.Must(n.LetGo()) })
	n.Must(n.Hang(hanging))
	n.Finds(hanging, finding.ReadStalled)
	n.Must(n.Read(hanging))

	unbound := make(chan error, 1)
	n.Fault("its driver is unbound while a read hangs in it", func() error {
		go func() { unbound <- n.Unbind(hanging) }()
		return nil
	})
	n.SinceEvent(hanging)
	n.Told(hanging, guest.Unhealthy)
	n.Spec(hanging, "")
	n.Fault("another LPU loses its driver meanwhile", func() error { return n.Unbind(other) })
	n.Told(other, guest.Unhealthy)
	n.Run("list")
	n.Must(n.Bind(other))
	select {
	case err := <-unbound:
		t.Fatalf("the unbinding waits for no read: %v", err)
	default: // so none of all this has waited for the read
	}

	n.Must(n.LetGo())
	n.Must(<-unbound)
	n.Fault("the driver is bound", func() error { return n.Bind(hanging) })
	n.Told(hanging, guest.Healthy)
	n.Told(other, guest.Healthy)
	n.Spec(hanging, hanging.Node())
	n.Well(hanging)
}

func TestLongNotReady(t *testing.T) {
	n := guest.Start(t, driver)
	c := n.Card(3)

	n.Fault("the driver says that the card is not ready", func() error { return guest.Write(c.Attribute("ready"), "0") })
	n.Finds(c, finding.NotReady)
	n.QuietFor(25 * time.Second)
	n.Preferred(c)
	n.Told(c, guest.Unhealthy) // a look each ten seconds, and a grace of thirty
	n.SpecKeeps(c, c.Node())

	n.Fault("it is ready", func() error { return guest.Write(c.Attribute("ready"), "1") })
	n.Told(c, guest.Healthy)
	n.Well(c)
}

func TestLongStall(t *testing.T) {
	n := guest.Start(t, driver)
	c := n.Card(3)

	t.Cleanup(func() { n.Must(n.LetGo()) })
	n.Fault("reads hang in the driver", func() error { return n.Hang(c) })
	n.Finds(c, finding.ReadStalled)
	n.QuietFor(25 * time.Second)
	n.Preferred(c)
	n.Told(c, guest.Unhealthy) // the same
	n.SpecKeeps(c, c.Node())

	n.Fault("the driver answers", func() error { return guest.Write(c.Attribute("hang"), "0") })
	n.Told(c, guest.Healthy)
}

// TestLongResetBehindTheDriver resets the bus of a card as setpci can.
func TestLongResetBehindTheDriver(t *testing.T) {
	n := guest.Start(t, driver)
	c := n.Card(4)
	node := c.Node()

	n.Fault("the bus of the card is reset by the port above it", func() error { return n.BusReset(c) })
	if config := guest.Read(c.Attribute("config")); config[4]&2 != 0 {
		t.Fatalf("the card was not reset: %x", config[:8])
	}
	n.Told(c, guest.Unhealthy) // serve reads the command register each ten seconds
	n.Finds(c, finding.ResetBehindDriver)
	n.SpecKeeps(c, node)

	n.Fault("the driver is unbound and bound, as the remedy says", func() error { return n.Rebind(c) })
	n.Told(c, guest.Healthy)
	n.Well(c)
}
