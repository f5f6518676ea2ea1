package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/hyperaccel/lpuctl/pkg/dra"
)

// With DRA the scheduler takes the first arc that is free, in the order in which arcs are published. So that order is the rule.

// orders are the starts of arcs by size, in the order in which they are taken.
type orders map[int][]int

// inOrder takes the first arc that is free, and refuses a size without an order.
func inOrder(all orders) pick {
	return func(s *server, free set, k int, _ *rand.Rand) set {
		for _, start := range all[k] {
			if a := s.arc(start, k); a&^free == 0 {
				return a
			}
		}
		return 0
	}
}

// ordersOf are orders of all sizes of a ring of n LPUs.
func ordersOf(n int, starts func(k int) []int) orders {
	all := orders{}
	for k := 1; k <= n; k++ {
		all[k] = starts(k)
	}
	return all
}

func publishedOrders(n int) orders {
	return ordersOf(n, func(k int) []int { return dra.Starts(n, k, true) })
}

// byStart are all starts from the first position on.
func byStart(n, k int) (starts []int) {
	for start := range n {
		starts = append(starts, start)
	}
	if k == n {
		return starts[:1]
	}
	return starts
}

// alignedFirst takes aligned arcs before all others, alignedOnly no others.
func alignedFirst(n, k int) []int {
	return append(alignedOnly(n, k), slices.DeleteFunc(byStart(n, k), func(start int) bool { return start%k == 0 && start+k <= n })...)
}

func alignedOnly(n, k int) (starts []int) {
	for start := 0; start+k <= n; start += k {
		starts = append(starts, start)
	}
	return starts
}

// fromBothEnds takes single LPUs from one end and others from the other.
func fromBothEnds(n, k int) []int {
	starts := byStart(n, k)
	if k == 1 {
		return starts
	}
	for i, start := range starts {
		starts[i] = (2*n - k - start) % n
	}
	return starts
}

// orderRules are the orders that are compared, on a ring of n LPUs.
func orderRules(n int) []policy {
	of := func(rule func(n, k int) []int) pick {
		return inOrder(ordersOf(n, func(k int) []int { return rule(n, k) }))
	}
	return []policy{
		{alignedGroups, of(alignedOnly)},
		{"by start", of(byStart)},
		{"aligned first", of(alignedFirst)},
		{"single LPUs from one end, others from the other", of(fromBothEnds)},
		{lpuctlDRA, inOrder(publishedOrders(n))},
		{lpuctl + ", strict", remembered(ours)},
	}
}

const (
	alignedGroups = "aligned groups only"
	lpuctlDRA     = "lpuctl dra"
)

// The seeds of the search; those of the report begin at 0.
const (
	searchSeeds = 1000
	searchRuns  = 4
)

// searcher looks for orders that are better than others, on pods that the report does not use.
type searcher struct {
	s     *server
	cells []cell
	pods  [][]pod // of each cell and seed
	seen  map[string]float64
}

func newSearcher(count int) *searcher {
	x := &searcher{s: newServer(8), seen: map[string]float64{}}
	for _, i := range []int{smallBusy, noEightBusy, anyKBusy} {
		x.cells = append(x.cells, cells()[i])
		for seed := range uint64(searchRuns) {
			x.pods = append(x.pods, arrivals(cells()[i], count, searchSeeds+seed))
		}
	}
	return x
}

// worth is the share of LPUs that are accepted, in percent, over all cells.
func (x *searcher) worth(all orders) float64 {
	name := fmt.Sprint(all)
	if worth, known := x.seen[name]; known {
		return worth
	}
	sum := 0.0
	for _, pods := range x.pods {
		sum += 100 * play(x.s, policy{pick: inOrder(all)}, pods, true, 0).acceptedLPUShare()
	}
	x.seen[name] = sum / float64(len(x.pods))
	return x.seen[name]
}

// climb moves one start of one size after the other to another place in its order, as long as that is better.
func (x *searcher) climb(all orders, say func(string, ...any)) (orders, float64) {
	best := x.worth(all)
	for better := true; better; {
		better = false
		for k := 1; k < x.s.n; k++ {
			for from := range all[k] {
				for to := range all[k] {
					moved := maps.Clone(all)
					without := slices.Delete(slices.Clone(all[k]), from, from+1)
					moved[k] = slices.Insert(without, to, all[k][from])
					if worth := x.worth(moved); worth > best+1e-9 {
						all, best, better = moved, worth, true
					}
				}
			}
		}
		say("%.3f", best)
	}
	return all, best
}

// search climbs from each known order and some that are drawn, and says the best.
func search(count, draws int, say func(string, ...any)) orders {
	x := newSearcher(count)
	r := rand.New(rand.NewPCG(searchSeeds, 0))
	var found orders
	best := 0.0
	try := func(name string, all orders) {
		climbed, worth := x.climb(all, func(string, ...any) {})
		say("from %s: %.3f", name, worth)
		if worth > best {
			found, best = climbed, worth
		}
	}
	for name, rule := range map[string]func(n, k int) []int{"by start": byStart, "aligned first": alignedFirst, "both ends": fromBothEnds} {
		try(name, ordersOf(8, func(k int) []int { return rule(8, k) }))
	}
	for range draws {
		try("a draw", ordersOf(8, func(k int) []int { return r.Perm(8)[:len(byStart(8, k))] }))
	}
	return found
}
