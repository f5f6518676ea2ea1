package pods

import (
	"cmp"
	"context"

	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Leasing says which LPUs users cannot lease, because pods have them or may be given
// them.
type Leasing struct {
	Node

	// Pool are the LPUs that can be leased; nil: all, unless Kubernetes hands out those of
	// the node.
	Pool   []pci.Address
	Remedy func(error) string // what to do about an error
}

// Look adds to a view what pods have, and why no LPU can be leased.
func (l *Leasing) Look(ctx context.Context, view *lease.View) {
	closed, lately := l.closed()
	if closed != "" { // what pods have changes nothing, and a kubelet that hangs takes its time
		view.Closed = closed
		return
	}
	pods, unknown := l.Holders(ctx)
	if unknown != nil && l.Pool == nil {
		view.Closed, view.ClosedRemedy = l.unknown(unknown)
	}
	for i := range view.Inventory.LPUs {
		if address := view.Inventory.LPUs[i].Address; lately != "" && pods[address] == "" {
			pods[address] = lately
		}
	}
	view.Pods = pods
}

// unknown says why no LPU can be leased, and what to do, where it is not known which LPUs
// pods have.
func (l *Leasing) unknown(err error) (why, remedy string) {
	return "it cannot be known which LPUs pods have: " + err.Error(), l.Remedy(err)
}

// ClosedSince says why LPUs that were free cannot be leased any more, and what to do
// about that. What a claim has is written down before its pod starts, so the kubelet need
// not be asked.
func (l *Leasing) ClosedSince(lpus []pci.Address) (why, remedy string) {
	if closed, lately := l.closed(); closed != "" || lately != "" {
		return cmp.Or(closed, lately), ""
	}
	// This comes after the above: a program that has ended meanwhile has written it.
	claims, err := l.Claims().Holders()
	for _, address := range lpus {
		if by := claims[address]; by != "" {
			return address.String() + " is in use by " + by, ""
		}
	}
	if err != nil && l.Pool == nil {
		return l.unknown(err)
	}
	return "", ""
}

// closed says why no LPU can be leased: Kubernetes hands them out, and none are set
// apart; "": they can. Lately says who may have any of them, and is not named by the
// kubelet yet.
func (l *Leasing) closed() (closed, lately string) {
	if l.Pool != nil {
		return "", ""
	}
	now := l.Owner().Stand()
	if closed = now.Kubernetes(); closed != "" {
		closed += "; and the config file sets none apart for leases"
	}
	if now.Lately {
		lately = "a pod, perhaps, that was given an LPU a moment ago"
	}
	return closed, lately
}
