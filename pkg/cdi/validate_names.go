package cdi

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/nearest"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// checkServed looks for what no file defines: devices of a spec made now, and devices
// that are asked for.
func (v *Validator) checkServed(findings *finding.List, r *reading, served []*document) {
	names := r.names(v.Kind)
	now := v.devicesNow()
	for _, name := range v.Devices {
		v.checkDevice(findings, name, r, now, names)
	}
	var where []string
	for _, dir := range r.dirs {
		where = append(where, dir.path)
	}
	switch {
	case len(served) > 0:
		own := slices.ContainsFunc(served, func(d *document) bool { return v.isOwn(d.path) })
		now.missing(findings, names, own, v.renewal(served))
		*findings = append(*findings, FactoryImages(now.inv)...)
	case len(now.list) == 0 && len(now.inv.LPUs) > 0:
		findings.Add(finding.NoSpec, v.Kind, "no LPU has a device node, so that there is nothing to put into a spec",
			"do what is said of each LPU, then lpuctl cdi refresh")
	case len(now.list) > 0, v.Inventory == nil && len(v.Devices) > 0:
		message := "no file in " + strings.Join(where, ", ") + " defines devices of this kind: no runtime can resolve one"
		findings.Add(finding.NoSpec, v.Kind, message, "")
	}
	if len(now.list) == 0 {
		*findings = append(*findings, leftOut(now.inv, now.Options)...)
	}
}

// checkDevice finds out why a runtime does not resolve a device, which it takes by the
// letter.
func (v *Validator) checkDevice(findings *finding.List, name string, r *reading, now *devices, names []string) {
	var lacking []*reader
	for _, reader := range r.readers {
		if _, has := reader.by[name]; reader.sure && !has {
			lacking = append(lacking, reader)
		}
	}
	if len(lacking) == 0 || strings.HasPrefix(name, ClaimKind+"=") { // see checkClaims
		return
	}
	message, remedy := now.whyUnknown(name, names)
	if two, torn := lacking[0].torn[name]; torn {
		message = two[0].path + " and " + two[1].path + " both define it: runtimes hand out neither"
		remedy = "remove one of the two: rm " + v.notOwn(two[0].path, two[1].path)
	}
	findings.Add(finding.DeviceUnknown, name, message+r.whose(lacking), remedy)
}

// devicesNow are the devices that a spec made now would have; none where there is no LPU
// with a node, or the machine is not known.
func (v *Validator) devicesNow() *devices {
	o, inv := Options{Kind: v.Kind}, v.inventory()
	now, err := devicesOf(inv, o)
	if err != nil {
		return &devices{Options: o, inv: inv}
	}
	return now
}

// inventory is what is in the machine, as far as it is known.
func (v *Validator) inventory() *discovery.Inventory {
	return cmp.Or(v.Inventory, &discovery.Inventory{})
}

// renewal is what writes the spec again: where a file that is not our own has our names,
// refresh waits until it is gone.
func (v *Validator) renewal(served []*document) string {
	for _, d := range served {
		if !v.isOwn(d.path) {
			return d.renewal
		}
	}
	return "lpuctl cdi refresh"
}

// missing finds devices that no file defines. An LPU is missing, which is an error, if it
// has no name, or lacks one of a family of which others have theirs: a user who writes a
// spec by hand may do without names by address, or without any set. names are those that
// files define; own: our file is one of them.
func (d *devices) missing(findings *finding.List, names []string, own bool, renewal string) {
	defined := func(name string) bool { return slices.Contains(names, name) }
	lacking := d.missingLPUs(findings, defined, renewal)
	isSetHere := func(c device) bool { return isSet(c.name) && defined(c.name) }
	wantsSets := own || slices.ContainsFunc(d.list, isSetHere)
	var more, sets []string
	for _, c := range d.list {
		switch {
		case defined(c.name), slices.ContainsFunc(c.cards, func(card int) bool { return lacking[card] }):
		case wantsSets && isSet(c.name):
			sets = append(sets, c.name)
		default:
			more = append(more, c.name)
		}
	}
	if len(sets) > 0 {
		message := "no spec file defines " + some(sets) + ", and a spec made now would"
		findings.Add(finding.DeviceMissing, d.kind(), message, renewal)
	}
	if len(more) > 0 {
		findings.Add(finding.SpecDrift, d.kind(), "a spec made now would also have "+some(more), renewal)
	}
}

