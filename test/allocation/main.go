// Allocation plays pods on simulated rings and holds the rule of lpuctl (pkg/ring) against the rules of other vendors'
// device plugins, re-implemented from what they publish, and against the exact optimum. It writes the tables and plots
// of docs/allocation-notes.md.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// The mixes.
func small() mix   { return mix{"small", map[int]float64{1: .50, 2: .25, 4: .20, 8: .05}} }
func noEight() mix { return mix{"no-eight", map[int]float64{1: .4, 2: .3, 4: .3}} }
func anyK() mix {
	return mix{"any-k", map[int]float64{1: .30, 2: .20, 3: .15, 4: .15, 5: .08, 6: .06, 7: .03, 8: .03}}
}
func sixteen() mix { return mix{"16-ring", map[int]float64{1: .40, 2: .25, 4: .20, 8: .12, 16: .03}} }
func even() mix    { return mix{"even 1/2/4/8", map[int]float64{1: .25, 2: .25, 4: .25, 8: .25}} }

// policies are lpuctl's rule and all that it is held against, as in the table of the published figures.
func policies() []policy {
	return []policy{
		{"uniform random", uniform},
		{kubelet, rotation},
		{"first by index", firstByIndex},
		{"random arc", randomArc},
		{"first-fit arc", firstFit},
		{amd, remembered(amdLike)},
		{furiosa, remembered(furiosaLike)},
		{nvidia, remembered(nvidiaLike)},
		{fits, bestFit},
		{former, remembered(formerRule())},
		{lpuctl, remembered(ours)},
		{"buddy (refuses the rest)", buddy},
		{"1-or-ALL", oneOrAll},
	}
}

const (
	kubelet = "the kubelet alone"
	amd     = "AMD-like"
	furiosa = "Furiosa-like"
	nvidia  = "NVIDIA-like"
	fits    = "best-fit arc"
	former  = "lpuctl's former rule"
	lpuctl  = "lpuctl"
)

// applies tells whether a policy makes sense on a ring: the kubelet's walk is ordered for at most 8 devices, and the
// partitions of 16 are too many.
func applies(p policy, n int) bool {
	return n <= 8 || p.name != nvidia && p.name != kubelet
}

// cell is one column of a table.
type cell struct {
	mix    mix
	n      int
	load   float64
	lives  lives
	absent []int // positions of cards that are not there
}

func cells() []cell {
	var all []cell
	for _, m := range []mix{small(), noEight(), anyK(), sixteen()} {
		n := 8
		if m.name == sixteen().name {
			n = 16
		}
		for _, load := range []float64{.6, .9} {
			all = append(all, cell{mix: m, n: n, load: load, lives: exponential()})
		}
	}
	return all
}

// published is the connected share in percent that the study this follows found for each cell.
func published() []float64 { return []float64{97.6, 94.8, 97.6, 95.2, 98.9, 97.6, 97.2, 94.2} }

// The busiest cells, by their position.
const (
	smallBusy   = 1
	noEightBusy = 3
	anyKBusy    = 5
	sixteenBusy = 7
)

func main() {
	docs := flag.String("docs", "docs", "write "+page+" and the plots into this directory")
	seeds := flag.Int("seeds", 12, "runs of each policy")
	count := flag.Int("pods", 20000, "pods of each run")
	find := flag.Bool("orders", false, "search for the order in which DRA publishes arcs, on other pods than the report's, and print it")
	onlyDRA := flag.Bool("dra", false, "write only the table about DRA")
	draws := flag.Int("draws", 4, "orders drawn at random from which the search begins, too")
	flag.Parse()
	start := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%4.0f s  "+format+"\n", append([]any{time.Since(start).Seconds()}, args...)...)
	}
	if *find {
		found := search(*count, *draws, say)
		for k := 1; k < 8; k++ {
			fmt.Println(k, found[k])
		}
		return
	}
	r := emptyReport(*seeds, *count, say)
	if *onlyDRA {
		r.dra()
	} else {
		r.all()
	}
	if err := r.write(*docs); err != nil {
		fmt.Fprintln(os.Stderr, "allocation:", err)
		os.Exit(1)
	}
	fmt.Printf("wrote the tables of %s and its plots\n", filepath.Join(*docs, page))
	if len(r.missed) > 0 {
		for _, m := range r.missed {
			fmt.Println("MISSED:", m)
		}
		os.Exit(1)
	}
}
