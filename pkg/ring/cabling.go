package ring

import "slices"

// Cabling is how a number of cards are cabled. A card is its index.
type Cabling struct {
	// Rings has every card in exactly one ring or chain, sorted by their lowest cards.
	Rings []Ring
	// Links is the cables, from a card to the one on its right where the table says so. They stand in the
	// order of the rings; two cards with two cables have two links, there and back.
	Links [][2]int
}

func newCabling(n int, links [][2]int) *Cabling {
	c := &Cabling{}
	for _, s := range strands(n, links) {
		c.Rings = append(c.Rings, s.ring)
		c.Links = append(c.Links, s.links...)
	}
	return c
}

// Renumber is the cabling that a container with the given cards sees: XRT numbers the cards in it from 0 in the
// order of their PCI addresses, which is that of their indices, and only the cables among them are left.
func (c *Cabling) Renumber(cards []int) *Cabling {
	cards = slices.Compact(slices.Sorted(slices.Values(cards)))
	var links [][2]int
	for _, l := range c.Links {
		a, hasA := slices.BinarySearch(cards, l[0])
		b, hasB := slices.BinarySearch(cards, l[1])
		if hasA && hasB {
			links = append(links, [2]int{a, b})
		}
	}
	return newCabling(len(cards), links)
}

// strand is one ring or chain with its cables in order.
type strand struct {
	ring  Ring
	links [][2]int
}

// strands takes n cards apart that have at most two neighbours each. The links of a strand all point one way: the
// way they are given or, where they disagree, along the ring.
func strands(n int, links [][2]int) []strand {
	times, near := make(map[[2]int]int, len(links)), make([][]int, n)
	for _, l := range links {
		times[l]++
		if times[l]+times[[2]int{l[1], l[0]}] == 1 {
			near[l[0]] = append(near[l[0]], l[1])
			near[l[1]] = append(near[l[1]], l[0])
		}
	}
	var all []strand
	seen := make([]bool, n)
	for start := range n {
		if seen[start] {
			continue
		}
		ring := ringOf(start, near)
		for _, card := range ring.Cards {
			seen[card] = true
		}
		all = append(all, strand{ring, ringLinks(ring, times)})
	}
	return all
}

// ringOf is the ring that a card is on, if it is the lowest card of that ring.
func ringOf(lowest int, near [][]int) Ring {
	if len(near[lowest]) == 0 {
		return Ring{Cards: []int{lowest}, Closed: true}
	}
	cards, closed := follow(lowest, slices.Min(near[lowest]), near)
	if !closed {
		end := cards[len(cards)-1]
		cards, _ = follow(end, near[end][0], near)
		if cards[0] > cards[len(cards)-1] {
			slices.Reverse(cards)
		}
	}
	return Ring{Cards: cards, Closed: closed || len(cards) == 2}
}

// follow goes from card to card to the end of a chain, or once around a ring.
func follow(start, next int, near [][]int) (cards []int, closed bool) {
	cards = []int{start}
	for previous := start; next != start; {
		cards = append(cards, next)
		onward := slices.IndexFunc(near[next], func(card int) bool { return card != previous })
		if onward < 0 {
			return cards, false
		}
		previous, next = next, near[next][onward]
	}
	return cards, true
}

// ringLinks is the links of a ring. times is how often each is given.
func ringLinks(ring Ring, times map[[2]int]int) [][2]int {
	cards := ring.Cards
	if len(cards) == 2 {
		there, back := [2]int{cards[0], cards[1]}, [2]int{cards[1], cards[0]}
		switch {
		case times[there]+times[back] == 2:
			return [][2]int{there, back}
		case times[back] == 1:
			return [][2]int{back}
		}
		return [][2]int{there}
	}
	links := chainLinks(cards, ring.Closed)
	if slices.ContainsFunc(links, func(l [2]int) bool { return times[l] > 0 }) {
		return links
	}
	cards = slices.Clone(cards)
	if ring.Closed {
		slices.Reverse(cards[1:])
	} else {
		slices.Reverse(cards)
	}
	return chainLinks(cards, ring.Closed)
}

// chainLinks leads from each card to the next, and from the last to the first if closed. A card by itself has none.
func chainLinks(cards []int, closed bool) [][2]int {
	var links [][2]int
	for i := range len(cards) - 1 {
		links = append(links, [2]int{cards[i], cards[i+1]})
	}
	if closed && len(cards) > 1 {
		links = append(links, [2]int{cards[len(cards)-1], cards[0]})
	}
	return links
}
