package ring

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/test/long"
)

// server is a fabric as a reader would write it down: the reference that Choose is held against.
type server struct {
	places []Place
	rings  []Ring
	dead   [][2]int
}

func (s server) fabric() *Fabric { return NewFabric(s.places, &Cabling{Rings: s.rings}, s.dead) }

// oneRing is a server with one closed ring of n cards in order of their indices, half of them on each NUMA node, two
// behind each switch.
func oneRing(n int, dead ...[2]int) server {
	s := server{rings: []Ring{{Cards: upTo(n), Closed: true}}, dead: dead}
	for i := range n {
		s.places = append(s.places, Place{NUMANode: 2 * i / n, Switch: i / 2})
	}
	return s
}

// cable tells whether a cable that works leads from the i-th card of a ring to the next.
func (s server) cable(r Ring, i int) bool {
	n := len(r.Cards)
	a, b := r.Cards[i], r.Cards[(i+1)%n]
	return (i < n-1 || r.Closed && n > 2) && !slices.Contains(s.dead, [2]int{a, b}) && !slices.Contains(s.dead, [2]int{b, a})
}

// arcs are the longest arcs of a set, as the positions of their cards on their rings.
func (s server) arcs(set map[int]bool) (arcs [][]int, ringOf []int) {
	for ri, r := range s.rings {
		n := len(r.Cards)
		joined := func(i int) bool { return set[r.Cards[i]] && set[r.Cards[(i+1)%n]] && s.cable(r, i) }
		start := 0
		for start < n && joined((start+n-1)%n) {
			start++
		}
		if start == n { // all around
			arcs, ringOf = append(arcs, upTo(n)), append(ringOf, ri)
			continue
		}
		for i := range n {
			at := (start + i) % n
			if !set[r.Cards[at]] {
				continue
			}
			if joined((at + n - 1) % n) {
				arcs[len(arcs)-1] = append(arcs[len(arcs)-1], at)
			} else {
				arcs, ringOf = append(arcs, []int{at}), append(ringOf, ri)
			}
		}
	}
	return arcs, ringOf
}

func members(cards []int) map[int]bool {
	set := map[int]bool{}
	for _, c := range cards {
		set[c] = true
	}
	return set
}

// key is what the best set has the smallest of: pieces, the largest piece, the free arcs that stay; and of an arc all
// else that Choose compares.
func (s server) key(free map[int]bool, chosen []int) []int {
	set := members(chosen)
	arcs, ringOf := s.arcs(set)
	left := map[int]bool{}
	for c := range free {
		left[c] = !set[c]
	}
	stay, _ := s.arcs(left)
	lengths := make([]int, len(s.places))
	for i, a := range stay {
		lengths[i] = -len(a)
	}
	slices.Sort(lengths)
	largest := 0
	for _, a := range arcs {
		largest = max(largest, len(a))
	}
	key := append([]int{len(arcs), -largest}, lengths...)
	if len(arcs) > 1 {
		return key
	}
	ring := s.rings[ringOf[0]]
	return append(key, s.arcKey(ring, ringOf[0], free, arcs[0])...)
}

func (s server) arcKey(ring Ring, number int, free map[int]bool, arc []int) []int {
	room := 0
	for _, c := range ring.Cards {
		if free[c] {
			room++
		}
	}
	key := []int{room}
	var cards []int
	for _, at := range arc {
		cards = append(cards, ring.Cards[at])
	}
	pairs, broken := map[int]bool{}, 0
	for _, at := range arc {
		pair := s.pair(ring, at)
		if !pairs[pair[0]] && len(pair) == 2 && free[ring.Cards[pair[0]]] && free[ring.Cards[pair[1]]] {
			broken++
		}
		pairs[pair[0]] = true
	}
	descending := slices.Clone(cards)
	slices.Reverse(descending)
	wraps := 1
	if slices.IsSorted(cards) || slices.IsSorted(descending) {
		wraps = 0
	}
	key = append(key, len(pairs), broken, wraps, s.behind(ring, number, free, arc[0]))
	nodes, switches := map[int]bool{}, map[int]bool{}
	for _, c := range cards {
		nodes[s.places[c].NUMANode], switches[s.places[c].Switch] = true, true
	}
	return append(key, len(nodes), len(switches), number, arc[0])
}

