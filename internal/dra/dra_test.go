package dra_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// orion is the inventory of a simulated server with eight LPUs on one ring.
func orion(t *testing.T) *discovery.Inventory {
	t.Helper()
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion"}).Write(root); err != nil {
		t.Fatal(err)
	}
	inv, err := discovery.Scan(t.Context(), root, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

// with is an inventory that was changed.
func with(inv *discovery.Inventory, change func(*discovery.Inventory)) *discovery.Inventory {
	next := *inv
	next.LPUs, next.Rings = slices.Clone(inv.LPUs), slices.Clone(inv.Rings)
	change(&next)
	return &next
}

func unhealthy(lpu int) func(*discovery.Inventory) {
	return func(inv *discovery.Inventory) {
		l := &inv.LPUs[lpu]
		l.Health, l.Usable = discovery.Unhealthy, false
		l.Reasons = finding.List{finding.New(finding.NoDriver, "", "no driver", "")}
	}
}

// noRing leaves the cards as they are without a ring table.
func noRing(inv *discovery.Inventory) {
	inv.RingTable, inv.Rings = nil, nil
	for i := range inv.LPUs {
		inv.LPUs[i].Ring = nil
	}
}

// swapped is another cabling: the cables of two neighbours are swapped.
func swapped(inv *discovery.Inventory) {
	r := &inv.Rings[0]
	r.Members = slices.Clone(r.Members)
	r.Members[2], r.Members[3] = r.Members[3], r.Members[2]
}

// clock is a publisher of one node, and its time.
type clock struct {
	dra.Publisher

	t    *testing.T
	node *node.Node
	at   time.Time
}

func newClock(t *testing.T, path string) *clock {
	c := &clock{t: t, node: node.New(slog.New(slog.DiscardHandler)), at: time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)}
	c.Options, c.Path, c.Now = dra.Options{Node: "n1"}, path, func() time.Time { return c.at }
	return c
}

func (c *clock) snapshot(inv *discovery.Inventory) *node.Snapshot {
	return c.node.Update(c.t.Context(), node.Spec{ReadOnly: true}, func(context.Context) (*discovery.Inventory, error) { return inv, nil })
}

// look looks at an inventory and fails on an error.
func (c *clock) look(inv *discovery.Inventory) ([]resourceapi.ResourceSliceSpec, time.Duration) {
	c.t.Helper()
	specs, again, err := c.Look(c.snapshot(inv))
	if err != nil {
		c.t.Error(err)
	}
	return specs, again
}

func devices(specs []resourceapi.ResourceSliceSpec) (all []resourceapi.Device) {
	for _, s := range specs {
		all = append(all, s.Devices...)
	}
	return all
}

func names(specs []resourceapi.ResourceSliceSpec) (all []string) {
	for _, d := range devices(specs) {
		all = append(all, d.Name)
	}
	return all
}

// tainted counts devices by the keys of their taints, without the domain.
func tainted(specs []resourceapi.ResourceSliceSpec) map[string]int {
	counts := map[string]int{}
	for _, d := range devices(specs) {
		for _, taint := range d.Taints {
			counts[strings.TrimPrefix(taint.Key, dra.DriverName+"/")]++
		}
	}
	return counts
}

