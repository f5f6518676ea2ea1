package ring

import "slices"

// WriteContainer writes the table for a container that has some of the cards, in
// HyperDex's format. What [Read] makes of it is right whatever the cards are:
//
//   - A whole ring comes out as a ring, an arc as a line, in the order of [Fabric.Order]
//     by the same cabling. Cards that are in several arcs cannot be asked for together:
//     the program ends, and does not compute over a cable that is not there. It gets
//     each arc by itself.
//   - A card is its number in the container: XRT counts the cards that it finds there
//     from 0, in the order of PCI addresses, which is the order of indices.
//   - The other cards of their rings stand where they are cabled, with numbers that no
//     card of a server has, so they are never free. A container that has more cards than
//     the table is made for, because it got several devices, does not have them either:
//     a program that asks for all of its cards ends. Where cards that no cable joins
//     would stand beside each other, at the end of a chain, one more such number
//     separates them. So num_device is the size of the ring for an arc, and more than
//     the number of cards wherever the program must not close a ring.
//
// The table says how many cards the container has, in a key that HyperDex does not read;
// [Parse] takes the others for what they are. The bytes depend on the set of cards only,
// not on their order. Cards that are on no ring have no cables.
func WriteContainer(c *Cabling, cards []int) []byte { return writeOwn(c, cards, containerKey) }

// WriteNode writes the table of a node in the same way. The cards are those of it that
// are present. [Parse] says of this table which cables a chain lacks.
func WriteNode(c *Cabling, cards []int) []byte { return writeOwn(c, cards, nodeKey) }

// writeOwn writes the table; where other cards stand in it, the key says how many are
// not.
func writeOwn(c *Cabling, cards []int, key string) []byte {
	t := containerTable{own: slices.Compact(slices.Sorted(slices.Values(cards)))}
	for _, r := range c.Rings {
		t.add(r)
	}
	onRing := c.Cards()
	for _, card := range t.own {
		if !slices.Contains(onRing, card) {
			t.add(Ring{Cards: []int{card}})
		}
	}
	if t.other == 0 {
		key = ""
	}
	return writeHyperdex(t.links(), len(t.cards), key, len(t.own))
}

// containerTable collects the cards of a table in the order of the file. That is a
// circle: each card has a link to the next.
type containerTable struct {
	own   []int     // the cards of the container
	other int       // how many other numbers are used
	cards []written // from a card; links sets to
	// behind is the cables that close a whole ring of the container beside other cards.
	// HyperDex does not read them there.
	behind []written
}

// add adds the cards of a ring, from where an arc of the container's cards starts.
func (t *containerTable) add(r Ring) {
	n, left := len(r.Cards), r.Leftward()
	start := t.start(r)
	if start < 0 {
		return
	}
	for i := range n {
		t.put(r.Cards[(start+i)%n], left)
	}
	ring := t.cards[len(t.cards)-n:]
	first, last := ring[0].from, ring[n-1].from
	if last >= len(t.own) || r.Looped() && n == len(t.own) {
		return
	}
	if r.Looped() {
		t.behind = append(t.behind, written{last, first, left})
	}
	t.put(-1, left)
}

// start is the position of the first arc of the container's cards on a ring. A whole ring
// starts at 0; -1: the container has none of its cards.
func (t *containerTable) start(r Ring) int {
	has := func(i int) bool { return slices.Contains(t.own, r.Cards[i%len(r.Cards)]) }
	for i := range r.Cards {
		if has(i) && (i == 0 && !r.Looped() || !has(i+len(r.Cards)-1)) {
			return i
		}
	}
	if has(0) {
		return 0
	}
	return -1
}

// otherCards is the first number of the cards that are not in the container. It is more
// than any server has.
const otherCards = 1000

// put adds a card. One that is not the container's, such as -1, gets the next number of
// these.
func (t *containerTable) put(card int, left bool) {
	number, own := slices.BinarySearch(t.own, card)
	if !own {
		number = otherCards + t.other
		t.other++
	}
	t.cards = append(t.cards, written{from: number, left: left})
}

// links is the links of the circle.
func (t *containerTable) links() []written {
	for i := range t.cards {
		t.cards[i].to = t.cards[(i+1)%len(t.cards)].from
	}
	return slices.Concat(t.cards, t.behind)
}