// pair is the positions of the pair that a position is in, counted from the gap before it, or from 0 on a ring without a
// gap: one where nothing follows.
func (s server) pair(r Ring, at int) []int {
	n, first := len(r.Cards), at
	for range n {
		if first = (first + n - 1) % n; !s.cable(r, first) {
			break
		}
	}
	first = (first + 1) % n
	if !slices.ContainsFunc(upTo(n), func(i int) bool { return !s.cable(r, i) }) {
		first = 0
	}
	if (at-first+n)%n%2 == 1 {
		at = (at + n - 1) % n
	}
	if next := (at + 1) % n; s.cable(r, at) && next != first {
		return []int{at, next}
	}
	return []int{at}
}

// behind is 1 if an arc does not start where its free arc starts, and that is at least half as long as the ring.
func (s server) behind(r Ring, number int, free map[int]bool, start int) int {
	arcs, ringOf := s.arcs(free)
	for i, arc := range arcs {
		if ringOf[i] != number || 2*len(arc) < len(r.Cards) || len(arc) == len(r.Cards) && s.cable(r, arc[len(arc)-1]) {
			continue // of another ring, short, or all around
		}
		if arc[0] != start && slices.Contains(arc, start) {
			return 1
		}
	}
	return 0
}

func cardsOf(mask uint64) []int {
	var cards []int
	for ; mask != 0; mask &= mask - 1 {
		cards = append(cards, bits.TrailingZeros64(mask))
	}
	return cards
}

// exact is how much of its key an answer shares with the best of all sets: everything, if it is an arc or it is two
// pieces and no card must be included. Else at least the number of pieces and, if no card must be included, the largest
// piece.
func exact(best []int, must uint64) int {
	switch {
	case best[0] == 1 || best[0] == 2 && must == 0:
		return len(best)
	case must == 0:
		return 2
	default:
		return 1
	}
}

// checkAll holds Choose against the best of all sets, for a set of free cards and each set of cards that must be
// included, each size.
func checkAll(t *testing.T, s server, free uint64, musts []uint64) {
	t.Helper()
	f := s.fabric()
	isFree := members(cardsOf(free))
	keys := map[uint64][]int{}
	for set := free; set != 0; set = (set - 1) & free {
		keys[set] = s.key(isFree, cardsOf(set))
	}
	for _, must := range musts {
		for k := max(1, bits.OnesCount64(must)); k <= bits.OnesCount64(free); k++ {
			var best []int
			for set, key := range keys {
				if bits.OnesCount64(set) == k && set&must == must && (best == nil || slices.Compare(key, best) < 0) {
					best = key
				}
			}
			got, err := f.Choose(nil, cardsOf(free), cardsOf(must), k)
			if err != nil {
				t.Fatal(err)
			}
			mask := uint64(0)
			for _, c := range got.Cards {
				mask |= 1 << c
			}
			if len(got.Cards) != k || bits.OnesCount64(mask) != k || mask&^free != 0 || must&^mask != 0 {
				t.Fatalf("dead %v free %v must %v k %d: chose %v", s.dead, cardsOf(free), cardsOf(must), k, got.Cards)
			}
			if n := exact(best, must); !slices.Equal(keys[mask][:n], best[:n]) || got.Pieces != best[0] {
				t.Fatalf("dead %v free %v must %v k %d: chose %v in %d pieces, key\n %v, and the best is\n %v",
					s.dead, cardsOf(free), cardsOf(must), k, got.Cards, got.Pieces, keys[mask], best)
			}
		}
	}
}

func subsets(free uint64) []uint64 {
	sets := []uint64{0}
	for set := free; set != 0; set = (set - 1) & free {
		sets = append(sets, set)
	}
	return sets
}

