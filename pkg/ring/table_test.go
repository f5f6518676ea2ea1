package ring

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/long"
)

const apiVersion = statefile.APIVersion

var update = flag.Bool("update", false, "write the golden files")

// eightCards is the machine that fixtures are bound to.
func eightCards() []Card {
	var cards []Card
	for i, bus := range []uint8{0x43, 0x44, 0x83, 0x84, 0xb1, 0xb2, 0xc3, 0xc4} {
		cards = append(cards, Card{Name: fmt.Sprintf("lpu%d", i), Address: pci.Address{Bus: bus, Function: 1}, Serial: fmt.Sprintf("XFL%02d", i)})
	}
	return cards
}

// manyCards is n cards with addresses in order, the first ones those of eightCards.
func manyCards(n int) []Card {
	cards := eightCards()
	for i := len(cards); i < n; i++ {
		cards = append(cards, Card{Name: fmt.Sprintf("lpu%d", i), Address: pci.Address{Domain: 1, Bus: uint8(i), Function: 1}})
	}
	return cards[:n]
}

func fixtures(t testing.TB, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no fixtures %s: %v", pattern, err)
	}
	return names
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func goldenFindings(findings finding.List) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "  %s %d %s: %s | %s\n", f.ID, f.Line, f.Subject, f.Message, f.Remedy)
	}
	return b.String()
}

func ringRules() []finding.Rule {
	groups := finding.Groups()
	return groups[slices.IndexFunc(groups, func(g finding.Group) bool { return g.Area == "Ring tables" })].Rules
}

// checkFinding holds what every finding has to have.
func checkFinding(t testing.TB, f finding.Finding) {
	t.Helper()
	ok := f.Message != "" && f.Remedy != "" && f.Line >= 0 && f.File == "table" && len(f.Message) < 1000 && len(f.Subject) < 1000
	if !ok || !slices.ContainsFunc(ringRules(), func(r finding.Rule) bool { return r.ID == f.ID }) {
		t.Errorf("bad finding %+v", f)
	}
}