func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestSlicesOfOrion(t *testing.T) {
	inv := orion(t)
	specs := dra.Slices(inv, dra.Options{Node: "n1", Sockets: func(*discovery.Inventory) map[int]int { return map[int]int{0: 1} }})
	want(t, "slices", len(specs), 2)
	counters := map[string]int{}
	for _, set := range specs[0].SharedCounters {
		counters[set.Name] = len(set.Counters)
	}
	want(t, "counters", counters, map[string]int{"lpus": 1, "cards-0": 8})
	all := specs[0].SharedCounters[0].Counters["lpus"]
	want(t, "LPUs", all.Value.Value(), int64(8))
	sizes := map[int]int{}
	byName := map[string]resourceapi.Device{}
	for _, d := range specs[1].Devices {
		sizes[dra.Size(&d)]++
		byName[d.Name] = d
		want(t, "members of "+d.Name, len(dra.MembersOf(&d)), dra.Size(&d))
		if len(d.Name) > 63 {
			t.Errorf("%s is no DNS label", d.Name)
		}
	}
	want(t, "devices by size", sizes, map[int]int{8: 1, 1: 8, 2: 8, 4: 8})
	var first []int
	for _, d := range specs[1].Devices[:15] {
		first = append(first, dra.Size(&d))
	}
	want(t, "of each size what fills half the ring, and again", first, []int{1, 1, 1, 1, 2, 2, 4, 8, 1, 1, 1, 1, 2, 2, 4})
	quad := specs[1].Devices[slices.IndexFunc(specs[1].Devices, func(d resourceapi.Device) bool {
		return dra.Size(&d) == 4 && *d.Attributes["start"].IntValue == 0
	})]
	if !strings.HasPrefix(quad.Name, "lpu4-0000-43-00-1-") {
		t.Errorf("a device is called %s", quad.Name)
	}
	text := func(name resourceapi.QualifiedName) string {
		if v := quad.Attributes[name].StringValue; v != nil {
			return *v
		}
		return ""
	}
	want(t, "model", text("model"), "orion-u55c")
	want(t, "ring", text("ring"), "ring0")
	if memory := quad.Capacity["memory"]; memory.Value.String() != "64Gi" {
		t.Errorf("memory is %s", memory.Value.String())
	}
	if quad.Attributes["driverVersion"].VersionValue == nil || quad.Attributes["topology.hyperaccel.ai/socket"].IntValue == nil {
		t.Errorf("attributes are %v", slices.Sorted(maps.Keys(quad.Attributes)))
	}
	for _, s := range specs {
		if s.Pool.Name != "n1" || s.Pool.ResourceSliceCount != 2 || *s.NodeName != "n1" || s.Driver != dra.DriverName {
			t.Errorf("a slice is of pool %+v", s.Pool)
		}
	}
}

// TestPlacesAreThoseOfAll: an attribute of a place is there if all LPUs of the device have it.
func TestPlacesAreThoseOfAll(t *testing.T) {
	inv := orion(t)
	node := func(i int) int { return *inv.LPUs[i].NUMANode }
	for _, d := range devices(dra.Slices(inv, dra.Options{Node: "n1"})) {
		agree := map[int]bool{}
		for _, m := range dra.MembersOf(&d) {
			agree[node(slices.IndexFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Address == m }))] = true
		}
		has := d.Attributes["resource.kubernetes.io/numaNode"].IntValue != nil
		want(t, d.Name+" has a NUMA node", has, len(agree) == 1)
	}
}

// TestWithoutRing: nobody knows which LPUs are connected, so there are single LPUs.
func TestWithoutRing(t *testing.T) {
	specs := dra.Slices(with(orion(t), noRing), dra.Options{Node: "n1"})
	want(t, "devices", len(devices(specs)), 8)
	for _, d := range devices(specs) {
		if dra.Size(&d) != 1 || d.Attributes["ring"].StringValue != nil || len(d.Taints) > 0 {
			t.Errorf("%s has %v, %v", d.Name, d.Attributes, d.Taints)
		}
	}
	want(t, "slices of no LPUs", dra.Slices(&discovery.Inventory{}, dra.Options{Node: "n1"}), []resourceapi.ResourceSliceSpec{})
}

// TestTaints: what each cause taints, of 8 arcs of each of 1, 2 and 4, and the ring.
func TestTaints(t *testing.T) {
	inv := orion(t)
	cordoned := func(apart bool) func(*discovery.Inventory) {
		return func(inv *discovery.Inventory) { inv.LPUs[2].Cordoned = &health.Cordon{SetApart: apart} }
	}
	dead := func(links ...int) func(*discovery.Inventory) {
		return func(inv *discovery.Inventory) {
			m := inv.Rings[0].Members
			for _, i := range links {
				inv.Rings[0].DeadLinks = append(slices.Clone(inv.Rings[0].DeadLinks), [2]string{m[i], m[(i+1)%8]})
			}
		}
	}
	for _, row := range []struct {
		what   string
		change func(*discovery.Inventory)
		want   map[string]int
	}{
		{"nothing", func(*discovery.Inventory) {}, map[string]int{}},
		{"unhealthy", unhealthy(3), map[string]int{"unhealthy": 1 + 2 + 4 + 1}},
		{"in doubt", func(inv *discovery.Inventory) { inv.LPUs[3].Health = discovery.HealthUnknown }, map[string]int{}},
		{"cordoned", cordoned(false), map[string]int{"cordoned": 8}},
		{"one dead cable leaves the ring connected", dead(0), map[string]int{"link": 1 + 3}},
		{"two cut it", dead(0, 4), map[string]int{"link": 2 + 6 + 1}},
		{"the last one joins the ends", dead(7), map[string]int{"link": 1 + 3}},
	} {
		want(t, row.what, tainted(dra.Slices(with(inv, row.change), dra.Options{Node: "n1"})), row.want)
	}
}