// missingLPUs finds LPUs that lack a name of theirs, and returns them by position.
func (d *devices) missingLPUs(findings *finding.List, defined func(name string) bool, renewal string) map[int]bool {
	cards := cardsWithNode(d.inv)
	lpus := pick(d.inv, cards)
	byName := slices.ContainsFunc(lpus, func(l discovery.LPU) bool { return defined(l.Name) })
	byAddress := slices.ContainsFunc(lpus, func(l discovery.LPU) bool { return defined(AddressName(l.Address)) })
	lacking := map[int]bool{}
	for i, l := range lpus {
		name, address := defined(l.Name), defined(AddressName(l.Address))
		var lacks []string
		if !name && (byName || !address) {
			lacks = append(lacks, l.Name)
		}
		if !address && (byAddress || !name) {
			lacks = append(lacks, AddressName(l.Address))
		}
		if len(lacks) > 0 {
			lacking[cards[i]] = true
			message := fmt.Sprintf("it has the node %s, and no spec file defines %s", l.Nodes[0].Path, strings.Join(lacks, " or "))
			findings.Add(finding.DeviceMissing, l.Name, message, renewal)
		}
	}
	return lacking
}

// whyUnknown says why a device that is asked for is in no file, and what to do: the
// reason of an LPU that it would have to cover comes first. names are the devices that
// files define.
func (d *devices) whyUnknown(name string, names []string) (message, remedy string) {
	bare := strings.TrimPrefix(name, d.kind()+"=")
	members := membersOf(bare)
	cards, err := d.inv.Resolve(d.kind(), members)
	for _, card := range cards {
		if l := d.inv.LPUs[card]; err == nil && len(l.Nodes) == 0 {
			why := whyLeftOut(l)
			return fmt.Sprintf("%s is in no spec: %s", l.Name, why.Message), why.Remedy
		}
	}
	meant := members
	if one, err := d.names([]string{members}); err == nil && len(one) == 1 {
		meant = one[0]
	}
	message = "no file defines it"
	switch full := d.kind() + "=" + meant; {
	case full != name && slices.Contains(names, meant):
		remedy = "did you mean " + full + "?"
		if members != bare {
			return message, remedy + " The name of a set lists its members"
		}
		return message + ": runtimes take a name by the letter", remedy
	case d.find(meant) != nil:
		return message + ", and a spec made now would have " + meant, "lpuctl cdi refresh"
	}
	if len(names) > 0 {
		message += "; there are " + some(names)
	} else if err != nil {
		message += ": " + err.Error()
	}
	if near := nearest.Word(bare, names); near != "" && members == bare {
		remedy = "did you mean " + d.kind() + "=" + near + "?"
	}
	return message, remedy
}

// membersOf lists the members of what looks like a range: "lpu0-1-2-3" for "lpu0-3".
// Another name it returns as it is.
func membersOf(name string) string {
	var first, last int
	found, _ := fmt.Sscanf(name, "lpu%d-%d", &first, &last)
	const most = 1024 // more LPUs than a node has
	if found != 2 || name != fmt.Sprintf("lpu%d-%d", first, last) || last < first+2 || last > most {
		return name
	}
	var indices []string
	for i := first; i <= last; i++ {
		indices = append(indices, strconv.Itoa(i))
	}
	return "lpu" + strings.Join(indices, "-")
}

// FactoryImages finds LPUs of a spec that run their factory image: containers get a card
// that computes nothing. The spec does not change with it, because what is flashed may
// change while the spec stays in place.
func FactoryImages(inv *discovery.Inventory) (findings finding.List) {
	for _, l := range pick(inv, cardsWithNode(inv)) {
		for _, reason := range l.Reasons {
			if reason.ID == finding.RecoveryShell {
				findings.Add(finding.FactoryImage, l.Name, reason.Message+"; it is in the spec all the same", reason.Remedy)
			}
		}
	}
	return findings
}

// Unverified finds LPUs of a spec of whose device nodes it is not known whether they are
// their own, as in a container without /dev.
func Unverified(inv *discovery.Inventory) (findings finding.List) {
	var names []string
	for _, l := range pick(inv, cardsWithNode(inv)) {
		if slices.ContainsFunc(l.Nodes, func(n discovery.Node) bool { return !n.Verified }) {
			names = append(names, l.Name)
		}
	}
	if len(names) > 0 {
		const message = "the device nodes are in the spec, and could not be verified: /dev cannot be seen, or /sys/dev/char"
		findings.Add(finding.NodeUnverified, strings.Join(names, ", "), message, "")
	}
	return findings
}
