//go:build dra

package dra

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// gates are those of Kubernetes 1.37 that are on by default.
var gates = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
	PartitionableDevices: true, PrioritizedList: true,
}

const className = "lpu"

// classes is the class of all our devices.
type classes struct{}

func (classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if name != className {
		return nil, fmt.Errorf("there is no class %s", name)
	}
	return &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
			{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + dra.DriverName + `"`}},
		}},
	}, nil
}

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	class, err := c.Get(className)
	return []*resourceapi.DeviceClass{class}, err
}

// cluster is what the scheduler knows of a node.
type cluster struct {
	slices    []*resourceapi.ResourceSlice
	allocated sets.Set[structured.DeviceID]
	members   map[string][]pci.Address // of all devices that ever were
	order     []string                 // the devices without taints, as published
	cache     *cel.Cache

	tolerations []resourceapi.DeviceToleration // of each claim
}

const nodeName = "n1"

func newCluster() *cluster {
	return &cluster{
		allocated: sets.New[structured.DeviceID](), members: map[string][]pci.Address{}, cache: cel.NewCache(10, cel.Features{}),
	}
}

// publish takes slices as the API server does, which names them in their order.
func (c *cluster) publish(specs []resourceapi.ResourceSliceSpec) {
	c.slices, c.order = nil, nil
	for i, spec := range specs {
		c.slices = append(c.slices, &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%03d", i)}, Spec: spec})
		for j := range spec.Devices {
			d := &spec.Devices[j]
			if members := dra.MembersOf(d); len(members) > 0 {
				c.members[d.Name] = members
			}
			if len(d.Taints) == 0 {
				c.order = append(c.order, d.Name)
			}
		}
	}
}

// allocate asks the scheduler's allocator for a device of a size; "": there is none.
func (c *cluster) allocate(ctx context.Context, size int) (string, error) {
	state := structured.AllocatedState{AllocatedDevices: c.allocated, AggregatedCapacity: structured.NewConsumedCapacityCollection()}
	allocator, err := structured.NewAllocator(ctx, gates, state, classes{}, c.slices, c.cache)
	if err != nil {
		return "", err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	claim := claimOf(size)
	claim.Spec.Devices.Requests[0].Exactly.Tolerations = c.tolerations
	found, err := allocator.Allocate(ctx, node, []*resourceapi.ResourceClaim{claim})
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[0].Devices.Results[0].Device, nil
}

func claimOf(size int) *resourceapi.ResourceClaim {
	expression := fmt.Sprintf(`device.attributes[%q].size == %d`, dra.DriverName, size)
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default", UID: "c"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "lpus", Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: className, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
				Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}},
			},
		}}}},
	}
}

func id(device string) structured.DeviceID {
	return structured.MakeDeviceID(dra.DriverName, nodeName, device)
}

// tally counts what came of claims.
type tally struct{ given, refused int }

// play makes and releases claims at random, and returns what is wrong with an answer.
func (c *cluster) play(ctx context.Context, s *server, r *rand.Rand, steps int) (t tally, err error) {
	fabric, used, held := s.fabric(), map[int]bool{}, []string{}
	for range steps {
		if len(held) > 0 && r.IntN(5) < 2 {
			i := r.IntN(len(held))
			for _, m := range c.members[held[i]] {
				delete(used, card(m))
			}
			c.allocated.Delete(id(held[i]))
			held = slices.Delete(held, i, i+1)
			continue
		}
		size := sizes(s)[r.IntN(len(sizes(s)))]
		free := slices.DeleteFunc(row(0, s.count()), func(card int) bool { return used[card] || card == s.badCard })
		name, err := c.allocate(ctx, size)
		if err != nil {
			return t, err
		}
		if err := c.judge(s, name, size, free, len(fabric.Arcs(free, size)) > 0); err != nil {
			return t, err
		}
		if name == "" {
			t.refused++
			continue
		}
		t.given++
		for _, m := range c.members[name] {
			used[card(m)] = true
		}
		c.allocated.Insert(id(name))
		held = append(held, name)
	}
	return t, nil
}

