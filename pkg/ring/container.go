package ring

import "slices"

// WriteContainer writes the table for a container that has some of the cards, in HyperDex's format.
// What [Read] makes of it is right whatever the cards are:
//
//   - A whole ring comes out as a ring, an arc as a line, in the order of [Fabric.Order] by the same
//     cabling. Cards that are in several arcs cannot be asked for together: the program ends, and
//     does not compute over a cable that is not there. It gets each arc by itself.
//   - A card is its number in the container: XRT counts the cards that it finds there from 0, in the
//     order of PCI addresses, which is the order of indices.
//   - The other cards of their rings stand where they are cabled, with the numbers that follow. No
//     card in the container has such a number, so they are never free. Where cards that no cable
//     joins would stand beside each other, at the end of a chain, one more such number separates
//     them. So num_device is the size of the ring for an arc, and more than the number of cards
//     wherever the program must not close a ring.
//
// The table says how many cards the container has, in a key that HyperDex does not read; [Parse]
// takes the others for what they are. The bytes depend on the set of cards only, not on their
// order. Cards that are on no ring have no cables.
func WriteContainer(c *Cabling, cards []int) []byte {
	t := containerTable{own: slices.Compact(slices.Sorted(slices.Values(cards)))}
	onRing := map[int]bool{}
	for _, r := range c.Rings {
		t.add(r)
		for _, card := range r.Cards {
			onRing[card] = true
		}
	}
	for _, card := range t.own {
		if !onRing[card] {
			t.add(Ring{Cards: []int{card}})
		}
	}
	if t.other == 0 {
		return writeHyperdex(t.links(), len(t.own), 0)
	}
	return writeHyperdex(t.links(), len(t.cards), len(t.own))
}

// containerTable collects the cards of a table in the order of the file. That is a circle: each
// card has a link to the next.
type containerTable struct {
	own   []int // the cards of the container
	other int   // how many other numbers are used
	cards []numbered
	// behind is the cables that close a whole ring of the container beside other cards. HyperDex does
	// not read them there.
	behind []written
}

type numbered struct {
	number int
	left   bool // the next card is on the left
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
	first, last := ring[0].number, ring[n-1].number
	if last >= len(t.own) || r.Looped() && n == len(t.own) {
		return
	}
	if r.Looped() {
		t.behind = append(t.behind, written{last, first, left})
	}
	t.put(-1, left)
}

// start is the position of the first arc of the container's cards on a ring. A whole ring starts at
// 0; -1: the container has none of its cards.
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

// put adds a card. One that is not the container's, such as -1, gets the next number after these.
func (t *containerTable) put(card int, left bool) {
	number, own := slices.BinarySearch(t.own, card)
	if !own {
		number = len(t.own) + t.other
		t.other++
	}
	t.cards = append(t.cards, numbered{number, left})
}

// links is the links of the circle.
func (t *containerTable) links() (links []written) {
	for i, c := range t.cards {
		links = append(links, written{c.number, t.cards[(i+1)%len(t.cards)].number, c.left})
	}
	return append(links, t.behind...)
}
