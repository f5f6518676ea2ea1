package top

import (
	"cmp"
	"slices"
	"time"

	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Look is what is known of the LPUs of a node at one moment, and the document of it.
type Look struct {
	statefile.Header
	Node string    `json:"node,omitempty"` // name of the host
	At   time.Time `json:"at"`             // when it was looked
	LPUs []LPU     `json:"lpus"`           // in the order of the ring, then those on none
	// Rings are as in the inventory.
	Rings    []discovery.Ring `json:"rings"`
	Problems finding.List     `json:"problems"`
}

// LPU is what is known of one LPU.
type LPU struct {
	Name    string               `json:"name"`
	Address pci.Address          `json:"address"`
	Model   string               `json:"model"`
	Ring    *discovery.RingPlace `json:"ring,omitempty"`
	Health  discovery.Health     `json:"health"`
	State   string               `json:"state"` // as the screen has it, such as "no driver"
	Usable  bool                 `json:"usable"`
	Reasons finding.List         `json:"reasons"`
	Link    *discovery.Link      `json:"link,omitempty"`

	// Readings are what sensors have said. It is nil if they have said nothing.
	Readings *Readings `json:"readings,omitempty"`

	Holder *Holder `json:"holder,omitempty"` // who has it; nil: no one, as far as is known
	// Hidden: there are processes that this user may not inspect, and they may use it.
	Hidden bool `json:"usersHidden,omitempty"`

	index int // in the inventory
}

// Readings are what the sensors of an LPU have said at one moment.
type Readings struct {
	// Source is who has read them: "top" itself, or a program whose metrics say so: "serve",
	// "exporter" or "dra".
	Source string    `json:"source"`
	At     time.Time `json:"at"`

	Temperatures []health.Temperature `json:"temperatures,omitempty"`
	Watts        *float64             `json:"watts,omitempty"`
	LimitWatts   *float64             `json:"limitWatts,omitempty"`
}

// Hottest returns the temperature that is nearest to its limit or, if none has a limit,
// the highest; nil if there is none.
func (r *Readings) Hottest() *health.Temperature {
	if r == nil || len(r.Temperatures) == 0 {
		return nil
	}
	hottest := slices.MaxFunc(r.Temperatures, func(a, b health.Temperature) int {
		return cmp.Or(cmp.Compare(share(a.Celsius, a.Limit()), share(b.Celsius, b.Limit())), cmp.Compare(a.Celsius, b.Celsius))
	})
	return &hottest
}

// share is a value as a share of its limit; 0 without a limit.
func share(value, limit float64) float64 {
	if limit <= 0 {
		return 0
	}
	return value / limit
}

// Power returns what the LPU takes, in watts; nil if that is not known.
func (r *Readings) Power() *float64 {
	if r == nil {
		return nil
	}
	return r.Watts
}

// New makes a look of an inventory, with the marks of cordons, leases and users. readings
// are of the LPUs of which there are any, pods are those that have an LPU, as
// [github.com/hyperaccel/lpuctl/internal/pods.Node] names them, and sinceBoot is the time
// since boot at the moment at.
func New(
	inv *discovery.Inventory, readings map[pci.Address]*Readings, pods map[pci.Address]string, at time.Time, sinceBoot time.Duration,
) *Look {
	look := &Look{
		Header: statefile.NewHeader("Top"), At: at.UTC().Truncate(time.Second), LPUs: []LPU{}, Rings: inv.Rings, Problems: inv.Problems,
	}
	if look.Problems == nil {
		look.Problems = finding.List{}
	}
	if look.Rings == nil {
		look.Rings = []discovery.Ring{}
	}
	for _, i := range inRingOrder(inv) {
		l := &inv.LPUs[i]
		row := LPU{
			Name: l.Name, Address: l.Address, Model: l.Model, Ring: l.Ring, Health: l.Health, State: l.State(), Usable: l.Usable,
			Reasons: l.Reasons, Link: l.Link, Readings: readings[l.Address], Hidden: l.UsersHidden, index: i,
			Holder: holderOf(l, pods[l.Address], func(started time.Duration) time.Time {
				return look.At.Add(started - sinceBoot).Round(time.Second)
			}),
		}
		if row.Reasons == nil {
			row.Reasons = finding.List{}
		}
		look.LPUs = append(look.LPUs, row)
	}
	return look
}

// inRingOrder returns the positions of the LPUs of an inventory: ring after ring, each in
// its order, then those on none.
func inRingOrder(inv *discovery.Inventory) (order []int) {
	byName := map[string]int{}
	for i := range inv.LPUs {
		byName[inv.LPUs[i].Name] = i
	}
	for _, r := range inv.Rings {
		for _, name := range r.Members {
			if i, there := byName[name]; there {
				order = append(order, i)
				delete(byName, name)
			}
		}
	}
	for i := range inv.LPUs {
		if _, loose := byName[inv.LPUs[i].Name]; loose {
			order = append(order, i)
		}
	}
	return order
}

// OwnReadings are what a scan itself has read of an LPU at a moment; nil if it has read
// none.
func OwnReadings(l *discovery.LPU, at time.Time) *Readings {
	if l.Temperatures == nil && l.Watts == nil {
		return nil
	}
	return &Readings{
		Source: "top", At: at.UTC().Truncate(time.Second), Temperatures: l.Temperatures, Watts: l.Watts, LimitWatts: l.LimitWatts,
	}
}