// TestLeases: an LPU that is kept for leases or leased leaves with each set that it is in, but for
// a claim that has it. The others stay in their order, and none is written again for it.
func TestLeases(t *testing.T) {
	inv := orion(t)
	lpu := inv.LPUs[2].Address
	apart := with(inv, func(inv *discovery.Inventory) { inv.LPUs[2].Cordoned = &health.Cordon{SetApart: true} })
	without := func(specs []resourceapi.ResourceSliceSpec) (left []resourceapi.Device) {
		return slices.DeleteFunc(devices(specs), func(d resourceapi.Device) bool { return slices.Contains(dra.MembersOf(&d), lpu) })
	}
	all := dra.Slices(inv, dra.Options{Node: "n1"})
	marked := with(inv, func(inv *discovery.Inventory) { inv.LPUs[2].Leased = &discovery.Holder{ID: "l3"} })
	want(t, "set apart", devices(dra.Slices(apart, dra.Options{Node: "n1"})), without(all))
	want(t, "leased, as the arbiter has written it down", devices(dra.Slices(marked, dra.Options{Node: "n1"})), without(all))

	c := newClock(t, "")
	c.look(inv)
	leased := false
	c.Leased = func(a pci.Address) bool { return leased && a == lpu }
	s := c.snapshot(inv)
	step := func(what string) []resourceapi.ResourceSliceSpec {
		t.Helper()
		c.at = c.at.Add(time.Hour)
		specs, _, err := c.Look(s)
		if err != nil || specs == nil {
			t.Fatalf("%s: %v, %v", what, specs, err)
		}
		return specs
	}
	leased = true
	specs := step("leased")
	want(t, "leased", devices(specs), without(all))
	for _, s := range specs {
		want(t, "slices", s.Pool.ResourceSliceCount, int64(2))
	}
	pair := devices(all)[slices.IndexFunc(devices(all), func(d resourceapi.Device) bool {
		return dra.Size(&d) == 2 && slices.Contains(dra.MembersOf(&d), lpu)
	})]
	c.Prepared = func() map[string][]pci.Address {
		return map[string][]pci.Address{pair.Name: dra.MembersOf(&pair)}
	}
	specs = step("a claim has it")
	want(t, "a claim has it", names(specs), names(all))
	want(t, "and no one else gets it", tainted(specs), map[string]int{"leases": 8})
	c.Prepared = nil
	want(t, "the claim has ended", devices(step("the claim has ended")), without(all))
	leased = false
	want(t, "given back, at once", devices(step("given back")), devices(all))

	c = newClock(t, "") // and a device of a former cabling
	c.look(apart)
	specs, _ = c.look(with(apart, swapped))
	want(t, "recabled", len(without(specs)), len(devices(specs)))
}

func TestVersionsAreSemantic(t *testing.T) {
	inv := orion(t)
	for version, semantic := range map[string]string{
		"2.17.391,a5c32b1": "2.17.391", "2.17.391": "2.17.391", "v1.2.3-rc1": "1.2.3", "2.08.1": "", "1.2": "", "": "", "6.8.0.1": "6.8.0",
		"1.99999999999999999999.3": "",
	} {
		one := with(inv, func(inv *discovery.Inventory) { inv.LPUs[0].DriverVersion = version })
		found := ""
		for _, d := range devices(dra.Slices(one, dra.Options{Node: "n1"})) {
			if m := dra.MembersOf(&d); len(m) == 1 && m[0] == inv.LPUs[0].Address && d.Attributes["driverVersion"].VersionValue != nil {
				found = *d.Attributes["driverVersion"].VersionValue
			}
		}
		want(t, version, found, semantic)
	}
}

