package ring

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func (r *reader) readHyperdex(root field) {
	r.Format = FormatHyperdex
	top := r.object(root, nil)
	for _, key := range hyperdexKeys() {
		if top[key].node == nil {
			r.misspelt(top, key)
		}
	}
	count, given := top["num_device"], false
	if count.node != nil {
		// The number is written in the same way as an index.
		if kind, n := identify(count.node); kind == IDIndex {
			r.Count, given = n, true
		} else {
			r.wrongType(count, "a number of cards", "4, for instance")
		}
	}
	r.readContainer(top[containerKey], count)
	zeros, links := 0, r.list(top["network"])
	for _, f := range links {
		if r.readHyperdexLink(f) {
			zeros++
		}
	}
	switch {
	case given && r.Count == 0 || zeros > 0 && zeros == len(links) && r.Count != 1:
		r.add(finding.RingAllZero, count.at, "", "every value is 0: hyperdex-net did not complete")
		return
	case len(links) == 0 && r.Count != 1 && !r.HasErrors():
		r.add(finding.RingEmpty, top["network"].at, "", "the table lists no links")
	default:
		r.checkCount(count.at)
	}
	r.checkLinks()
}

// containerKey is the key of a container's table that is ours.
const containerKey = "num_container_device"

// readContainer reads how many cards the container has that the table is made for.
func (r *reader) readContainer(f, count field) {
	if f.node == nil {
		return
	}
	kind, n := identify(f.node)
	if kind != IDIndex || n < 1 || count.node != nil && n > r.Count {
		r.wrongType(f, "a number of cards from 1 to num_device", "")
		return
	}
	r.Container = n
}

// outside reports whether an end is a card that the container does not have.
func (r *reader) outside(f field) bool {
	if r.Container == 0 || f.node == nil {
		return false
	}
	kind, index := identify(f.node)
	return kind == IDIndex && index >= r.Container
}

// linkKeys are the keys of a link, as [canonical] returns them.
func linkKeys() []string { return []string{"src_id", "dst_id", "direction"} }

// readHyperdexLink reads one link, and tells whether both of its ends are 0.
func (r *reader) readHyperdexLink(f field) (zero bool) {
	object := r.object(f, nil, linkKeys()...)
	r.Entries = append(r.Entries, entryOf(f.at, object["src_id"], object["direction"]))
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
		r.links = append(r.links, link{from: ends[end], to: ends[1-end], end: end, at: f.at})
	}
	return src == dst && r.IDs[src].Text == "0"
}

// entryOf is what HyperDex's program takes of a link. It knows one spelling of each key.
func entryOf(at location, src, direction field) Entry {
	e := Entry{ID: -1, at: at}
	if src.node != nil && src.key == "src_id" {
		if kind, index := identify(src.node); kind == IDIndex {
			e.ID = index
		}
	}
	if direction.node != nil {
		e.Side = direction.node.Value
	}
	return e
}

// readDirection returns the end that lists the link: src (0) is on the left of dst, or (1) on its right.
func (r *reader) readDirection(f field) (end int, ok bool) {
	if f.node == nil {
		return 0, false
	}
	end = slices.IndexFunc([]string{right, "Left"}, func(side string) bool { return strings.EqualFold(side, f.node.Value) })
	if end < 0 || f.node.Kind != yaml.ScalarNode {
		r.wrongType(f, `"Right" or "Left"`, "")
		return 0, false
	}
	return end, true
}

// checkCount compares the cards in the links with num_device, if the table has it. A single card needs no link.
func (r *reader) checkCount(at location) {
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
func (r *reader) countKey() string {
	if r.Container > 0 {
		return containerKey
	}
	return "num_device"
}

// unmentioned is the names of the cards with an index below n that the table does not mention.
func (r *reader) unmentioned(n int) (cards []string) {
	for i := range n {
		id := indexID(i)
		if _, ok := r.known[id]; !ok {
			cards = append(cards, id.String())
		}
	}
	return cards
}
