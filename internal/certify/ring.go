package certify

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// ringChecks are HW-39 to HW-51: the cables, and what HyperDex makes of its table.
func ringChecks() []Check {
	return []Check{
		{"HW-39", "Each card has at most two neighbours, and the cards of a server are one ring.",
			"a ring table that hyperdex-net has just written", oneRing},
		{"HW-40", "HyperDex up to 1.4 has its table in " + discovery.HyperdexRingTable + ", with network, its links and num_device.",
			"HyperDex up to 1.4, and its hyperdex-net", func(f *Facts) answer { return layout(f, discovery.HyperdexRingTable) }},
		{"HW-41", "HyperDex from 1.5 on has its table in " + newerTable + ", with PCI addresses in place of indices.",
			"HyperDex from 1.5 on, and its hyperdex-net", addresses},
		{"HW-42", "An index in the table is the number of the card in the order of PCI addresses.",
			"pull the cable between the LPUs 0 and 1 (idle), hyperdex-net: which link is missing", indices},
		{"HW-43", "direction is Right or Left, and a table lists each cable once, or each from both ends.",
			"a table that hyperdex-net has written", directions},
		{"HW-44", "hyperdex-net writes only zeros if it could not find the cables.",
			"pull a cable (idle), hyperdex-net, lpuctl ring check", zeros},
		{"HW-45", "A HyperDex program takes the order of the links in the file as that of the ring, and never reads dst_id.",
			"a copy of the table with two links exchanged (idle): a model on all LPUs fails or hangs", nil},
		{"HW-46", "A HyperDex program runs a ring if num_device is the number of LPUs that it was asked for, else a line.",
			"a model on 4 of 8 LPUs: the log of HyperDex names its topology", nil},
		{"HW-47", "HyperDex' usage_check says that an index that no card has is not available, and does not end.",
			`python3 -c 'import hrt; print(hrt.device.usage_check(pdidx=99, slib="libhdexrt_cpu.so"))'`, nil},
		{"HW-48", "usage_check says that a card is available that no other program has open.",
			"the same call with pdidx=0, before and while a model runs on LPU 0", nil},
		{"HW-49", "Four LPUs of a ring of eight work together without the cable from the last to the first.",
			"a model on lpu0-1-2-3 of a ring of eight: its output is that of one LPU with the same seed", nil},
		{"HW-50", "HyperDex maps a model to 1, 2, 4 or 8 LPUs, and refuses 3, 5, 6 and 7.", "NUM_LPU_DEVICES=3 with HyperDex-vLLM", sizes},
		{"HW-51", "The order of the ring may be another than that of the addresses, and a server may have several rings.",
			"a server with cables in another order, or with several rings", orders},
	}
}

// newerTable is where HyperDex from 1.5 on writes its table.
const newerTable = "/tmp/hyperdex/xclbin/table_bdf.json"

// table is a ring table of HyperDex.
type table struct {
	shown    string
	data     []byte
	parsed   *ring.Table // nil: it cannot be read at all
	findings finding.List
}

// table reads a ring table that HyperDex has written. One that lpuctl has made for a
// container is none.
func (f *Facts) table(p string) (t table, there bool) {
	data, err := f.tree.Read(p, ring.MaxSize)
	if err != nil {
		return t, false
	}
	t = table{shown: f.tree.Shown(p), data: data}
	t.parsed, t.findings = ring.Parse(t.shown, data)
	return t, t.parsed == nil || t.parsed.Container == 0
}

// tables are the ring tables of HyperDex that are there.
func (f *Facts) tables() (all []table) {
	for _, p := range []string{discovery.HyperdexRingTable, newerTable} {
		if t, there := f.table(p); there {
			all = append(all, t)
		}
	}
	return all
}

// firstOf returns the first finding of some ids.
func (t *table) firstOf(ids ...finding.ID) *finding.Finding {
	i := slices.IndexFunc(t.findings, func(f finding.Finding) bool { return slices.Contains(ids, f.ID) })
	if i < 0 {
		return nil
	}
	return &t.findings[i]
}

func oneRing(f *Facts) answer {
	var t tally
	for _, table := range f.tables() {
		if many := table.firstOf(finding.RingDegree, finding.RingConflict); many != nil {
			t.see(false, table.shown, many.Message)
		}
	}
	inv := f.inventory
	if ref := inv.RingTable; ref != nil && !ref.Kept && len(inv.Rings) > 0 {
		r := inv.Rings[0]
		value := fmt.Sprintf("rings: %d, the first with %d of %d LPUs", len(inv.Rings), len(r.Members), len(inv.LPUs))
		switch {
		case len(inv.Rings) == 1 && r.Closed && len(r.Members) == len(inv.LPUs):
			t.see(true, ref.Path, value)
		case len(inv.Rings) > 1:
			t.see(false, ref.Path, value)
		default:
			t.note(ref.Path, value)
		}
	}
	return t.answer()
}

// layoutFaults are what is found if a table is not as lpuctl believes it to be made.
func layoutFaults() []finding.ID {
	return []finding.ID{finding.RingKey, finding.RingType, finding.RingSyntax, finding.RingTrailing, finding.RingDuplicateKey}
}

