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

// linkKeys are the keys of a link, as [canonical] returns them.
func linkKeys() []string { return []string{"src_id", "dst_id", "direction"} }

// readHyperdexLink reads one link, and tells whether both of its ends are 0.
func (r *reader) readHyperdexLink(f field) (zero bool) {
	object := r.object(f, nil, linkKeys()...)
	src, ok1 := r.id(object["src_id"])
	dst, ok2 := r.id(object["dst_id"])
	end, ok3 := r.readDirection(object["direction"])
	if !ok1 || !ok2 {
		return false
	}
	if ends := [2]int{src, dst}; ok3 {
		r.links = append(r.links, link{from: ends[end], to: ends[1-end], end: end, at: f.at})
	}
	return src == dst && r.IDs[src].Text == "0"
}

// readDirection returns the end that lists the link: src (0) is on the left of dst, or (1) on its right.
func (r *reader) readDirection(f field) (end int, ok bool) {
	if f.node == nil {
		return 0, false
	}
	end = slices.IndexFunc([]string{"Right", "Left"}, func(side string) bool { return strings.EqualFold(side, f.node.Value) })
	if end < 0 || f.node.Kind != yaml.ScalarNode {
		r.wrongType(f, `"Right" or "Left"`, "")
		return 0, false
	}
	return end, true
}

// checkCount compares the cards in the links with num_device, if the table has it. A single card needs no link.
func (r *reader) checkCount(at location) {
	count := r.Count
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
	r.add(finding.RingCount, at, "", "num_device is %d, but the links name %d cards%s", count, named, missing).
		Remedy = "check the cables of every card, and run hyperdex-net again"
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
