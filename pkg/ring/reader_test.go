package ring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/long"
)

// chosen is what the vendor's program would start to compute with.
type chosen struct {
	ids  []int
	ring bool
	side []string // the word of each card
}

// vendor is the rule of HyperDex's program once more, made from its description and not from this
// package. It panics where the program does, and returns nil where that says that too little is free.
func vendor(data []byte, want int, free func(id int) bool) *chosen {
	var table map[string]any
	if err := json.Unmarshal(data, &table); err != nil {
		panic(err)
	}
	total := int(table["num_device"].(float64))
	network := table["network"].([]any)
	var walk []int
	var words []string
	for position := range total {
		link := network[position].(map[string]any)
		walk = append(walk, int(link["src_id"].(float64)))
		words = append(words, link["direction"].(string))
	}
	if total > 0 {
		walk = append(walk, walk[:total-1]...)
	}
	run := &chosen{ring: total == want}
	for position, id := range walk {
		if !free(id) {
			run.ids, run.side = nil, nil
			continue
		}
		run.ids = append(run.ids, id)
		run.side = append(run.side, words[position])
		if len(run.ids) == want {
			return run
		}
	}
	return nil
}

// starts is vendor without the panic: nil says that the program ends in one way or the other.
func starts(data []byte, want int, free func(id int) bool) (c *chosen) {
	defer func() {
		if recover() != nil {
			c = nil
		}
	}()
	return vendor(data, want, free)
}

// world is cards and the cables between them, as the test has made them: right[a][b] is a cable from the
// right port of a to the left port of b.
type world struct {
	n     int
	right map[[2]int]bool
	loops [][]int // each in the order of its cables, to the right
	open  []bool
}

func (w *world) loop(open bool, cards ...int) {
	if w.right == nil {
		w.right = map[[2]int]bool{}
	}
	w.n += len(cards)
	w.loops, w.open = append(w.loops, cards), append(w.open, open)
	for i, card := range cards {
		if next := (i + 1) % len(cards); next > i || !open && len(cards) > 1 {
			w.right[[2]int{card, cards[next]}] = true
		}
	}
}

func (w *world) cabling(random *rand.Rand) *Cabling {
	var links [][2]int
	for _, cards := range w.loops { // in the order in which a table might list them
		for _, i := range random.Perm(len(cards)) {
			if l := [2]int{cards[i], cards[(i+1)%len(cards)]}; w.right[l] && len(cards) > 1 {
				links = append(links, l)
			}
		}
	}
	return newCabling(w.n, links)
}

// holds wants each step of a choice to be a cable of the world, on the side that is named.
func (w *world) holds(t testing.TB, what string, own []int, c *chosen) {
	t.Helper()
	steps := len(c.ids) - 1
	if c.ring && len(c.ids) > 1 {
		steps++
	}
	used := map[[2]int]bool{}
	for i := range steps {
		a, b := own[c.ids[i]], own[c.ids[(i+1)%len(c.ids)]]
		cable := [2]int{b, a}
		if c.side[i] == "Right" {
			cable = [2]int{a, b}
		}
		if !w.right[cable] || used[cable] {
			t.Fatalf("%s: computes from lpu%d %s to lpu%d, where no cable is: %+v", what, a, c.side[i], b, c)
		}
		used[cable] = true
	}
}

func inside(own []int) func(int) bool { return func(id int) bool { return id < len(own) } }

// rightTable writes the table of a container, and wants lpuctl to find nothing wrong with it and to take
// it for the cables between these cards.
func (w *world) rightTable(t testing.TB, c *Cabling, cards, own []int) []byte {
	t.Helper()
	data := WriteContainer(c, cards)
	table, findings := Parse("table", data)
	back, more := Bind(table, manyCards(len(own)))
	all := slices.Concat(findings, more)
	if slices.ContainsFunc(all, func(f finding.Finding) bool { return table.Container > 0 || f.Severity == finding.Error }) {
		t.Fatalf("%v of %v: %v\n%s", cards, w.loops, all, data)
	}
	if diff := cmp.Diff(c.Renumber(own), back); diff != "" {
		t.Fatalf("%v of %v: %s\n%s", cards, w.loops, diff, data)
	}
	return data
}