// TestTaintsOverTime: they go on at once and come off after a minute, and doubt changes nothing.
func TestTaintsOverTime(t *testing.T) {
	inv := orion(t)
	c := newClock(t, "")
	bad, doubt := with(inv, unhealthy(3)), with(inv, func(inv *discovery.Inventory) { inv.LPUs[3].Health = discovery.HealthUnknown })
	for _, step := range []struct {
		what   string
		pass   time.Duration
		inv    *discovery.Inventory
		writes bool
		taints int
		again  time.Duration
	}{
		{"first", 0, inv, true, 0, 0},
		{"the same", time.Second, inv, false, 0, 0},
		{"in doubt", time.Second, doubt, false, 0, 0},
		{"unhealthy", time.Second, bad, true, 8, 0},
		{"still", 10 * time.Minute, bad, false, 8, 0},
		{"healthy", time.Second, inv, false, 8, time.Minute},
		{"a while", 59 * time.Second, inv, false, 8, time.Second},
		{"unhealthy again", 0, bad, false, 8, 0},
		{"in doubt after that", time.Hour, doubt, false, 8, 0},
		{"healthy for long", 0, inv, false, 8, time.Minute},
		{"a minute", time.Minute, inv, true, 0, 0},
	} {
		c.at = c.at.Add(step.pass)
		specs, again := c.look(step.inv)
		want(t, step.what+": writes", specs != nil, step.writes)
		want(t, step.what+": tainted", tainted(c.Slices())["unhealthy"], step.taints)
		want(t, step.what+": again", again, step.again)
	}
}

// TestRestEnds: a look at the same snapshot costs nothing, until a taint is due or somebody else has an LPU.
func TestRestEnds(t *testing.T) {
	inv := orion(t)
	c := newClock(t, "")
	c.look(with(inv, unhealthy(3)))
	s, held := c.snapshot(inv), ""
	c.Held = func(pci.Address) string { return held }
	for _, step := range []struct {
		what   string
		pass   time.Duration
		held   string
		writes bool
		again  time.Duration
	}{
		{"healthy again", time.Second, "", false, time.Minute},
		{"the same", 20 * time.Second, "", false, 40 * time.Second},
		{"the taint is due", 40 * time.Second, "", true, 0},
		{"nothing more", time.Second, "", false, 0},
		{"much later", time.Hour, "", false, 0},
		{"held", time.Second, "a pod has it", true, 0},
	} {
		c.at, held = c.at.Add(step.pass), step.held
		specs, again, err := c.Look(s)
		if err != nil {
			t.Error(err)
		}
		want(t, step.what+": writes", specs != nil, step.writes)
		want(t, step.what+": again", again, step.again)
	}
}

// TestGoneCard: the ring stays as it is without a card that no table names any more, also in the next process.
func TestGoneCard(t *testing.T) {
	inv := orion(t)
	path := filepath.Join(t.TempDir(), "lib", "dra-slices.json")
	first := newClock(t, path)
	before, _ := first.look(inv)
	gone := with(with(inv, noRing), func(inv *discovery.Inventory) {
		inv.LPUs = slices.Delete(inv.LPUs, 3, 4)
		for i := range inv.LPUs {
			inv.LPUs[i].Index, inv.LPUs[i].Name = i, inv.LPUs[i].Name[:3]+string(rune('0'+i))
		}
	})
	for what, c := range map[string]*clock{"the same process": first, "the next process": newClock(t, path)} {
		after, _ := c.look(gone)
		want(t, what+": devices", names(after), names(before))
		want(t, what, tainted(after), map[string]int{"unhealthy": 8, "no-ring": 17})
	}
}

