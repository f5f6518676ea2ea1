package ring

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func (r *parser) readHyperdex(root field) {
	r.Format = FormatHyperdex
	top := r.object(root, nil)
	r.extra(top, append(hyperdexKeys(), containerKey, nodeKey)...)
	for _, key := range hyperdexKeys() {
		if top[key] == nil {
			r.misspelt(top, key)
		}
	}
	count := top["num_device"]
	given := indexOf(count) >= 0 // the number is written in the same way as an index
	if given {
		r.Count = indexOf(count)
	} else if count != nil {
		r.wrongType(count, "a number of cards", "4, for instance")
	}
	r.readContainer(top, count)
	zeros, links := 0, r.list(top["network"])
	for _, f := range links {
		if r.readHyperdexLink(f) {
			zeros++
		}
	}
	switch {
	case given && r.Count == 0 || zeros > 0 && zeros == len(links) && r.Count != 1:
		r.add(finding.RingAllZero, at(count), "", "every value is 0: hyperdex-net did not complete")
		return
	case len(links) == 0 && r.Count != 1 && !r.HasErrors():
		r.add(finding.RingEmpty, at(top["network"]), "", "the table lists no links")
	default:
		r.checkCount(at(count))
	}
	r.checkLinks()
}

// extra notes the keys of an object that are not known: of many only the first, which are
// enough to say what they are.
func (r *parser) extra(object map[string]field, known ...string) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		shown := fmt.Sprintf("%.40q", key)
		if len(r.Extra) <= shownNames && !slices.Contains(known, key) && !slices.Contains(r.Extra, shown) {
			r.Extra = append(r.Extra, shown)
		}
	}
}

// The sides as HyperDex spells them. Its program takes any word but the first for the
// second.
const (
	sideRight = "Right"
	sideLeft  = "Left"
)

// The keys that are ours, of a container's table and of a node's.
const (
	containerKey = "num_container_device"
	nodeKey      = "num_node_device"
)

// readContainer reads how many cards the container or node has that the table is made
// for.
func (r *parser) readContainer(top map[string]field, count field) {
	f := top[containerKey]
	if f == nil {
		f = top[nodeKey]
		r.OfNode = f != nil
	}
	if f == nil {
		return
	}
	n := indexOf(f)
	if n < 1 || count != nil && n > r.Count {
		r.wrongType(f, "a number of cards from 1 to num_device", "")
		return
	}
	r.Container = n
}

// outside reports whether an end is a card that the container does not have.
func (r *parser) outside(f field) bool { return r.Container > 0 && indexOf(f) >= r.Container }

// indexOf is the index that a value is; -1: it is none, or is missing.
func indexOf(f field) int {
	if f != nil {
		if kind, index := identify(f.Node); kind == IDIndex {
			return index
		}
	}
	return -1
}

// linkKeys are the keys of a link, as [canonical] returns them.
func linkKeys() []string { return []string{"src_id", "dst_id", "direction"} }

// readHyperdexLink reads one link, and reports whether both of its ends are 0.
func (r *parser) readHyperdexLink(f field) (zero bool) {
	object := r.object(f, nil, linkKeys()...)
	r.extra(object, linkKeys()...)
	r.Entries = append(r.Entries, entryOf(at(f), object["src_id"], object["direction"]))
	end, ok3 := r.readDirection(object["direction"])
	if r.outside(object["src_id"]) {
		return false
	}
	src, ok1 := r.id(object["src_id"])
	if r.outside(object["dst_id"]) {
		return false
	}
	dst, ok2 := r.id(object["dst_id"])
	if !ok1 || !ok2 {
		return false
	}
	if ends := [2]int{src, dst}; ok3 {
		r.links = append(r.links, link{from: ends[end], to: ends[1-end], end: end, at: at(f)})
	}
	return src == dst && r.IDs[src].Text == "0"
}

// entryOf is what HyperDex's program takes of a link. It knows one spelling of each key.
func entryOf(at location, src, direction field) Entry {
	e := Entry{ID: -1, at: at}
	if src != nil && src.Key == "src_id" {
		e.ID = indexOf(src)
	}
	if direction != nil {
		e.Side = direction.Node.Value
	}
	return e
}

// readDirection returns the end that lists the link: src (0) is on the left of dst, or
// (1) on its right.
func (r *parser) readDirection(f field) (end int, ok bool) {
	if f == nil {
		return 0, false
	}
	end = slices.IndexFunc([]string{sideRight, sideLeft}, func(side string) bool { return strings.EqualFold(side, f.Node.Value) })
	if end < 0 || f.Node.Kind != yaml.ScalarNode {
		r.wrongType(f, fmt.Sprintf("%q or %q", sideRight, sideLeft), "")
		return 0, false
	}
	return end, true
}

// checkCount compares the cards in the links with num_device, if the table has it. A
// single card needs no link.
func (r *parser) checkCount(at location) {
	count := r.cards()
	if count == 0 {
		return
	}
	for _, id := range r.IDs {
		if id.Index < count {
			continue
		}
		f := r.add(finding.RingUnknownCard, id.at(), id.String(), "there is no card with index %d: num_device is %d", id.Index, count)
		f.Remedy = fmt.Sprintf("use the ids 0 to %d, or correct num_device", count-1)
		if _, zero := r.known[indexID(0)]; !zero && id.Index == count {
			f.Remedy = "the first card has index 0: subtract 1 from each id"
		}
	}
	named := len(r.IDs)
	if r.HasErrors() || count == named || count == 1 && named == 0 {
		return
	}
	missing := ""
	if r.byIndex() {
		missing = " (missing: " + theFirst(r.unmentioned(count)) + ")"
	}
	r.add(finding.RingCount, at, "", "%s is %d, but the links name %d cards%s", r.countKey(), count, named, missing).
		Remedy = "check the cables of every card, and run hyperdex-net again"
}

// countKey is the key that says how many cards the table lists.
func (r *parser) countKey() string {
	switch {
	case r.OfNode:
		return nodeKey
	case r.Container > 0:
		return containerKey
	}
	return "num_device"
}

// unmentioned is the names of the cards with an index below n that the table does not
// mention.
func (r *parser) unmentioned(n int) (cards []string) {
	for i := range n {
		id := indexID(i)
		if _, ok := r.known[id]; !ok {
			cards = append(cards, id.String())
		}
	}
	return cards
}
