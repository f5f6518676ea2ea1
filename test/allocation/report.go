package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// page is the file that has the tables.
const page = "allocation-notes.md"

// report is all results, as the tables of docs/allocation-notes.md by name.
type report struct {
	seeds, pods int
	say         func(format string, args ...any)
	tables      map[string]string
	plots       map[string]string
	results     map[string][][]outcome // of each policy, by cell; nil where it does not apply
	missed      []string               // bars that were not reached
}

func emptyReport(seeds, pods int, say func(string, ...any)) *report {
	return &report{
		seeds:   seeds,
		pods:    pods,
		say:     say,
		tables:  map[string]string{},
		plots:   map[string]string{},
		results: map[string][][]outcome{},
	}
}

// all plays everything.
func (r *report) all() {
	for _, p := range policies() {
		for _, c := range cells() {
			var o []outcome
			if applies(p, c.n) {
				o = r.runs(c, p, false)
			}
			r.results[p.name] = append(r.results[p.name], o)
		}
		r.say("%s", p.name)
	}
	r.soft()
	r.leads()
	r.acceptance()
	r.sizes()
	const title = "Multi-LPU pods that get connected LPUs (8-ring, mix small, load 0.9), %"
	r.plots["allocation-rules.svg"] = bars(title, barsOf(r.results, smallBusy))
	r.strict()
	r.lives()
	r.absent()
	r.optimum()
	r.connected()
	r.tried()
	r.loads()
	r.dra()
}

// runs plays a cell with a policy once for each seed.
func (r *report) runs(c cell, p policy, strict bool) []outcome {
	s := newServer(c.n, c.absent...)
	outcomes := make([]outcome, r.seeds)
	for seed := range outcomes {
		outcomes[seed] = play(s, p, arrivals(c, r.pods, uint64(seed)), strict, uint64(seed))
	}
	return outcomes
}

func over(outcomes []outcome, of func(outcome) float64) figure {
	values := make([]float64, len(outcomes))
	for i, o := range outcomes {
		values[i] = 100 * of(o)
	}
	return summarize(values)
}

// lead is how far a is ahead of b, seed by seed.
func lead(a, b []outcome, of func(outcome) float64) figure {
	values := make([]float64, len(a))
	for i := range a {
		values[i] = 100 * (of(a[i]) - of(b[i]))
	}
	return summarize(values)
}

// String has no error where every run has the same figure, and no minus before a zero.
func (f figure) String() string {
	mean := fmt.Sprintf("%.2f", f.mean)
	if mean == "-0.00" {
		mean = "0.00"
	}
	if f.err == 0 {
		return mean
	}
	return fmt.Sprintf("%s ± %.2f", mean, f.err)
}

// table is rows of cells in Markdown.
type table struct{ rows [][]string }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	var b strings.Builder
	for i, row := range t.rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString("|---" + strings.Repeat("|---:", len(row)-1) + "|\n")
		}
	}
	return b.String()
}

// overCells is a table with a column for each cell.
func overCells(first string) table {
	head := []string{first}
	for _, c := range cells() {
		head = append(head, c.String())
	}
	return table{[][]string{head}}
}

func (c cell) String() string { return fmt.Sprintf("%s, load %.1f", c.mix.name, c.load) }

// soft is the connected share of accepted pods, when the kubelet places a pod wherever there are enough LPUs.
func (r *report) soft() {
	t := overCells("Rule")
	for _, p := range policies() {
		row := []string{p.name}
		for _, o := range r.results[p.name] {
			if o == nil {
				row = append(row, "–")
				continue
			}
			row = append(row, over(o, outcome.connectedShare).String())
		}
		if p.name == lpuctl {
			for i := range row {
				row[i] = "**" + row[i] + "**"
			}
		}
		t.add(row...)
	}
	r.tables["soft"] = t.String()
}

// leads is how far lpuctl is ahead of each vendor's rule, and holds that and its own share against the bars.
func (r *report) leads() {
	t := overCells("Ahead of, in points")
	for _, vendor := range []string{amd, furiosa, nvidia, former} {
		row := []string{vendor}
		for i, c := range cells() {
			if r.results[vendor][i] == nil {
				row = append(row, "–")
				continue
			}
			l := lead(r.results[lpuctl][i], r.results[vendor][i], outcome.connectedShare)
			row = append(row, l.String())
			if l.mean <= 2*l.err && vendor != former || l.mean < -2*l.err {
				r.missed = append(r.missed, fmt.Sprintf("%s: %s ahead of %s", c, l, vendor))
			}
		}
		t.add(row...)
	}
	for i, c := range cells() {
		if f := over(r.results[lpuctl][i], outcome.connectedShare); f.mean < published()[i]-.5 {
			r.missed = append(r.missed, fmt.Sprintf("%s: %s connected, %.1f expected", c, f, published()[i]))
		}
	}
	r.tables["leads"] = t.String()
}

