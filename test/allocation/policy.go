package main

import (
	"math/bits"
	"math/rand/v2"

	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// set is LPUs of one ring: bit i is the LPU at position i.
type set uint32

func (s set) size() int { return bits.OnesCount32(uint32(s)) }

// server is a closed ring of n LPUs; the halves are its NUMA nodes. Cards can be absent: then the ring is cut there.
type server struct {
	n       int
	present set
	fabric  *ring.Fabric
}

func newServer(n int, absent ...int) *server {
	places, cards, present := make([]ring.Place, n), make([]int, n), set(1)<<n-1
	for i := range n {
		places[i], cards[i] = ring.Place{NUMANode: 2 * i / n, Switch: i / 2}, i
	}
	var dead [][2]int
	for _, card := range absent {
		present &^= 1 << card
		dead = append(dead, [2]int{(card + n - 1) % n, card}, [2]int{card, (card + 1) % n})
	}
	return &server{n, present, ring.NewFabric(places, &ring.Cabling{Rings: []ring.Ring{{Cards: cards, Closed: true}}}, dead)}
}

// all is the LPUs that are there.
func (s *server) all() set { return s.present }

// turn moves each LPU of a set on by some positions.
func (s *server) turn(x set, by int) set {
	by = (by%s.n + s.n) % s.n
	return (x<<by | x>>(s.n-by)) & (1<<s.n - 1)
}

func (s *server) arc(start, k int) set { return s.turn(1<<k-1, start) }

// arcs are the free arcs of k, by start.
func (s *server) arcs(free set, k int) []set {
	var all []set
	for start := range s.n {
		if a := s.arc(start, k); a&^free == 0 {
			all = append(all, a)
			if k == s.n {
				break
			}
		}
	}
	return all
}

func (s *server) connected(x set) bool {
	joints := x & s.turn(x, -1)
	return x.size()-joints.size() <= 1
}

// longest is the length of the longest free arc.
func (s *server) longest(free set) int {
	n := 0
	for x := free; x != 0 && n < s.n; x &= s.turn(x, -1) {
		n++
	}
	return n
}

// pick picks k of the free LPUs; 0 refuses. Only those that draw lots use r.
type pick func(s *server, free set, k int, r *rand.Rand) set

// policy is a rule by which LPUs are picked.
type policy struct {
	name string
	pick pick
}

// ours is what lpuctl does.
func ours(s *server, free set, k int, _ *rand.Rand) set {
	var buf, cards [32]int
	list := cards[:0]
	for x := free; x != 0; x &= x - 1 {
		list = append(list, bits.TrailingZeros32(uint32(x)))
	}
	choice, err := s.fabric.Choose(buf[:0], list, nil, k)
	if err != nil {
		return 0
	}
	var chosen set
	for _, card := range choice.Cards {
		chosen |= 1 << card
	}
	return chosen
}

func uniform(_ *server, free set, k int, r *rand.Rand) set {
	for free.size() > k {
		x := free
		for range r.IntN(free.size()) {
			x &= x - 1
		}
		free &^= x & -x
	}
	return free
}

// rotation is what the kubelet does without a preferred allocation, for at most 8 devices listed in ring order: it walks
// a Go map, from a slot that is drawn.
func rotation(s *server, free set, k int, r *rand.Rand) set {
	by := r.IntN(s.n)
	return s.turn(firstByIndex(s, s.turn(free, -by), k, r), by)
}

func firstByIndex(_ *server, free set, k int, _ *rand.Rand) set {
	for free.size() > k {
		free &^= 1 << (31 - bits.LeadingZeros32(uint32(free)))
	}
	return free
}

func randomArc(s *server, free set, k int, r *rand.Rand) set {
	if arcs := s.arcs(free, k); len(arcs) > 0 {
		return arcs[r.IntN(len(arcs))]
	}
	return uniform(s, free, k, r)
}

func firstFit(s *server, free set, k int, r *rand.Rand) set {
	if arcs := s.arcs(free, k); len(arcs) > 0 {
		return arcs[0]
	}
	return firstByIndex(s, free, k, r)
}

// bestFit takes the first LPUs of the shortest free arc that is long enough.
func bestFit(s *server, free set, k int, r *rand.Rand) set {
	best, room := set(0), s.n+1
	for _, a := range s.arcs(free, k) {
		around := s.around(free, a)
		first := a &^ s.turn(a, 1)
		atEdge := around.size() == s.n || first&s.turn(around, 1) == 0
		if atEdge && around.size() < room {
			best, room = a, around.size()
		}
	}
	if best != 0 {
		return best
	}
	return firstByIndex(s, free, k, r)
}

// around is the longest free arc that an arc is part of.
func (s *server) around(free, arc set) set {
	for {
		grown := (arc | s.turn(arc, 1) | s.turn(arc, -1)) & free
		if grown == arc {
			return arc
		}
		arc = grown
	}
}

// buddy takes whole aligned blocks of 2^j and refuses the rest.
func buddy(s *server, free set, k int, _ *rand.Rand) set {
	block := 1 << bits.Len(uint(k-1))
	for start := 0; start+block <= s.n; start += block {
		if b := s.arc(start, block); b&^free == 0 {
			return b
		}
	}
	return 0
}

// oneOrAll gives the whole server to whoever wants more than one LPU.
func oneOrAll(s *server, free set, k int, _ *rand.Rand) set {
	if k == 1 {
		return free & -free
	}
	if free == s.all() {
		return free
	}
	return 0
}

// pairs is what a pair of LPUs is worth: neighbours and others, on one NUMA node and across.
type pairs struct{ near, nearAcross, far, farAcross int }

// worth adds up what the pairs of a set are worth.
func (s *server) worth(x set, p pairs) int {
	half := set(1)<<(s.n/2) - 1
	low, high := x&half, x&^half
	near := (x & s.turn(x, -1)).size()
	nearSame := (low & (low >> 1)).size() + (high & (high >> 1)).size()
	same := low.size()*(low.size()-1)/2 + high.size()*(high.size()-1)/2
	all := x.size() * (x.size() - 1) / 2
	return nearSame*p.near + (near-nearSame)*p.nearAcross + (same-nearSame)*p.far + (all-same-near+nearSame)*p.farAcross
}

// bestOf goes through all k-subsets in the order of indices, and keeps the first with the best score.
func bestOf(free set, k int, score func(set) int) set {
	var index []int
	for x := free; x != 0; x &= x - 1 {
		index = append(index, bits.TrailingZeros32(uint32(x)))
	}
	best, bestScore := set(0), 0
	var grow func(from int, chosen set, left int)
	grow = func(from int, chosen set, left int) {
		if left == 0 {
			if v := score(chosen); best == 0 || v > bestScore {
				best, bestScore = chosen, v
			}
			return
		}
		for i := from; i+left <= len(index); i++ {
			grow(i+1, chosen|1<<index[i], left-1)
		}
	}
	grow(0, 0, k)
	return best
}

// furiosaLike takes the set with the largest sum over its pairs.
func furiosaLike(s *server, free set, k int, _ *rand.Rand) set {
	return bestOf(free, k, func(x set) int { return s.worth(x, pairs{100, 100, 20, 10}) })
}

// amdLike takes the set with the smallest sum over its pairs: 20 for another device, 10 for a direct link or 40 for
// PCIe, 10 on one NUMA node or 20 across.
func amdLike(s *server, free set, k int, _ *rand.Rand) set {
	return bestOf(free, k, func(x set) int { return -s.worth(x, pairs{20 + 10 + 10, 20 + 10 + 20, 20 + 40 + 10, 20 + 40 + 20}) })
}

// nvidiaLike takes the best set of the best partition of all free LPUs into sets of k, the last one filled up with
// nothing.
func nvidiaLike(s *server, free set, k int, _ *rand.Rand) set {
	score := func(x set) int { return s.worth(x, pairs{100, 100, 20, 10}) }
	var best set
	bestTotal, bestScore := -1, -1
	var split func(left set, total int, top set, topScore int)
	split = func(left set, total int, top set, topScore int) {
		if left == 0 {
			if total > bestTotal || total == bestTotal && topScore > bestScore {
				best, bestTotal, bestScore = top, total, topScore
			}
			return
		}
		first := left & -left
		try := func(x set) {
			v, t, ts := score(x), top, topScore
			if x.size() == k && v > ts {
				t, ts = x, v
			}
			split(left&^x, total+v, t, ts)
		}
		if short := left.size() % k; short > 0 {
			subsets(left&^first, short-1, func(rest set) { try(rest | first) })
		}
		if left.size() >= k {
			subsets(left&^first, k-1, func(rest set) { try(rest | first) })
		}
	}
	split(free, 0, 0, -1)
	return best
}

func subsets(of set, k int, visit func(set)) {
	if k == 0 {
		visit(0)
		return
	}
	for x := of; x != 0 && x.size() >= k; x &= x - 1 {
		first := x & -x
		subsets(x&^first, k-1, func(rest set) { visit(rest | first) })
	}
}

// remembered asks a rule that draws no lots only once for each state.
func remembered(p pick) pick {
	type state struct {
		n             int
		present, free set
		k             int
	}
	known := map[state]set{}
	return func(s *server, free set, k int, r *rand.Rand) set {
		key := state{s.n, s.present, free, k}
		if _, ok := known[key]; !ok {
			known[key] = p(s, free, k, r)
		}
		return known[key]
	}
}