// TestChooseOnEveryStateOfTheRing: each set of free cards of the 8-ring, each that must be included, each size, with
// every cable whole and with each one dead.
func TestChooseOnEveryStateOfTheRing(t *testing.T) {
	servers := []server{oneRing(8)}
	for i := range 8 {
		servers = append(servers, oneRing(8, [2]int{i, (i + 1) % 8}))
	}
	for _, s := range servers {
		t.Run(fmt.Sprint(s.dead), func(t *testing.T) {
			t.Parallel()
			for free := range uint64(256) {
				checkAll(t, s, free, subsets(free))
			}
		})
	}
}

// TestChooseOnRandomStates: rings of 16, several rings, chains, rings that do not follow the addresses, dead cables.
func TestChooseOnRandomStates(t *testing.T) {
	shuffled := oneRing(10)
	shuffled.rings[0].Cards = []int{0, 4, 2, 7, 1, 9, 3, 5, 8, 6}
	two := oneRing(12)
	two.rings = []Ring{{Cards: []int{0, 1, 2, 3, 4, 5}, Closed: true}, {Cards: []int{6, 7, 8, 9, 10, 11}, Closed: true}}
	mixed := oneRing(12, [2]int{9, 8})
	mixed.rings = []Ring{
		{Cards: []int{0, 2, 4, 6}, Closed: true}, {Cards: []int{1, 3, 5}}, {Cards: []int{7, 8, 9, 10}, Closed: true},
		{Cards: []int{11}, Closed: true},
	}
	for name, c := range map[string]struct {
		server server
		states int
	}{
		"ring of 16":       {oneRing(16), 12},
		"ring of 16, dead": {oneRing(16, [2]int{0, 15}, [2]int{5, 6}), 12},
		"shuffled":         {shuffled, 150},
		"two rings":        {two, 100},
		"mixed":            {mixed, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := long.Rand(t)
			n := len(c.server.places)
			for range long.Rounds(t, c.states) {
				free := (r.Uint64() | r.Uint64()) & lowest(n)
				for bits.OnesCount64(free) > 13 {
					free &= ^(1 << r.IntN(n))
				}
				musts := []uint64{0}
				for range 10 {
					musts = append(musts, free&r.Uint64()&r.Uint64())
				}
				checkAll(t, c.server, free, musts)
			}
		})
	}
}

// TestChooseAmong64 holds the number of pieces against dynamic programming over the positions of the ring, and arcs
// against every arc there is.
func TestChooseAmong64(t *testing.T) {
	s := oneRing(64, [2]int{40, 41})
	for _, s := range []server{oneRing(64), s} {
		f := s.fabric()
		r := long.Rand(t)
		for range long.Rounds(t, 60) {
			free, must := r.Uint64()|r.Uint64(), uint64(0)
			if r.IntN(2) == 0 {
				free |= r.Uint64() | r.Uint64()
			}
			if r.IntN(3) == 0 {
				must = free & r.Uint64() & r.Uint64() & r.Uint64()
			}
			for k := max(1, bits.OnesCount64(must)); k <= bits.OnesCount64(free); k++ {
				got, err := f.Choose(nil, cardsOf(free), cardsOf(must), k)
				if err != nil {
					t.Fatal(err)
				}
				if want := s.fewestPieces(free, must, k); got.Pieces != want {
					t.Fatalf("free %v must %v k %d: %v in %d pieces, and %d do", cardsOf(free), cardsOf(must), k, got.Cards, got.Pieces, want)
				}
				isFree := members(cardsOf(free))
				key := s.key(isFree, got.Cards)
				if key[0] != got.Pieces || len(got.Cards) != k {
					t.Fatalf("free %v k %d: %v are %d pieces, not %d", cardsOf(free), k, got.Cards, key[0], got.Pieces)
				}
				for start := 0; got.Pieces == 1 && start < 64 && k%9 == 1; start++ {
					arc := bits.RotateLeft64(lowest(k), start)
					if arc&^free != 0 || must&^arc != 0 {
						continue
					}
					if other := s.key(isFree, cardsOf(arc)); other[0] == 1 && slices.Compare(other, key) < 0 {
						t.Fatalf("free %v must %v k %d: chose %v, and %v is better", cardsOf(free), cardsOf(must), k, got.Cards, cardsOf(arc))
					}
				}
			}
		}
	}
}

