package ring

import (
	"fmt"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Card is an LPU that a table can be bound to.
type Card struct {
	Name    string // lpu0
	Address string // PCI address of its function: "0000:b1:00.1"
	Serial  string // "": not known
	Absent  bool   // the table names it, and it is not there: it keeps its index
}

// Bind puts a table onto the cards of a machine, whose indices are their positions in cards. An index in a table
// means a card only by how many there are, so a table with indices or names is bound only if it is for as many
// cards as are present; else ring-count. A PCI address means the card, whatever the function. It may be that
// of an absent card (ring-absent-card): the ring is the same, and its links there are dead. [Table.Addresses]
// tells which those are. An id that no card has is ring-unknown-card.
//
// The cabling is nil if a finding is an error, or if t is nil or has errors that Parse reported.
func Bind(t *Table, cards []Card) (*Cabling, finding.List) {
	if t == nil || t.faulty {
		return nil, nil
	}
	b := &binder{report: report{file: t.file}, cards: cards, owner: make([]int, len(cards))}
	if !b.checkPresent(t) {
		return nil, b.done()
	}
	bound := b.bindIDs(t)
	if b.findings.HasErrors() {
		return nil, b.done()
	}
	links := make([][2]int, len(t.Links))
	for i, l := range t.Links {
		links[i] = [2]int{bound[l.A], bound[l.B]}
	}
	c := newCabling(len(cards), links)
	b.warn(t, c)
	return c, b.done()
}

// binder finds the card for each id.
type binder struct {
	report
	cards []Card
	owner []int // of each card, the id bound to it: its position in the table + 1
}

// checkPresent holds the number of cards that an index table is for against those that are present.
func (b *binder) checkPresent(t *Table) bool {
	present := 0
	for _, card := range b.cards {
		if !card.Absent {
			present++
		}
	}
	want := t.positions()
	if want == 0 || want == present && present == len(b.cards) {
		return true
	}
	b.add(finding.RingCount, place{}, nil, fmt.Sprintf("the table is for %d cards by index, and %d of %d are present", want, present, len(b.cards)),
		"an index means another card when one is missing: bring up every card and run hyperdex-net again, or key the table by PCI address")
	return false
}

func (b *binder) bindIDs(t *Table) []int {
	known := make(map[cardKey][]int, 2*len(b.cards))
	for i, card := range b.cards {
		ids := []ID{{Kind: IDAddress, Text: strings.ToLower(card.Address)}}
		if card.Serial != "" {
			ids = append(ids, ID{Kind: IDSerial, Text: card.Serial})
		}
		for _, id := range ids {
			known[id.key()] = append(known[id.key()], i)
		}
	}
	bound := make([]int, len(t.IDs))
	for i, id := range t.IDs {
		found := known[id.key()]
		if id.positional() {
			found = []int{id.Index} // below len(b.cards): checkPresent
		}
		switch len(found) {
		case 0:
			b.add(finding.RingUnknownCard, place{line: id.Line}, []string{id.String()}, fmt.Sprintf("no card has the %s %s", id.Kind, id.Text), unknownRemedy(id))
		case 1:
			bound[i] = found[0]
			b.own(t, found[0], i)
		default:
			first, second := b.cards[found[0]].Name, b.cards[found[1]].Name
			b.add(finding.RingConflict, place{line: id.Line}, []string{first, second}, fmt.Sprintf("%s and %s both have the %s %s", first, second, id.Kind, id.Text),
				"name these cards in another way")
		}
	}
	return bound
}

func unknownRemedy(id ID) string {
	if id.Kind == IDSerial {
		return "correct it; an index stands without quotes"
	}
	return "correct it, or write the table again for this machine with hyperdex-net"
}

func (b *binder) own(t *Table, card, id int) {
	if first := b.owner[card]; first != 0 {
		b.add(finding.RingConflict, place{line: t.IDs[id].Line}, []string{b.cards[card].Name},
			fmt.Sprintf("%s and %s are the same card, %s", t.IDs[first-1].Text, t.IDs[id].Text, b.cards[card].Name), "name each card in one way")
		return
	}
	b.owner[card] = id + 1
}

func (b *binder) warn(t *Table, c *Cabling) {
	for i, card := range b.cards {
		at := place{}
		if b.owner[i] > 0 {
			at.line = t.IDs[b.owner[i]-1].Line
		}
		if card.Absent {
			b.add(finding.RingAbsentCard, at, []string{card.Name}, fmt.Sprintf("%s (%s) is not there: its cables are dead", card.Name, card.Address),
				"bring the card up, or write the table again without it")
		}
		if b.owner[i] == 0 && !t.byIndex() && len(b.cards) > 1 { // of an index table Parse knew all cards
			b.isolated(card.Name, at)
		}
	}
	for _, ring := range c.Rings {
		if inOrder(ring.Cards) {
			continue
		}
		names := make([]string, len(ring.Cards))
		for i, card := range ring.Cards {
			names[i] = b.cards[card].Name
		}
		b.add(finding.RingOrder, place{}, names, "the order of the ring is not that of the PCI addresses: "+strings.Join(names, " "),
			"nothing is wrong, but in a container the cards are numbered by address: give jobs a table of their own")
	}
}

// inOrder tells whether cards ascend once around, wherever they start, in the one direction or the other.
func inOrder(cards []int) bool {
	falls := 0
	for i, card := range cards {
		if cards[(i+1)%len(cards)] < card {
			falls++
		}
	}
	return falls <= 1 || falls == len(cards)-1
}
