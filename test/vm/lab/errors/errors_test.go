//go:build vmlab

// Package errors has the errors that PCI Express reports (AER). Cards 6 and 7 are network cards, which have registers for them, and
// the others only report what happens at the port above.
package errors

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/vm/lab/guest"
)

// The drivers: one takes part in the recovery of the kernel, one does not.
const (
	withHandlers    = "lpu_sim"
	withoutHandlers = "uio_pci_generic"
)

func TestCorrectableAtTheEndpoint(t *testing.T) {
	n := guest.Start(t, withHandlers)
	c := n.Card(6)
	n.Fault("more errors are corrected than policy allows", func() error { return correctable(n, c.Address()) })
	n.Finds(c, finding.AERCorrectable)
	n.Quiet()
}

func TestLongCorrectableAtThePort(t *testing.T) {
	n := guest.Start(t, withHandlers)
	c := n.Card(0)
	n.Fault("more errors are corrected than policy allows", func() error { return correctable(n, c.Port()) })
	n.Warns(c.Port(), finding.PortErrors)
	n.Well(c)
	n.Quiet()
}

func TestNonFatalAtTheEndpointRecovered(t *testing.T) {
	n := guest.Start(t, withHandlers)
	recovered(n, n.Card(7), n.Card(7).Address(), guest.CompletionTimeout)
	n.Finds(n.Card(7), finding.AERNonFatal)
}

func TestLongNonFatalAtThePortRecovered(t *testing.T) {
	n := guest.Start(t, withHandlers)
	recovered(n, n.Card(1), n.Card(1).Port(), guest.CompletionTimeout)
	n.Warns(n.Card(1).Port(), finding.PortErrors)
}

func TestLongFatalAtTheEndpointRecovered(t *testing.T) {
	n := guest.Start(t, withHandlers)
	recovered(n, n.Card(6), n.Card(6).Address(), guest.MalformedTLP)
}

func TestFatalAtThePortRecovered(t *testing.T) {
	n := guest.Start(t, withHandlers)
	recovered(n, n.Card(2), n.Card(2).Port(), guest.MalformedTLP)
	n.Warns(n.Card(2).Port(), finding.PortErrors)
}

func TestNonFatalAtTheEndpointNotRecovered(t *testing.T) {
	n := guest.Start(t, withoutHandlers)
	notRecovered(n, n.Card(7), n.Card(7).Address(), guest.CompletionTimeout)
}

func TestLongNonFatalAtThePortNotRecovered(t *testing.T) {
	n := guest.Start(t, withoutHandlers)
	notRecovered(n, n.Card(1), n.Card(1).Port(), guest.CompletionTimeout)
}

func TestLongFatalAtTheEndpointNotRecovered(t *testing.T) {
	n := guest.Start(t, withoutHandlers)
	notRecovered(n, n.Card(6), n.Card(6).Address(), guest.MalformedTLP)
}

func TestFatalAtThePortNotRecovered(t *testing.T) {
	n := guest.Start(t, withoutHandlers)
	notRecovered(n, n.Card(2), n.Card(2).Port(), guest.MalformedTLP)
}

// TestInAPod runs serve in a network namespace without any capability. The kernel's events reach
// it all the same: nothing else shows a failed recovery.
func TestInAPod(t *testing.T) {
	n := guest.StartIn(t, withoutHandlers, unix.CLONE_NEWNET)
	if status := n.ServeStatus(); !strings.Contains(status, "CapEff:\t0000000000000000") {
		t.Fatalf("it has capabilities: %s", status)
	}
	notRecovered(n, n.Card(7), n.Card(7).Address(), guest.MalformedTLP)
}

// recovered wants a warning when the kernel recovers an LPU from an error. The management function needs a driver with handlers too.
func recovered(n *guest.Node, c guest.Card, at string, uncorrectable uint32) {
	if c.Management() != c.Address() {
		n.Must(bindManagement())
	}
	n.Fault("an error is reported by "+at, func() error { return n.Inject(at, uncorrectable, 0) })
	n.SinceEvent(c, "ERROR_EVENT=SUCCESSFUL_RECOVERY")
	n.Finds(c, finding.Recovered)
	n.Well(c) // list judges by what serve remembers
	n.Quiet()
}

// notRecovered wants an LPU that the kernel could not recover to be unhealthy until its driver is bound again.
func notRecovered(n *guest.Node, c guest.Card, at string, uncorrectable uint32) {
	n.Fault("an error is reported by "+at, func() error { return n.Inject(at, uncorrectable, 0) })
	n.SinceEvent(c, "ERROR_EVENT=FAILED_RECOVERY")
	n.Told(c, guest.Unhealthy)
	n.Finds(c, finding.RecoveryFailed)
	n.SpecKeeps(c, c.Node())
	n.Quiet(c)

	n.Fault("the driver is unbound and bound, as the remedy says", func() error { return n.Rebind(c) })
	n.Told(c, guest.Healthy)
	n.Well(c)
}

// bindManagement binds the stand-in driver to the management functions.
func bindManagement() error {
	err := guest.Write("/sys/bus/pci/drivers/"+withHandlers+"/new_id", "10ee 505c")
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// correctable reports corrected errors of a function, one after the other, until the kernel has counted more than 100.
func correctable(n *guest.Node, address string) error {
	for counted := uint64(0); counted <= 100; {
		if err := n.Inject(address, 0, guest.ReceiverError); err != nil && !errors.Is(err, syscall.EBUSY) { // busy with the one before
			return err
		}
		var err error
		if counted, err = total(address, "aer_dev_correctable"); err != nil {
			return err
		}
	}
	return nil
}

// total is the sum in the last line of a file of counters.
func total(address, file string) (uint64, error) {
	fields := strings.Fields(guest.Read("/sys/bus/pci/devices/" + address + "/" + file))
	if len(fields) == 0 {
		return 0, errors.New(address + " has no " + file)
	}
	return strconv.ParseUint(fields[len(fields)-1], 10, 64)
}