// arc wants a connected set to come out as itself: as a ring if its cables close one, else as a line.
func (w *world) arc(t testing.TB, c *Cabling, cards []int, ring bool) {
	t.Helper()
	own := slices.Sorted(slices.Values(cards))
	what := fmt.Sprintf("%v of %v", cards, w.loops)
	data := w.rightTable(t, c, cards, own)
	got := starts(data, len(own), inside(own))
	if got == nil || got.ring != ring || !slices.Equal(slices.Sorted(slices.Values(got.ids)), upTo(len(own))) {
		t.Fatalf("%s: the program takes %+v\n%s", what, got, data)
	}
	w.holds(t, what, own, got)
	ordered, _ := NewFabric(make([]Place, w.n), c, nil).Order(cards)
	for i, card := range ordered { // as LPU_RING_ORDER has it
		if own[got.ids[i]] != card {
			t.Fatalf("%s: the program takes %v, LPU_RING_ORDER says %v", what, got.ids, ordered)
		}
	}
}

// arcs is every arc of a loop.
func arcs(cards []int, open bool) (all [][]int) {
	n := len(cards)
	for size := 1; size <= n; size++ {
		for start := range n {
			if open && start+size > n {
				break
			}
			var arc []int
			for i := range size {
				arc = append(arc, cards[(start+i)%n])
			}
			all = append(all, arc)
		}
	}
	return all
}

// orders is the numbers from first on in rising and falling order, and in some others.
func orders(random *rand.Rand, first, n int) (all [][]int) {
	for i := range 4 {
		order := random.Perm(n)
		if i < 2 {
			order = upTo(n)
		}
		if i == 1 {
			slices.Reverse(order)
		}
		for i := range order {
			order[i] += first
		}
		all = append(all, order)
	}
	return all
}

// TestEveryArcInAContainer: each arc of each ring and chain, cabled in either direction and in any
// order, comes out of the vendor's rule as what it is. With the race detector it is one order of four.
func TestEveryArcInAContainer(t *testing.T) {
	random := long.Rand(t)
	for n := 1; n <= 16; n++ {
		for i, order := range orders(random, 0, n) {
			if !long.Takes(n+i, 1) {
				continue
			}
			for _, open := range []bool{false, true} {
				w := &world{}
				w.loop(open, order...)
				c := w.cabling(random)
				for _, arc := range arcs(order, open) {
					w.arc(t, c, arc, !open && n > 1 && len(arc) == n)
				}
			}
		}
	}
}

// TestEveryArcOfARingOfEight: 64 of 64. By the host's table it is 27 of the 48 arcs of 2 to 7 LPUs: those
// that do not wrap.
func TestEveryArcOfARingOfEight(t *testing.T) {
	w := &world{}
	w.loop(false, upTo(8)...)
	c, all := w.cabling(long.Rand(t)), arcs(upTo(8), false)
	for _, arc := range all {
		w.arc(t, c, arc, len(arc) == 8)
	}
	host, right := WriteHyperdex(c), 0
	for _, arc := range all {
		own := slices.Sorted(slices.Values(arc))
		if got := starts(host, len(own), inside(own)); len(own) > 1 && len(own) < 8 && own[got.ids[0]] == arc[0] {
			right++
		}
	}
	if len(all) != 64 || right != 27 {
		t.Errorf("%d arcs, %d right by the host's table", len(all), right)
	}
}