// TestRecabled: devices of the former cabling stay with their counters for ten minutes, and as long as a prepared claim has them.
func TestRecabled(t *testing.T) {
	inv := orion(t)
	path := filepath.Join(t.TempDir(), "dra-slices.json")
	c := newClock(t, path)
	before, _ := c.look(inv)
	members := map[string][]pci.Address{}
	for _, d := range devices(before) {
		members[d.Name] = dra.MembersOf(&d)
	}
	again := with(inv, swapped)
	after, in := c.look(again)
	want(t, "looks again", in, 10*time.Minute)
	old := tainted(after)["recabled"]
	if old == 0 || len(devices(after)) != 25+old {
		t.Fatalf("%d devices, %d of the former cabling", len(devices(after)), old)
	}
	former := ""
	for _, d := range devices(after) {
		recabled := len(d.Taints) > 0
		if was, has := members[d.Name]; has {
			want(t, "counters of "+d.Name, dra.MembersOf(&d), was)
		}
		_, err := c.Members(d.Name)
		want(t, d.Name+" is refused", errors.Is(err, claim.ErrRecabled), recabled)
		if recabled && dra.Size(&d) == 4 {
			former = d.Name
		}
	}
	_, err := c.Members("lpu4-0000-41-00-1-00000000")
	want(t, "no such device", errors.Is(err, claim.ErrUnknown), true)

	next := newClock(t, path) // a process that is started again knows them
	next.at = c.at.Add(9 * time.Minute)
	next.Prepared = func() map[string][]pci.Address { return map[string][]pci.Address{former: members[former]} }
	all, _ := next.look(again)
	want(t, "after a start", len(devices(all)), 25+old)
	next.at = next.at.Add(2 * time.Minute)
	all, _ = next.look(again)
	want(t, "after ten minutes", tainted(all)["recabled"], 1)
	next.Prepared = nil
	all, _ = next.look(again)
	want(t, "when the claim has gone", tainted(all)["recabled"], 0)
	want(t, "at the end", len(names(all)), 25)
	back, _ := next.look(inv)
	want(t, "the first cabling comes back with its names", slices.Equal(names(back)[:25], names(before)), true)
}

// TestLostMemory: what prepared claims have stays published though nothing else remembers it, here while there is no ring table.
func TestLostMemory(t *testing.T) {
	inv := orion(t)
	path := filepath.Join(t.TempDir(), "dra-slices.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newClock(t, path)
	held := []pci.Address{inv.LPUs[0].Address, inv.LPUs[1].Address}
	c.Prepared = func() map[string][]pci.Address { return map[string][]pci.Address{"lpu2-x": held} }
	specs, _, err := c.Look(c.snapshot(with(inv, noRing)))
	if err == nil || !strings.Contains(err.Error(), "put aside") {
		t.Errorf("the error is %v", err)
	}
	last := devices(specs)[8]
	want(t, "the device of the claim", []any{last.Name, dra.MembersOf(&last), last.Taints[0].Key}, []any{"lpu2-x", held, dra.TaintRecabled})
	if _, err := os.Stat(path + ".bad"); err != nil {
		t.Error(err)
	}
}

// TestMemoryBeforeSlices: what cannot be remembered is not published, but for taints.
func TestMemoryBeforeSlices(t *testing.T) {
	inv := orion(t)
	for what, row := range map[string]struct {
		change  func(*discovery.Inventory)
		written bool
	}{"another cabling": {swapped, false}, "a taint": {unhealthy(1), true}} {
		dir := filepath.Join(t.TempDir(), "lib")
		c := newClock(t, filepath.Join(dir, "dra-slices.json"))
		c.look(inv)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o600); err != nil { // where the directory was
			t.Fatal(err)
		}
		specs, again, err := c.Look(c.snapshot(with(inv, row.change)))
		want(t, what+": written", specs != nil, row.written)
		want(t, what+": an error", err != nil, true)
		want(t, what+": looks again", again > 0, !row.written)
	}
}

// TestFourWritesInAMinute: more wait for the first to be a minute ago, and become one.
func TestFourWritesInAMinute(t *testing.T) {
	inv := orion(t)
	c := newClock(t, "")
	writes := 0
	for i := range 7 {
		specs, again := c.look(with(inv, unhealthy(i)))
		if specs != nil {
			writes++
		} else {
			want(t, "again", again, time.Minute-time.Duration(i)*time.Second)
		}
		c.at = c.at.Add(time.Second)
	}
	want(t, "writes", writes, 4)
	c.at = c.at.Add(55 * time.Second)
	specs, _ := c.look(inv)
	want(t, "all in one", tainted(specs)["unhealthy"] > 8, true)
}

