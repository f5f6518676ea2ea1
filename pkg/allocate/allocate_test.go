package allocate_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/allocate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
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
			reason: "3 LPUs asked for, 2 of 8 free", remedy: "lpuctl list",
		},
		"one of none": {
			wish:   allocate.Wish{Size: 1},
			reason: "1 LPU asked for, 0 of 8 free", remedy: "lpuctl list",
		},
		"one in use": {
			wish:   allocate.Wish{Size: 1, Free: []int{0}, Must: []int{5}},
			reason: "lpu5 must be included and is not free", remedy: "lpuctl list",
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

func TestFree(t *testing.T) {
	inv := eight(true)
	inv.LPUs[2].Usable = false
	inv.LPUs[5].Users = []discovery.User{{PID: 1}}
	if free := allocate.Free(inv); !slices.Equal(free, []int{0, 1, 3, 4, 6, 7}) {
		t.Errorf("free are %v", free)
	}
}