// acceptance is what becomes of all that is asked for, in the busiest cell of the 8-ring.
func (r *report) acceptance() {
	t := table{}
	t.add("Rule (mix small, load 0.9)", "pods accepted, %", "LPUs accepted, %", "multi-LPU pods served connected, %", "fragmentation seen")
	for _, p := range policies() {
		o := r.results[p.name][smallBusy]
		fragmented := over(o, func(o outcome) float64 { return o.fragmented / float64(o.asked) / 100 })
		t.add(p.name, over(o, outcome.acceptedShare).String(), over(o, outcome.acceptedLPUShare).String(), over(o, outcome.servedShare).String(),
			fmt.Sprintf("%.3f", fragmented.mean))
	}
	r.tables["acceptance"] = t.String()
}

// sizes is the connected share by how many LPUs are asked for.
func (r *report) sizes() {
	t := table{}
	t.add("Rule", "2 of 8", "4 of 8", "8 of 16", "16 of 16")
	for _, p := range policies() {
		if !applies(p, 16) || p.name == "1-or-ALL" {
			continue
		}
		row := []string{p.name}
		for _, at := range []struct{ cell, k int }{{smallBusy, 2}, {smallBusy, 4}, {sixteenBusy, 8}, {sixteenBusy, 16}} {
			share := func(o outcome) float64 { return float64(o.bySize[at.k][1]) / float64(max(1, o.bySize[at.k][0])) }
			row = append(row, over(r.results[p.name][at.cell], share).String())
		}
		t.add(row...)
	}
	r.tables["sizes"] = t.String()
}

// strict is what --require-connected would accept.
func (r *report) strict() {
	t := table{}
	t.add("Rule", "small, load 0.9", "any-k, load 0.9", "16-ring, load 0.9")
	for _, p := range policies() {
		switch p.name {
		case "random arc", "first-fit arc", "best-fit arc", lpuctl, "buddy (refuses the rest)":
			row := []string{p.name}
			for _, i := range []int{smallBusy, anyKBusy, sixteenBusy} {
				row = append(row, over(r.runs(cells()[i], p, true), outcome.acceptedLPUShare).String())
			}
			t.add(row...)
		}
	}
	r.tables["strict"] = t.String()
	r.say("strict")
}

// strictGap is by how many points of accepted LPUs the published order may be behind lpuctl's rule, in the mixes of which it must not be
// further behind.
const strictGap = .5

// dra is what the scheduler accepts with each order in which arcs can be published.
func (r *report) dra() {
	t := overCells("LPUs accepted, %")
	played := map[string][][]outcome{}
	for i := range orderRules(8) {
		var row []string
		for _, c := range cells() {
			p := orderRules(c.n)[i]
			if row == nil {
				row = []string{p.name}
			}
			o := r.runs(c, p, true)
			played[p.name] = append(played[p.name], o)
			row = append(row, over(o, outcome.acceptedLPUShare).String())
		}
		t.add(row...)
	}
	gaps := []string{"behind lpuctl's rule, in points"}
	for i, c := range cells() {
		gap := lead(played[lpuctl+", strict"][i], played[lpuctlDRA][i], outcome.acceptedLPUShare)
		gaps = append(gaps, gap.String())
		if searched := c.mix.name == small().name || c.mix.name == noEight().name; searched && gap.mean > strictGap {
			r.missed = append(r.missed, fmt.Sprintf("%s: the published order is %s behind", c, gap))
		}
		if ahead := lead(played[lpuctlDRA][i], played[alignedGroups][i], outcome.acceptedLPUShare); ahead.mean <= 0 {
			r.missed = append(r.missed, fmt.Sprintf("%s: the published order is %s ahead of aligned groups", c, ahead))
		}
	}
	t.add(gaps...)
	r.tables["dra"] = t.String()
	r.say("dra")
}

