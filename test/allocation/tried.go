package main

import (
	"math/rand/v2"
	"slices"
)

// What was tried to beat the rule of lpuctl.

// formerRule is the rule of lpuctl before this comparison had equal lives and absent cards.
func formerRule() pick { return by(freeArcs, wraps, pairsTouched, blocks) }

// variants are rules that lpuctl's is compared with: by free arcs, pairs touched, pairs broken, address order, first end.
func variants() []policy {
	return []policy{
		{fits, bestFit},
		{former, formerRule()},
		{"free arcs only, lowest start", by(freeArcs)},
		{"aligned blocks before free arcs", by(blocks, freeArcs)},
		{"free arcs, then aligned blocks", by(freeArcs, blocks)},
		{"without address order", by(freeArcs, pairsTouched, pairsBroken, firstEnd(2))},
		{"without the first end", by(freeArcs, pairsTouched, pairsBroken, wraps)},
		{"without pairs broken", by(freeArcs, pairsTouched, wraps, firstEnd(2))},
		{"aligned blocks instead of pairs broken", by(freeArcs, pairsTouched, blocks, wraps, firstEnd(2))},
		{"the first end of arcs of 3/4 of the ring", by(freeArcs, pairsTouched, pairsBroken, wraps, firstEnd(4./3))},
		{"the first end of every arc", by(freeArcs, pairsTouched, pairsBroken, wraps, firstEnd(64))},
		{"the first end before pairs broken", by(freeArcs, pairsTouched, firstEnd(2), pairsBroken, wraps)},
		{"the first end before pairs", by(freeArcs, firstEnd(2), pairsTouched, pairsBroken, wraps)},
		{"the first end before all else", by(firstEnd(64), freeArcs)},
		{"whole pairs stay, with a gap if need be", by(wholePairs, freeArcs, nearStart)},
		{"one LPU from the first end, several from the last", func(s *server, free set, k int, r *rand.Rand) set {
			if k == 1 {
				return by(freeArcs, pairsTouched, pairsBroken, firstEnd(64))(s, free, k, r)
			}
			return by(freeArcs, pairsTouched, pairsBroken, lastEnd)(s, free, k, r)
		}},
		{"scraps first where nothing is connected", scraps},
	}
}

// score is how good an arc is in one respect: larger is better, compared number by number.
type score func(s *server, free, a set) []int

// by takes the free arc with the best scores, the first that differs decides, and the lowest start of equals. Where there
// is none it takes what lpuctl takes.
func by(scores ...score) pick {
	return func(s *server, free set, k int, r *rand.Rand) set {
		var best set
		var bestScore []int
		for _, a := range s.arcs(free, k) {
			var v []int
			for _, of := range scores {
				v = append(v, of(s, free, a)...)
			}
			if best == 0 || slices.Compare(v, bestScore) > 0 {
				best, bestScore = a, v
			}
		}
		if best == 0 {
			return ours(s, free, k, r)
		}
		return best
	}
}

// runs are the lengths of the longest arcs of a set, the longest first, then zeros.
func (s *server) runs(x set) []int {
	lengths := make([]int, s.n)
	for i := 0; x != 0; i++ {
		run := s.around(x, x&-x)
		lengths[i] = run.size()
		x &^= run
	}
	slices.Sort(lengths)
	slices.Reverse(lengths)
	return lengths
}

// blocks are the whole aligned blocks that stay free, the largest first.
func blocks(s *server, free, a set) []int {
	var counts []int
	for size := s.n; size >= 2; size /= 2 {
		count := 0
		for start := 0; start < s.n; start += size {
			if s.arc(start, size)&^(free&^a) == 0 {
				count++
			}
		}
		counts = append(counts, count)
	}
	return counts
}

// freeArcs are the lengths of the arcs that stay free.
func freeArcs(s *server, free, a set) []int { return s.runs(free &^ a) }

// pairsTouched is how few aligned pairs an arc has LPUs of.
func pairsTouched(s *server, _, a set) []int {
	pairs := 0
	for i := 0; i < s.n; i += 2 {
		if a>>i&3 != 0 {
			pairs--
		}
	}
	return []int{pairs}
}

// pairsBroken is how few aligned pairs that were wholly free an arc has LPUs of.
func pairsBroken(s *server, free, a set) []int {
	pairs := 0
	for i := 0; i < s.n; i += 2 {
		if free>>i&3 == 3 && a>>i&3 != 0 {
			pairs--
		}
	}
	return []int{pairs}
}

// wraps is -1 if an arc goes past the last position.
func wraps(s *server, _, a set) []int {
	if a != s.all() && a&1 != 0 && a>>(s.n-1) != 0 {
		return []int{-1}
	}
	return []int{0}
}

