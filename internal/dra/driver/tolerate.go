package driver

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// tolerated returns an error if a claim that is not prepared yet has an LPU that is kept
// for leases, or one that is cordoned without a toleration that names that: the scheduler
// takes a toleration of everything, such as of a DaemonSet, for one of a cordon too. An
// LPU may also have been cordoned after it was allocated.
func (d *Driver) tolerated(c *resourceapi.ResourceClaim) error {
	inv := d.Node.Latest().Inventory
	if inv == nil {
		return nil // who prepares it says so
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver != dra.DriverName {
			continue
		}
		members, _ := d.Publisher.Members(r.Device) // of one that is not known who prepares it says so
		for j := range inv.LPUs {
			l := &inv.LPUs[j]
			if l.Cordoned == nil || !slices.Contains(members, l.Address) || !l.Cordoned.SetApart && names(r.Tolerations, l.Address) {
				continue
			}
			return &owner.Refusal{Finding: finding.New(finding.Cordoned, l.Name+" ("+l.Address.String()+")",
				"it is cordoned "+l.Cordoned.String(), remedyOf(c, l))}
		}
	}
	return nil
}

// names reports whether one of the tolerations names the taint of an LPU that is
// cordoned.
func names(tolerations []resourceapi.DeviceToleration, a pci.Address) bool {
	return slices.ContainsFunc(tolerations, func(t resourceapi.DeviceToleration) bool {
		value := t.Operator == resourceapi.DeviceTolerationOpExists || t.Value == cdi.AddressName(a)
		return t.Key == dra.TaintCordoned && value && (t.Effect == "" || t.Effect == resourceapi.DeviceTaintEffectNoSchedule)
	})
}

// remedyOf says how a pod gets other LPUs: the scheduler does not take an allocation
// back.
func remedyOf(c *resourceapi.ResourceClaim, l *discovery.LPU) string {
	remedy := "delete the pods that use it and the claim, so that they get other LPUs when they are made again: kubectl --namespace " +
		c.Namespace + " delete resourceclaim " + c.Name
	if i := slices.IndexFunc(c.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Pod" }); i >= 0 {
		remedy = "delete the pod, so that it gets other LPUs when it is made again: kubectl --namespace " + c.Namespace + " delete pod " +
			c.OwnerReferences[i].Name
	}
	if l.Cordoned.SetApart {
		return remedy
	}
	return remedy + "; or on the node: " + l.Cordoned.Remedy(l.Name)
}