// lives is the connected share where pods stay equally long, or nearly so.
func (r *report) lives() {
	rules := []policy{
		{"first-fit arc", firstFit}, {amd, remembered(amdLike)}, {furiosa, remembered(furiosaLike)}, {nvidia, remembered(nvidiaLike)},
		{fits, bestFit}, {lpuctl, remembered(ours)},
	}
	t := table{}
	head := []string{"Mix, load", "lives"}
	for _, p := range rules {
		head = append(head, p.name)
	}
	t.add(append(head, "lpuctl ahead of best fit")...)
	for _, c := range cells() {
		for _, l := range []lives{exponential(), erlang16(), fixed()} {
			c.lives = l
			row := []string{c.String(), l.name}
			var o [][]outcome
			for _, p := range rules {
				share := "–"
				if applies(p, c.n) {
					o = append(o, r.runs(c, p, false))
					share = over(o[len(o)-1], outcome.connectedShare).String()
				}
				row = append(row, share)
			}
			t.add(append(row, lead(o[len(o)-1], o[len(o)-2], outcome.connectedShare).String())...)
		}
	}
	r.tables["lives"] = t.String()
	r.say("lives")
}

// absent is how far lpuctl is ahead of best fit if one card is absent, by the position of that card. It is the same chain
// each time, but the addresses of its cards are in another order.
func (r *report) absent() {
	fit, own := policy{fits, bestFit}, policy{lpuctl, remembered(ours)}
	small := cells()[:anyKBusy+1]
	t := table{}
	head := []string{"Absent"}
	for _, c := range small {
		head = append(head, c.String())
	}
	t.add(head...)
	for position := range 8 {
		row := []string{fmt.Sprintf("lpu%d: ahead of best fit", position)}
		for _, c := range small {
			c.absent = []int{position}
			ahead := lead(r.runs(c, own, false), r.runs(c, fit, false), outcome.connectedShare)
			if ahead.mean < -2*ahead.err {
				r.missed = append(r.missed, fmt.Sprintf("%s, lpu%d absent: %s ahead of best fit", c, position, ahead))
			}
			row = append(row, ahead.String())
		}
		t.add(row...)
	}
	for _, p := range []policy{fit, own} {
		row := []string{"lpu0: " + p.name}
		for _, c := range small {
			c.absent = []int{0}
			row = append(row, over(r.runs(c, p, false), outcome.connectedShare).String())
		}
		t.add(row...)
	}
	r.tables["absent"] = t.String()
	r.say("absent")
}

// gapMax is how far below the optimum lpuctl may be, of the pods that the optimum places.
const gapMax = .002

func (r *report) optimum() {
	t := table{}
	t.add("Mix, load", "optimum", "worst", "random arc", "first fit", "best fit", "lpuctl", "gap of lpuctl")
	for _, row := range []struct {
		mix   mix
		load  float64
		byLPU bool
	}{
		{small(), .6, false}, {small(), .9, false}, {noEight(), .6, false}, {noEight(), .9, false}, {even(), .6, false}, {even(), .9, false},
		{small(), .9, true}, {noEight(), 1.5, true},
	} {
		s := newServer(8)
		c := newChain(s, row.mix, row.load, s.arcs)
		of := byPod
		if row.byLPU {
			of = byLPU
		}
		best := c.gain(highest, of)
		value := func(choose chooser) string { return fmt.Sprintf("%.5f", c.gain(choose, of)) }
		own := c.gain(c.following(ours), of)
		name := fmt.Sprintf("%s, %.1f", row.mix.name, row.load)
		if row.byLPU {
			name += ", by LPU"
		} else if own < best*(1-gapMax) {
			r.missed = append(r.missed, fmt.Sprintf("%s: %.3f %% below the optimum", name, 100*(1-own/best)))
		}
		t.add(name, fmt.Sprintf("%.5f", best), value(lowest), value(average), value(c.following(firstFit)),
			value(c.following(bestFit)), fmt.Sprintf("%.5f", own), fmt.Sprintf("%.2f %%", 100*(1-own/best)))
	}
	r.tables["optimum"] = t.String()
	r.say("optimum")
}

// anywhere are all sets of k LPUs: the kubelet places a pod wherever there are enough.
func anywhere(free set, k int) (all []set) {
	subsets(free, k, func(lpus set) { all = append(all, lpus) })
	return all
}

// softChain is the process in which every pod is placed that there are enough LPUs for. share is the connected share of a
// reward per pod that comes: how many pods of several LPUs are placed is the same for all rules.
func softChain(c cell) (process *chain, share func(gain float64) float64) {
	process = newChain(newServer(c.n), c.mix, c.load, anywhere)
	all := process.gain(average, several)
	return process, func(gain float64) float64 { return 100 * gain / all }
}

