package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// Scan reads the cards of a node, with what is remembered of them, the cordons and the
// leases. Several checks call it at once.
type Scan func(context.Context) (*discovery.Inventory, error)

// Cards returns the checks of all that a scan says: from the card to its cables, and who
// has taken it out of use.
func Cards(scan Scan) []Check {
	return []Check{
		ofScan(scan, Card, "which cards are in the machine", sayCards),
		ofScan(scan, Driver, "the driver of each card", sayDrivers),
		ofScan(scan, Node, "the device file of each card", sayNodes),
		ofScan(scan, Health, "the health of each card", sayHealth),
		ofScan(scan, Cabling, "the ring table", sayCabling),
		ofScan(scan, Owner, "which cards are cordoned", sayCordons),
	}
}

// ofScan returns the check of a link. says returns what is well with it, and whether that
// is so of all LPUs.
func ofScan(scan Scan, link Link, about string, says func(*discovery.Inventory) (string, bool)) Check {
	return Check{link, about, func(ctx context.Context) Result {
		inv, err := scan(ctx)
		if err != nil {
			return Unable(about, err)
		}
		r := Result{Findings: findingsOf(inv, link)}
		switch {
		case len(inv.LPUs) > 0:
			said, all := says(inv)
			r.Says, r.Part = said, !all
		case link == Card:
			r.Absent, r.NoLPU = "no LPU on the PCI bus", true
		default:
			r.Absent = "no LPU"
		}
		return r
	}}
}

// findingsOf returns what an inventory says about a link.
func findingsOf(inv *discovery.Inventory, link Link) (all finding.List) {
	of := func(l finding.List) {
		for _, f := range l {
			if linkOf(f.ID) == link {
				all = append(all, f)
			}
		}
	}
	of(inv.Problems)
	for i := range inv.LPUs {
		of(inv.LPUs[i].Reasons)
	}
	return all
}

// count returns how many LPUs are in the machine, and of how many something holds.
func count(inv *discovery.Inventory, holds func(*discovery.LPU) bool) (of, all int) {
	for i := range inv.LPUs {
		if l := &inv.LPUs[i]; !l.Absent {
			all++
			if holds(l) {
				of++
			}
		}
	}
	return of, all
}

func sayCards(inv *discovery.Inventory) (string, bool) {
	models := map[string]int{}
	for i := range inv.LPUs {
		if !inv.LPUs[i].Absent {
			models[inv.LPUs[i].Model]++
		}
	}
	var each []string
	for _, model := range slices.Sorted(maps.Keys(models)) {
		each = append(each, fmt.Sprintf("%d %s", models[model], model))
	}
	return strings.Join(each, ", "), true
}

func sayDrivers(inv *discovery.Inventory) (string, bool) {
	drivers := map[string]bool{}
	bound, all := count(inv, func(l *discovery.LPU) bool {
		if l.Driver != "" {
			version, _, _ := strings.Cut(l.DriverVersion, ",") // xocl has the commit behind a comma
			drivers[strings.TrimSpace(l.Driver+" "+version)] = true
		}
		return l.Driver != ""
	})
	said := fmt.Sprintf("%d of %d bound", bound, all)
	if len(drivers) > 0 {
		said += " to " + strings.Join(slices.Sorted(maps.Keys(drivers)), ", ")
	}
	return said, bound == all
}

func sayNodes(inv *discovery.Inventory) (string, bool) {
	has, all := count(inv, func(l *discovery.LPU) bool { return len(l.Nodes) > 0 })
	return fmt.Sprintf("%d of %d", has, all), has == all
}

func sayHealth(inv *discovery.Inventory) (string, bool) {
	well, all := count(inv, func(l *discovery.LPU) bool { return l.Health == health.Healthy })
	return fmt.Sprintf("%d of %d healthy", well, all), well == all
}

func sayCabling(inv *discovery.Inventory) (string, bool) {
	switch len(inv.Rings) {
	case 0:
		return "no ring table", true
	case 1:
		return "1 ring", true
	}
	return fmt.Sprintf("%d rings", len(inv.Rings)), true
}

func sayCordons(inv *discovery.Inventory) (string, bool) {
	cordoned, _ := count(inv, func(l *discovery.LPU) bool { return l.Cordoned != nil })
	if cordoned == 0 {
		return "none cordoned", true
	}
	return fmt.Sprintf("%d cordoned", cordoned), true
}

// Unable returns the result of a check that could not look.
func Unable(what string, err error) Result {
	return Result{Unseen: []Unseen{{what, err.Error(), right(err)}}}
}