// TestArcsOfTwoRings: beside other rings, a chain and a card without cables an arc stays what it is.
func TestArcsOfTwoRings(t *testing.T) {
	random := long.Rand(t)
	for range long.Rounds(t, 20) {
		w, order := &world{}, random.Perm(16)
		for i, end := range []int{2 + random.IntN(6), 9 + random.IntN(4), 15} {
			start := w.n
			w.loop(i == 2, order[start:end]...)
		}
		w.loop(true, order[15])
		c := w.cabling(random)
		for i, cards := range w.loops {
			for _, arc := range arcs(cards, w.open[i]) {
				w.arc(t, c, arc, !w.open[i] && len(arc) == len(cards))
			}
		}
	}
}

// TestAnySetInAContainer: whatever set is handed out, whatever number is asked for and whatever of it
// is busy, the program computes over cables only. The longest arc of a set can be had.
func TestAnySetInAContainer(t *testing.T) {
	random := long.Rand(t)
	for range long.Rounds(t, 500) {
		w, order := &world{}, random.Perm(1+random.IntN(12))
		for rest := order; len(rest) > 0; {
			size := 1 + random.IntN(len(rest))
			w.loop(random.IntN(2) == 0, rest[:size]...)
			rest = rest[size:]
		}
		c := w.cabling(random)
		cards := random.Perm(w.n)[:1+random.IntN(w.n)]
		own := slices.Sorted(slices.Values(cards))
		data := w.rightTable(t, c, cards, own)
		what := fmt.Sprintf("%v of %v, open %v", own, w.loops, w.open)
		longest := 0
		for _, arc := range NewFabric(make([]Place, w.n), c, nil).FreeArcs(own) {
			longest = max(longest, len(arc))
		}
		for k := 1; k <= w.n+1; k++ {
			got := starts(data, k, inside(own))
			if (got != nil) != (k <= longest) {
				t.Fatalf("%s: of %d the program takes %+v\n%s", what, k, got, data)
			}
			if got != nil {
				w.holds(t, what, own, got)
			}
			busy := random.Perm(len(own))[:random.IntN(len(own)+1)]
			got = starts(data, k, func(id int) bool { return id < len(own) && !slices.Contains(busy, id) })
			if got != nil {
				w.holds(t, what, own, got)
			}
		}
	}
}

// TestATableOfFewerCards: a container that has more cards than its table is made for, because it got
// several devices, does not have the others either: a program that asks for all ends.
func TestATableOfFewerCards(t *testing.T) {
	c := newCabling(8, Links(upTo(8), true, false))
	for _, cards := range [][]int{{1}, {0, 1}, {6, 7, 0}} {
		table, _ := Parse("table.json", WriteContainer(c, cards))
		every := func(id int) bool { return id < 8 } // all that the server has
		for n := len(cards) + 1; n <= 8; n++ {
			if r, err := Read(table.Entries, table.Count, n, every); err == nil {
				t.Errorf("the table of %v: %d cards are taken: %v", cards, n, r.IDs)
			}
		}
	}
}

func TestContainerTableIsDeterministic(t *testing.T) {
	c := newCabling(8, Links(upTo(8), true, false))
	const want = `{"network":[{"direction":"Right","dst_id":3,"src_id":2},{"direction":"Right","dst_id":0,"src_id":3},` +
		`{"direction":"Right","dst_id":1,"src_id":0},{"direction":"Right","dst_id":1000,"src_id":1},` +
		`{"direction":"Right","dst_id":1001,"src_id":1000},{"direction":"Right","dst_id":1002,"src_id":1001},` +
		`{"direction":"Right","dst_id":1003,"src_id":1002},{"direction":"Right","dst_id":2,"src_id":1003}],` +
		`"num_container_device":4,"num_device":8}`
	for _, cards := range [][]int{{6, 7, 0, 1}, {0, 1, 6, 7}, {7, 1, 1, 0, 6}} {
		if diff := cmp.Diff(want, compactJSON(t, WriteContainer(c, cards))); diff != "" {
			t.Error(diff)
		}
	}
	if diff := cmp.Diff(string(WriteHyperdex(c)), string(WriteContainer(c, upTo(8)))); diff != "" {
		t.Errorf("a whole ring: %s", diff)
	}
	const alone = `{"network":[{"direction":"Right","dst_id":1000,"src_id":0},{"direction":"Right","dst_id":0,"src_id":1000}],` +
		`"num_container_device":1,"num_device":2}`
	if diff := cmp.Diff(alone, compactJSON(t, WriteContainer(&Cabling{}, []int{5}))); diff != "" {
		t.Errorf("without a ring table: %s", diff)
	}
}

