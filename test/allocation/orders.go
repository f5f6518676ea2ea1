package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/hyperaccel/lpuctl/internal/dra"
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

// alignedFromBothEnds takes aligned arcs first, single LPUs from one end and others from the other.
func alignedFromBothEnds(n, k int) []int {
	aligned := alignedOnly(n, k)
	rest := slices.DeleteFunc(fromBothEnds(n, k), func(start int) bool { return slices.Contains(aligned, start) })
	if k > 1 {
		slices.Reverse(aligned)
	}
	return append(aligned, rest...)
}

// orderRule is a rule by which arcs of a size are ordered on a ring of n LPUs.
type orderRule struct {
	name   string
	starts func(n, k int) []int
}

func (o orderRule) orders(n int) orders {
	return ordersOf(n, func(k int) []int { return o.starts(n, k) })
}

func orderNames() []orderRule {
	return []orderRule{
		{"by start", byStart},
		{"aligned first", alignedFirst},
		{"single LPUs from one end, others from the other", fromBothEnds},
		{"aligned first, from both ends", alignedFromBothEnds},
	}
}

// orderRules are the orders that are compared, on a ring of n LPUs.
func orderRules(n int) []policy {
	rules := []policy{{alignedGroups, inOrder(orderRule{alignedGroups, alignedOnly}.orders(n))}}
	for _, o := range orderNames() {
		rules = append(rules, policy{o.name, inOrder(o.orders(n))})
	}
	return append(rules, policy{lpuctlDRA, inOrder(publishedOrders(n))}, policy{lpuctl + ", strict", remembered(ours)})
}

const (
	alignedGroups = "aligned groups only"
	lpuctlDRA     = "lpuctl dra"
)

// The seeds of the search; those of the report begin at 0.
const (
	searchSeeds = 1000
	searchRuns  = 6
)

// searcher looks for orders that are better than others, on pods that the report does not use.
type searcher struct {
	s     *server
	sizes []int   // whose orders are changed
	pods  [][]pod // of each cell and seed
	seen  map[string]float64
}

func newSearcher(count int, cells []cell, sizes ...int) *searcher {
	x := &searcher{s: newServer(8), sizes: sizes, seen: map[string]float64{}}
	for _, c := range cells {
		for seed := range uint64(searchRuns) {
			x.pods = append(x.pods, arrivals(c, count, searchSeeds+seed))
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
func (x *searcher) climb(all orders) (orders, float64) {
	best := x.worth(all)
	for better := true; better; {
		better = false
		for _, k := range x.sizes {
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
	}
	return all, best
}

// search climbs from each known order and some that are drawn, and returns the best for a ring of 8: first for the sizes that are
// published by default, then for the others.
func search(count, draws int, say func(string, ...any)) orders {
	x := newSearcher(count, cells()[:noEightBusy+1], 1, 2, 4)
	say("lpuctl, strict: %.3f", x.strict())
	r := rand.New(rand.NewPCG(searchSeeds, 0))
	var found orders
	best := 0.0
	try := func(name string, all orders) {
		climbed, worth := x.climb(all)
		say("from %s: %.3f", name, worth)
		if worth > best {
			found, best = climbed, worth
			say("%v", found)
		}
	}
	for _, p := range orderNames() {
		try(p.name, p.orders(8))
	}
	for range draws {
		try("a draw", ordersOf(8, func(k int) []int { return r.Perm(8)[:len(byStart(8, k))] }))
	}
	others := newSearcher(count, cells()[noEightBusy+1:anyKBusy+1], 3, 5, 6, 7)
	found, best = others.climb(found)
	say("all sizes: %.3f, lpuctl, strict: %.3f", best, others.strict())
	return found
}

// strict is what lpuctl's rule is worth on the same pods.
func (x *searcher) strict() float64 {
	sum, own := 0.0, policy{lpuctl, remembered(ours)}
	for _, pods := range x.pods {
		sum += 100 * play(x.s, own, pods, true, 0).acceptedLPUShare()
	}
	return sum / float64(len(x.pods))
}
