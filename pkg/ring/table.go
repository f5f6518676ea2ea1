package ring

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Format is the form a ring table is written in.
type Format string

const (
	// FormatHyperdex is the network table of the HyperDex toolchain, as its documentation shows it:
	//
	//	{"network": [{"src_id": 0, "dst_id": 1, "direction": "Right"}, ...], "num_device": 4}
	//
	// The keys of the ends are src, src_id or src_bdf and likewise dst; an end is the index of a card or
	// the PCI address of one of its functions. Right says that dst is on the right of src. A cable is
	// stated from one end, or, all of them, from both (once Right, once Left). Keys that are not known
	// here are accepted: the format is not ours.
	FormatHyperdex Format = "hyperdex"
	// FormatLpuctl is our own form, in YAML or JSON:
	//
	//	apiVersion: lpuctl.hyperaccel.ai/v1alpha1
	//	kind: RingTable
	//	rings: [["0000:43:00.1", "0000:44:00.1", "0000:83:00.1"]]
	//	links: [{a: lpu3, b: lpu4}, {a: lpu4, b: lpu5}]
	//
	// with rings, links or both. rings lists each closed ring in the order of its cables, a card by itself
	// as a ring of one; links lists single cables, of a chain for instance. An id is a PCI address, a name
	// (lpu3), an index or a serial number; a serial number of digits needs quotes. b is on the right of
	// a, and in a ring the next card, where left and right are known. Unknown keys are refused.
	FormatLpuctl Format = "lpuctl"
)

const (
	apiVersion = "lpuctl.hyperaccel.ai/v1alpha1"
	kind       = "RingTable"
)

// IDKind is what an id in a table identifies a card by.
type IDKind string

// The kinds of id, with an example of each.
const (
	IDIndex   IDKind = "index"   // 3
	IDName    IDKind = "name"    // lpu3: the index with the name that the LPU has
	IDAddress IDKind = "address" // 0000:b1:00.1, or 0000:b1:00
	IDSerial  IDKind = "serial"  // XFL1A2B3C4D5
)

// ID is a card as a table names it.
type ID struct {
	Kind  IDKind
	Text  string // as stated, an address in lower case
	Index int    // for kinds index and name
	Line  int    // where the table mentions it first
}

// String is the id for people: an index is shown as the name that goes with it.
func (id ID) String() string {
	if id.Kind == IDIndex {
		return "lpu" + id.Text
	}
	return id.Text
}

// positional tells whether the id says which of the cards present it means, not what card it is.
func (id ID) positional() bool { return id.Kind == IDIndex || id.Kind == IDName }

// cardKey is what two ids have in common if they are the same card as far as the text tells.
type cardKey struct {
	kind IDKind
	text string
}

func (id ID) key() cardKey {
	switch id.Kind {
	case IDName:
		return cardKey{IDIndex, strconv.Itoa(id.Index)}
	case IDAddress:
		card, _, _ := strings.Cut(id.Text, ".")
		return cardKey{IDAddress, card}
	}
	return cardKey{id.Kind, id.Text}
}

// Link is one cable between two cards, as positions in [Table.IDs]. B is on the right of A, where the table
// says so.
type Link struct {
	A, B int
	Line int // where the table states it first
}

// Table is a ring table as it was written, not yet bound to cards.
type Table struct {
	Format Format
	Count  int    // the number of cards that the table states; 0: it does not
	IDs    []ID   // every card that it names, in order of first mention
	Links  []Link // every cable once, in order of first mention

	file   string // it was read from
	faulty bool   // Parse found an error
}

// Addresses is the PCI addresses that the table names, in ascending order: the cards that should be there,
// if the table is keyed by address. They are in lower case, and have a function only if the table says it.
func (t *Table) Addresses() []string {
	var addresses []string
	for _, id := range t.IDs {
		if id.Kind == IDAddress {
			addresses = append(addresses, id.Text)
		}
	}
	// All parts but the domain have a fixed width, and a domain above ffff has no leading zero.
	slices.SortFunc(addresses, func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.IndexByte(a, ':'), strings.IndexByte(b, ':')), cmp.Compare(a, b))
	})
	return addresses
}

