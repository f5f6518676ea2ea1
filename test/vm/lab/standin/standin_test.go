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
	n.Finds(c, n.Polled, finding.Asleep)
	n.Fault("it answers all ones", func() error { return n.Ask("gone", c, 1) })
	n.Quiet(8 * time.Second) // it is not read, and nobody uses it
	n.Finds(c, n.Polled, finding.Asleep)
	n.Preferred()

	n.Fault("it is woken", func() error { return guest.Write(c.Attribute("power/control"), "on") })
	n.Told(c, guest.Unhealthy, n.Polled)
	n.Finds(c, n.Polled, finding.PowerLost)
	n.Spec(c, node, 0)

	n.Fault("it answers", func() error { return n.Ask("gone", c, 0) })
	n.Fault("its driver is unbound and bound, as the remedy says", func() error { return n.Rebind(c) })
	n.Told(c, guest.Healthy, n.Back)
	n.Spec(c, c.Node(), n.Written)
	n.Well(c, n.Polled)
}

func TestAReadThatHangsDuringUnbind(t *testing.T) {
	n := guest.Start(t, driver)
	hanging, other := n.Card(1), n.Card(2)
	n.Must(guest.Write(hanging.Attribute("hang_ms"), "6000"))
	n.Finds(hanging, n.Command, finding.ReadStalled)
	go func() { _ = guest.Read(hanging.Attribute("rom.u.0/VBNV")) }()
	time.Sleep(200 * time.Millisecond)

	unbound := make(chan error)
	n.Fault("its driver is unbound while a read hangs in it", func() error {
		go func() { unbound <- n.Unbind(hanging) }()
		return nil
	})
	n.SinceEvent(hanging)
	n.Told(hanging, guest.Unhealthy, n.Event)
	n.Spec(hanging, "", n.Written)
	n.Fault("another LPU loses its driver meanwhile", func() error { return n.Unbind(other) })
	n.Told(other, guest.Unhealthy, n.Event)
	n.Run(n.Command, "list")
	n.Must(n.Bind(other))

	n.Must(<-unbound)
	n.Fault("the driver is bound", func() error { return n.Bind(hanging) })
	n.Told(hanging, guest.Healthy, n.Back)
	n.Told(other, guest.Healthy, n.Back)
	n.Spec(hanging, hanging.Node(), n.Written)
	n.Well(hanging, n.Polled)
}

func TestLongNotReady(t *testing.T) {
	n := guest.Start(t, driver)
	c := n.Card(3)

	n.Fault("the driver says that the card is not ready", func() error { return guest.Write(c.Attribute("ready"), "0") })
	n.Finds(c, n.Polled, finding.NotReady)
	n.Quiet(25 * time.Second)
	n.Preferred(c)
	n.Told(c, guest.Unhealthy, 40*time.Second+n.Polled) // a look each ten seconds, and a grace of thirty
	n.Spec(c, c.Node(), 0)

	n.Fault("it is ready", func() error { return guest.Write(c.Attribute("ready"), "1") })
	n.Told(c, guest.Healthy, 10*time.Second+n.Back)
	n.Well(c, n.Polled)
}

func TestLongStall(t *testing.T) {
	n := guest.Start(t, driver)
	c := n.Card(3)

	n.Fault("reads hang in the driver", func() error { return guest.Write(c.Attribute("hang_ms"), "60000") })
	n.Finds(c, n.Command, finding.ReadStalled)
	n.Quiet(25 * time.Second)
	n.Preferred(c)
	n.Told(c, guest.Unhealthy, 45*time.Second) // the same
	n.Spec(c, c.Node(), 0)

	n.Fault("the driver answers", func() error { return guest.Write(c.Attribute("hang_ms"), "0") })
	n.Told(c, guest.Healthy, 80*time.Second)
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
	n.Told(c, guest.Unhealthy, 12*time.Second+n.Polled) // serve reads the command register each ten seconds
	n.Finds(c, n.Polled, finding.ResetBehindDriver)
	n.Spec(c, node, 0)

	n.Fault("the driver is unbound and bound, as the remedy says", func() error { return n.Rebind(c) })
	n.Told(c, guest.Healthy, n.Back)
	n.Well(c, n.Polled)
}
