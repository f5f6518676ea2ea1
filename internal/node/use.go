package node

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Use is who had the LPUs of a node at one moment. It does not change.
type Use struct {
	ReadAt time.Time // when it was looked
	// Inventory has the users of the LPUs ([discovery.FindUsers]) and, if LeasesKnown,
	// who has leased and reserved them.
	Inventory   *discovery.Inventory
	LeasesKnown bool // the arbiter's records could be read
}

// shownDigits is how many digits of a container's id runtimes show, and take for the
// container.
const shownDigits = 12

// Metrics are those of who has the LPUs.
func (u *Use) Metrics() []*Metric {
	var all Metrics
	users := all.Gauge("lpuctl_lpu_users", "Processes that have a node of the LPU open. Absent if that is not known.")
	holder := all.Gauge("lpuctl_lpu_holder",
		"Who has a node of the LPU open: of several processes the one that began first; always 1.")
	leased := all.Gauge("lpuctl_lpu_leased", "Who has leased the LPU; always 1.")
	reserved := all.Gauge("lpuctl_lpu_reserved", "Whom the LPU is reserved for; always 1.")
	known := all.Gauge("lpuctl_leases_known", "Whether it is known who has leased and reserved LPUs.")
	hidden := all.Gauge("lpuctl_users_hidden", "Whether there are processes that may use an LPU and cannot be seen.")
	last := all.Gauge("lpuctl_last_use_timestamp_seconds", "When it was looked last who has the LPUs, in Unix time.")
	if u != nil {
		hides := false
		for i := range u.Inventory.LPUs {
			l := &u.Inventory.LPUs[i]
			labels := []string{"lpu", l.Name, "device", cdi.AddressName(l.Address)}
			hides = hides || l.UsersHidden
			if l.Users != nil {
				users.Set(float64(len(l.Users)), labels...)
			}
			if len(l.Users) > 0 {
				holder.SetBool(true, append(slices.Clip(labels), holderLabels(l.Users)...)...)
			}
			if l.Leased != nil {
				leased.SetBool(true, append(slices.Clip(labels), "uid", strconv.Itoa(l.Leased.UID))...)
			}
			if l.Reserved != nil {
				reserved.SetBool(true, append(slices.Clip(labels), "uid", strconv.Itoa(l.Reserved.UID))...)
			}
		}
		known.SetBool(u.LeasesKnown)
		hidden.SetBool(hides)
		last.Set(float64(u.ReadAt.UnixMilli()) / 1000)
	}
	return all
}

// holderLabels say who has an LPU. Of several processes it is the one that began first,
// so that the labels change as seldom as can be.
func holderLabels(users []discovery.User) []string {
	first := slices.MinFunc(users, func(a, b discovery.User) int {
		return cmp.Or(cmp.Compare(a.Started, b.Started), cmp.Compare(a.PID, b.PID))
	})
	uid := ""
	if first.UID >= 0 {
		uid = strconv.Itoa(first.UID)
	}
	return []string{"runtime", first.Runtime, "container", first.Container[:min(shownDigits, len(first.Container))], "uid", uid}
}

// UsersLimit is how long the look through /proc takes at most for those who use the LPUs.
const UsersLimit = 3 * time.Second

// FindUsers fills in who uses the LPUs, as far as that can be found out in time.
func FindUsers(ctx context.Context, root host.Root, inv *discovery.Inventory) {
	ctx, cancel := context.WithTimeout(ctx, UsersLimit)
	defer cancel()
	discovery.FindUsers(ctx, string(root), inv)
}

// LostTables returns findings about containers that read the ring table of the host, as far
// as that can be found out in time.
func LostTables(ctx context.Context, root host.Root, inv *discovery.Inventory) finding.List {
	ctx, cancel := context.WithTimeout(ctx, UsersLimit)
	defer cancel()
	return discovery.LostTables(ctx, string(root), inv)
}
