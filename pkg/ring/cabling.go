package ring

import "slices"

// Cabling is how a number of cards are cabled. A card is its index.
type Cabling struct {
	// Rings has every card in exactly one ring or chain, sorted by their lowest cards.
	Rings []Ring
}

// Renumber is the cabling that a container with the given cards sees. XRT numbers the
// cards in the container from 0, in the order of their PCI addresses, which is the order
// of their indices. Only the cables between these cards are left.
func (c *Cabling) Renumber(cards []int) *Cabling {
	cards = slices.Compact(slices.Sorted(slices.Values(cards)))
	var links [][2]int
	for _, l := range c.links() {
		a, hasA := slices.BinarySearch(cards, l[0])
		b, hasB := slices.BinarySearch(cards, l[1])
		if hasA && hasB {
			links = append(links, [2]int{a, b})
		}
	}
	return newCabling(len(cards), links)
}

// Cards returns all cards, ring by ring.
func (c *Cabling) Cards() (cards []int) {
	for _, r := range c.Rings {
		cards = append(cards, r.Cards...)
	}
	return cards
}

// links is the cables of all rings.
func (c *Cabling) links() (links [][2]int) {
	for _, r := range c.Rings {
		links = append(links, r.Links...)
	}
	return links
}

// newCabling finds the rings and chains that links make of n cards. Each card has at most
// two neighbours. Where two cards are joined twice, they still count as one neighbour of
// each other.
func newCabling(n int, links [][2]int) *Cabling {
	times, near := make(map[[2]int]int, len(links)), make([][]int, n)
	for _, l := range links {
		times[l]++
		if times[l]+times[[2]int{l[1], l[0]}] == 1 {
			near[l[0]] = append(near[l[0]], l[1])
			near[l[1]] = append(near[l[1]], l[0])
		}
	}
	c := &Cabling{}
	seen := make([]bool, n)
	// From every end of a chain first: what is left then are closed rings.
	for _, neighbours := range [2]int{1, 2} {
		for start := range n {
			if seen[start] || len(near[start]) > neighbours {
				continue
			}
			cards := follow(start, near, seen)
			ring := Ring{Cards: cards, Closed: neighbours == 2 || len(cards) <= 2}
			ring.Links = ringLinks(ring, times)
			c.Rings = append(c.Rings, ring)
		}
	}
	slices.SortFunc(c.Rings, func(a, b Ring) int { return slices.Min(a.Cards) - slices.Min(b.Cards) })
	return c
}

// follow goes from a card to its lowest neighbour that was not seen yet, and on until
// there is none.
func follow(card int, near [][]int, seen []bool) (cards []int) {
	for next := []int{card}; len(next) > 0; {
		card = slices.Min(next)
		cards, seen[card] = append(cards, card), true
		next = slices.DeleteFunc(near[card], func(card int) bool { return seen[card] })
	}
	return cards
}

// ringLinks is the links of a ring, all in one direction: in that of the ring if one of
// the given links has it, else in the other. times is how often each link is given.
func ringLinks(ring Ring, times map[[2]int]int) [][2]int {
	cards, closed := ring.Cards, ring.Closed
	if len(cards) == 2 { // by two cables or by one
		closed = times[[2]int{cards[0], cards[1]}]+times[[2]int{cards[1], cards[0]}] == 2
	}
	links := Links(cards, closed, false)
	// If none is given in this direction, all are given in the other one.
	if !slices.ContainsFunc(links, func(l [2]int) bool { return times[l] > 0 }) {
		links = Links(cards, closed, true)
	}
	return links
}

// Links is the cables from each card to the next, and from the last to the first if
// looped, as in [Ring.Links]. left: each card has the next one on its left. A single card
// has none.
func Links(cards []int, looped, left bool) (links [][2]int) {
	for i, card := range cards {
		if n := len(cards); i < n-1 || looped && n > 1 {
			links = append(links, [2]int{card, cards[(i+1)%n]})
		}
	}
	if left {
		slices.Reverse(links)
		for i, l := range links {
			links[i] = [2]int{l[1], l[0]}
		}
	}
	return links
}
