package main

import (
	"maps"
	"math"
	"slices"
)

// The 8-ring as a Markov decision process: a state is the sets of LPUs that pods hold, a pod that cannot be placed is
// lost, lives are exponential. Its optimum sees what no node-side policy sees, which busy LPUs belong together.

// chain is the process for one mix and load.
type chain struct {
	s      *server
	places func(free set, k int) []set // where a pod can be placed
	states [][]set                     // the sets held, sorted
	number map[string]int
	rate   float64   // of pods that come
	sizes  []int     // that are asked for
	shares []float64 // of each of the sizes
	leave  [][]int   // of each state, the state after each set it holds became free
	enter  [][][]placement
}

// placement is a way to place a pod: the LPUs that it gets, and the state it leads to.
type placement struct {
	lpus set
	to   int
}

func key(sets []set) string {
	text := make([]byte, len(sets))
	for i, a := range sets {
		text[i] = byte(a)
	}
	return string(text)
}

func newChain(s *server, m mix, load float64, places func(free set, k int) []set) *chain {
	c := &chain{
		s: s, places: places, number: map[string]int{}, rate: load * float64(s.n) / m.mean(), sizes: slices.Sorted(maps.Keys(m.shares)),
	}
	for _, k := range c.sizes {
		c.shares = append(c.shares, m.shares[k])
	}
	c.state(nil)
	for i := 0; i < len(c.states); i++ {
		c.expand(i)
	}
	return c
}

func (c *chain) state(sets []set) int {
	sets = slices.Sorted(slices.Values(sets))
	if i, ok := c.number[key(sets)]; ok {
		return i
	}
	c.number[key(sets)] = len(c.states)
	c.states = append(c.states, sets)
	return len(c.states) - 1
}

func (c *chain) free(state int) set {
	free := c.s.all()
	for _, a := range c.states[state] {
		free &^= a
	}
	return free
}

func (c *chain) expand(i int) {
	held, free := c.states[i], c.free(i)
	var leave []int
	for j := range held {
		leave = append(leave, c.state(slices.Delete(slices.Clone(held), j, j+1)))
	}
	enter := make([][]placement, len(c.sizes))
	for j, k := range c.sizes {
		for _, a := range c.places(free, k) {
			enter[j] = append(enter[j], placement{a, c.state(append(slices.Clone(held), a))})
		}
	}
	c.leave, c.enter = append(c.leave, leave), append(c.enter, enter)
}

// chooser gives the worth of a pod of the j-th size in a state, from the worth of each of its placements.
type chooser func(state, j int, worth []float64) float64

func highest(_, _ int, worth []float64) float64 { return slices.Max(worth) }
func lowest(_, _ int, worth []float64) float64  { return slices.Min(worth) }
func average(_, _ int, worth []float64) float64 {
	sum := 0.0
	for _, v := range worth {
		sum += v
	}
	return sum / float64(len(worth))
}

// following is the chooser of a rule.
func (c *chain) following(p pick) chooser {
	choice := map[[2]int]int{}
	return func(state, j int, worth []float64) float64 {
		at := [2]int{state, j}
		i, ok := choice[at]
		if !ok {
			lpus := p(c.s, c.free(state), c.sizes[j], nil)
			i = slices.IndexFunc(c.enter[state][j], func(to placement) bool { return to.lpus == lpus })
			choice[at] = i
		}
		return worth[i]
	}
}

// reward is what it is worth to give a pod these LPUs.
type reward func(lpus set) float64

func byPod(set) float64      { return 1 }
func byLPU(lpus set) float64 { return float64(lpus.size()) }

// several rewards pods of several LPUs, whether they are connected or not.
func several(lpus set) float64 { return float64(min(1, lpus.size()-1)) }

// together rewards pods of several LPUs that are connected.
func (s *server) together(lpus set) float64 {
	if s.connected(lpus) {
		return several(lpus)
	}
	return 0
}

// gain is the reward per pod that comes, in the long run, by relative value iteration to 1e-9.
func (c *chain) gain(choose chooser, of reward) float64 {
	values, next := make([]float64, len(c.states)), make([]float64, len(c.states))
	clock := c.rate + float64(c.s.n) // events per unit of time, those that change nothing included
	var worth []float64
	for {
		low, high := math.Inf(1), math.Inf(-1)
		for i := range c.states {
			value := 0.0
			for j, share := range c.shares {
				best := values[i]
				if enter := c.enter[i][j]; len(enter) > 0 {
					worth = worth[:0]
					for _, to := range enter {
						worth = append(worth, of(to.lpus)+values[to.to])
					}
					best = choose(i, j, worth)
				}
				value += c.rate * share * best
			}
			for _, to := range c.leave[i] {
				value += values[to]
			}
			value += (float64(c.s.n) - float64(len(c.leave[i]))) * values[i]
			next[i] = value / clock
			low, high = min(low, next[i]-values[i]), max(high, next[i]-values[i])
		}
		if high-low < 1e-9 {
			return (low + high) / 2 * clock / c.rate
		}
		base := next[0]
		for i := range next {
			values[i] = next[i] - base
		}
	}
}
