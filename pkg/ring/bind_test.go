package ring

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/long"
)

// addresses is what WriteLpuctl takes.
func addresses(cards []Card) (ids []string) {
	for _, card := range cards {
		ids = append(ids, card.Address.String())
	}
	return ids
}

// checkWriters writes a cabling in both forms, reads it back and compares.
func checkWriters(t testing.TB, c *Cabling, cards []Card) {
	t.Helper()
	isolated := false
	for _, ring := range c.Rings {
		isolated = isolated || len(ring.Cards) == 1 && len(cards) > 1
	}
	for name, data := range map[string][]byte{"lpuctl": WriteLpuctl(c, addresses(cards)), "hyperdex": WriteHyperdex(c)} {
		if name == "hyperdex" && isolated {
			continue // the format cannot say it
		}
		table, findings := Parse("table", data)
		back, more := Bind(table, cards)
		if findings.HasErrors() || more.HasErrors() {
			t.Fatalf("%s: %v %v of\n%s", name, findings, more, data)
		}
		if diff := cmp.Diff(c, back); diff != "" {
			t.Errorf("%s: %s\n%s", name, diff, data)
		}
		again := WriteHyperdex(back)
		if name == "lpuctl" {
			again = WriteLpuctl(back, addresses(cards))
		}
		if diff := cmp.Diff(string(data), string(again)); diff != "" {
			t.Errorf("%s is not stable: %s", name, diff)
		}
	}
}

func TestEveryRingSizeSurvivesBothForms(t *testing.T) {
	random := long.Rand(t)
	for n := 1; n <= 64; n++ {
		for range long.Rounds(t, 5) {
			order := random.Perm(n)
			var links [][2]int
			for len(order) > 0 {
				size := 1 + random.IntN(len(order))
				cards := order[:size]
				order = order[size:]
				closed := random.IntN(2) == 0 && size > 2
				links = append(links, Links(cards, closed, false)...)
				if size == 2 && random.IntN(2) == 0 {
					links = append(links, [2]int{cards[1], cards[0]})
				}
			}
			checkWriters(t, newCabling(n, links), manyCards(n))
		}
	}
}

func TestCanonicalOrientation(t *testing.T) {
	for _, c := range []struct {
		n     int
		links [][2]int
		want  []Ring
	}{
		{0, nil, nil},
		{3, [][2]int{{2, 1}, {1, 0}, {0, 2}}, []Ring{{[]int{0, 1, 2}, true, [][2]int{{0, 2}, {2, 1}, {1, 0}}}}},
		{3, [][2]int{{2, 1}, {0, 1}, {0, 2}}, []Ring{{[]int{0, 1, 2}, true, [][2]int{{0, 1}, {1, 2}, {2, 0}}}}},
		{3, [][2]int{{2, 0}, {0, 1}}, []Ring{{[]int{1, 0, 2}, false, [][2]int{{2, 0}, {0, 1}}}}},
		{3, [][2]int{{2, 1}}, []Ring{{[]int{0}, true, nil}, {[]int{1, 2}, true, [][2]int{{2, 1}}}}},
		{2, [][2]int{{1, 0}, {1, 0}}, []Ring{{[]int{0, 1}, true, [][2]int{{0, 1}, {1, 0}}}}},
	} {
		if diff := cmp.Diff(c.want, newCabling(c.n, c.links).Rings); diff != "" {
			t.Errorf("%v: %s", c.links, diff)
		}
	}
}

