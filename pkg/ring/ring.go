package ring

// Ring is cards that are cabled one to the next. Cards are numbers from 0, the indices of LPUs.
type Ring struct {
	// Cards in the order of the cables. A closed ring starts at its lowest card and goes on to the lower
	// of that one's neighbours; a chain starts at the lower of its two ends.
	Cards []int
	// Closed says that a cable leads from the last card to the first. A card by itself and two cards are
	// closed: there is nothing to close.
	Closed bool
	// Links is the cables one after the other, each from a card to the one on its right: the way a table gives them or,
	// where it does not agree with itself, along Cards. Two cards with two cables have two links, there and back.
	Links [][2]int
}
