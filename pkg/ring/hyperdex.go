package ring

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func (r *reader) readHyperdex(root *yaml.Node) {
	r.table.Format = FormatHyperdex
	top := r.members(root, place{}, func(key string) string { return key }, nil)
	count, stated := top["num_device"], false
	if count.value != nil {
		r.table.Count, stated = r.wholeNumber(count.value, count.at, "a number of cards", "4, for instance")
	}
	zeros, links := 0, r.list(top["network"])
	for i, n := range links {
		at := place{n.Line, top["network"].at.pointer + "/" + strconv.Itoa(i)}
		if r.readHyperdexLink(n, at) {
			zeros++
		}
	}
	switch complete := !r.findings.HasErrors(); {
	case stated && r.table.Count == 0 || zeros > 0 && zeros == len(links) && r.table.Count != 1:
		r.add(finding.RingAllZero, count.at, nil, "every value is 0: hyperdex-net did not complete", "check that every card is up and every QSFP cable is in, and run hyperdex-net again")
		return
	case complete && len(links) == 0 && r.table.Count != 1:
		r.add(finding.RingEmpty, top["network"].at, nil, "there are no links", "check that every QSFP cable is in, and run hyperdex-net again")
	default:
		if !r.checkUnknown() && complete {
			r.checkCount(count.at)
		}
	}
	r.checkLinks(true)
}

// readHyperdexLink reads one link, and tells whether both of its ends are 0.
func (r *reader) readHyperdexLink(n *yaml.Node, at place) (zero bool) {
	link := r.members(n, at, func(key string) string {
		switch key {
		case "src_id", "src_bdf":
			return "src"
		case "dst_id", "dst_bdf":
			return "dst"
		}
		return key
	}, nil)
	if link == nil {
		return false
	}
	const example = "an index (3) or a PCI address (\"0000:b1:00.1\")"
	src, ok1 := r.hyperdexID(link, "src", at, example)
	dst, ok2 := r.hyperdexID(link, "dst", at, example)
	right, ok3 := r.readDirection(link["direction"], at)
	if !ok1 || !ok2 {
		return false
	}
	if ok3 {
		s := statement{from: src, to: dst, at: at}
		if !right {
			s = statement{from: dst, to: src, end: 1, at: at}
		}
		r.statements = append(r.statements, s)
	}
	return src == dst && r.table.IDs[src].Kind == IDIndex && r.table.IDs[src].Index == 0
}

func (r *reader) hyperdexID(link map[string]member, name string, at place, example string) (int, bool) {
	m := link[name]
	if m.value == nil {
		r.missing(at, name+"_id")
		return 0, false
	}
	return r.id(m, example, func(text string) IDKind {
		if isAddress(text) {
			return IDAddress
		}
		return ""
	})
}

func (r *reader) readDirection(m member, at place) (right, ok bool) {
	if m.value == nil {
		r.missing(at, "direction")
		return false, false
	}
	if m.value.Kind == yaml.ScalarNode {
		right = strings.EqualFold(m.value.Value, "Right")
		if right || strings.EqualFold(m.value.Value, "Left") {
			return right, true
		}
	}
	r.wrongType(m.value, m.at, "\"Right\" or \"Left\"", "")
	return false, false
}

// checkUnknown reports the indices that the stated number of cards leaves no room for.
func (r *reader) checkUnknown() (found bool) {
	zero := false
	for _, id := range r.table.IDs {
		zero = zero || id.Kind == IDIndex && id.Index == 0
	}
	for i, id := range r.table.IDs {
		if r.table.Count == 0 || id.Kind != IDIndex || id.Index < r.table.Count {
			continue
		}
		remedy := fmt.Sprintf("use the ids 0 to %d, or correct num_device", r.table.Count-1)
		if !zero && id.Index == r.table.Count {
			remedy = "ids start at 0, and none is 0 here: subtract 1 from each"
		}
		r.add(finding.RingUnknownCard, r.places[i], []string{id.String()}, fmt.Sprintf("there is no card %d among %d", id.Index, r.table.Count), remedy)
		found = true
	}
	return found
}

// checkCount holds the number of cards in links against the number stated. One card needs no link.
func (r *reader) checkCount(at place) {
	stated, named := r.table.Count, len(r.table.IDs)
	if stated == 0 || stated == named || stated == 1 && named == 0 {
		return
	}
	message := fmt.Sprintf("num_device is %d but the links name %d", stated, named)
	if r.table.byIndex() {
		message += ", without " + theFirst(r.unmentioned(stated))
	}
	r.add(finding.RingCount, at, nil, message, "check the cables of every card, and run hyperdex-net again")
}

// unmentioned is the cards below n that an index table does not mention.
func (r *reader) unmentioned(n int) (cards []string) {
	for i := range n {
		id := ID{Kind: IDIndex, Text: strconv.Itoa(i), Index: i}
		if _, ok := r.positions[id.key()]; !ok {
			cards = append(cards, id.String())
		}
	}
	return cards
}
