package main

import (
	"math/bits"
	"math/rand/v2"
	"slices"
)

// What was tried to beat the rule of lpuctl.

// arcBy takes the free arc with the best score, the lowest start of equals, and what lpuctl takes where there is none.
func arcBy(score func(s *server, free, a set) []int) pick {
	return func(s *server, free set, k int, r *rand.Rand) set {
		var best set
		var bestScore []int
		for _, a := range s.arcs(free, k) {
			if v := score(s, free, a); best == 0 || slices.Compare(v, bestScore) > 0 {
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

// blocks counts the whole aligned blocks of a set, the largest first.
func (s *server) blocks(x set) []int {
	var counts []int
	for size := s.n; size >= 2; size /= 2 {
		count := 0
		for start := 0; start < s.n; start += size {
			if s.arc(start, size)&^x == 0 {
				count++
			}
		}
		counts = append(counts, count)
	}
	return counts
}

func freeArcsOnly(s *server, free, a set) []int { return s.runs(free &^ a) }

func blocksFirst(s *server, free, a set) []int {
	return append(s.blocks(free&^a), s.runs(free&^a)...)
}

// blocksThen is the rule as first published: without aligned pairs, and whether an arc wraps does not matter.
func blocksThen(s *server, free, a set) []int {
	return append(s.runs(free&^a), s.blocks(free&^a)...)
}

// pairsThen is lpuctl's rule, but whether an arc wraps does not matter.
func pairsThen(s *server, free, a set) []int {
	pairs := 0
	for i := 0; i < s.n; i += 2 {
		if a>>i&3 != 0 {
			pairs++
		}
	}
	return append(append(s.runs(free&^a), -pairs), s.blocks(free&^a)...)
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

// improve is one step of policy improvement: for each set of free LPUs the arc after which, averaged over how often each
// state with that set free occurs under the policy, the future is worth most. No rule that sees only which LPUs are
// free is better by more than such steps find.
func (c *chain) improve(p pick) pick {
	values, shares := c.worthOfStates(p)
	total := map[set]map[set]float64{}
	for i := range c.states {
		free := c.s.all()
		for _, a := range c.states[i] {
			free &^= a
		}
		if total[free] == nil {
			total[free] = map[set]float64{}
		}
		for k, arcs := range c.arcs[i] {
			for j, a := range arcs {
				total[free][a] += shares[i] * values[c.enter[i][k][j]]
			}
		}
	}
	return func(s *server, free set, k int, r *rand.Rand) set {
		best, most := set(0), 0.0
		for _, a := range s.arcs(free, k) {
			if v := total[free][a]; best == 0 || v > most+1e-12 {
				best, most = a, v
			}
		}
		if best == 0 || bits.OnesCount32(uint32(best)) != k {
			return ours(s, free, k, r)
		}
		return best
	}
}

// worthOfStates is the relative value of each state under a rule, and how much of the time it is in it.
func (c *chain) worthOfStates(p pick) (values, shares []float64) {
	choose := c.following(p)
	values, shares = make([]float64, len(c.states)), make([]float64, len(c.states))
	shares[0] = 1
	clock := c.rate + float64(c.s.n)
	var index []float64
	for range 2000 {
		nextValues, nextShares := make([]float64, len(values)), make([]float64, len(values))
		move := func(i, to int, chance, reward float64) {
			nextValues[i] += chance * (reward + values[to])
			nextShares[to] += chance * shares[i]
		}
		for i := range c.states {
			for k, share := range c.sizes {
				enter := c.enter[i][k]
				if len(enter) == 0 {
					move(i, i, c.rate*share/clock, 0)
					continue
				}
				index = index[:0]
				for j := range enter {
					index = append(index, float64(j))
				}
				move(i, enter[int(choose(i, k, index))], c.rate*share/clock, 1)
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