func compactJSON(t testing.TB, data []byte) string {
	t.Helper()
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		t.Fatal(err)
	}
	return compact.String()
}

// TestReadIsTheVendorsRule compares Read with the second implementation, on tables of all kinds.
func TestReadIsTheVendorsRule(t *testing.T) {
	random := long.Rand(t)
	seen := map[string]int{}
	for range long.Rounds(t, 5000) {
		data := make([]byte, 4+2*random.IntN(9))
		for i := range data {
			data[i] = byte(random.UintN(256))
		}
		seen[checkRead(t, data)]++
	}
	for _, way := range []string{"ring", "line", "ends"} {
		if seen[way] == 0 {
			t.Errorf("no table is read as %q: %v", way, seen)
		}
	}
}

// checkRead makes a table and a question of some bytes, and wants Read and vendor to agree. It returns
// how they answer.
func checkRead(t testing.TB, data []byte) string {
	t.Helper()
	if len(data) < 4 {
		return ""
	}
	count, n, taken, own := int(data[0]%10), 1+int(data[1]%9), data[2]&data[3], int(data[3]%6)
	network := []any{}
	for pair := range slices.Chunk(data[4:], 2) {
		network = append(network, map[string]any{
			"src_id": pair[0] % 9, "dst_id": pair[len(pair)-1] % 9, "direction": []string{"Right", "Left"}[pair[0]>>7],
		})
	}
	document := map[string]any{"num_device": count, "network": network}
	if own > 0 && own <= count {
		document["num_container_device"] = own
	}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	var busy []int
	for id := range 8 {
		if taken>>id&1 == 1 {
			busy = append(busy, id)
		}
	}
	table, _ := Parse("table", text)
	if table == nil {
		t.Fatalf("%s is not read", text)
	}
	got, err := table.Read(n, busy...)
	want := starts(text, n, func(id int) bool {
		return !slices.Contains(busy, id) && (document["num_container_device"] == nil || id < own)
	})
	if (err == nil) != (want != nil) {
		t.Fatalf("%s, %d without %v: Read: %+v, %v; the vendor's: %+v", text, n, busy, got, err, want)
	}
	if err != nil {
		return "ends"
	}
	left := make([]bool, n)
	for i := range left {
		left[i] = want.side[i] == "Left"
	}
	if diff := cmp.Diff(Reading{IDs: want.ids, Ring: want.ring, Left: left}, got); diff != "" {
		t.Fatalf("%s, %d without %v: %s", text, n, busy, diff)
	}
	if hops := table.Hops(got); len(hops) > n || len(hops) < n-1 {
		t.Fatalf("%s: %d hops of %d", text, len(hops), n)
	}
	if want.ring {
		return "ring"
	}
	return "line"
}

func FuzzRead(f *testing.F) {
	f.Add([]byte{4, 3, 0, 0, 0, 1, 1, 2, 2, 3, 3, 0})
	f.Add([]byte{4, 1, 2, 2, 128, 1, 129, 2, 130, 3, 131, 0})
	f.Fuzz(func(t *testing.T, data []byte) { checkRead(t, data) })
}