// connected is the greatest possible connected share of accepted pods.
func (r *report) connected() {
	t := table{}
	t.add("Mix, load", "optimum", "best fit", former, "lpuctl", "lpuctl below the optimum by")
	for _, cell := range cells()[:anyKBusy+1] {
		c, share := softChain(cell)
		value := func(choose chooser) float64 { return share(c.gain(choose, c.s.together)) }
		most, fit, before, own := value(highest), value(c.following(bestFit)), value(c.following(formerRule())), value(c.following(ours))
		if own < before || own < fit {
			r.missed = append(r.missed, fmt.Sprintf("%s: %.3f connected, best fit has %.3f, the former rule %.3f", cell, own, fit, before))
		}
		t.add(cell.String(), fmt.Sprintf("%.3f", most), fmt.Sprintf("%.3f", fit), fmt.Sprintf("%.3f", before), fmt.Sprintf("%.3f", own),
			fmt.Sprintf("%.2f", most-own))
	}
	r.tables["connected"] = t.String()
	r.say("connected")
}

// tried is what was tried to beat the rule.
func (r *report) tried() {
	t := table{}
	t.add("Variant", "small, .9", "16-ring, .9", "small, .9, Erlang-16", "small, .9, all equal", "no-eight, .9, computed")
	var columns []cell
	for _, i := range []int{smallBusy, sixteenBusy} {
		columns = append(columns, cells()[i])
	}
	for _, l := range []lives{erlang16(), fixed()} {
		c := cells()[smallBusy]
		c.lives = l
		columns = append(columns, c)
	}
	var own [][]outcome
	for _, c := range columns {
		own = append(own, r.runs(c, policy{lpuctl, remembered(ours)}, false))
	}
	c, share := softChain(cells()[noEightBusy])
	worth := func(p pick) float64 { return share(c.gain(c.following(p), c.s.together)) }
	base := worth(ours)
	for _, p := range variants() {
		row, asked := []string{p.name}, policy{p.name, remembered(p.pick)}
		for i, c := range columns {
			row = append(row, lead(r.runs(c, asked, false), own[i], outcome.connectedShare).String())
		}
		t.add(append(row, fmt.Sprintf("%+.2f", worth(p.pick)-base))...)
	}
	for _, search := range []struct {
		name  string
		bound func(pick) pick
	}{
		{"policy improvement for no-eight .9", func(p pick) pick { return p }},
		{"policy improvement, but best fit where one arc is free", oneArcAsBestFit},
	} {
		improved := search.bound(ours)
		for range improvements {
			improved = search.bound(c.improve(improved, c.s.together))
		}
		t.add(search.name, "–", "–", "–", "–", fmt.Sprintf("%+.2f", worth(improved)-base))
	}
	r.tables["tried"] = t.String()
	r.say("tried")
}

// loads is how the share falls as the server fills up.
func (r *report) loads() {
	var lines []line
	for _, p := range policies() {
		switch p.name {
		case kubelet, "first by index", furiosa, nvidia, lpuctl:
			l := line{name: p.name}
			for load := .3; load < 1.25; load += .15 {
				o := r.runs(cell{mix: small(), n: 8, load: load, lives: exponential()}, p, false)
				l.points = append(l.points, point{load, over(o, outcome.connectedShare).mean})
			}
			lines = append(lines, l)
		}
	}
	r.plots["allocation-load.svg"] = curves("Multi-LPU pods that get connected LPUs, by load (8-ring, mix small), %", lines)
	r.say("loads")
}

// write puts the tables between their marks in allocation-notes.md, and the plots beside it.
func (r *report) write(dir string) error {
	path := filepath.Join(dir, page)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(data)
	for name, content := range r.tables {
		begin, end := "<!-- table: "+name+" -->\n", "<!-- end -->"
		at := strings.Index(text, begin)
		if at < 0 {
			return fmt.Errorf("%s: no mark for the table %s", path, name)
		}
		at += len(begin)
		stop := strings.Index(text[at:], end)
		if stop < 0 {
			return fmt.Errorf("%s: the table %s has no end", path, name)
		}
		text = text[:at] + content + text[at+stop:]
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	for name, svg := range r.plots {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(svg), 0o644); err != nil {
			return err
		}
	}
	return nil
}
