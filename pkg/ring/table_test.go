package ring

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "write the golden files")

// eightCards is the machine that fixtures are bound to.
func eightCards() []Card {
	var cards []Card
	for i, bus := range []string{"43", "44", "83", "84", "b1", "b2", "c3", "c4"} {
		cards = append(cards, Card{Name: fmt.Sprintf("lpu%d", i), Address: "0000:" + bus + ":00.1", Serial: fmt.Sprintf("XFL%02d", i)})
	}
	return cards
}

// manyCards is n cards with addresses in order, the first ones those of eightCards.
func manyCards(n int) []Card {
	cards := eightCards()
	for i := len(cards); i < n; i++ {
		cards = append(cards, Card{Name: fmt.Sprintf("lpu%d", i), Address: fmt.Sprintf("0001:%02x:00.1", i)})
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

func goldenFindings(findings []Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "  %s %d %s %s: %s | %s\n", f.Code, f.Line, f.Pointer, strings.Join(f.Cards, ","), f.Message, f.Remedy)
	}
	return b.String()
}

// checkFinding holds what every finding has to have.
func checkFinding(t testing.TB, f Finding) {
	t.Helper()
	ok := f.Message != "" && f.Remedy != "" && f.Line >= 0 && len(f.Message) < 1000 && len(f.Cards) < 100 && len(f.Pointer) < 200
	if !ok || f.Severity != map[byte]Severity{'E': SeverityError, 'W': SeverityWarning}[f.Code[0]] {
		t.Errorf("bad finding %+v", f)
	}
}