// fewestPieces is how few pieces k cards can be, by trying both states of the first card and going around the ring.
func (s server) fewestPieces(free, must uint64, k int) int {
	const none = 1 << 20
	n, best := len(s.places), none
	for _, first := range []bool{false, true} {
		if first && free&1 == 0 || !first && must&1 != 0 {
			continue
		}
		// at[taken][count] is how few pieces the cards so far are.
		at := [2][]int{slices.Repeat([]int{none}, n+2), slices.Repeat([]int{none}, n+2)}
		if first {
			at[1][1] = 1
		} else {
			at[0][0] = 0
		}
		for i := 1; i < n; i++ {
			next := [2][]int{slices.Repeat([]int{none}, n+2), slices.Repeat([]int{none}, n+2)}
			for count := range n + 1 {
				if must>>i&1 == 0 {
					next[0][count] = min(at[0][count], at[1][count])
				}
				if free>>i&1 == 1 {
					joined := 1
					if s.cable(s.rings[0], i-1) {
						joined = 0
					}
					next[1][count+1] = min(at[0][count]+1, at[1][count]+joined)
				}
			}
			at = next
		}
		last := at[1][k]
		if first && s.cable(s.rings[0], n-1) && last < none {
			last = max(1, last-1) // the last card joins the first
		}
		best = min(best, last, at[0][k])
	}
	return best
}

// TestChooseInAGroup holds answers that must lie in one group against every set of cards that does.
func TestChooseInAGroup(t *testing.T) {
	two := oneRing(8)
	two.rings = []Ring{{Cards: []int{0, 2, 4, 6}, Closed: true}, {Cards: []int{1, 3, 5, 7}}}
	for _, s := range []server{oneRing(8), oneRing(8, [2]int{1, 2}, [2]int{5, 6}), two} {
		f := s.fabric()
		for _, groups := range [][][]int{
			{{0, 1, 2, 3}, {4, 5, 6, 7}}, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, {{2, 3, 4, 5, 6}}, {{0, 3, 5}, {1, 2, 4, 6, 7}},
		} {
			for free := range uint64(256) {
				for k := 1; k <= 5; k++ {
					for _, must := range [][]int{nil, {3}, {4, 5}} {
						s.checkGroups(t, f, free, must, k, groups)
					}
				}
			}
		}
	}
}

// checkGroups wants the best of the arcs that lie in a group; if there is none, the fewest pieces, in the group with the fewest free cards.
func (s server) checkGroups(t *testing.T, f *Fabric, free uint64, must []int, k int, groups [][]int) {
	t.Helper()
	isFree := members(cardsOf(free))
	var best, got []int
	choice, err := f.Choose(nil, cardsOf(free), must, k, groups...)
	for _, group := range groups {
		inside := slices.DeleteFunc(slices.Clone(group), func(card int) bool { return !isFree[card] })
		for _, set := range subsets(lowest(len(inside))) {
			var cards []int
			for _, i := range cardsOf(set) {
				cards = append(cards, inside[i])
			}
			has := members(cards)
			if len(cards) != k || slices.ContainsFunc(must, func(card int) bool { return !has[card] }) {
				continue
			}
			key := s.key(isFree, cards)
			if key[0] > 1 {
				key = []int{key[0], len(inside)}
			}
			if best == nil || slices.Compare(key, best) < 0 {
				best = key
			}
			if mine := members(choice.Cards); len(choice.Cards) == k && !slices.ContainsFunc(cards, func(card int) bool { return !mine[card] }) {
				got = key
			}
		}
	}
	if !slices.Equal(got, best) || (err == nil) != (best != nil) {
		t.Fatalf("dead %v free %v must %v k %d groups %v: chose %v (%v), key %v, and the best is %v",
			s.dead, cardsOf(free), must, k, groups, choice, err, got, best)
	}
	if candidates := f.Explain(cardsOf(free), must, k, groups...); choice.Pieces == 1 && !slices.Equal(candidates[0].Cards, choice.Cards) {
		t.Fatalf("free %v k %d: chose %v and explains %v", cardsOf(free), k, choice.Cards, candidates[0].Cards)
	}
}

