package plan

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// why says why claims do not fit on a node. The error is the selector at which the
// allocator failed: then the scheduler gives the pod up on every node.
func (c *cluster) why(ctx context.Context, node string, pending []*wanted, failed error) (*Refusal, error) {
	b := c.board(node)
	r := &Refusal{Node: node, FreeLPUs: b.free(), Requests: []RequestWhy{}}
	for _, w := range pending {
		for _, a := range w.alternatives() {
			why, err := c.whyOne(ctx, b, &a)
			if err != nil {
				return nil, Faults{w.fault(a.path, "a selector that fails ends the search on every node: ask first whether the attribute is there, "+
					"as in: 'ring' in device.attributes['"+driver+"'] && ...", "request %q: %s", a.name, err)}
			}
			why.Claim = nameOf(w)
			r.Requests = append(r.Requests, *why)
		}
	}
	r.Reason = r.reason(b)
	if failed != nil && len(b.problems) == 0 {
		r.Reason = "a pool of the node is invalid: " + strings.TrimSpace(failed.Error()) + "; " + r.Reason
	}
	return r, nil
}

// reason is that of the first request that cannot be met by itself, which is that of all
// if each could be.
func (r *Refusal) reason(b *board) string {
	if len(b.problems) > 0 {
		return strings.Join(b.problems, "; ")
	}
	wanted := 0
	for i := range r.Requests {
		q := &r.Requests[i]
		if q.lacks() || len(r.Requests) == 1 {
			return q.Reason
		}
		if !strings.Contains(q.Request, "/") { // of alternatives only one is wanted
			wanted += q.LPUs
		}
	}
	if wanted > r.FreeLPUs {
		return fmt.Sprintf("%s free, %d wanted by all requests together", lpus(r.FreeLPUs), wanted)
	}
	return "each request could be met by itself, but not all of them together"
}

// lacks reports whether the request cannot be met even by itself.
func (q *RequestWhy) lacks() bool {
	return q.Match == 0 || int64(q.Free) < q.Count || q.Count == 0 && q.Free < q.Match || len(q.FreeLPUs) < q.LPUs
}

// matching are the devices of a node that class and selectors let through.
func (c *cluster) matching(ctx context.Context, b *board, a *alternative) (match []*piece, err error) {
	class, err := c.Get(a.class)
	if err != nil {
		return nil, err
	}
	for _, p := range b.devices {
		fits := true
		for _, s := range slices.Concat(class.Spec.Selectors, a.selectors) {
			if fits, err = c.matches(ctx, p, s.CEL.Expression); err != nil {
				return nil, err
			} else if !fits {
				break
			}
		}
		if fits {
			match = append(match, p)
		}
	}
	return match, nil
}

func (c *cluster) matches(ctx context.Context, p *piece, expression string) (bool, error) {
	compiled := c.cel.GetOrCompile(expression)
	if compiled.Error != nil {
		return false, fmt.Errorf("the selector does not compile: %s", oneLine(compiled.Error.Detail))
	}
	fits, _, err := compiled.DeviceMatches(ctx, cel.Device{
		Driver: p.driver, AllowMultipleAllocations: p.AllowMultipleAllocations, Attributes: p.Attributes, Capacity: p.Capacity,
	})
	if err != nil {
		return false, fmt.Errorf("the selector %s fails on the device %s: %w", oneLine(expression), p.Name, err)
	}
	return fits, nil
}

func (c *cluster) whyOne(ctx context.Context, b *board, a *alternative) (*RequestWhy, error) {
	match, err := c.matching(ctx, b, a)
	if err != nil {
		return nil, err
	}
	q := &RequestWhy{Request: a.name, Class: a.class, Count: *a.count, Match: len(match)}
	taints, holders, free := map[resourceapi.DeviceTaint]int{}, map[string]map[pci.Address]bool{}, map[pci.Address]bool{}
	for _, p := range match {
		stops := false
		for _, t := range p.Taints {
			if !a.tolerated(&t) {
				stops = true
				taints[resourceapi.DeviceTaint{Key: t.Key, Value: t.Value, Effect: t.Effect}]++
			}
		}
		switch {
		case stops:
			q.Tainted++
		case len(p.holders) > 0:
			q.Overlapping++
		default:
			q.Free++
		}
		for _, claim := range p.holders {
			if holders[claim] == nil {
				holders[claim] = map[pci.Address]bool{}
			}
		}
		b.share(p, a, holders, free)
	}
	q.Taints, q.Holders = taintsOf(taints), holdersOf(holders)
	q.FreeLPUs = addresses(free)
	q.LPUs = int(max(q.Count, 1)) * smallest(match)
	q.Reason = q.reason(b)
	return q, nil
}

