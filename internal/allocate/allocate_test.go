package allocate_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/allocate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// eight is a node of eight LPUs, all usable, in one ring if it is cabled.
func eight(cabled bool) *discovery.Inventory {
	inv := &discovery.Inventory{}
	ring := discovery.Ring{ID: "ring0", Closed: true}
	for i, name := range strings.Fields("lpu0 lpu1 lpu2 lpu3 lpu4 lpu5 lpu6 lpu7") {
		inv.LPUs = append(inv.LPUs, discovery.LPU{Name: name, Index: i, Usable: true})
		ring.Members = append(ring.Members, name)
	}
	if cabled {
		inv.RingTable = &discovery.TableRef{}
		inv.Rings = []discovery.Ring{ring}
	}
	return inv
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		uncabled bool
		wish     allocate.Wish
		lpus     string // the LPUs that are taken; empty: a refusal
		reason   string // part of the reason
		remedy   string // part of the remedy of a refusal
	}{
		"more than there are": {
			wish:   allocate.Wish{Size: 9, Free: []int{0, 1}},
			reason: "9 LPUs asked for, this node has 8", remedy: "ask for fewer",
		},
		"more than are free": {
			wish:   allocate.Wish{Size: 3, Free: []int{0, 1}},
			reason: "3 LPUs asked for, 2 of 8 free: not lpu2 lpu3 lpu4 lpu5 lpu6 lpu7 (not among the available",
			remedy: "ask for fewer; name lpu2 lpu3 lpu4 lpu5 lpu6 lpu7 as available",
		},
		"one of none": {
			wish:   allocate.Wish{Size: 1},
			reason: "1 LPU asked for, 0 of 8 free", remedy: "as available",
		},
		"one in use": {
			wish:   allocate.Wish{Size: 1, Free: []int{0}, Must: []int{5}},
			reason: "LPUs that must be included are not free: lpu5 (not among", remedy: "name lpu5 as available",
		},
		"no neighbours": {
			wish:   allocate.Wish{Size: 2, Free: []int{0, 2, 5}, Connected: true},
			reason: "2 connected LPUs are not available", remedy: "free are lpu0, lpu2, lpu5",
		},
		"no ring table": {
			uncabled: true,
			wish:     allocate.Wish{Size: 2, Free: []int{0, 1}, Connected: true},
			reason:   "there is no ring table", remedy: "lpuctl ring install",
		},
		"one without a table": {
			uncabled: true,
			wish:     allocate.Wish{Size: 1, Free: []int{3}, Connected: true},
			lpus:     "lpu3", reason: "there is no ring table",
		},
		"the only arc": {
			wish: allocate.Wish{Size: 2, Free: []int{0, 1, 4}},
			lpus: "lpu0 lpu1", reason: "the only connected set",
		},
		"across the end": {
			wish: allocate.Wish{Size: 3, Free: []int{6, 7, 0, 3}},
			lpus: "lpu6 lpu7 lpu0", reason: "the only connected set",
		},
		"the better of two": {
			wish: allocate.Wish{Size: 2, Free: []int{0, 1, 2, 3, 6, 7}, Must: []int{1}},
			lpus: "lpu1 lpu2", reason: "better than lpu0 lpu1: longer arcs",
		},
		"pieces": {
			wish: allocate.Wish{Size: 3, Free: []int{0, 1, 4}},
			lpus: "lpu0 lpu1 lpu4", reason: "the fewest pieces are 2: lpu0 lpu1, lpu4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inv := eight(!c.uncabled)
			d, err := allocate.Decide(inv, inv.Fabric(), c.wish)
			refusal, refused := errors.AsType[*allocate.Refusal](err)
			if err != nil && !refused || refused != (c.lpus == "") {
				t.Fatalf("%v", err)
			}
			if got := strings.Join(d.LPUs, " "); got != c.lpus || !strings.Contains(d.Explanation.Reason, c.reason) {
				t.Errorf("takes %q because %q", got, d.Explanation.Reason)
			}
			if refused && (refusal.Why != d.Explanation.Reason || !strings.Contains(refusal.Remedy, c.remedy)) {
				t.Errorf("refused because %q, remedy %q", refusal.Why, refusal.Remedy)
			}
		})
	}
}

