package ring

import "slices"

// Ring is the cards that cables connect, one to the next. It may be open, which is a
// chain. Cards are indices of LPUs, from 0.
type Ring struct {
	// Cards in the order of the cables. A closed ring starts at its lowest card and goes
	// on to the lower neighbour of that card; a chain starts at the lower of its two
	// ends.
	Cards []int
	// Closed reports whether a cable leads from the last card to the first. Rings of one
	// card and of two cards always count as closed.
	Closed bool
	// Links is the cables one after the other, each from a card to the one on its right.
	// The direction is that of the table, or along Cards if the table does not use one
	// direction all the way. Two cards with two cables have two links, one in each
	// direction.
	Links [][2]int
}

// Leftward reports whether each card has the next one on its left.
func (r Ring) Leftward() bool {
	return len(r.Links) > 0 && !slices.Contains(r.Links, [2]int{r.Cards[0], r.Cards[1]})
}

// Looped reports whether a cable leads from the last of several cards to the first,
// beside those between them.
func (r Ring) Looped() bool { return len(r.Cards) > 1 && len(r.Links) == len(r.Cards) }
