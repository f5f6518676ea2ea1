package ring

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Card is an LPU that a table can be bound to.
type Card struct {
	Name    string // lpu0
	Address pci.Address
	Serial  string // serial number; "": not known
	Absent  bool   // the table names it, but it is not present: it keeps its index
}

// Bind finds the card of this node for each id of a table, and returns how these cards
// are cabled. The index of a card is its position in cards.
//
// Which card an index means depends on how many cards are present. So a table with
// indices or names is bound only if it lists as many cards as are present, and none is
// absent; else it has the finding ring-count. A PCI address means the card that has it,
// with any function. If that card is absent (ring-absent-card), the ring stays the same,
// and the cables of the card are dead. [Table.Addresses] returns the cards that should be
// present. An id that no card has is ring-unknown-card.
//
// The cabling is nil if a finding is an error, or if t is nil or has errors that Parse
// reported.
func Bind(t *Table, cards []Card) (*Cabling, finding.List) {
	if t == nil || t.faulty {
		return nil, nil
	}
	b := &binder{report: newReport(t.file), cards: cards, ids: make([]*ID, len(cards))}
	bound := b.bindIDs(t)
	if b.HasErrors() {
		return nil, b.done()
	}
	links := make([][2]int, len(t.Links))
	for i, l := range t.Links {
		links[i] = [2]int{bound[l[0]], bound[l[1]]}
	}
	c := newCabling(len(cards), links)
	b.warn(t, c)
	return c, b.done()
}

// binder finds the card of each id of a table.
type binder struct {
	report
	cards []Card
	ids   []*ID // of each card; nil: the table does not name it
}

// bindIDs returns the position in b.cards of each id, unless it reports an error.
func (b *binder) bindIDs(t *Table) []int {
	absent := 0
	known := make(map[ID][]int, 3*len(b.cards))
	for i, card := range b.cards {
		if card.Absent {
			absent++
		}
		address := ID{Kind: IDAddress, Address: card.Address}
		for _, key := range []ID{address.key(), indexID(i), {Kind: IDSerial, Text: card.Serial}} {
			known[key] = append(known[key], i)
		}
	}
	if want := t.positions(); want > 0 && (want != len(b.cards) || absent > 0) {
		has := strconv.Itoa(len(b.cards) - absent)
		if absent > 0 {
			has += fmt.Sprintf(" present and %d absent", absent)
		}
		at, how := location{}, " by index"
		if other := slices.IndexFunc(t.IDs, func(id ID) bool { return !id.positional() }); other >= 0 {
			index := t.IDs[slices.IndexFunc(t.IDs, ID.positional)]
			at, how = location{line: index.Line}, fmt.Sprintf(", some by index (%s) and others by %s (%s)", index, t.IDs[other].Kind, t.IDs[other])
		}
		f := b.add(finding.RingCount, at, "", "the table lists %d cards%s, but this node has %s", want, how, has)
		f.Remedy = "an index means another card when one is missing: " + finding.RuleOf(finding.RingCount).Remedy
		if t.ofContainer() {
			f.Remedy = "the table is made for a container with so many LPUs: use it there, or give the table of this node"
		}
		return nil
	}
	bound := make([]int, len(t.IDs))
	for i, id := range t.IDs {
		at, found := location{line: id.Line}, known[id.key()]
		switch {
		case len(found) == 0:
			f := b.add(finding.RingUnknownCard, at, id.Text, "no card has the %s %s", id.Kind, id.Text)
			if id.Kind == IDSerial {
				f.Remedy = "correct it; write an index without quotes"
			}
		case len(found) > 1:
			first, second := b.cards[found[0]].Name, b.cards[found[1]].Name
			b.add(finding.RingConflict, at, first+", "+second, "%s and %s both have the %s %s", first, second, id.Kind, id.Text).
				Remedy = "use another kind of id for these cards"
		case b.ids[found[0]] != nil:
			name := b.cards[found[0]].Name
			b.add(finding.RingConflict, at, name, "%s and %s are the same card, %s", b.ids[found[0]].Text, id.Text, name).
				Remedy = "use one id for each card"
		default:
			bound[i] = found[0]
			b.ids[found[0]] = &t.IDs[i]
		}
	}
	return bound
}

func (b *binder) warn(t *Table, c *Cabling) {
	for i, card := range b.cards {
		at := location{}
		if b.ids[i] != nil {
			at.line = b.ids[i].Line
		} else if !t.byIndex() && len(b.cards) > 1 { // of a table by index, Parse reported them
			b.isolated(card.Name, at)
		}
		if card.Absent {
			b.add(finding.RingAbsentCard, at, card.Name, "no card at %s: the cables of %s are dead", card.Address, card.Name)
		}
	}
	for _, ring := range c.Rings {
		if t.ofContainer() || inOrder(ring.Cards) { // a container's table has what its job needs
			continue
		}
		var names []string
		for _, card := range ring.Cards {
			names = append(names, b.cards[card].Name)
		}
		b.add(finding.RingOrder, location{}, strings.Join(names, ", "),
			"the order of the ring is not the order of the PCI addresses: %s", strings.Join(names, " "))
	}
}

// inOrder reports whether cards ascend once around the ring, from any start and in either
// direction.
func inOrder(cards []int) bool {
	falls := 0
	for i, card := range cards {
		if cards[(i+1)%len(cards)] < card {
			falls++
		}
	}
	return falls <= 1 || falls == len(cards)-1
}