// sizes are those that are published of a server. Some rings are smaller.
func sizes(s *server) []int {
	all := []int{1, 2, 4, 8}
	for _, l := range s.loops {
		all = append(all, len(l))
	}
	all = slices.DeleteFunc(all, func(size int) bool { return size > s.count() })
	slices.Sort(all)
	return slices.Compact(all)
}

var errTwice = errors.New("an LPU is given twice")

// judge says what is wrong with an answer of the allocator.
func (c *cluster) judge(s *server, name string, size int, free []int, possible bool) error {
	if name == "" {
		if possible && c.published(s, size, free) {
			return fmt.Errorf("%d of %v are refused", size, free)
		}
		return nil
	}
	var cards []int
	for _, m := range c.members[name] {
		cards = append(cards, card(m))
	}
	if len(cards) != size {
		return fmt.Errorf("%s has the LPUs %v, not %d", name, cards, size)
	}
	for _, card := range cards {
		if !slices.Contains(free, card) {
			return fmt.Errorf("%s of %v: %w", name, free, errTwice)
		}
	}
	if _, pieces := s.fabric().Order(cards); pieces != 1 {
		return fmt.Errorf("%s: %v are not connected", name, cards)
	}
	if first := c.first(size, free); first != name {
		return fmt.Errorf("%s was given, and %s is published before it", name, first)
	}
	return nil
}

// published tells whether an arc that is free is one of a size that its ring publishes: of a ring of 3 no arcs of 3 of a ring of 5.
func (c *cluster) published(s *server, size int, free []int) bool {
	for _, arc := range s.fabric().Arcs(free, size) {
		for _, l := range s.loops {
			if slices.Contains(l, arc[0]) && (slices.Contains([]int{1, 2, 4, 8}, size) || len(l) == size) {
				return true
			}
		}
	}
	return false
}

// first is the first device of a size as published whose LPUs are all free.
func (c *cluster) first(size int, free []int) string {
	for _, name := range c.order {
		taken := func(m pci.Address) bool { return !slices.Contains(free, card(m)) }
		if len(c.members[name]) == size && !slices.ContainsFunc(c.members[name], taken) {
			return name
		}
	}
	return ""
}

// TestAllocator: what the scheduler gives is connected, no LPU is given twice, and it refuses exactly where no arc is free.
func TestAllocator(t *testing.T) {
	for _, s := range servers() {
		t.Run(s.name, func(t *testing.T) {
			c := newCluster()
			c.publish(dra.Slices(s.inventory(), dra.Options{Node: nodeName}))
			counts, err := c.play(t.Context(), &s, rand.New(rand.NewPCG(1, uint64(s.count()))), 400)
			if err != nil {
				t.Fatal(err)
			}
			if counts.given < 50 || counts.refused == 0 {
				t.Errorf("%+v shows little", counts)
			}
		})
	}
}

// TestAllSizes: the same with every size.
func TestAllSizes(t *testing.T) {
	s := server{"ring of 12", [][]int{row(0, 12)}, false, -1, -1}
	c := newCluster()
	specs := dra.Slices(s.inventory(), dra.Options{Node: nodeName, Sizes: row(1, 12)})
	c.publish(specs)
	for size := 1; size <= 12; size++ {
		name, err := c.allocate(t.Context(), size)
		if err != nil || len(c.members[name]) != size {
			t.Errorf("%d: %q, %v", size, name, err)
		}
	}
	for _, spec := range specs {
		if len(spec.Devices) > 64 {
			t.Errorf("%d devices in a slice", len(spec.Devices))
		}
	}
}

// TestCountersDoIt: without counters the same play gives an LPU twice, on every server. So TestAllocator can fail.
func TestCountersDoIt(t *testing.T) {
	for _, s := range servers() {
		specs := dra.Slices(s.inventory(), dra.Options{Node: nodeName})
		c := newCluster()
		c.publish(specs)
		var without []resourceapi.ResourceSliceSpec
		for _, spec := range specs {
			spec.SharedCounters, spec.Devices = nil, slices.Clone(spec.Devices)
			for i := range spec.Devices {
				spec.Devices[i].ConsumesCounters = nil
			}
			if len(spec.Devices) > 0 {
				without = append(without, spec)
			}
		}
		for i := range without {
			without[i].Pool.ResourceSliceCount = int64(len(without))
		}
		members := c.members
		c.publish(without)
		c.members = members
		if _, err := c.play(t.Context(), &s, rand.New(rand.NewPCG(1, uint64(s.count()))), 400); !errors.Is(err, errTwice) {
			t.Errorf("%s: %v, want: %v", s.name, err, errTwice)
		}
	}
}

