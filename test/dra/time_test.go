//go:build dra

package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// world is a node to which things happen while claims are made, prepared and deleted.
type world struct {
	*cluster

	t         *testing.T
	r         *rand.Rand
	at        time.Time
	path      string
	node      *node.Node
	publisher *dra.Publisher
	claims    []*given

	bad     map[int]bool // LPUs that are unhealthy
	swapped bool         // LPUs 2 and 3 have changed places on the ring
	table   bool         // there is a ring table
	missing int          // an LPU that is not in the machine; -1: none
	refused int          // claims of a former cabling that were not prepared
}

// given is a claim that the scheduler has given a device.
type given struct {
	device   string
	since    time.Time
	prepared bool
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		cluster: newCluster(), t: t, r: rand.New(rand.NewPCG(seed, 3)), at: time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC),
		path: filepath.Join(t.TempDir(), "dra-slices.json"), bad: map[int]bool{}, table: true, missing: -1,
	}
	w.start()
	return w
}

// start starts the driver, after kill -9.
func (w *world) start() {
	w.node = node.New(slog.New(slog.DiscardHandler))
	w.publisher = &dra.Publisher{
		Options: dra.Options{Node: nodeName}, Path: w.path, Now: func() time.Time { return w.at }, Prepared: w.prepared,
	}
}

func (w *world) prepared() map[string][]pci.Address {
	all := map[string][]pci.Address{}
	for _, g := range w.claims {
		if g.prepared {
			all[g.device] = w.members[g.device]
		}
	}
	return all
}

// cards are the LPUs in the order of the cables.
func (w *world) cards() []int {
	if w.swapped {
		return []int{0, 1, 3, 2, 4, 5, 6, 7}
	}
	return row(0, 8)
}

func (w *world) inventory() *discovery.Inventory {
	inv := (&server{"", [][]int{w.cards()}, false, -1, -1}).inventory()
	for i := range inv.LPUs {
		if w.bad[i] {
			inv.LPUs[i].Usable, inv.LPUs[i].Health = false, discovery.Unhealthy
		}
	}
	if !w.table {
		inv.RingTable, inv.Rings = nil, nil
	}
	if w.missing >= 0 && !w.table { // by index, so that no table can be used
		inv.LPUs = slices.Delete(inv.LPUs, w.missing, w.missing+1)
		for i := range inv.LPUs {
			inv.LPUs[i].Index, inv.LPUs[i].Name = i, fmt.Sprint("lpu", i)
		}
	}
	return inv
}

// look has the driver look at the node.
func (w *world) look() {
	found := func(context.Context) (*discovery.Inventory, error) { return w.inventory(), nil }
	s := w.node.Update(w.t.Context(), node.Spec{ReadOnly: true}, found)
	specs, _, err := w.publisher.Look(s)
	if err != nil {
		w.t.Fatal(err)
	}
	if specs != nil {
		w.publish(specs)
	}
}

// step is one thing that happens.
func (w *world) step() {
	switch w.r.IntN(14) {
	case 0:
		i := w.r.IntN(8)
		w.bad[i] = !w.bad[i]
	case 1:
		w.swapped = !w.swapped
	case 2:
		w.table, w.missing = !w.table, -1
		if !w.table && w.r.IntN(2) == 0 {
			w.missing = w.r.IntN(8)
		}
	case 3:
		w.start()
	case 4, 5:
		w.at = w.at.Add(time.Duration(w.r.IntN(300)) * time.Second)
	case 6, 7, 8:
		w.claim()
	case 9, 10, 11:
		w.prepare(0)
	default:
		if len(w.claims) > 0 {
			w.end(w.claims[w.r.IntN(len(w.claims))])
		}
	}
	w.prepare(5 * time.Minute) // the kubelet is not slower than that
	w.look()
	w.check()
}

func (w *world) claim() {
	name, err := w.allocate(w.t.Context(), 1<<w.r.IntN(4))
	if err != nil {
		w.t.Fatal(err)
	}
	if name != "" {
		w.allocated.Insert(id(name))
		w.claims = append(w.claims, &given{device: name, since: w.at})
	}
}

// prepare prepares what was given so long ago.
func (w *world) prepare(age time.Duration) {
	for _, g := range slices.Clone(w.claims) {
		if g.prepared || w.at.Sub(g.since) < age {
			continue
		}
		members, err := w.publisher.Members(g.device)
		if errors.Is(err, claim.ErrRecabled) {
			w.refused++
			w.end(g) // the claim is deleted
			continue
		}
		if err != nil {
			w.t.Fatalf("%s was published: %v", g.device, err)
		}
		g.prepared = true
		var cards []int
		for _, m := range members {
			cards = append(cards, card(m))
		}
		cabling := &ring.Cabling{Rings: []ring.Ring{{Cards: w.cards(), Closed: true}}}
		if _, pieces := ring.NewFabric(make([]ring.Place, 8), cabling, nil).Order(cards); pieces != 1 && w.table {
			w.t.Fatalf("%v was prepared, and the ring is %v", cards, w.cards())
		}
	}
}

func (w *world) end(g *given) {
	w.allocated.Delete(id(g.device))
	w.claims = slices.DeleteFunc(w.claims, func(other *given) bool { return other == g })
}

// check: no LPU is given twice, and what is given is published.
func (w *world) check() {
	owner := map[pci.Address]string{}
	for _, g := range w.claims {
		if !slices.ContainsFunc(w.slicesDevices(), func(name string) bool { return name == g.device }) {
			w.t.Fatalf("%s was given and is not published", g.device)
		}
		for _, m := range w.members[g.device] {
			if owner[m] != "" {
				w.t.Fatalf("%s and %s both have %s", owner[m], g.device, m)
			}
			owner[m] = g.device
		}
	}
}

func (w *world) slicesDevices() (names []string) {
	for _, s := range w.slices {
		for _, d := range s.Spec.Devices {
			names = append(names, d.Name)
		}
	}
	return names
}

// TestOverTime: cards fail, cables are moved, the ring table goes and comes, the driver is killed, and claims come and go. At no time an
// LPU is given twice, or a device prepared that is not connected by the cables there are.
func TestOverTime(t *testing.T) {
	refused, given := 0, 0
	for seed := range uint64(10) {
		w := newWorld(t, seed)
		w.look()
		for range 250 {
			w.step()
		}
		refused, given = refused+w.refused, given+len(w.claims)
	}
	if refused == 0 || given == 0 {
		t.Errorf("%d claims refused at prepare, %d at the end: this shows little", refused, given)
	}
}