// TestUnusableSizes: a number of LPUs that a program cannot use is given, and the reason says so and
// which it can.
func TestUnusableSizes(t *testing.T) {
	for name, c := range map[string]struct {
		sizes map[int]discovery.Sizes // of models, by LPU
		want  map[int]string          // by the number of LPUs; others can be used
	}{
		"what is known of HyperDex": {
			want: map[int]string{
				3: "; HyperDex' memory mapper cannot use 3 LPUs together, only 1, 2, 4, 8", 5: "mapper", 6: "mapper", 7: "mapper",
			},
		},
		"what a model says": {
			sizes: map[int]discovery.Sizes{0: {1, 3, 8}},
			want: map[int]string{
				2: "; a program with LPUs of model orion cannot use 2 LPUs together, only 1, 3, 8",
				4: "orion", 5: "orion", 6: "orion", 7: "orion",
			},
		},
		"of two models one": {
			sizes: map[int]discovery.Sizes{0: {1, 2, 3, 4, 5, 6, 7, 8}, 7: {1, 2, 4}},
			want:  map[int]string{8: "cannot use 8 LPUs together, only 1, 2, 4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inv := eight(true)
			for card, sizes := range c.sizes {
				inv.LPUs[card].Model, inv.LPUs[card].UsableSizes = "orion", sizes
			}
			for size := 1; size <= 8; size++ {
				free := []int{0, 1, 2, 3, 4, 5, 6, 7}[:size]
				d, err := allocate.Decide(inv, inv.Fabric(), allocate.Wish{Size: size, Free: free})
				if err != nil || len(d.Chosen) != size {
					t.Fatal(err)
				}
				want, unusable := c.want[size]
				if got := d.Explanation.Reason; !strings.Contains(got, want) || strings.Contains(got, "cannot use") != unusable {
					t.Errorf("%d: %s", size, got)
				}
			}
		})
	}
}

// TestDecisionAsAWhole: what is taken, what stays free, and whether it is connected belong together.
func TestDecisionAsAWhole(t *testing.T) {
	inv := eight(true)
	d, err := allocate.Decide(inv, inv.Fabric(), allocate.Wish{Size: 2, Free: []int{0, 1, 3, 4, 5}, Must: []int{0}})
	if err != nil || d.Connected == nil || !*d.Connected || !slices.Equal(d.Chosen, []int{0, 1}) ||
		allocate.Join(d.FreeAfter) != "lpu3 lpu4 lpu5" {
		t.Errorf("%+v, %v", d, err)
	}
	inv = eight(false)
	d, err = allocate.Decide(inv, inv.Fabric(), allocate.Wish{Size: 2, Free: []int{0, 1}})
	if err != nil || d.Connected != nil {
		t.Errorf("without a ring table it is not known whether they are connected: %+v, %v", d, err)
	}
	_, err = allocate.Decide(inv, inv.Fabric(), allocate.Wish{Size: 1, Free: []int{0, 1}, Must: []int{0, 1}})
	if err == nil || errors.As(err, new(*allocate.Refusal)) {
		t.Errorf("two of one: %v", err)
	}
}

// TestRefusalNamesReasons: a refusal names the reason of each LPU, and no user where there is none.
func TestRefusalNamesReasons(t *testing.T) {
	inv := eight(true)
	broken := func(card int, id finding.ID) {
		inv.LPUs[card].Usable = false
		inv.LPUs[card].Reasons.Add(id, inv.LPUs[card].Name, "it is broken", "")
	}
	broken(1, finding.NoDriver)
	broken(4, finding.NoDriver)
	broken(5, finding.Absent)
	inv.LPUs[3].Users = []discovery.User{{PID: 12, Command: "vllm"}}
	inv.LPUs[6].Users = []discovery.User{{PID: 13, Command: "sh", Container: strings.Repeat("ab", 32)}}
	for name, c := range map[string]struct {
		wish        allocate.Wish
		why, remedy string
	}{
		"too few": {
			allocate.Wish{Size: 5, Free: allocate.Free(inv)},
			"5 LPUs asked for, 3 of 8 free: not lpu1 lpu4 (no driver), lpu3 (in use by vllm(12)), lpu5 (absent), " +
				"lpu6 (in use by sh(13) container abababababab)",
			"ask for fewer; see lpuctl describe lpu1 lpu4; wait until lpu3 is no longer in use; see lpuctl describe lpu5; " +
				"wait until lpu6 is no longer in use",
		},
		"connected": {
			allocate.Wish{Size: 3, Free: allocate.Free(inv), Connected: true},
			"3 connected LPUs are not available: no set is connected; the fewest pieces are 2: lpu2, lpu7 lpu0; not free are " +
				"lpu1 lpu4 (no driver), lpu3 (in use by vllm(12)), lpu5 (absent), lpu6 (in use by sh(13) container abababababab)",
			"free are lpu2, lpu7 lpu0: ask for fewer, or leave out --require-connected; see lpuctl describe lpu1 lpu4; " +
				"wait until lpu3 is no longer in use; see lpuctl describe lpu5; wait until lpu6 is no longer in use",
		},
		"must": {
			allocate.Wish{Size: 2, Free: allocate.Free(inv), Must: []int{0, 1}},
			"LPUs that must be included are not free: lpu1 (no driver)", "see lpuctl describe lpu1",
		},
	} {
		_, err := allocate.Decide(inv, inv.Fabric(), c.wish)
		refusal, _ := errors.AsType[*allocate.Refusal](err)
		if refusal == nil || refusal.Why != c.why || refusal.Remedy != c.remedy {
			t.Errorf("%s: %+v", name, refusal)
		}
	}
}