func TestRenumber(t *testing.T) {
	table, _ := Parse("table", read(t, "testdata/good-8-vendor.json"))
	c, _ := Bind(table, eightCards())
	for _, x := range []struct {
		cards []int
		rings []Ring
	}{
		{nil, nil},
		{[]int{3}, []Ring{{[]int{0}, true, nil}}},
		{[]int{5, 4}, []Ring{{[]int{0, 1}, true, [][2]int{{0, 1}}}}},
		{[]int{6, 7, 0, 1}, []Ring{{[]int{1, 0, 3, 2}, false, [][2]int{{2, 3}, {3, 0}, {0, 1}}}}},
		{[]int{0, 1, 4, 5, 5}, []Ring{{[]int{0, 1}, true, [][2]int{{0, 1}}}, {[]int{2, 3}, true, [][2]int{{2, 3}}}}},
		{upTo(8), c.Rings},
	} {
		if diff := cmp.Diff(x.rings, c.Renumber(x.cards).Rings); diff != "" {
			t.Errorf("%v: %s", x.cards, diff)
		}
	}
	const want = "{\n\t\"network\" : \n\t[\n\t\t{\n\t\t\t\"direction\" : \"Right\",\n\t\t\t\"dst_id\" : 1,\n\t\t\t\"src_id\" : 0\n" +
		"\t\t}\n\t],\n\t\"num_device\" : 2\n}\n"
	if diff := cmp.Diff(want, string(WriteHyperdex(c.Renumber([]int{4, 5})))); diff != "" {
		t.Error(diff)
	}
}

func TestAbsentCardKeepsItsPlace(t *testing.T) {
	table, _ := Parse("table", read(t, "testdata/good-8.yaml"))
	cards := eightCards()
	cards[3] = Card{Name: "lpu3", Address: table.Addresses(1)[3], Absent: true}
	c, findings := Bind(table, cards)
	if c == nil || len(c.Rings) != 1 || !c.Rings[0].Closed || len(findings) != 1 {
		t.Fatalf("got %+v, %v", c, findings)
	}
	if diff := cmp.Diff("lpu3", findings[0].Subject); diff != "" {
		t.Error(diff)
	}
	// Which card an index means is unknown when one is missing, even if the table lists as many as are left.
	seven := newCabling(7, Links(upTo(7), true, false))
	for _, data := range [][]byte{read(t, "testdata/good-8-vendor.json"), WriteHyperdex(seven)} {
		table, _ = Parse("table", data)
		if c, findings := Bind(table, cards); c != nil || len(findings) != 1 || findings[0].ID != finding.RingCount {
			t.Errorf("got %+v, %v", c, findings)
		}
	}
}

// TestMixedIDs: a table by index and by address counts the cards that it names. Where these are not
// all, it says what is mixed, and on which line.
func TestMixedIDs(t *testing.T) {
	const text = "kind: RingTable\napiVersion: lpuctl.hyperaccel.ai/v1alpha1\nrings:\n- [0, 1, lpu2, \"%s\"]\n"
	cards := manyCards(4)
	table, findings := Parse("ring.yaml", fmt.Appendf(nil, text, cards[3].Address))
	if cabling, more := Bind(table, cards); cabling == nil || len(cabling.Rings[0].Cards) != 4 || findings.HasErrors() || more.HasErrors() {
		t.Errorf("a table of all cards: %v %v", findings, more)
	}
	want := "error: ring.yaml:4: the table lists 4 cards, some by index (lpu0) and others by address (" + cards[3].Address.String() +
		"), but this node has 5 [ring-count]"
	if cabling, more := Bind(table, manyCards(5)); cabling != nil || len(more) != 1 || more[0].String() != want ||
		!strings.HasSuffix(more[0].Remedy, "or key the table by PCI address") {
		t.Errorf("a table of some cards: %v, want %s", more, want)
	}
}

func TestBindIgnoresTheFunction(t *testing.T) {
	cards := eightCards()[:3]
	for _, ids := range []string{`"0000:43:00", "0000:44:00.0", "0000:83:00.7"`, `"0000:43:00.1", "XFL01", "XFL02"`} {
		table, findings := Parse("table", []byte("apiVersion: "+apiVersion+"\nkind: RingTable\nrings: [["+ids+"]]\n"))
		if c, more := Bind(table, cards); len(findings)+len(more) > 0 || c == nil {
			t.Errorf("%s: %v %v", ids, findings, more)
		}
	}
}