// firstEnd is -1 if an arc does not start where its free arc starts, and that has at least 1/part of the ring.
func firstEnd(part float64) score {
	return func(s *server, free, a set) []int {
		if around := s.around(free, a); part*float64(around.size()) >= float64(s.n) && nearStart(s, free, a)[0] < 0 {
			return []int{-1}
		}
		return []int{0}
	}
}

// nearStart is how near an arc is to the start of its free arc: 0, or minus the LPUs that stay free before it.
func nearStart(s *server, free, a set) []int {
	around, before := s.around(free, a), 0
	for x := s.turn(a, -1) &^ a; x&around != 0 && around.size() < s.n; x = s.turn(x, -1) {
		before--
	}
	return []int{before}
}

// lastEnd is -1 if an arc does not end where its free arc ends.
func lastEnd(s *server, free, a set) []int {
	if next := s.turn(a, 1) &^ a; next&free != 0 {
		return []int{-1}
	}
	return []int{0}
}

// wholePairs are the lengths of the arcs of whole aligned pairs that stay free.
func wholePairs(s *server, free, a set) []int {
	var pairs set
	for i := 0; i < s.n; i += 2 {
		if pair := set(3) << i; pair&^(free&^a) == 0 {
			pairs |= pair
		}
	}
	return s.runs(pairs)
}

// oneArcAsBestFit is a rule that, where the free LPUs are one arc, takes its first end as best fit does. If all pods stay
// equally long, that alone keeps the free LPUs together for ever.
func oneArcAsBestFit(p pick) pick {
	return remembered(func(s *server, free set, k int, r *rand.Rand) set {
		if s.around(free, free&-free) == free {
			return bestFit(s, free, k, r)
		}
		return p(s, free, k, r)
	})
}

// scraps is lpuctl's rule for arcs; but where there is none it takes the shortest free arcs, so that long ones stay.
func scraps(s *server, free set, k int, r *rand.Rand) set {
	if len(s.arcs(free, k)) > 0 {
		return ours(s, free, k, r)
	}
	var taken set
	for length := 1; length <= s.n; length++ {
		for x := free &^ taken; x != 0; {
			run := s.around(x, x&-x)
			x &^= run
			if left := k - taken.size(); run.size() == length && left > 0 {
				taken |= firstByIndex(s, run, min(left, length), r)
			}
		}
	}
	return taken
}

// improvements is after how many steps policy improvement is ended: more gain nothing.
const improvements = 5

// improve is one step of policy improvement: for each set of free LPUs the placement after which, averaged over how often
// each state with that set free occurs under the policy, the future is worth most.
func (c *chain) improve(p pick, of reward) pick {
	values, shares := c.worthOfStates(p, of)
	total := map[set]map[set]float64{}
	for i := range c.states {
		free := c.free(i)
		if total[free] == nil {
			total[free] = map[set]float64{}
		}
		for _, enter := range c.enter[i] {
			for _, to := range enter {
				total[free][to.lpus] += shares[i] * (of(to.lpus) + values[to.to])
			}
		}
	}
	return func(s *server, free set, k int, r *rand.Rand) set {
		best, most := set(0), 0.0
		for _, lpus := range c.places(free, k) {
			if v := total[free][lpus]; best == 0 || v > most+1e-12 {
				best, most = lpus, v
			}
		}
		if best == 0 {
			return ours(s, free, k, r)
		}
		return best
	}
}

// worthOfStates is the relative value of each state under a rule, and how much of the time it is in it.
func (c *chain) worthOfStates(p pick, of reward) (values, shares []float64) {
	choose := c.following(p)
	values, shares = make([]float64, len(c.states)), make([]float64, len(c.states))
	shares[0] = 1
	clock := c.rate + float64(c.s.n)
	var index []float64
	for range 400 {
		nextValues, nextShares := make([]float64, len(values)), make([]float64, len(values))
		move := func(i, to int, chance, reward float64) {
			nextValues[i] += chance * (reward + values[to])
			nextShares[to] += chance * shares[i]
		}
		for i := range c.states {
			for j, share := range c.shares {
				enter := c.enter[i][j]
				if len(enter) == 0 {
					move(i, i, c.rate*share/clock, 0)
					continue
				}
				index = index[:0]
				for j := range enter {
					index = append(index, float64(j))
				}
				chosen := enter[int(choose(i, j, index))]
				move(i, chosen.to, c.rate*share/clock, of(chosen.lpus))
			}
			for _, to := range c.leave[i] {
				move(i, to, 1/clock, 0)
			}
			move(i, i, (float64(c.s.n)-float64(len(c.leave[i])))/clock, 0)
		}
		base := nextValues[0]
		for i := range nextValues {
			nextValues[i] -= base
		}
		values, shares = nextValues, nextShares
	}
	return values, shares
}
