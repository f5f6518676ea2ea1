package cli

import (
	"path"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// leasesRemedy is what to do about a record of the arbiter that cannot be read.
const leasesRemedy = "start the arbiter again, which puts such a file aside: systemctl restart lpuctl-lease.service"

// leasesError is that of a record that cannot be read.
type leasesError struct{ error }

// Remedy returns [leasesRemedy].
func (leasesError) Remedy() string { return leasesRemedy }

// WarnLeases logs that a record of the arbiter cannot be read.
func (a *App) WarnLeases(err error) {
	a.Log.Warn("who has leased LPUs is not known", "error", err, "remedy", leasesRemedy)
}

// LeaseFiles are where the arbiter of this node writes down leases and reservations.
func (a *App) LeaseFiles(memory node.Memory) (leases, reservations lease.File, err error) {
	run, err := a.Root.Resolve(path.Dir(lease.Socket))
	return lease.LeasesIn(run), lease.ReservationsIn(memory.Dir), err
}

// peekLeases reads what the arbiter has written down. It is not asked, because that would
// start it.
func (a *App) peekLeases(memory node.Memory) (leases, reservations *lease.Record, err error) {
	leased, reserved, err := a.LeaseFiles(memory)
	if err == nil {
		leases, err = leased.Peek()
	}
	if err == nil {
		reservations, err = reserved.Peek()
	}
	return leases, reservations, err
}

// MarkLeases says in an inventory who has which LPU, as the arbiter has written it down.
func (a *App) MarkLeases(inv *discovery.Inventory, memory node.Memory) *discovery.Inventory {
	marked, err := a.MarkedLeases(inv, memory)
	if err != nil {
		a.WarnLeases(err)
	}
	return marked
}

// MarkedLeases is an inventory that says who has which LPU. With an error, a record that
// cannot be read, it is the one that was given.
func (a *App) MarkedLeases(inv *discovery.Inventory, memory node.Memory) (*discovery.Inventory, error) {
	leases, reservations, err := a.peekLeases(memory)
	if err != nil || leases == nil && reservations == nil {
		return inv, err
	}
	return lease.Mark(a.Root, inv, leases, reservations, host.Now()), nil
}

// RespectLeases lets a program that hands out LPUs to pods leave those alone that a user
// has leased or reserved.
func (a *App) RespectLeases(gate *owner.Gate, memory node.Memory) error {
	leases, reservations, err := a.LeaseFiles(memory)
	if err != nil {
		return err
	}
	gate.LeaseFiles = []string{leases.Path, reservations.Path}
	var fault LatestFault
	gate.Leased = func() (map[pci.Address]string, error) {
		held, err := lease.Held(a.Root, leases, reservations)
		if fault.IsNew(err) {
			a.WarnLeases(err)
		}
		if err != nil {
			return nil, leasesError{err}
		}
		return held, nil
	}
	return nil
}