// TestHops: a table that lists its links in another order than that of the cables.
func TestHops(t *testing.T) {
	table, _ := Parse("table", []byte(`{"network": [
{"src_id": 0, "dst_id": 1, "direction": "Right"},
{"src_id": 2, "dst_id": 3, "direction": "Right"},
{"src_id": 1, "dst_id": 2, "direction": "Right"},
{"src_id": 0, "dst_id": 3, "direction": "Left"}],
"num_device": 4}`))
	r, err := table.Read(3)
	if err != nil {
		t.Fatal(err)
	}
	want := []Hop{{0, 2, false, false}, {2, 1, false, false}}
	if diff := cmp.Diff(want, table.Hops(r)); diff != "" {
		t.Error(diff)
	}
	if r, err = table.Read(1, 0, 2); err != nil || len(table.Hops(r)) != 0 || r.IDs[0] != 1 {
		t.Errorf("one card: %+v, %v", r, err)
	}
}

// TestHopsToAddresses: a card that a table names by address has no index, not even 0.
func TestHopsToAddresses(t *testing.T) {
	table, _ := Parse("table", []byte(`{"network": [
{"src_id": 0, "dst_id": "0000:43:00.1", "direction": "Right"},
{"src_id": 1, "dst_id": "0000:44:00.1", "direction": "Right"}],
"num_device": 2}`))
	r, err := table.Read(2)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range table.Hops(r) {
		if h.Cabled {
			t.Errorf("%+v", h)
		}
	}
}

