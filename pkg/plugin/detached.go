package plugin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Detached knows which pods may have lost their ring tables, or have those of former
// cables. Who hands out LPUs does not see the mounts of other containers: it knows which
// file of the host was there when it handed out each LPU.
type Detached struct {
	Root host.Root
	Node *node.Node

	lost atomic.Pointer[finding.List] // nil before the first Hear
}

// Hear takes what the kubelet says of pods.
func (d *Detached) Hear(s *Said) {
	inv := d.Node.Latest().Inventory
	if inv == nil {
		return
	}
	lost, stale := map[container][]*discovery.LPU{}, map[container][]*discovery.LPU{}
	gifts := s.gifts()
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		if len(gifts[l.Address]) == 0 {
			continue
		}
		isLost, isStale := cdi.RingTableNow(d.Root, inv, l)
		for _, g := range gifts[l.Address] {
			pod := g.with
			pod.name = "" // all of its containers
			if isLost {
				lost[pod] = append(lost[pod], l)
			}
			if isStale {
				stale[pod] = append(stale[pod], l)
			}
		}
	}
	var all finding.List
	for _, pod := range slices.SortedFunc(maps.Keys(lost), compareContainers) {
		if lpus := lost[pod]; len(lpus) < len(inv.LPUs) { // else the host's numbers are right there
			all = append(all, remake(finding.RingTableDetached, pod, lpus, fmt.Sprintf("and since it got them another file has taken the place of "+
				"%s on the host: it may read that one, where its LPUs may have other numbers", lpus[0].RingTable.HostPath)))
		}
	}
	for _, pod := range slices.SortedFunc(maps.Keys(stale), compareContainers) {
		all = append(all, remake(finding.RingTableStale, pod, stale[pod],
			"with the ring table and the LPU_RING_ORDER of cables that were changed since"))
	}
	d.lost.Store(&all)
}

// remake is a finding about a pod with LPUs that has to be made again.
func remake(id finding.ID, pod container, lpus []*discovery.LPU, what string) finding.Finding {
	var names []string
	for _, l := range lpus {
		names = append(names, l.Name)
	}
	return finding.New(id, "pod "+pod.namespace+"/"+pod.pod, fmt.Sprintf("it has %s, %s", strings.Join(names, " "), what),
		fmt.Sprintf("delete the pod, so that it is made again: kubectl --namespace %s delete pod %s", pod.namespace, pod.pod))
}

// Problems are findings about the pods that may have lost their ring tables, for
// [node.Node.Beside].
func (d *Detached) Problems(*discovery.Inventory) finding.List {
	if lost := d.lost.Load(); lost != nil {
		return *lost
	}
	return nil
}