func TestBindDoesNotGuessBetweenEqualSerials(t *testing.T) {
	cards := eightCards()[:3]
	cards[2].Serial = cards[1].Serial
	table, _ := Parse("table", []byte("apiVersion: "+apiVersion+"\nkind: RingTable\nrings: [[XFL00, XFL01]]\n"))
	if c, findings := Bind(table, cards); c != nil || len(findings) != 1 || findings[0].ID != finding.RingConflict {
		t.Errorf("got %v, %v", c, findings)
	}
}

func TestBindNothing(t *testing.T) {
	if c, findings := Bind(nil, eightCards()); c != nil || findings != nil {
		t.Errorf("got %v, %v", c, findings)
	}
}

func TestInOrder(t *testing.T) {
	for text, want := range map[string]bool{
		"0": true, "0 1": true, "0 2 1": true, "0 1 2 3": true, "3 2 1 0 7 6 5 4": true, "4 5 6 7 0 1": true, "0 2 1 3": false,
	} {
		var cards []int
		for word := range strings.FieldsSeq(text) {
			var card int
			if _, err := fmt.Sscan(word, &card); err != nil {
				t.Fatal(err)
			}
			cards = append(cards, card)
		}
		if inOrder(cards) != want {
			t.Errorf("inOrder(%s) = %v", text, !want)
		}
	}
}

func fuzzTable(f *testing.F, format Format, patterns ...string) {
	for _, pattern := range patterns {
		for _, name := range fixtures(f, pattern) {
			f.Add(read(f, name))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		table, findings := Parse("table", data)
		for _, f := range findings {
			checkFinding(t, f)
		}
		if len(findings) > 20*(perID+1) {
			t.Errorf("%d findings", len(findings))
		}
		if findings.HasErrors() || table.Format != format || table.positions() > 1000 {
			return
		}
		// A machine that has what the table names.
		var cards []Card
		for i := range table.positions() {
			cards = append(cards, Card{Name: fmt.Sprintf("lpu%d", i), Address: pci.Address{Domain: uint32(0x20000 + i), Function: 1}})
		}
		if len(cards) == 0 {
			for i, id := range table.IDs {
				card := Card{Name: fmt.Sprintf("lpu%d", i), Address: pci.Address{Domain: uint32(0x20000 + i), Function: 1}}
				if id.Kind == IDSerial {
					card.Serial = id.Text
				} else {
					card.Address = id.Address
				}
				cards = append(cards, card)
			}
		}
		c, more := Bind(table, cards)
		for _, f := range more {
			checkFinding(t, f)
		}
		if c != nil {
			checkWriters(t, c, cards)
		} else if !more.HasErrors() {
			t.Error("not bound, and no error says why")
		}
	})
}

func FuzzParseHyperdex(f *testing.F) { fuzzTable(f, FormatHyperdex, "*.json") }

func FuzzParseLpuctl(f *testing.F) { fuzzTable(f, FormatLpuctl, "*.yaml", "good-8-own.json") }

func BenchmarkParse(b *testing.B) {
	for _, name := range []string{
		"good-8-vendor.json", "good-8-bdf-left-right.json", "good-8.yaml", "good-8-own.json", "good-8-chain.yaml", "good-64.json", "good-64.yaml",
	} {
		data := read(b, "testdata/"+name)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if table, _ := Parse("table", data); table == nil {
					b.Fatal("not parsed")
				}
			}
		})
	}
}

func BenchmarkBind(b *testing.B) {
	table, _ := Parse("table", read(b, "testdata/good-8-bdf-left-right.json"))
	cards := eightCards()
	b.ReportAllocs()
	for b.Loop() {
		if c, _ := Bind(table, cards); c == nil {
			b.Fatal("not bound")
		}
	}
}