// TestDeadRingIsGivenWhole: all of a closed ring with one dead cable is still connected, with two it is not.
func TestDeadRingIsGivenWhole(t *testing.T) {
	for dead, want := range map[int]bool{0: true, 1: true, 2: false} {
		s := server{"", [][]int{row(0, 8)}, false, -1, -1}
		inv := s.inventory()
		for i := range dead {
			inv.Rings[0].DeadLinks = append(inv.Rings[0].DeadLinks, [2]string{fmt.Sprint("lpu", 3*i), fmt.Sprint("lpu", 3*i+1)})
		}
		c := newCluster()
		c.publish(dra.Slices(inv, dra.Options{Node: nodeName}))
		name, err := c.allocate(t.Context(), 8)
		if err != nil || (name != "") != want {
			t.Errorf("%d dead cables: %q, %v", dead, name, err)
		}
	}
}

// TestNoTolerationGetsALeasedLPU: no toleration gets an LPU that is kept for leases, by itself or
// in a set. A cordoned one is given to who tolerates everything: that its name has to be tolerated
// the driver sees.
func TestNoTolerationGetsALeasedLPU(t *testing.T) {
	s := server{"", [][]int{row(0, 8)}, false, -1, -1}
	for _, apart := range []bool{true, false} {
		inv := s.inventory()
		inv.LPUs[2].Cordoned = &health.Cordon{SetApart: apart}
		for _, size := range []int{1, 2, 4, 8} {
			c := newCluster()
			c.tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
			c.publish(dra.Slices(inv, dra.Options{Node: nodeName}))
			given := map[int]bool{}
			for {
				name, err := c.allocate(t.Context(), size)
				if err != nil {
					t.Fatal(err)
				}
				if name == "" {
					break
				}
				c.allocated.Insert(id(name))
				for _, m := range c.members[name] {
					given[card(m)] = true
				}
			}
			if given[2] == apart || apart && size < 8 && len(given) == 0 {
				t.Errorf("set apart: %t, size %d: given were %v", apart, size, given)
			}
		}
	}
}

// full is a ring of 8 of which every LPU is taken but some, one by one.
func full(free ...int) *cluster {
	s := server{"", [][]int{row(0, 8)}, false, -1, -1}
	c := newCluster()
	c.publish(dra.Slices(s.inventory(), dra.Options{Node: nodeName}))
	for name, members := range c.members {
		if len(members) == 1 && !slices.Contains(free, card(members[0])) {
			c.allocated.Insert(id(name))
		}
	}
	return c
}

// nodeCheckMax is how long the scheduler may take to find that a wish for 4 does not fit a node, at the median.
const nodeCheckMax = time.Millisecond

// TestNodeCheck: also on a machine that is busy, so the best of some rounds counts.
func TestNodeCheck(t *testing.T) {
	for what, c := range map[string]*cluster{"full": full(), "four scattered LPUs free": full(0, 2, 4, 6)} {
		best := time.Hour
		for range 10 {
			best = min(best, median(t, c, 100))
		}
		t.Logf("%s: %v", what, best)
		if best >= nodeCheckMax {
			t.Errorf("%s: a check takes %v, want less than %v", what, best, nodeCheckMax)
		}
	}
}

func median(t testing.TB, c *cluster, rounds int) time.Duration {
	times := make([]time.Duration, rounds)
	for i := range times {
		start := time.Now()
		name, err := c.allocate(t.Context(), 4)
		times[i] = time.Since(start)
		if name != "" || err != nil {
			t.Fatal(name, err)
		}
	}
	slices.Sort(times)
	return times[rounds/2]
}

func BenchmarkNodeCheck(b *testing.B) {
	for what, c := range map[string]*cluster{"full": full(), "scattered": full(0, 2, 4, 6)} {
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			rounds := max(b.N, 1)
			b.ReportMetric(float64(median(b, c, rounds).Microseconds())/1000, "median-ms")
		})
	}
}