// TestUnreadable: what HyperDex's program cannot read, and why.
func TestUnreadable(t *testing.T) {
	for text, want := range map[string]string{
		`{"network": [{"src_id": 0, "dst_id": 1, "direction": "Right"}]}`:                  "the table has no num_device, or it is 0",
		`{"network": [{"src_id": 0, "dst_id": 1, "direction": "Right"}], "num_device": 2}`: "num_device is 2, but there are 1 links (IndexError)",
		`{"network": [{"src": 0, "dst_id": 1, "direction": "Right"}], "num_device": 1}`:    "link 0 has no index as its src_id",
		`{"network": [{"src_id": 0, "dst_id": 1}], "num_device": 1}`:                       "link 0 has no direction (KeyError)",
		`{"network": [], "num_device": 0}`:                                                 "the table has no num_device, or it is 0",
		`{"apiVersion": "` + apiVersion + `", "kind": "RingTable", "rings": [[0, 1]]}`:     "the format is lpuctl",
		"network: [{src_id: 0, dst_id: 0, direction: Right}]\nnum_device: 1\n": "the file is not JSON, " +
			"or begins with a byte order mark (JSONDecodeError)",
	} {
		table, _ := Parse("table", []byte(text))
		if _, err := table.Read(1); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// TestFileOrder: what is written has the right order, whatever the cabling; two cards that change places in
// a ring's file do not.
func TestFileOrder(t *testing.T) {
	random := long.Rand(t)
	found := func(data []byte) bool {
		_, findings := Parse("table", data)
		return slices.ContainsFunc(findings, func(f finding.Finding) bool { return f.ID == finding.RingFileOrder })
	}
	for range long.Rounds(t, 200) {
		w, order := &world{}, random.Perm(2+random.IntN(14))
		for rest := order; len(rest) > 0; {
			size := 1 + random.IntN(len(rest))
			w.loop(random.IntN(2) == 0, rest[:size]...)
			rest = rest[size:]
		}
		if data := WriteHyperdex(w.cabling(random)); found(data) {
			t.Fatalf("in order:\n%s", data)
		}
	}
	for n := 4; n <= 16; n++ {
		links := Links(random.Perm(n), true, false)
		i := random.IntN(n - 1)
		links[i], links[i+1] = links[i+1], links[i]
		var shuffled []written
		for _, l := range links {
			shuffled = append(shuffled, written{from: l[0], to: l[1]})
		}
		if data := writeHyperdex(shuffled, n, "", 0); !found(data) {
			t.Errorf("not in order:\n%s", data)
		}
	}
}

// ofCables wants a warning of each cable that is missing, and returns what else was found.
func (w *world) ofCables(t testing.TB, findings finding.List) (others finding.List) {
	t.Helper()
	chains, isolated := 0, 0
	for i, cards := range w.loops {
		if len(cards) == 1 && w.n > 1 {
			isolated++
		}
		if len(cards) > 2 && w.open[i] {
			chains++
		}
	}
	said := map[finding.ID]int{}
	for _, f := range findings {
		if said[f.ID]++; f.ID != finding.RingChain && f.ID != finding.RingIsolated {
			others = append(others, f)
		}
	}
	if said[finding.RingIsolated] != isolated || (said[finding.RingChain] > 0) != (chains > 0) {
		t.Errorf("%v of %v, open %v", findings, w.loops, w.open)
	}
	return others
}

// listed is the table of a world as some program might write it: cables from one end or from both, in the order of the rings or in
// another, with words and keys that HyperDex may not know.
func (w *world) listed(t testing.TB, random *rand.Rand) []byte {
	t.Helper()
	network := []any{}
	add := func(from, to int, word string) {
		network = append(network, map[string]any{"src_id": from, "dst_id": to, "direction": word})
	}
	ends, spelling := random.IntN(3), []string{"Right", "Left"}
	if random.IntN(4) == 0 {
		spelling = []string{"right", "left"}
	}
	for back := range 2 {
		for _, cards := range w.loops {
			for i, a := range cards {
				b := cards[(i+1)%len(cards)]
				switch {
				case !w.right[[2]int{a, b}]:
				case ends == back, ends == 2: // one end, the other, or both
					link := [][2]int{{a, b}, {b, a}}[back]
					add(link[0], link[1], spelling[back])
				}
			}
		}
	}
	if random.IntN(3) == 0 {
		random.Shuffle(len(network), func(i, j int) { network[i], network[j] = network[j], network[i] })
	}
	document := map[string]any{"network": network, "num_device": w.n}
	if random.IntN(6) == 0 {
		delete(document, "num_device")
	}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestWhatNothingIsSaidOf: whatever is chosen by a table of which nothing is said, HyperDex computes over cables only, and it ends with
// no error where all is free. What is written of the same cables is such a table; of a node's, nothing is said of HyperDex.
func TestWhatNothingIsSaidOf(t *testing.T) {
	random := long.Rand(t)
	right, wrong := 0, 0
	for range long.Rounds(t, 2000) {
		w, order := &world{}, random.Perm(2+random.IntN(7))
		for rest := order; len(rest) > 0; {
			size := max(1+random.IntN(len(rest)), min(2, len(rest)))
			w.loop(random.IntN(3) == 0, rest[:size]...)
			rest = rest[size:]
		}
		c := w.cabling(random)
		for i, data := range [][]byte{w.listed(t, random), WriteContainer(c, upTo(w.n)), WriteNode(c, upTo(w.n))} {
			mine := i > 0
			_, findings := Parse("table", data)
			if i == 2 {
				findings = w.ofCables(t, findings)
			}
			switch {
			case len(findings) > 0 && mine:
				t.Fatalf("%v: %s", findings, data)
			case len(findings) > 0:
				wrong++
				continue
			case !mine:
				right++
			}
			for n := 1; n <= w.n; n++ {
				busy := random.Perm(w.n)[:random.IntN(w.n)]
				for _, free := range []func(int) bool{
					func(id int) bool { return id < w.n },
					func(id int) bool { return id < w.n && !slices.Contains(busy, id) },
				} {
					if got := starts(data, n, free); got != nil {
						w.holds(t, string(data), upTo(w.n), got)
					}
				}
			}
			if starts(data, 1, func(id int) bool { return id < w.n }) == nil {
				t.Fatalf("the program ends: %s", data)
			}
		}
	}
	if t.Logf("%d right, %d wrong", right, wrong); right == 0 || wrong == 0 {
		t.Errorf("%d tables have nothing, %d have something", right, wrong)
	}
}