func layout(f *Facts, p string) answer {
	var t tally
	table, there := f.table(p)
	if !there {
		return t.answer()
	}
	fault := table.firstOf(layoutFaults()...)
	switch {
	case fault != nil:
		t.see(false, table.shown, fault.Message)
	case table.parsed == nil || table.parsed.Format != ring.FormatHyperdex:
		t.see(false, table.shown, "not a table in this form")
	case len(table.parsed.Extra) > 0:
		t.see(false, table.shown, "it has other keys too: "+strings.Join(table.parsed.Extra, ", "))
	default:
		t.see(true, table.shown, fmt.Sprintf("num_device %d, %d links", table.parsed.Count, len(table.parsed.Entries)))
	}
	return t.answer()
}

func addresses(f *Facts) answer {
	a := layout(f, newerTable)
	table, _ := f.table(newerTable)
	if a.verdict == Held && slices.ContainsFunc(table.parsed.IDs, func(id ring.ID) bool { return id.Kind != ring.IDAddress }) {
		return answer{verdict: Refuted, evidence: []Evidence{{table.shown, "ids that are no PCI addresses"}}}
	}
	return a
}

// indices compares the table with indices with the one with addresses, where both are of
// the same cables.
func indices(f *Facts) answer {
	var t tally
	var cards []ring.Card
	for i := range f.inventory.LPUs {
		l := &f.inventory.LPUs[i]
		cards = append(cards, ring.Card{Name: l.Name, Address: l.Address, Serial: l.Serial, Absent: l.Absent})
	}
	byIndex, one := f.table(discovery.HyperdexRingTable)
	byAddress, other := f.table(newerTable)
	if !one || !other {
		return t.answer()
	}
	first, _ := ring.Bind(byIndex.parsed, cards)
	second, _ := ring.Bind(byAddress.parsed, cards)
	if first != nil && second != nil {
		same := slices.Equal(cables(first), cables(second))
		t.see(same, byIndex.shown, map[bool]string{true: "the same cables as in ", false: "not the cables of "}[same]+byAddress.shown)
	}
	return t.answer()
}

// cables are the cables of a cabling, each once, the lower card first.
func cables(c *ring.Cabling) (all [][2]int) {
	for _, r := range c.Rings {
		for _, l := range r.Links {
			all = append(all, [2]int{min(l[0], l[1]), max(l[0], l[1])})
		}
	}
	slices.SortFunc(all, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	return all
}

func directions(f *Facts) answer {
	var t tally
	for _, table := range f.tables() {
		for _, direction := range regexp.MustCompile(`"direction"\s*:\s*"([^"]*)"`).FindAllSubmatch(table.data, -1) {
			if word := string(direction[1]); word != "Right" && word != "Left" {
				t.see(false, table.shown, fmt.Sprintf("direction %q", word))
			}
		}
		if table.parsed == nil || table.firstOf(layoutFaults()...) != nil || len(table.parsed.Entries) == 0 {
			continue
		}
		entries, links := len(table.parsed.Entries), len(table.parsed.Links)
		if uneven := table.firstOf(finding.RingOneSided, finding.RingLinkTwice); uneven != nil {
			t.see(false, table.shown, uneven.Message)
		} else if links > 0 && table.firstOf(finding.RingAllZero) == nil {
			t.see(entries == links || entries == 2*links, table.shown, fmt.Sprintf("%d links of %d cables", entries, links))
		}
	}
	return t.answer()
}

// zeros judges the tables of which one sees that hyperdex-net did not find all cables.
func zeros(f *Facts) answer {
	var t tally
	for _, table := range f.tables() {
		switch incomplete := table.firstOf(finding.RingChain, finding.RingEmpty, finding.RingIsolated); {
		case table.firstOf(finding.RingAllZero) != nil:
			t.see(true, table.shown, "only zeros")
		case incomplete != nil && table.parsed.Count > 1:
			t.see(false, table.shown, incomplete.Message)
		}
	}
	return t.answer()
}

// sizes can only refute: it sees a program at work with a number that it should refuse.
func sizes(f *Facts) answer {
	var t tally
	users := f.users()
	for _, pid := range slices.Sorted(maps.Keys(users)) {
		if n := len(users[pid]); n&(n-1) != 0 {
			t.see(false, f.tree.Shown(fmt.Sprintf("proc/%d", pid)), fmt.Sprintf("it has %d LPUs open", n))
		}
	}
	return t.answer()
}

// orders can only confirm: that the rings of one server are in order says nothing of others.
func orders(f *Facts) answer {
	var t tally
	inv := f.inventory
	if inv.RingTable == nil {
		return t.answer()
	}
	index := map[string]int{}
	for i := range inv.LPUs {
		index[inv.LPUs[i].Name] = inv.LPUs[i].Index
	}
	if len(inv.Rings) > 1 {
		t.see(true, inv.RingTable.Path, fmt.Sprintf("%d rings", len(inv.Rings)))
	}
	for i := range inv.Rings {
		members := inv.Rings[i].Members
		if !slices.IsSortedFunc(members, func(a, b string) int { return cmp.Compare(index[a], index[b]) }) {
			t.see(true, inv.RingTable.Path, strings.Join(members, " "))
		}
	}
	return t.answer()
}