// positions is how many cards a table with indices is for: as many as it states, or up to the highest index. A
// table that knows its cards by what they are is for any number: 0.
func (t *Table) positions() int {
	highest := -1
	for _, id := range t.IDs {
		if id.positional() {
			highest = max(highest, id.Index)
		}
	}
	if highest >= 0 || len(t.IDs) == 0 {
		return max(t.Count, highest+1)
	}
	return 0
}

// byIndex tells whether the table names all its cards by index, and so which are the cards it does not name.
func (t *Table) byIndex() bool {
	return !slices.ContainsFunc(t.IDs, func(id ID) bool { return !id.positional() })
}

// Parse reads a ring table in either format and reports, in one pass, everything that can be found wrong
// without knowing the machine; of very many findings of one code only the first 20 and their number. An error
// among the findings makes the table unusable: it is then good for showing only, and [Bind] binds it to
// nothing. The table is nil if the text cannot be read at all. Warnings about the rings are given only if
// there is no error, which would be their cause.
func Parse(file string, data []byte) (*Table, finding.List) {
	r := &reader{report: report{file: file}, positions: map[cardKey]int{}, table: Table{file: file}}
	root := r.document(data)
	if root == nil {
		return nil, r.done()
	}
	r.readTable(root)
	r.table.faulty = r.findings.HasErrors()
	if !r.table.faulty {
		r.warn()
	}
	return &r.table, r.done()
}

// reader makes a table out of a document.
type reader struct {
	report
	table      Table
	positions  map[cardKey]int // in table.IDs
	places     []place         // of table.IDs
	statements []statement
}

func (r *reader) readTable(root *yaml.Node) {
	var keys []string
	for i := 0; root.Kind == yaml.MappingNode && i < len(root.Content); i += 2 {
		keys = append(keys, root.Content[i].Value)
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(keys, name) })
	}
	switch {
	case has("network", "num_device") && !has("apiVersion", "kind"):
		r.readHyperdex(root)
	case has("apiVersion", "kind", "rings", "links"):
		r.readLpuctl(root)
	case root.ShortTag() == "!!null" || root.Kind == yaml.MappingNode && len(keys) == 0:
		r.empty(place{line: root.Line})
	default:
		r.add(finding.RingType, place{line: root.Line}, nil, "this is not a ring table: it has neither \"network\" nor \"kind: RingTable\"",
			"give the network table of hyperdex-net, or one with apiVersion, kind and rings")
	}
}

// member is one entry of an object.
type member struct {
	name  string // the key as it is written
	value *yaml.Node
	at    place
}

// members reads an object. rename says what a key means, several spellings for one meaning; with valid keys
// given, any other is refused. Of a key that stands twice the first counts.
func (r *reader) members(n *yaml.Node, at place, rename func(string) string, valid []string) map[string]member {
	if n.Kind != yaml.MappingNode {
		r.wrongType(n, at, "an object", "")
		return nil
	}
	found := make(map[string]member, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		m := member{name: key.Value, value: n.Content[i+1], at: place{key.Line, at.pointer + "/" + escape(key.Value)}}
		name := rename(key.Value)
		if first, again := found[name]; again {
			r.add(finding.RingDuplicateKey, m.at, nil, fmt.Sprintf("%.40q on line %d stands here again as %.40q", first.name, first.at.line, m.name), "keep one of them")
			continue
		}
		found[name] = m
		if valid != nil && !slices.Contains(valid, name) {
			r.unknownKey(m, valid)
		}
	}
	return found
}

// escape makes a key an element of a JSON pointer: of bounded length, and with nothing in it that a terminal obeys.
func escape(key string) string {
	key = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, key[:min(len(key), 40)])
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