func TestChooseDoesNotDependOnOrder(t *testing.T) {
	f := oneRing(8).fabric()
	r := long.Rand(t)
	free := []int{0, 1, 3, 4, 5, 7, 7, 3}
	want, err := f.Choose(nil, free, []int{5, 5}, 3)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		r.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		got, err := f.Choose(make([]int, 5, 8), free, []int{5}, 3)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Fatal(diff, err)
		}
	}
}

func TestChooseRefuses(t *testing.T) {
	for _, f := range []*Fabric{oneRing(8).fabric(), NewFabric(oneRing(8).places, nil, nil)} {
		for name, c := range map[string]struct {
			free, must []int
			k          int
		}{
			"no card":               {upTo(8), nil, 0},
			"less than none":        {upTo(8), nil, -1},
			"more than are free":    {[]int{1, 2, 2}, nil, 3},
			"unknown card":          {[]int{0, 8}, nil, 1},
			"negative card":         {[]int{0, -1}, nil, 1},
			"must is not free":      {[]int{0, 1}, []int{2}, 1},
			"must is unknown":       {[]int{0, 1}, []int{99}, 1},
			"more must than wanted": {upTo(8), []int{1, 2}, 1},
		} {
			if got, err := f.Choose(nil, c.free, c.must, c.k); err == nil || len(got.Cards) > 0 {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
	}
	if _, err := NewFabric(nil, nil, nil).Choose(nil, nil, nil, 1); err == nil {
		t.Error("chose of no cards")
	}
}

func TestNear(t *testing.T) {
	// Two NUMA nodes of four cards, two behind each switch.
	f := NewFabric(oneRing(8).places, nil, nil)
	for _, c := range []struct {
		free, must []int
		k          int
		want       []int
	}{
		{upTo(8), nil, 2, []int{0, 1}},
		{[]int{0, 2, 3, 4, 5}, nil, 2, []int{4, 5}},          // the node that is just large enough
		{[]int{0, 2, 3, 4, 5, 6, 7}, nil, 3, []int{0, 2, 3}}, // likewise
		{[]int{0, 2, 3, 4, 6, 7}, []int{4}, 3, []int{4, 6, 7}},
		{[]int{0, 1, 2, 4, 5, 6}, nil, 4, []int{0, 1, 2, 6}},
		{[]int{0, 2, 4, 5}, nil, 2, []int{4, 5}}, // the nodes are equal, the switches are not
		{upTo(8), nil, 8, upTo(8)},
	} {
		got, err := f.Choose(nil, c.free, c.must, c.k)
		if diff := cmp.Diff(Choice{Cards: c.want}, got); diff != "" || err != nil {
			t.Errorf("%+v: %v %s", c, err, diff)
		}
	}
}

func TestArcs(t *testing.T) {
	s := oneRing(8, [2]int{3, 4})
	f := s.fabric()
	if diff := cmp.Diff([][]int{{0, 1, 2}, {6, 7, 0}, {7, 0, 1}}, f.Arcs([]int{7, 6, 2, 1, 0, 4}, 3)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([][]int{{4, 5, 6, 7, 0, 1, 2, 3}}, f.Arcs(upTo(8), 8)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([][]int{upTo(8)}, oneRing(8).fabric().Arcs(upTo(8), 8)); diff != "" {
		t.Error(diff)
	}
	ordered, pieces := f.Order([]int{0, 1, 3, 4, 7})
	if diff := cmp.Diff([]int{3, 4, 7, 0, 1}, ordered); diff != "" || pieces != 3 {
		t.Error(diff, pieces)
	}
	if arcs := NewFabric(s.places, nil, nil).Arcs(upTo(8), 2); arcs != nil {
		t.Error(arcs)
	}
}

func TestFabricOfOddRings(t *testing.T) {
	places := make([]Place, 140)
	f := NewFabric(places, &Cabling{Rings: []Ring{
		{Cards: append(upTo(100), 5, -1, 1000), Closed: true}, {Cards: []int{5, 6}}, {}, {Cards: []int{120, 121, 122}, Closed: true},
	}}, [][2]int{{-1, 7}, {120, 120}})
	all := upTo(140)
	for _, f := range []*Fabric{f, NewFabric(places, nil, nil)} {
		for k := 1; k <= 140; k++ {
			got, err := f.Choose(nil, all, []int{139}, k)
			if err != nil || len(members(got.Cards)) != k || !slices.Contains(got.Cards, 139) {
				t.Fatalf("k %d: %v %v", k, got, err)
			}
		}
	}
}

// TestArcTakesNoMemory: a connected answer needs no memory but the one it is given.
func TestArcTakesNoMemory(t *testing.T) {
	for _, n := range []int{8, 16, 64} {
		f, buf := oneRing(n).fabric(), make([]int, n)
		for _, free := range []uint64{^uint64(0), 0x5555_5555_5555_5555, 0x9d3c_71b5_e26a_4fd3} {
			cards := cardsOf(free & lowest(n))
			for k := 1; k <= len(cards); k++ {
				var got Choice
				allocs := testing.AllocsPerRun(3, func() { got, _ = f.Choose(buf, cards, cards[:1], k) })
				if got.Pieces == 1 && allocs > 0 {
					t.Errorf("n %d free %v k %d: %v allocations", n, cards, k, allocs)
				}
			}
		}
	}
}

func FuzzChoose(f *testing.F) {
	f.Add(uint64(0xff), uint64(0), 4, 8, true, 3)
	f.Add(uint64(0xdead), uint64(1), 7, 16, false, -1)
	f.Add(^uint64(0), uint64(3)<<40, 30, 64, true, 63)
	f.Fuzz(func(t *testing.T, free, must uint64, k, n int, closed bool, dead int) {
		n = 1 + (n&0x7fffffff)%64
		s := server{places: make([]Place, n), rings: []Ring{{Cards: upTo(n), Closed: closed}}, dead: [][2]int{{dead, dead + 1}}}
		fabric := s.fabric()
		free &= lowest(n)
		got, err := fabric.Choose(nil, cardsOf(free), cardsOf(must), k)
		possible := must&^free == 0 && k >= max(1, len(cardsOf(must))) && k <= len(cardsOf(free))
		if (err == nil) != possible {
			t.Fatalf("free %v must %v k %d: %v", cardsOf(free), cardsOf(must), k, err)
		}
		if err != nil {
			return
		}
		if want := s.fewestPieces(free, must, k); got.Pieces != want || len(got.Cards) != k {
			t.Fatalf("free %v must %v k %d: %v in %d pieces, not %d", cardsOf(free), cardsOf(must), k, got.Cards, got.Pieces, want)
		}
	})
}

func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{8, 16, 64} {
		for _, c := range []struct {
			name       string
			free, must uint64
			k          int
		}{
			{"all", ^uint64(0), 0, n / 2},
			{"half", 0x9d3c_71b5_e26a_4fd3, 0, 3},
			{"pieces", 0x9d3c_71b5_e26a_4fd3, 0, n / 2},
			{"scattered", 0x5555_5555_5555_5555, 0, n / 3},
			{"must", 0x9d3c_71b5_e26a_4fd3, 0x0004_0001, n / 2},
		} {
			b.Run(fmt.Sprintf("%d/%s", n, c.name), func(b *testing.B) {
				f := oneRing(n).fabric()
				free, must := cardsOf(c.free&lowest(n)), cardsOf(c.must&c.free&lowest(n))
				k := min(c.k, len(free))
				buf := make([]int, n)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := f.Choose(buf, free, must, k); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkChooseWorst is the slowest size of random states of the 64-ring.
func BenchmarkChooseWorst(b *testing.B) {
	f := oneRing(64).fabric()
	r := rand.New(rand.NewPCG(7, 8))
	var states [][]int
	for len(states) < 50 {
		states = append(states, cardsOf(r.Uint64()|r.Uint64()&r.Uint64()))
	}
	buf := make([]int, 64)
	for k := 1; k < 30; k += 7 {
		b.Run(fmt.Sprint(k), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if _, err := f.Choose(buf, states[i%len(states)], nil, k); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