// A fixture is named for the code that it must yield first; "_bind" says that Bind does.
func TestFixturesYieldTheirCode(t *testing.T) {
	var golden strings.Builder
	codes := map[finding.ID]bool{
		finding.RingTooLarge: true, // TestHostileInput
		// Of files, not of what they say: TestRingTable in pkg/discovery.
		finding.RingUnreadable: true, finding.RingUnsafe: true,
	}
	for _, name := range fixtures(t, "ring-*") {
		base := filepath.Base(name)
		code := finding.ID(base[:strings.IndexAny(base, "_.")])
		codes[code] = true
		table, findings := Parse("table", read(t, name))
		if strings.Contains(base, "_bind") {
			if len(findings) != 0 {
				t.Errorf("%s: Parse: %v", base, findings)
			}
			cards := eightCards()
			cards[3].Absent = code == finding.RingAbsentCard
			_, findings = Bind(table, cards)
		} else if c, more := Bind(table, eightCards()); findings.HasErrors() && (c != nil || more != nil) {
			t.Errorf("%s: bound in spite of errors", base)
		}
		if len(findings) == 0 || findings[0].ID != code {
			t.Errorf("%s: got %v", base, findings)
		}
		for _, f := range findings {
			checkFinding(t, f)
		}
		fmt.Fprintf(&golden, "%s\n%s", base, goldenFindings(findings))
	}
	if *update {
		if err := os.WriteFile("testdata/findings.golden", []byte(golden.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(read(t, "testdata/findings.golden")), golden.String()); diff != "" {
		t.Error(diff)
	}
	for _, rule := range ringRules() {
		if !codes[rule.ID] && rule.ID != finding.RingKept { // of package discovery
			t.Errorf("no fixture yields %s", rule.ID)
		}
	}
}

func upTo(n int) []int {
	cards := make([]int, n)
	for i := range cards {
		cards[i] = i
	}
	return cards
}

func TestGoodTables(t *testing.T) {
	closed := func(cards ...int) Ring { return Ring{Cards: cards, Closed: true} }
	want := map[string][]Ring{
		"good-1":                     {closed(0)},
		"good-2-one-cable":           {closed(0, 1)},
		"good-2-one-cable-both-ends": {closed(0, 1)},
		"good-2-two-cables":          {closed(0, 1)},
		"good-3":                     {closed(0, 1, 2)},
		"good-4-vendor":              {closed(upTo(4)...)},
		"good-4-both-ends":           {closed(upTo(4)...)},
		"good-4-crlf":                {closed(upTo(4)...)},
		"good-4-bom":                 {closed(upTo(4)...)},
		"good-4-extra-keys":          {closed(upTo(4)...)},
		"good-8-vendor":              {closed(upTo(8)...)},
		"good-8-bdf-left-right":      {closed(upTo(8)...)},
		"good-8-shuffled":            {closed(0, 3, 1, 6, 2, 7, 5, 4)},
		"good-8-downwards":           {closed(upTo(8)...)},
		"good-8":                     {closed(upTo(8)...)},
		"good-8-crlf-bom":            {closed(upTo(8)...)},
		"good-8-own":                 {closed(upTo(8)...)},
		"good-8-serial":              {closed(upTo(8)...)},
		"good-2x4":                   {closed(0, 1, 2, 3), closed(4, 5, 6, 7)},
		"good-64":                    {closed(upTo(64)...)},
		"good-8-chain":               {{Cards: upTo(8)}},
		"good-container-4-of-8":      {{Cards: []int{1, 0, 3, 2}}},
		"good-container-1":           {closed(0)},
		"good-container-two-arcs":    {closed(0, 1), closed(2, 3)},
	}
	for _, name := range fixtures(t, "good-*") {
		base := filepath.Base(name)
		t.Run(base, func(t *testing.T) {
			key := strings.TrimSuffix(base, filepath.Ext(base))
			rings, ok := want[key]
			if !ok {
				t.Fatal("no expectation")
			}
			n := 0
			for _, r := range rings {
				n += len(r.Cards)
			}
			table, findings := Parse("table", read(t, name))
			c, more := Bind(table, manyCards(n))
			var codes []finding.ID
			for _, f := range append(findings, more...) {
				codes = append(codes, f.ID)
			}
			wantCodes := map[string][]finding.ID{
				"good-1.json":                     {finding.RingHyperdex}, // for HyperDex' program they are not good
				"good-2-one-cable.json":           {finding.RingHyperdex},
				"good-2-one-cable-both-ends.json": {finding.RingHyperdex},
				"good-4-bom.json":                 {finding.RingHyperdex},
				"good-8-shuffled.json":            {finding.RingOrder},
				"good-2x4.json":                   {finding.RingSeveral},
				"good-2x4.yaml":                   {finding.RingSeveral},
				"good-8-chain.json":               {finding.RingChain, finding.RingHyperdex},
				"good-8-chain.yaml":               {finding.RingChain},
			}[base]
			if diff := cmp.Diff(wantCodes, codes); diff != "" {
				t.Error(diff)
			}
			if c == nil {
				t.Fatal("not bound")
			}
			if diff := cmp.Diff(rings, c.Rings, cmpopts.IgnoreFields(Ring{}, "Links")); diff != "" {
				t.Error(diff)
			}
			if yaml := filepath.Ext(base) == ".yaml" || key == "good-8-own"; yaml != (table.Format == FormatLpuctl) {
				t.Errorf("format %s", table.Format)
			}
			checkWriters(t, c, manyCards(n))
		})
	}
}

func TestTableIsAsWritten(t *testing.T) {
	table, _ := Parse("table", []byte(`{"network": [
{"src_id": "0000:B1:00.1", "dst_id": "0000:43:00", "direction": "Left"},
{"src_id": "0000:43:00.0", "dst_id": "10000:01:00.1", "direction": "Left"}
], "num_device": 3}`))
	want := &Table{Format: FormatHyperdex, Count: 3, file: "table", json: true,
		IDs: []ID{
			{Kind: IDAddress, Text: "0000:b1:00.1", Line: 2, pointer: "/network/0/src_id", Address: pci.Address{Bus: 0xb1, Function: 1}},
			{Kind: IDAddress, Text: "0000:43:00", Line: 2, pointer: "/network/0/dst_id", Address: pci.Address{Bus: 0x43}},
			{
				Kind: IDAddress, Text: "10000:01:00.1", Line: 3, pointer: "/network/1/dst_id",
				Address: pci.Address{Domain: 0x10000, Bus: 1, Function: 1},
			},
		},
		Links: [][2]int{{1, 0}, {2, 1}},
		Entries: []Entry{
			{ID: -1, Side: "Left", at: location{2, "/network/0"}},
			{ID: -1, Side: "Left", at: location{3, "/network/1"}},
		},
	}
	if diff := cmp.Diff(want, table, cmp.AllowUnexported(Table{}, ID{}, Entry{}, location{})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("[0000:43:00.3 0000:b1:00.1 10000:01:00.1]", fmt.Sprint(table.Addresses(3))); diff != "" {
		t.Error(diff)
	}
}

// The sizes of table_bdf.json in HyperDex's documentation: two links 233 bytes, four with two Left 423.
func TestFixtureLayoutIsHyperdexs(t *testing.T) {
	c := newCabling(2, [][2]int{{0, 1}, {1, 0}})
	got := len(WriteHyperdex(c)) - 1 // our end of line
	const quoted = len(`"0000:b1:00.1"`)
	if keysAndIDs := 4 * (quoted - 1 + len("bdf") - len("id")); got+keysAndIDs != 233 {
		t.Errorf("two links take %d bytes", got+keysAndIDs)
	}
}

func TestIDs(t *testing.T) {
	for text, want := range map[string]IDKind{
		"0": IDIndex, "65535": IDIndex, "65536": "", "-1": "", "+1": "", "01": "", "0x1": "", "1_0": "", "1.0": "", "1e3": "",
		"true": "", "null": "", "~": "", "!!str 3": IDSerial, "!!int lpu3": "",
		"lpu0": IDName, "lpu63": IDName, "lpu": "", "lpu01": "", "lpu00": "", "LPU0": "", "lpu-1": "", "yes": "", "card": "",
		"0000:b1:00.1": IDAddress, "0000:B1:1f.7": IDAddress, "0000:b1:00": IDAddress, "10000:b1:00": IDAddress,
		"ffffffff:b1:00": IDAddress, "100000000:b1:00": "",
		"0000:b1:20": "", "0000:b1:00.8": "", "0000:b1:00.": "", "00000:b1:00": "", "0000:b1": "", "0000:b1:00:1": "",
		"b1:00.1": IDAddress, "43:00": IDAddress, "43:00.1": IDAddress, "43:00.8": "",
		`"12"`: IDSerial, "XFL1A2B3": IDSerial, `"a b"`: "", `""`: "", `"` + strings.Repeat("x", 65) + `"`: "", `"\u00e9"`: "", "2024-01-01": "",
	} {
		table, findings := Parse("table", []byte("apiVersion: "+apiVersion+"\nkind: RingTable\nrings:\n- ["+text+"]\n"))
		if want == "" {
			if len(findings) != 1 || findings[0].ID != finding.RingType || findings[0].Line != 4 || findings[0].Subject != "table at /rings/0/0" {
				t.Errorf("%s: got %v", text, findings)
			}
			continue
		}
		if findings.HasErrors() || table.IDs[0].Kind != want {
			t.Errorf("%s: got %v, %+v", text, findings, table.IDs)
		}
	}
}

// TestShortAddress: lspci leaves out domain 0000.
func TestShortAddress(t *testing.T) {
	table, findings := Parse("table", []byte("apiVersion: "+apiVersion+"\nkind: RingTable\nrings: [[43:00.1, \"44:00\", 0000:83:00.1]]\n"))
	c, more := Bind(table, eightCards()[:3])
	if len(findings)+len(more) > 0 || c == nil || fmt.Sprint(table.Addresses(5)) != "[0000:43:00.1 0000:44:00.5 0000:83:00.1]" {
		t.Errorf("got %v, %v, %v", table.Addresses(5), findings, more)
	}
}

var (
	missingCable = regexp.MustCompile(`(?:the cable|; they are one ring with|, or with|and) ([^ ,;]+)-([^ ,;]+)`)
	oneCable     = regexp.MustCompile(`the cable [^ ]+ is missing$`)
)

// TestMissingCables takes up to four cables out of rings, in every way. A cable that is said to be missing is one of them; if
// only one is missing, it is named. Where ways to make one ring are given, one of them is the ring.
func TestMissingCables(t *testing.T) {
	for n := 3; n <= 8; n++ {
		for gone := 1; gone < 1<<n; gone++ {
			if count := bits.OnesCount(uint(gone)); count > 4 || count == n {
				continue
			}
			var links [][2]int
			missing := map[[2]int]bool{}
			for i, l := range Links(upTo(n), true, false) {
				if gone>>i&1 == 0 {
					links = append(links, l)
				} else {
					missing[l] = true
				}
			}
			for format, data := range map[string][]byte{
				"hyperdex":   WriteHyperdex(newCabling(n, links)),
				"by index":   WriteLpuctl(newCabling(n, links), strings.Fields("0 1 2 3 4 5 6 7")),
				"by address": WriteLpuctl(newCabling(n, links), addresses(manyCards(n))),
			} {
				if format == "by index" {
					data = bytes.ReplaceAll(data, []byte(`"`), nil)
				}
				checkMissing(t, fmt.Sprintf("%s, %d cards without %v", format, n, slices.Collect(maps.Keys(missing))), data, n, missing)
			}
		}
	}
}

func checkMissing(t *testing.T, what string, data []byte, n int, missing map[[2]int]bool) {
	t.Helper()
	table, findings := Parse("table", data)
	_, more := Bind(table, manyCards(n))
	names := map[string]int{}
	for i, card := range manyCards(n) {
		names[card.Name], names[card.Address.String()] = i, i
	}
	named := false
	for _, f := range append(findings, more...) {
		found, right := missingCable.FindAllStringSubmatch(f.Message, -1), 0
		for _, m := range found {
			a, b := names[m[1]], names[m[2]]
			if missing[[2]int{a, b}] || missing[[2]int{b, a}] {
				right++
			}
		}
		ways := 1 + strings.Count(f.Message, ", or with ")
		if right < len(found)/ways || len(found) > 0 && len(missing) > 2 {
			t.Errorf("%s: %s", what, f.Message)
		}
		named = named || oneCable.MatchString(f.Message)
	}
	if named != (len(missing) == 1) {
		t.Errorf("%s: %v", what, findings)
	}
}

// bigTable is a HyperDex table of n links.
func bigTable(n int, link func(i int) (src, dst int)) []byte {
	var b bytes.Buffer
	b.WriteString(`{"network":[`)
	for i := range n {
		if i > 0 {
			b.WriteString(",\n")
		}
		src, dst := link(i)
		fmt.Fprintf(&b, `{"src_id":%d,"dst_id":%d,"direction":"Right"}`, src, dst)
	}
	b.WriteString("]}")
	return b.Bytes()
}

func TestHostileInput(t *testing.T) {
	const header = "apiVersion: " + apiVersion + "\nkind: RingTable\n"
	many := func(text string, size int) []byte { return bytes.Repeat([]byte(text), size/len(text)) }
	cases := map[string]struct {
		data []byte
		want finding.ID // the first one; "" is none
	}{
		"10 MB":                      {many("x", 10<<20), finding.RingTooLarge},
		"1 MiB of keys":              {append([]byte("{"), many(`"k":0,`, 1<<20-10)...), finding.RingTooLarge},
		"1 MiB string":               {[]byte(`{"network":"` + strings.Repeat("x", 1<<20-20) + `"}`), finding.RingType},
		"1 MiB key":                  {[]byte(`{"kind":0,"` + strings.Repeat("x", 1<<20-20) + `":1}`), finding.RingKey},
		"1 MiB word":                 {many("x", 1<<20-20), finding.RingType},
		"1 MiB of spaces":            {many(" ", 1<<20-20), finding.RingEmpty},
		"10,000 cards":               {bigTable(10000, func(i int) (int, int) { return i, (i + 1) % 10000 }), finding.RingHyperdex},
		"10,000 pairs":               {bigTable(10000, func(i int) (int, int) { return 2 * i, 2*i + 1 }), finding.RingSeveral},
		"10,000 links of one card":   {bigTable(10000, func(i int) (int, int) { return 0, i + 1 }), finding.RingDegree},
		"10,000 links to itself":     {bigTable(10000, func(i int) (int, int) { return i, i }), finding.RingSelfLink},
		"10,000 times one link":      {bigTable(10000, func(int) (int, int) { return 0, 1 }), finding.RingLinkTwice},
		"highest index":              {bigTable(1, func(int) (int, int) { return 0, 65535 }), finding.RingIsolated},
		"nested JSON lists":          {many("[", 100000), finding.RingSyntax},
		"nested JSON objects":        {many(`{"a":`, 500000), finding.RingSyntax},
		"nested flow lists":          {append([]byte(header+"rings: "), many("[", 100000)...), finding.RingSyntax},
		"nested flow objects":        {append([]byte(header+"rings: "), many("{a: ", 100000*3)...), finding.RingSyntax},
		"nested block lists":         {many("- ", 200000), finding.RingSyntax},
		"1 MiB of nested flow lists": {append([]byte("a: "), many("[", 190000)...), finding.RingSyntax},
		"10,000 ids twice":           {[]byte(header + "rings: [[" + strings.Repeat("0, ", 10000) + "1]]\n"), finding.RingDegree},
		"60,000 rings of one":        {[]byte(header + "rings: [" + strings.Repeat("[], ", 60000) + "[1]]\n"), finding.RingEmpty},
		"20,000 links in YAML":       {[]byte(header + "links:\n" + strings.Repeat("- {a: 1, b: 2}\n", 20000)), finding.RingLinkTwice},
		"many values in YAML":        {[]byte("a: [" + strings.Repeat("0,", 199000) + "]"), finding.RingType},
		"many lines of YAML":         {many("- 0\n", 99000*4), finding.RingType},
		"many lines of a string":     {append([]byte("a: '"), many("\n", 199000)...), finding.RingSyntax},
		"many anchors":               {many("- &a 0\n", 99000*7), finding.RingType},
		"many comments":              {many("# a\n", 199000*4), finding.RingEmpty},
		"many question marks":        {many("? ", 1<<20-20), finding.RingSyntax},
		"many quotes":                {many("'", 1<<20-20), finding.RingType},
		"NUL":                        {many("\x00", 1000), finding.RingSyntax},
		"not UTF-8":                  {[]byte("a: \xff\xfe\n"), finding.RingSyntax},
		"alias bomb": {[]byte("a: &a [0,0]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\n" +
			"d: &d [*c,*c,*c,*c]\ne: &e [*d,*d,*d]\nrings: *e\n"), finding.RingKey},
	}
	for i, name := range slices.Sorted(maps.Keys(cases)) {
		if !long.Takes(i, 1) {
			continue
		}
		c := cases[name]
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, findings := Parse("table", c.data)
			took := time.Since(start)
			t.Logf("%d bytes, %v", len(c.data), took)
			if took > await.Limit {
				t.Errorf("took %v", took)
			}
			got := finding.ID("")
			if len(findings) > 0 {
				got = findings[0].ID
			}
			if got != c.want || len(findings) > 8*(perID+1) {
				t.Errorf("%d findings, first %.300v", len(findings), findings[:min(len(findings), 2)])
			}
			for _, f := range findings {
				checkFinding(t, f)
			}
		})
	}
}

func TestPointerHoldsNothingThatATerminalObeys(t *testing.T) {
	_, findings := Parse("table", []byte(`{"kind": "RingTable", "\u001b[31m~/\n\u202e": 1}`))
	if len(findings) != 2 || findings[0].Subject != "table at /?[31m~0~1??" {
		t.Errorf("got %v", findings)
	}
}

func TestCardsBesideEachOtherAreIsolated(t *testing.T) {
	_, findings := Parse("table", []byte("apiVersion: "+apiVersion+"\nkind: RingTable\nrings: [[\"0000:43:00\"], [\"0000:44:00\"]]\n"))
	if len(findings) != 2 || findings[1].ID != finding.RingIsolated {
		t.Errorf("got %v", findings)
	}
}

func TestManyFindingsAreCounted(t *testing.T) {
	_, findings := Parse("table", bigTable(100, func(i int) (int, int) { return i, i }))
	if len(findings) != perID+1 || findings[perID].Message != "80 more findings of this kind" || findings[perID].ID != finding.RingSelfLink {
		t.Errorf("got %v", findings)
	}
}

func TestAllFindingsInOnePass(t *testing.T) {
	_, findings := Parse("table", []byte(`{"network": [
{"src_id": 0, "dst_id": 1, "direction": "Right"},
{"src_id": 1, "dst_id": 1, "direction": "Right"},
{"src_id": 0, "dst_id": 2, "direction": "Up"},
{"src_id": 2, "dst_id": 9, "direction": "Right"},
{"src_id": 2, "dst_id": 9, "direction": "Right"},
{"src_id": 9, "dst_id": 3, "direction": "Right"},
{"src_id": 9, "dst_id": 0, "direction": "Right"}
], "num_device": 4, "num_device": 5}
{}`))
	var got []string
	for _, f := range findings {
		got = append(got, fmt.Sprintf("%d %s", f.Line, f.ID))
	}
	want := []string{
		"10 ring-trailing", "9 ring-duplicate-key", "4 ring-type", "5 ring-unknown-card", "3 ring-self-link", "6 ring-link-twice",
		"8 ring-degree",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if slices.ContainsFunc(findings, func(f finding.Finding) bool { return f.Severity == finding.Warning }) {
		t.Error("an error must suppress the warnings")
	}
}

func TestLineOfASyntaxError(t *testing.T) {
	for text, want := range map[string]string{
		"{\n\n3}":                               "3 ring-syntax",
		"{\"network\": [\n\"a\nb\"]}":           "2 ring-syntax", // the end of line 2 is what is wrong
		"{\"network\": [\n{\n\n":                "2 ring-syntax", // the file ends
		"{\"network\": [],\n\"num_device\": 1}": "0 ring-hyperdex",
		"{\"num_device\": 1}\n\n'":              "3 ring-trailing",
		"a: b\n  c: d\n":                        "2 ring-syntax",
		"kind: RingTable\n---\n{\n":             "3 ring-trailing",
	} {
		_, findings := Parse("table", []byte(text))
		got := ""
		if len(findings) > 0 {
			got = fmt.Sprintf("%d %s", findings[0].Line, findings[0].ID)
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// What else is wrong with a link does not make it one that the other end lists.
func TestOneCauseYieldsOneFinding(t *testing.T) {
	for links, want := range map[string][]string{
		"0 1 Right, 1 2 Right, 2 1 Left, 1 2 Right":  {"ring-link-twice"},
		"0 1 Right, 2 1 Right, 2 3 Right, 2 1 Right": {"ring-link-twice", "ring-conflict", "ring-conflict"},
	} {
		var objects []string
		for text := range strings.SplitSeq(links, ", ") {
			var src, dst int
			var direction string
			if _, err := fmt.Sscan(text, &src, &dst, &direction); err != nil {
				t.Fatal(err)
			}
			objects = append(objects, fmt.Sprintf(`{"src_id": %d, "dst_id": %d, "direction": %q}`, src, dst, direction))
		}
		_, findings := Parse("table", []byte(`{"network": [`+strings.Join(objects, ",")+`]}`))
		var got []string
		for _, f := range findings {
			got = append(got, string(f.ID))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", links, diff)
		}
	}
}