// list is the elements of a list. A list that is missing or null is empty: jsoncpp, with which HyperDex
// writes, makes null of a value that nothing was appended to.
func (r *reader) list(m member) []*yaml.Node {
	if m.value == nil || m.value.Kind == yaml.ScalarNode && m.value.ShortTag() == "!!null" {
		return nil
	}
	if m.value.Kind != yaml.SequenceNode {
		r.wrongType(m.value, m.at, "a list", "")
		return nil
	}
	return m.value.Content
}

// wrongType reports a value that is not what is wanted. example, if any, is what to write.
func (r *reader) wrongType(n *yaml.Node, at place, want, example string) {
	found := "an object"
	switch n.Kind {
	case yaml.SequenceNode:
		found = "a list"
	case yaml.AliasNode:
		found = "an alias"
	case yaml.ScalarNode:
		found = fmt.Sprintf("%.40q", n.Value)
	}
	r.add(finding.RingType, place{n.Line, at.pointer}, nil, fmt.Sprintf("this must be %s, not %s", want, found), "write "+cmp.Or(example, want))
}

// missing reports a member that has to be there.
func (r *reader) missing(at place, name string) {
	r.add(finding.RingKey, at, nil, fmt.Sprintf("%q is missing here", name), fmt.Sprintf("add %q", name))
}

// maxIndex is as many functions as a PCI domain can have.
const maxIndex = 1<<16 - 1

// wholeNumber reads a whole number from 0 to maxIndex.
func (r *reader) wholeNumber(n *yaml.Node, at place, want, example string) (int, bool) {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || v < 0 || v > maxIndex || strconv.Itoa(v) != n.Value {
		r.wrongType(n, at, want, example)
		return 0, false
	}
	return v, true
}

// id reads an id and returns its position in the table. textual reads those that are strings, and says with ""
// that a string is none; example shows good ones.
func (r *reader) id(m member, example string, textual func(string) IDKind) (position int, ok bool) {
	const want = "the id of a card"
	id := ID{Kind: IDIndex, Text: m.value.Value, Line: m.value.Line}
	if m.value.Kind == yaml.ScalarNode && m.value.ShortTag() == "!!str" {
		id.Kind = textual(id.Text)
		if id.Kind == "" {
			r.wrongType(m.value, m.at, want, example)
			return 0, false
		}
	} else if id.Index, ok = r.wholeNumber(m.value, m.at, want, example); !ok {
		return 0, false
	}
	switch id.Kind {
	case IDAddress:
		id.Text = strings.ToLower(id.Text)
	case IDName:
		id.Index, _ = nameIndex(id.Text)
	}
	position, ok = r.positions[id.key()]
	if !ok {
		position = len(r.table.IDs)
		r.positions[id.key()] = position
		r.table.IDs = append(r.table.IDs, id)
		r.places = append(r.places, place{m.value.Line, m.at.pointer})
	}
	return position, true
}

// nameIndex reads the name of an LPU: lpu3.
func nameIndex(text string) (int, bool) {
	digits, ok := strings.CutPrefix(text, "lpu")
	v, err := strconv.Atoi(digits)
	return v, ok && err == nil && v >= 0 && v <= maxIndex && strconv.Itoa(v) == digits
}

// isAddress tells whether text is a PCI address as the kernel writes it, in either case: 0000:b1:00.1, with or
// without the function. A domain above ffff has as many digits as it needs.
func isAddress(text string) bool {
	card, function, dotted := strings.Cut(text, ".")
	domain, rest, _ := strings.Cut(card, ":")
	bus, device, _ := strings.Cut(rest, ":")
	if len(domain) < 4 || len(domain) > 4 && domain[0] == '0' || len(bus) != 2 || len(device) != 2 || dotted && len(function) != 1 {
		return false
	}
	return isHex(domain, 32) && isHex(bus, 8) && isHex(device, 5) && (!dotted || isHex(function, 3))
}

func isHex(digits string, bits int) bool {
	_, err := strconv.ParseUint(digits, 16, bits)
	return err == nil
}