// TestUsersHidden: a decision says if it may have taken what somebody uses.
func TestUsersHidden(t *testing.T) {
	inv := eight(true)
	inv.LPUs[2].UsersHidden = true
	for _, c := range []struct {
		free   []int
		hidden bool
	}{{[]int{0, 1}, false}, {[]int{0, 2}, true}} {
		d, err := allocate.Decide(inv, inv.Fabric(), allocate.Wish{Size: 1, Free: c.free})
		if err != nil || d.Explanation.UsersHidden != c.hidden {
			t.Errorf("free %v: %+v, %v", c.free, d.Explanation, err)
		}
	}
}

func TestFree(t *testing.T) {
	inv := eight(true)
	inv.LPUs[2].Usable = false
	inv.LPUs[5].Users = []discovery.User{{PID: 1}}
	inv.LPUs[7].Cordoned = &health.Cordon{}
	if free := allocate.Free(inv); !slices.Equal(free, []int{0, 1, 3, 4, 6}) {
		t.Errorf("free are %v", free)
	}
}

// TestNear: where the LPUs must be decides before everything else, and a refusal says what is free where.
func TestNear(t *testing.T) {
	inv := eight(true)
	for card := range 6 { // of lpu6 and lpu7 nothing is known
		l := &inv.LPUs[card]
		node, port := card/3, pci.Address{Bus: uint8(card / 2)}
		l.NUMANode, l.Switch = &node, &port
	}
	all := allocate.Free(inv)
	onNode := func(number int) allocate.Place { return allocate.Place{Near: allocate.SameNUMA, NUMANode: &number} }
	oneSwitch, aSocket := allocate.Place{Near: allocate.SameSwitch}, allocate.Place{Near: allocate.SameSocket}
	oneSocket := map[int]int{0: 0, 1: 0}
	for name, c := range map[string]struct {
		wish allocate.Wish
		lpus string
		why  string
	}{
		"anywhere":        {allocate.Wish{Size: 2, Free: all, Must: []int{1, 2}}, "lpu1 lpu2", ""},
		"a switch":        {allocate.Wish{Size: 2, Free: all, Must: []int{3}, Place: oneSwitch}, "lpu2 lpu3", ""},
		"across switches": {allocate.Wish{Size: 2, Free: all, Must: []int{1, 2}, Place: oneSwitch}, "", "on one PCIe switch"},
		"a socket":        {allocate.Wish{Size: 3, Free: all, Must: []int{4}, Place: aSocket}, "lpu3 lpu4 lpu5", ""},
		"two nodes of a socket": {
			allocate.Wish{Size: 2, Free: all, Must: []int{2, 3}, Place: aSocket, Sockets: oneSocket}, "lpu2 lpu3", "",
		},
		"two sockets": {
			allocate.Wish{Size: 2, Free: all, Must: []int{2, 3}, Place: aSocket}, "", "2 LPUs asked for on one socket",
		},
		"a node":             {allocate.Wish{Size: 2, Free: all, Place: onNode(1)}, "lpu4 lpu5", ""},
		"no such node":       {allocate.Wish{Size: 1, Free: all, Place: onNode(7)}, "", "1 LPU asked for on NUMA node 7, where"},
		"one of no switch":   {allocate.Wish{Size: 1, Free: []int{7}, Place: oneSwitch}, "lpu7", ""},
		"two of no switch":   {allocate.Wish{Size: 2, Free: []int{6, 7}, Place: oneSwitch}, "", "free are lpu6 (lpu6), lpu7 (lpu7)"},
		"pieces on a socket": {allocate.Wish{Size: 2, Free: []int{0, 2, 3, 4, 5}, Must: []int{0}, Place: aSocket}, "lpu0 lpu2", ""},
		"too few on a node": {
			allocate.Wish{Size: 3, Free: []int{0, 1, 3, 4}, Place: aSocket}, "",
			"3 LPUs asked for on one socket, where so many are not free: free are lpu0 lpu1 (NUMA node 0), lpu3 lpu4 (NUMA node 1)",
		},
	} {
		d, err := allocate.Decide(inv, inv.Fabric(), c.wish)
		got, why := strings.Join(d.LPUs, " "), ""
		if err != nil {
			why = err.Error()
		}
		if got != c.lpus || (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestCordoned: the refusal says who cordoned an LPU, and why.
func TestCordoned(t *testing.T) {
	inv := eight(true)
	inv.LPUs[2].Cordoned = &health.Cordon{Reason: "a test", Since: time.Unix(1e9, 0).UTC(), By: "root(0)"}
	_, err := allocate.Decide(inv, inv.Fabric(), allocate.Wish{Size: 2, Free: allocate.Free(inv), Must: []int{2}})
	const want = "LPUs that must be included are not free: lpu2 (cordoned since 2001-09-09T01:46:40Z by root(0): a test)"
	refusal, _ := errors.AsType[*allocate.Refusal](err)
	if refusal == nil || refusal.Why != want || refusal.Remedy != "lpuctl uncordon lpu2" {
		t.Errorf("%+v", refusal)
	}
}
