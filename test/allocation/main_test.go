package main

import (
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// The short form of the simulation: few pods, one seed, the same for each rule.
const (
	shortPods = 2000
	shortSeed = 7
	slack     = .01 // of all pods, for so few
)

func TestAheadOfEachRule(t *testing.T) {
	for _, c := range cells() {
		s, pods := newServer(c.n), arrivals(c, shortPods, shortSeed)
		shares := map[string]float64{}
		for _, p := range policies() {
			if applies(p, c.n) {
				shares[p.name] = play(s, p, pods, false, shortSeed).connectedShare()
			}
		}
		for name, share := range shares {
			refuses := name == "1-or-ALL" || strings.HasPrefix(name, "buddy")
			if !refuses && shares[lpuctl] < share-slack {
				t.Errorf("%s, load %.1f: %.3f connected, %s has %.3f", c.mix.name, c.load, shares[lpuctl], name, share)
			}
		}
		if shares[lpuctl] < shares["first by index"]+.05 || shares["uniform random"] > .3 {
			t.Errorf("%s, load %.1f: the simulation does not tell rules apart: %v", c.mix.name, c.load, shares)
		}
	}
}

// TestNearTheOptimum holds the model against what is known of it, and the rule against the model.
func TestNearTheOptimum(t *testing.T) {
	for _, row := range []struct {
		mix  mix
		load float64
		best float64 // computed independently
	}{{small(), .6, .82907}, {noEight(), .9, .71919}} {
		s := newServer(8)
		c := newChain(s, row.mix, row.load, s.arcs)
		best, own := c.gain(highest, byPod), c.gain(c.following(ours), byPod)
		if math.Abs(best-row.best) > 1e-5 {
			t.Errorf("%s: the optimum is %.5f, want %.5f", row.mix.name, best, row.best)
		}
		if own > best || own < best*(1-gapMax) {
			t.Errorf("%s: %.5f is %.3f %% below the optimum", row.mix.name, own, 100*(1-own/best))
		}
	}
}

// TestOptimumOfConnectedPods holds the model in which the kubelet places every pod against a figure that was computed
// independently, and the rule against the former one and best fit.
func TestOptimumOfConnectedPods(t *testing.T) {
	c, share := softChain(cells()[smallBusy])
	value := func(p pick) float64 { return share(c.gain(c.following(p), c.s.together)) }
	if best := share(c.gain(highest, c.s.together)); math.Abs(best-95.86) > .005 {
		t.Errorf("the optimum is %.3f %%, want 95.86 %%", best)
	}
	own, before, fit := value(ours), value(formerRule()), value(bestFit)
	if own < before || own < fit {
		t.Errorf("%.3f %% connected, best fit has %.3f %%, the former rule %.3f %%", own, fit, before)
	}
}

// TestAbsentCard: wherever a card is absent, the rule is no worse than best fit.
func TestAbsentCard(t *testing.T) {
	const pods = 10 * shortPods
	for position := range 8 {
		for _, c := range cells()[:anyKBusy+1] {
			c.absent = []int{position}
			s, pods := newServer(c.n, position), arrivals(c, pods, shortSeed)
			own := play(s, policy{lpuctl, remembered(ours)}, pods, false, shortSeed).connectedShare()
			if fit := play(s, policy{fits, bestFit}, pods, false, shortSeed).connectedShare(); own < fit {
				t.Errorf("%s, lpu%d absent: %.3f connected, best fit has %.3f", c, position, own, fit)
			}
		}
	}
}

// TestEqualLives: where pods stay equally long, best fit keeps the free LPUs in one arc; the model says so.
func TestEqualLives(t *testing.T) {
	c := cells()[smallBusy]
	c.lives = fixed()
	s, pods := newServer(c.n), arrivals(c, shortPods, shortSeed)
	if share := play(s, policy{fits, bestFit}, pods, false, shortSeed).connectedShare(); share != 1 {
		t.Errorf("%.3f connected", share)
	}
}

// TestPolicies: whatever a rule picks is free and as much as was asked for, or nothing.
func TestPolicies(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	s := newServer(8)
	for _, p := range policies() {
		for range 500 {
			free := set(r.IntN(256))
			if free == 0 {
				continue
			}
			k := 1 + r.IntN(free.size())
			got := p.pick(s, free, k, r)
			more := p.name == "1-or-ALL" || strings.HasPrefix(p.name, "buddy")
			if got&^free != 0 || got.size() != k && !more {
				t.Errorf("%s picks %b of %b for %d", p.name, got, free, k)
			}
		}
	}
}

// TestDocumentHasTheTables: what is published is what this program writes.
func TestDocumentHasTheTables(t *testing.T) {
	doc, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	r := &report{seeds: 2, pods: 50, say: func(string, ...any) {}, tables: map[string]string{}, plots: map[string]string{}}
	r.optimum()
	if table := r.tables["optimum"]; !strings.Contains(string(doc), table) {
		t.Errorf("docs/%s is out of date (make simulate-allocation): it should have\n%s", page, table)
	}
}

// TestPublishedOrder: what the scheduler accepts in the order in which DRA's arcs are published is near what lpuctl's rule accepts, and
// more than by start.
func TestPublishedOrder(t *testing.T) {
	const pods = 10 * shortPods
	for _, c := range cells()[:noEightBusy+1] {
		s, pods := newServer(c.n), arrivals(c, pods, shortSeed)
		share := func(p pick) float64 { return 100 * play(s, policy{pick: p}, pods, true, shortSeed).acceptedLPUShare() }
		published, strict := share(inOrder(publishedOrders(8))), share(remembered(ours))
		start := share(inOrder(orderRule{starts: byStart}.orders(8)))
		if published < strict-strictGap || published <= start {
			t.Errorf("%s: %.2f %% accepted as published, %.2f %% by lpuctl's rule, %.2f %% by start", c, published, strict, start)
		}
	}
}
