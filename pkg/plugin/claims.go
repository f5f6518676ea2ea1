package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// claimed is a claim of the DRA driver, and the first container by name that has it.
type claimed struct {
	cdi.Claim
	by container
}

// holdClaim adds what a container has of a claim, if the claim is one of our driver's:
// the first device of each of its requests has the name of one in the claim's CDI file.
func (s *Said) holdClaim(by container, r *podresources.DynamicResource) {
	driver, uid := "", ""
	for _, one := range r.GetClaimResources() {
		if of, _, ok := claimDevice(one); ok {
			driver, uid = one.GetDriverName(), of
		}
	}
	if uid == "" {
		return
	}
	c := s.claims[uid]
	if c == nil {
		c = &claimed{cdi.Claim{Namespace: r.GetClaimNamespace(), Name: r.GetClaimName(), UID: uid}, by}
		s.claims[uid] = c
	}
	if compareContainers(by, c.by) < 0 {
		c.by = by
	}
	request := ""
	for _, one := range r.GetClaimResources() {
		if one.GetDriverName() != driver {
			continue
		}
		if _, begins, ok := claimDevice(one); ok {
			request = begins
		}
		c.add(request, cdi.ClaimDevice{Name: one.GetDeviceName(), LPUs: lpusOf(one)})
	}
}

// claimDevice is the uid and the request of the claim that a device is the first one of.
func claimDevice(r *podresources.ClaimResource) (uid, request string, ok bool) {
	for _, d := range r.GetCdiDevices() {
		if uid, request, ok = cdi.ParseClaimDevice(d.GetName()); ok {
			return uid, request, true
		}
	}
	return "", "", false
}

// lpusOf are the LPUs of a device, by the names of their CDI devices.
func lpusOf(r *podresources.ClaimResource) (all []pci.Address) {
	for _, d := range r.GetCdiDevices() {
		_, name, _ := strings.Cut(d.GetName(), "=")
		if a, err := cdi.ParseAddressName(name); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// add adds a device to a request, unless another container has named it.
func (c *claimed) add(request string, d cdi.ClaimDevice) {
	at := slices.IndexFunc(c.Requests, func(r cdi.ClaimRequest) bool { return r.Name == request })
	if at < 0 {
		at = len(c.Requests)
		c.Requests = append(c.Requests, cdi.ClaimRequest{Name: request, List: true})
	}
	devices := &c.Requests[at].Devices
	if !slices.ContainsFunc(*devices, func(have cdi.ClaimDevice) bool { return have.Name == d.Name }) {
		*devices = append(*devices, d)
	}
}

// Claims returns the claims of the DRA driver that pods have, in the order of their uids:
// those of the pods that the kubelet still runs. It does not know whether a claim sets
// common variables.
func (s *Said) Claims() (all []cdi.Claim) {
	for _, uid := range slices.Sorted(maps.Keys(s.claims)) {
		all = append(all, s.claims[uid].Claim)
	}
	return all
}

// gift is that a container was given an LPU, and by what.
type gift struct {
	by   string // "the device plugin"
	with container
}

// gifts are the containers that were given each LPU.
func (s *Said) gifts() map[pci.Address][]gift {
	gifts := map[pci.Address][]gift{}
	for id, c := range s.holders {
		if a, err := cdi.ParseAddressName(id); err == nil {
			gifts[a] = append(gifts[a], gift{"the device plugin", c})
		}
	}
	for _, c := range s.claims {
		for _, a := range c.LPUs() {
			gifts[a] = append(gifts[a], gift{"claim " + c.String(), c.by})
		}
	}
	return gifts
}

// Twice returns the LPUs that were given twice: to a pod by the device plugin and to one
// by a claim, or by two claims. Each finding says to which pods.
func (s *Said) Twice() map[pci.Address]finding.Finding {
	twice := map[pci.Address]finding.Finding{}
	for a, all := range s.gifts() {
		if len(all) > 1 {
			twice[a] = givenTwice(all)
		}
	}
	return twice
}

// givenTwice says of an LPU who has it.
func givenTwice(all []gift) finding.Finding {
	slices.SortFunc(all, func(a, b gift) int { return cmp.Or(compareContainers(a.with, b.with), cmp.Compare(a.by, b.by)) })
	var holders, commands []string
	for _, g := range all {
		holders = append(holders, fmt.Sprintf("pod %s/%s has it by %s", g.with.namespace, g.with.pod, g.by))
		commands = append(commands, fmt.Sprintf("kubectl --namespace %s delete pod %s", g.with.namespace, g.with.pod))
	}
	return finding.New(finding.GivenTwice, "", strings.Join(holders, ", and "), "delete one of them: "+
		strings.Join(slices.Compact(commands), ", or "))
}
