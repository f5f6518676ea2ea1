package ring

// hub is the cards behind one PCIe switch, or on one NUMA node behind no known switch.
type hub struct {
	node  int // position of its NUMA node among those of the fabric
	cards []int
}

// newHubs sorts cards into hubs, in the order of their first cards.
func newHubs(places []Place) (hubs []hub, nodes int) {
	at, nodeAt := map[Place]int{}, map[int]int{}
	for card, place := range places {
		if _, ok := nodeAt[place.NUMANode]; !ok {
			nodeAt[place.NUMANode] = len(nodeAt)
		}
		if _, ok := at[place]; !ok {
			at[place] = len(hubs)
			hubs = append(hubs, hub{node: nodeAt[place.NUMANode]})
		}
		hubs[at[place]].cards = append(hubs[at[place]].cards, card)
	}
	return hubs, len(nodeAt)
}

// pool is a hub or NUMA node as a place to take cards from.
type pool struct {
	free    int
	touched bool // cards of it are taken already
}

// near picks cards that are close to each other where cables are not known: node by node, and on each hub by hub.
func (s *search) near(cards []int) []int {
	var hubBuf, nodeBuf [loopMax]pool
	hubs, nodes := hubBuf[:], nodeBuf[:]
	if len(s.hubs) > loopMax {
		hubs, nodes = make([]pool, len(s.hubs)), make([]pool, len(s.hubs))
	}
	hubs, nodes = hubs[:len(s.hubs)], nodes[:s.nodes]
	rest := s.size
	for i, h := range s.hubs {
		for _, card := range h.cards { // without cabling the loop of a card has its number
			switch {
			case s.must[card] != 0:
				rest--
				hubs[i].touched, nodes[h.node].touched = true, true
			case s.free[card] != 0:
				hubs[i].free++
				nodes[h.node].free++
			}
		}
	}
	for rest > 0 {
		node := nextPool(nodes, rest, nil)
		onNode := func(i int) bool { return s.hubs[i].node == node }
		nodes[node].touched = true
		for need := min(rest, nodes[node].free); need > 0; {
			i := nextPool(hubs, need, onNode)
			n := min(need, hubs[i].free)
			s.takeLowest(s.hubs[i].cards, n)
			hubs[i].free -= n
			hubs[i].touched = true
			nodes[node].free -= n
			need -= n
			rest -= n
		}
	}
	for card, taken := range s.must {
		if taken != 0 {
			cards = append(cards, card)
		}
	}
	return cards
}

// takeLowest takes the first n free cards of a hub.
func (s *search) takeLowest(cards []int, n int) {
	for _, card := range cards {
		if n > 0 && s.free[card] != 0 && s.must[card] == 0 {
			s.must[card] = 1
			n--
		}
	}
}

// nextPool is the pool to take cards from next: one that is touched already before others; the smallest that has
// all that are needed, else the largest; the first of equals.
func nextPool(pools []pool, need int, eligible func(i int) bool) int {
	best := -1
	for i, p := range pools {
		if p.free == 0 || eligible != nil && !eligible(i) {
			continue
		}
		if best < 0 || p.before(pools[best], need) {
			best = i
		}
	}
	return best
}

func (p pool) before(o pool, need int) bool {
	switch enough, oEnough := p.free >= need, o.free >= need; {
	case p.touched != o.touched:
		return p.touched
	case enough != oEnough:
		return enough
	case enough:
		return p.free < o.free
	default:
		return p.free > o.free
	}
}