// TestHeld: LPUs that somebody else has are tainted, and without counters those of prepared claims.
func TestHeld(t *testing.T) {
	inv := orion(t)
	c := newClock(t, "")
	c.Held = func(a pci.Address) string {
		if a == inv.LPUs[5].Address {
			return "a pod has it"
		}
		return ""
	}
	specs, _ := c.look(inv)
	want(t, "held", tainted(specs), map[string]int{"held": 8})
	isPair := func(d resourceapi.Device) bool { return dra.Size(&d) == 2 && len(d.Taints) == 0 }
	pair := devices(specs)[slices.IndexFunc(devices(specs), isPair)]
	c.Held = nil
	c.at = c.at.Add(time.Second)
	freed, _ := c.look(inv)
	want(t, "published at once", len(devices(freed)), 25)
	want(t, "free again", tainted(freed), map[string]int{})
	c.Singles = true
	c.Prepared = func() map[string][]pci.Address {
		return map[string][]pci.Address{pair.Name: dra.MembersOf(&pair)}
	}
	c.at = c.at.Add(time.Hour)
	c.look(inv)
	c.at = c.at.Add(time.Hour)
	specs, _ = c.look(inv)
	want(t, "without counters", tainted(specs), map[string]int{"held": 2, "recabled": 1})
	want(t, "devices", len(devices(specs)), 9)
	for _, s := range specs {
		if len(s.SharedCounters) > 0 || len(s.Devices) > 0 && len(s.Devices[0].ConsumesCounters) > 0 {
			t.Error("there are counters")
		}
	}
}

// TestUsableSizes: arcs that no program can use are not published, unless their size was asked for.
func TestUsableSizes(t *testing.T) {
	inv := orion(t)
	inv.LPUs[3].UsableSizes = discovery.Sizes{2, 3}
	for name, c := range map[string]struct {
		sizes []int
		want  map[int]int
	}{
		"by default":     {want: map[int]int{1: 8, 2: 8, 4: 4}},
		"none was given": {sizes: []int{}, want: map[int]int{1: 8}},
		"as asked for":   {sizes: []int{3, 4}, want: map[int]int{1: 8, 3: 8, 4: 8}},
		"the whole ring": {sizes: []int{8}, want: map[int]int{1: 8, 8: 1}},
	} {
		got := map[int]int{}
		for _, d := range devices(dra.Slices(inv, dra.Options{Node: "n1", Sizes: c.sizes})) {
			got[dra.Size(&d)]++
		}
		want(t, name, got, c.want)
	}
}

func TestPlaceable(t *testing.T) {
	inv := orion(t)
	specs := dra.Slices(with(inv, unhealthy(0)), dra.Options{Node: "n1"})
	taken := func(a pci.Address) bool { return a == inv.LPUs[4].Address }
	want(t, "placeable", dra.Placeable(specs, taken), map[int]int{1: 6, 2: 4, 4: 0, 8: 0})
}

// TestWholeRingWithADeadCable: it begins behind the cable.
func TestWholeRingWithADeadCable(t *testing.T) {
	inv := orion(t)
	m := inv.Rings[0].Members
	dead := with(inv, func(inv *discovery.Inventory) { inv.Rings[0].DeadLinks = [][2]string{{m[3], m[2]}} })
	c := newClock(t, "")
	specs, _ := c.look(dead)
	whole := devices(specs)[7]
	members, err := c.Members(whole.Name)
	if err != nil || len(members) != 8 {
		t.Fatal(members, err)
	}
	first := inv.LPUs[slices.IndexFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Address == members[0] })]
	want(t, "the first", first.Name, m[3])
}

// TestNoExecute: only unhealthy LPUs evict their pods, and only where that was asked for.
func TestNoExecute(t *testing.T) {
	inv := with(orion(t), unhealthy(1))
	inv.LPUs[5].Cordoned = &health.Cordon{}
	c := newClock(t, "")
	c.NoExecute = true
	specs, _ := c.look(inv)
	for _, d := range devices(specs) {
		for _, taint := range d.Taints {
			want(t, taint.Key, taint.Effect == resourceapi.DeviceTaintEffectNoExecute, taint.Key == dra.TaintUnhealthy)
		}
	}
}
