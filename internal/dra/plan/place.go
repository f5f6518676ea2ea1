package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured"
)

// patience is how long the scheduler searches on one node (its default of
// DRASchedulerFilterTimeout).
const patience = 10 * time.Second

// placed is what a wish would get on a node.
type placed struct {
	node        string
	allocations []resourceapi.AllocationResult // of each claim that was not allocated before
}

// rank is the sum of the positions of the alternatives that were taken: the scheduler
// prefers a node where it is low.
func (p *placed) rank(pending []*wanted) (sum int) {
	for i, w := range pending {
		for _, r := range p.allocations[i].Devices.Results {
			for j := range w.Spec.Devices.Requests {
				all := alternatives(&w.Spec.Devices.Requests[j], "")
				sum += max(0, slices.IndexFunc(all, func(a alternative) bool { return a.name == r.Request }))
			}
		}
	}
	return sum
}

// place puts a wish on the first node, by alternative and name, that it fits on, and
// charges it.
func (c *cluster) place(ctx context.Context, w *wish) (*Wish, error) {
	result := &Wish{Kind: w.kind, Namespace: w.namespace, Name: w.name, Notes: w.notes}
	pending := slices.DeleteFunc(slices.Clone(w.claims), func(claim *wanted) bool { return claim.Status.Allocation != nil })
	nodes, refused, err := c.candidates(w)
	if err != nil {
		return nil, err
	}
	fits, more, err := c.try(ctx, nodes, pending)
	if err != nil {
		return nil, err
	}
	if len(fits) == 0 {
		c.refuse(result, w, append(refused, more...))
		return result, nil
	}
	slices.SortStableFunc(fits, func(a, b placed) int { return a.rank(pending) - b.rank(pending) })
	for _, other := range fits[1:] {
		result.Others = append(result.Others, other.node)
	}
	best := fits[0]
	result.Fits, result.Before, result.Node = true, len(pending) == 0, best.node
	for i, claim := range pending {
		claim.Status.Allocation = &best.allocations[i]
		c.take(claim.ResourceClaim)
	}
	b := c.board(best.node)
	for _, claim := range w.claims {
		result.Devices = append(result.Devices, b.given(claim)...)
	}
	result.Left, result.Rings = b.left(), b.rings(result.Devices)
	return result, nil
}

// given are the devices that a claim has got.
func (b *board) given(w *wanted) (devices []Device) {
	for _, r := range w.Status.Allocation.Devices.Results {
		d := Device{Claim: nameOf(w), Request: r.Request, Driver: r.Driver, Pool: r.Pool, Device: r.Device, LPUs: []string{}}
		if p := b.find(&r); p != nil {
			for _, l := range b.ordered(p) {
				d.LPUs = append(d.LPUs, l.String())
				if l.index != nil {
					d.Indices = append(d.Indices, *l.index)
				}
			}
		}
		devices = append(devices, d)
	}
	return devices
}

// candidates are the nodes that a wish may go to, and why others are none: it names one,
// or a claim has been allocated elsewhere.
func (c *cluster) candidates(w *wish) (nodes []string, refused []Refusal, err error) {
	no := func(node, format string, args ...any) {
		refused = append(refused, Refusal{Node: node, Reason: fmt.Sprintf(format, args...), Requests: []RequestWhy{}})
	}
	for _, node := range c.nodes {
		if w.node != "" && w.node != node {
			no(node, "the pod names the node %s", w.node)
			continue
		}
		var elsewhere string
		for _, claim := range w.claims {
			allocation := claim.Status.Allocation
			if allocation == nil || allocation.NodeSelector == nil {
				continue
			}
			here, err := structured.NodeMatches(Features(), nodeOf(node), "", false, allocation.NodeSelector)
			if err != nil {
				return nil, nil, Faults{claim.from.fault("", "dump it again", "%s: its nodeSelector: %s", nameOf(claim), err)}
			}
			if !here {
				elsewhere = nameOf(claim)
			}
		}
		if elsewhere != "" {
			no(node, "the claim %s has been allocated elsewhere", elsewhere)
			continue
		}
		nodes = append(nodes, node)
	}
	if w.node != "" && !slices.Contains(c.nodes, w.node) {
		no(w.node, "it has no slices")
	}
	return nodes, refused, nil
}

func nodeOf(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

// try asks the scheduler's allocator on each node.
func (c *cluster) try(ctx context.Context, nodes []string, pending []*wanted) (fits []placed, refused []Refusal, err error) {
	allocator, err := structured.NewAllocator(ctx, Features(), c.state, c, c.slices, c.cel)
	if err != nil {
		return nil, nil, err
	}
	claims := make([]*resourceapi.ResourceClaim, len(pending))
	for i, w := range pending {
		claims[i] = w.ResourceClaim
	}
	for _, node := range nodes {
		results, err := allocateOn(ctx, allocator, node, claims)
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			refused = append(refused, Refusal{Node: node, Requests: []RequestWhy{},
				Reason: fmt.Sprintf("the search took more than %s, and the scheduler gives up then: ask for fewer devices", patience)})
		case err == nil && len(results) == len(claims):
			fits = append(fits, placed{node, results})
		default:
			why, fault := c.why(ctx, node, pending, err)
			if fault != nil {
				return nil, nil, fault
			}
			if err != nil && !errors.Is(err, structured.ErrFailedAllocationOnNode) {
				return nil, nil, Faults{pending[0].fault("", "correct the claim", "%s", strings.TrimSpace(err.Error()))}
			}
			refused = append(refused, *why)
		}
	}
	return fits, refused, nil
}

func allocateOn(
	ctx context.Context, allocator structured.Allocator, node string, claims []*resourceapi.ResourceClaim,
) ([]resourceapi.AllocationResult, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return allocator.Allocate(ctx, nodeOf(node), claims)
}

// refuse fills in why a wish fits nowhere. Nodes on which most LPUs are free stand first.
func (c *cluster) refuse(result *Wish, w *wish, refused []Refusal) {
	slices.SortStableFunc(refused, func(a, b Refusal) int { return b.FreeLPUs - a.FreeLPUs })
	result.Refused = refused
	if len(refused) == 0 {
		result.Refused = []Refusal{{Reason: "there is no node with resource slices", Requests: []RequestWhy{}}}
		return
	}
	if w.node == "" || slices.Contains(c.nodes, w.node) {
		result.Rings = c.board(refused[0].Node).rings(nil)
	}
}