// share notes which claims have which LPUs of a device, and which LPUs no claim has.
func (b *board) share(p *piece, a *alternative, holders map[string]map[pci.Address]bool, free map[pci.Address]bool) {
	for _, m := range p.members {
		l := b.lpus[m]
		for _, claim := range l.holders {
			holders[claim][m] = true
		}
		stops := slices.ContainsFunc(l.taints, func(t resourceapi.DeviceTaint) bool { return !a.tolerated(&t) })
		if len(l.holders) == 0 && !stops {
			free[m] = true
		}
	}
}

func taintsOf(counts map[resourceapi.DeviceTaint]int) []TaintWhy {
	all := []TaintWhy{}
	for t, n := range counts {
		all = append(all, TaintWhy{t.Key, t.Value, string(t.Effect), n})
	}
	slices.SortFunc(all, func(a, b TaintWhy) int {
		return cmp.Or(b.Devices-a.Devices, cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Effect, b.Effect))
	})
	return all
}

func holdersOf(has map[string]map[pci.Address]bool) []Holder {
	all := []Holder{}
	for _, claim := range slices.Sorted(maps.Keys(has)) {
		all = append(all, Holder{claim, addresses(has[claim])})
	}
	return all
}

func addresses(of map[pci.Address]bool) []string {
	all := []string{}
	for _, a := range slices.SortedFunc(maps.Keys(of), pci.Address.Compare) {
		all = append(all, a.String())
	}
	return all
}

// smallest is how many LPUs the smallest of the devices has.
func smallest(match []*piece) int {
	least := 0
	for i, p := range match {
		if n := len(p.members); i == 0 || n < least {
			least = n
		}
	}
	return least
}

// reason says in one line why the request is not met.
func (q *RequestWhy) reason(b *board) string {
	free := len(q.FreeLPUs)
	switch {
	case q.Match == 0 && len(b.problems) > 0:
		return "nothing of an incomplete pool can be allocated"
	case q.Match == 0 && len(b.devices) == 0:
		return "the node has no device"
	case q.Match == 0:
		return fmt.Sprintf("none of %d devices is what %s asks for", len(b.devices), q.Class)
	case !q.lacks() && q.Count > 1:
		return fmt.Sprintf("%d of %d devices free, but not %d that share no LPU and meet the constraints", q.Free, q.Match, q.Count)
	case !q.lacks():
		return fmt.Sprintf("%d of %d devices free: it would fit by itself", q.Free, q.Match)
	case q.Count == 0:
		return fmt.Sprintf("it asks for all %d devices: %d not free", q.Match, q.Match-q.Free)
	case q.LPUs == 0: // devices of another driver
		return fmt.Sprintf("%d of %d devices free, %d wanted", q.Free, q.Match, max(q.Count, 1))
	case free < q.LPUs:
		return fmt.Sprintf("%s free, %d wanted", lpus(free), q.LPUs)
	case q.Free > 0:
		return fmt.Sprintf("%s free, but no %d devices of %d", lpus(free), q.Count, q.LPUs/int(q.Count))
	case b.fitsUnasked(q.LPUs):
		return fmt.Sprintf("%s free and connected, but not those that the selectors ask for", lpus(q.LPUs))
	}
	return fmt.Sprintf("%s free, not connected", lpus(free))
}

func lpus(n int) string {
	if n == 1 {
		return "1 LPU"
	}
	return fmt.Sprintf("%d LPUs", n)
}

// fitsUnasked reports whether a device of this many LPUs is free, whatever a request asks
// for.
func (b *board) fitsUnasked(size int) bool {
	return slices.ContainsFunc(b.devices, func(p *piece) bool {
		return p.driver == driver && len(p.members) == size && len(p.holders) == 0 && !tainted(p.Taints)
	})
}
