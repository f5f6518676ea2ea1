package main

import (
	"math"
	"slices"
)

// The 8-ring as a Markov decision process: a state is the arcs that pods hold, a pod that finds no free arc is lost,
// lives are exponential. Its optimum sees what no node-side policy sees, which busy LPUs belong together.

// chain is the process for one mix and load.
type chain struct {
	s      *server
	states [][]set // the arcs held, sorted
	number map[string]int
	rate   float64         // of pods that come
	sizes  map[int]float64 // share of each size
	leave  [][]int         // of each state, the state after each arc it holds ended
	enter  []map[int][]int // of each state and size, the states that a placement leads to
	arcs   []map[int][]set // likewise, the arcs
}

func key(arcs []set) string {
	text := make([]byte, len(arcs))
	for i, a := range arcs {
		text[i] = byte(a)
	}
	return string(text)
}

func newChain(s *server, m mix, load float64) *chain {
	c := &chain{s: s, number: map[string]int{}, rate: load * float64(s.n) / m.mean(), sizes: m.shares}
	c.state(nil)
	for i := 0; i < len(c.states); i++ {
		c.expand(i)
	}
	return c
}

func (c *chain) state(arcs []set) int {
	arcs = slices.Sorted(slices.Values(arcs))
	if i, ok := c.number[key(arcs)]; ok {
		return i
	}
	c.number[key(arcs)] = len(c.states)
	c.states = append(c.states, arcs)
	return len(c.states) - 1
}

func (c *chain) expand(i int) {
	held := c.states[i]
	free := c.s.all()
	for _, a := range held {
		free &^= a
	}
	var leave []int
	for j := range held {
		leave = append(leave, c.state(slices.Delete(slices.Clone(held), j, j+1)))
	}
	enter, arcs := map[int][]int{}, map[int][]set{}
	for k := range c.sizes {
		for _, a := range c.s.arcs(free, k) {
			enter[k] = append(enter[k], c.state(append(slices.Clone(held), a)))
			arcs[k] = append(arcs[k], a)
		}
	}
	c.leave, c.enter, c.arcs = append(c.leave, leave), append(c.enter, enter), append(c.arcs, arcs)
}

// chooser gives the value of a pod's coming, from the values of the states that its placements lead to.
type chooser func(state, k int, values []float64) float64

func highest(_, _ int, values []float64) float64 { return slices.Max(values) }
func lowest(_, _ int, values []float64) float64  { return slices.Min(values) }
func average(_, _ int, values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// following is the chooser of a rule.
func (c *chain) following(p pick) chooser {
	choice := map[[2]int]int{}
	return func(state, k int, values []float64) float64 {
		at := [2]int{state, k}
		i, ok := choice[at]
		if !ok {
			free := c.s.all()
			for _, a := range c.states[state] {
				free &^= a
			}
			i = slices.Index(c.arcs[state][k], p(c.s, free, k, nil))
			choice[at] = i
		}
		return values[i]
	}
}

// gain is the reward per pod that comes, in the long run, by relative value iteration to 1e-9: 1 for each pod that is
// placed, or its size.
func (c *chain) gain(choose chooser, byLPU bool) float64 {
	values, next := make([]float64, len(c.states)), make([]float64, len(c.states))
	clock := c.rate + float64(c.s.n) // events per unit of time, those that change nothing included
	var buf []float64
	for {
		low, high := math.Inf(1), math.Inf(-1)
		for i := range c.states {
			value := 0.0
			for k, share := range c.sizes {
				best := values[i]
				if enter := c.enter[i][k]; len(enter) > 0 {
					buf = buf[:0]
					for _, to := range enter {
						buf = append(buf, values[to])
					}
					reward := 1.0
					if byLPU {
						reward = float64(k)
					}
					best = reward + choose(i, k, buf)
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