// A fixture is named for the code that it must yield first; "-bind" says that Bind does.
func TestFixturesYieldTheirCode(t *testing.T) {
	var golden strings.Builder
	codes := map[string]bool{}
	for _, name := range fixtures(t, "[EW]_*") {
		base := filepath.Base(name)
		code := base[:strings.IndexAny(base, "-.")]
		codes[code] = true
		table, findings := Parse(read(t, name))
		if strings.Contains(base, "-bind") {
			if len(findings) != 0 {
				t.Errorf("%s: Parse: %v", base, findings)
			}
			cards := eightCards()
			cards[3].Absent = code == "W_ABSENT_CARD"
			_, findings = Bind(table, cards)
		} else if c, more := Bind(table, eightCards()); HasErrors(findings) && (c != nil || more != nil) {
			t.Errorf("%s: bound in spite of errors", base)
		}
		if len(findings) == 0 || findings[0].Code != code {
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
	codes["E_SIZE"] = true // TestHostileInput
	for line := range strings.Lines(string(read(t, "finding.go"))) {
		if code, ok := strings.CutPrefix(line, "//\t"); ok && !codes[strings.Fields(code)[0]] {
			t.Errorf("no fixture for %s", code)
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
			table, findings := Parse(read(t, name))
			c, more := Bind(table, manyCards(n))
			var codes []string
			for _, f := range append(findings, more...) {
				codes = append(codes, f.Code)
			}
			wantCodes := map[string][]string{"good-8-shuffled": {"W_ORDER"}, "good-2x4": {"W_MULTI"}, "good-8-chain": {"W_CHAIN"}}[key]
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
	table, _ := Parse([]byte(`{"network": [
{"src_id": "0000:B1:00.1", "dst_id": "0000:43:00", "direction": "Left"},
{"src_id": "0000:43:00.0", "dst_id": "10000:01:00.1", "direction": "Left"}
], "num_device": 3}`))
	want := &Table{Format: FormatHyperdex, Count: 3,
		IDs: []ID{
			{Kind: IDAddress, Text: "0000:b1:00.1", Line: 2},
			{Kind: IDAddress, Text: "0000:43:00", Line: 2},
			{Kind: IDAddress, Text: "10000:01:00.1", Line: 3},
		},
		Links: []Link{{A: 1, B: 0, Line: 2}, {A: 2, B: 1, Line: 3}},
	}
	if diff := cmp.Diff(want, table, cmp.AllowUnexported(Table{})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"0000:43:00", "0000:b1:00.1", "10000:01:00.1"}, table.Addresses()); diff != "" {
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
		"0": IDIndex, "65535": IDIndex, "65536": "", "-1": "", "+1": "", "01": "", "0x1": "", "1_0": "", "1.0": "", "1e3": "", "true": "", "null": "", "~": "",
		"lpu0": IDName, "lpu63": IDName, "lpu": IDSerial, "lpu01": IDSerial, "lpu-1": IDSerial,
		"0000:b1:00.1": IDAddress, "0000:B1:1f.7": IDAddress, "0000:b1:00": IDAddress, "10000:b1:00": IDAddress,
		"0000:b1:20": "", "0000:b1:00.8": "", "0000:b1:00.": "", "00000:b1:00": "", "b1:00.1": "", "0000:b1": "", "0000:b1:00:1": "",
		`"12"`: IDSerial, "XFL1A2B3": IDSerial, `"a b"`: "", `""`: "", `"` + strings.Repeat("x", 65) + `"`: "", `"\u00e9"`: "", "2024-01-01": "",
	} {
		table, findings := Parse([]byte("apiVersion: " + apiVersion + "\nkind: RingTable\nrings:\n- [" + text + "]\n"))
		if want == "" {
			if len(findings) != 1 || findings[0].Code != "E_TYPE" || findings[0].Line != 4 || findings[0].Pointer != "/rings/0/0" {
				t.Errorf("%s: got %v", text, findings)
			}
			continue
		}
		if HasErrors(findings) || table.IDs[0].Kind != want {
			t.Errorf("%s: got %v, %+v", text, findings, table.IDs)
		}
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
	for name, c := range map[string]struct {
		data []byte
		want string // the first code; "" is none
	}{
		"10 MB":                      {many("x", 10<<20), "E_SIZE"},
		"1 MiB of keys":              {append([]byte("{"), many(`"k":0,`, 1<<20-10)...), "E_SIZE"},
		"1 MiB string":               {[]byte(`{"network":"` + strings.Repeat("x", 1<<20-20) + `"}`), "E_TYPE"},
		"1 MiB key":                  {[]byte(`{"kind":0,"` + strings.Repeat("x", 1<<20-20) + `":1}`), "E_KEY"},
		"1 MiB word":                 {many("x", 1<<20-20), "E_TYPE"},
		"1 MiB of spaces":            {many(" ", 1<<20-20), "E_EMPTY"},
		"10,000 cards":               {bigTable(10000, func(i int) (int, int) { return i, (i + 1) % 10000 }), ""},
		"10,000 pairs":               {bigTable(10000, func(i int) (int, int) { return 2 * i, 2*i + 1 }), "W_MULTI"},
		"10,000 links of one card":   {bigTable(10000, func(i int) (int, int) { return 0, i + 1 }), "E_DEGREE"},
		"10,000 links to itself":     {bigTable(10000, func(i int) (int, int) { return i, i }), "E_SELF"},
		"10,000 times one link":      {bigTable(10000, func(int) (int, int) { return 0, 1 }), "E_DUPLINK"},
		"highest index":              {bigTable(1, func(int) (int, int) { return 0, maxIndex }), "W_ISOLATED"},
		"nested JSON lists":          {many("[", 100000), "E_SYNTAX"},
		"nested JSON objects":        {many(`{"a":`, 500000), "E_SYNTAX"},
		"nested flow lists":          {append([]byte(header+"rings: "), many("[", 100000)...), "E_SYNTAX"},
		"nested flow objects":        {append([]byte(header+"rings: "), many("{a: ", 100000*3)...), "E_SYNTAX"},
		"nested block lists":         {many("- ", 200000), "E_SYNTAX"},
		"1 MiB of nested flow lists": {append([]byte("a: "), many("[", 190000)...), "E_SYNTAX"},
		"10,000 ids twice":           {[]byte(header + "rings: [[" + strings.Repeat("0, ", 10000) + "1]]\n"), "E_DEGREE"},
		"60,000 rings of one":        {[]byte(header + "rings: [" + strings.Repeat("[], ", 60000) + "[1]]\n"), "E_EMPTY"},
		"20,000 links in YAML":       {[]byte(header + "links:\n" + strings.Repeat("- {a: 1, b: 2}\n", 20000)), "E_DUPLINK"},
		"many values in YAML":        {[]byte("a: [" + strings.Repeat("0,", 199000) + "]"), "E_TYPE"},
		"many lines of YAML":         {many("- 0\n", 99000*4), "E_TYPE"},
		"many lines of a string":     {append([]byte("a: '"), many("\n", 199000)...), "E_SYNTAX"},
		"many anchors":               {many("- &a 0\n", 99000*7), "E_TYPE"},
		"many comments":              {many("# a\n", 199000*4), "E_EMPTY"},
		"many question marks":        {many("? ", 1<<20-20), "E_SYNTAX"},
		"many quotes":                {many("'", 1<<20-20), "E_TYPE"},
		"NUL":                        {many("\x00", 1000), "E_SYNTAX"},
		"not UTF-8":                  {[]byte("a: \xff\xfe\n"), "E_SYNTAX"},
		"alias bomb":                 {[]byte("a: &a [0,0]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c]\ne: &e [*d,*d,*d]\nrings: *e\n"), "E_KEY"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, findings := Parse(c.data)
			took := time.Since(start)
			t.Logf("%d bytes, %v", len(c.data), took)
			if took > 10*time.Second { // one second, and a slow machine under the race detector
				t.Errorf("took %v", took)
			}
			got := ""
			if len(findings) > 0 {
				got = findings[0].Code
			}
			if got != c.want || len(findings) > 8*(perCode+1) {
				t.Errorf("%d findings, first %.300v", len(findings), findings[:min(len(findings), 2)])
			}
			for _, f := range findings {
				checkFinding(t, f)
			}
		})
	}
}

func TestPointerHoldsNothingThatATerminalObeys(t *testing.T) {
	_, findings := Parse([]byte(`{"kind": "RingTable", "\u001b[31m~/\n\u202e": 1}`))
	if len(findings) != 2 || findings[0].Pointer != "/?[31m~0~1??" {
		t.Errorf("got %v", findings)
	}
}

func TestCardsBesideEachOtherAreIsolated(t *testing.T) {
	_, findings := Parse([]byte("apiVersion: " + apiVersion + "\nkind: RingTable\nrings: [[\"0000:43:00\"], [\"0000:44:00\"]]\n"))
	if len(findings) != 2 || findings[1].Code != "W_ISOLATED" {
		t.Errorf("got %v", findings)
	}
}

func TestManyFindingsAreCounted(t *testing.T) {
	_, findings := Parse(bigTable(100, func(i int) (int, int) { return i, i }))
	if len(findings) != perCode+1 || findings[perCode].Message != "80 more findings of this kind" || findings[perCode].Code != "E_SELF" {
		t.Errorf("got %v", findings)
	}
}

func TestAllFindingsInOnePass(t *testing.T) {
	_, findings := Parse([]byte(`{"network": [
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
		got = append(got, fmt.Sprintf("%d %s", f.Line, f.Code))
	}
	want := []string{"10 E_TRAILING", "9 E_DUPKEY", "4 E_TYPE", "5 E_UNKNOWN", "3 E_SELF", "6 E_DUPLINK", "8 E_DEGREE"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == SeverityWarning }) {
		t.Error("an error must suppress the warnings")
	}
}
