package ring

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/hyperaccel/lpuctl/internal/lazy"
	"github.com/hyperaccel/lpuctl/internal/nearest"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Format is the format of a ring table.
type Format string

const (
	// FormatHyperdex is the network table that HyperDex's hyperdex-net writes, as HyperDex's documentation shows it:
	//
	//	{"network": [{"src_id": 0, "dst_id": 1, "direction": "Right"}, ...], "num_device": 4}
	//
	// The keys of the ends are src, src_id or src_bdf and likewise dst; an end is the index of a card or
	// the PCI address of one of its functions. Right says that dst is on the right of src. Either each
	// cable is listed once, or each is listed twice, from both ends (once Right, once Left). Other keys
	// are accepted: the format is not ours. One key is ours: num_container_device, which
	// [WriteContainer] writes, says how many cards the container has. Indices from this number on are
	// cards outside it.
	FormatHyperdex Format = "hyperdex"
	// FormatLpuctl is the format of lpuctl, in YAML or JSON:
	//
	//	apiVersion: lpuctl.hyperaccel.ai/v1alpha1
	//	kind: RingTable
	//	rings: [["0000:43:00.1", "0000:44:00.1", "0000:83:00.1"]]
	//	links: [{a: lpu3, b: lpu4}, {a: lpu4, b: lpu5}]
	//
	// with rings, links or both. rings lists each closed ring in the order of its cables, and a card
	// without cables as a ring of one; links lists single cables, of a chain for instance. An id is a PCI
	// address, a name (lpu3), an index or a serial number; a serial number of digits needs quotes. Where
	// left and right are known, b is on the right of a, and each card in a ring on the right of the one
	// before it. Unknown keys are errors.
	FormatLpuctl Format = "lpuctl"
)

const (
	apiVersion = "lpuctl.hyperaccel.ai/v1alpha1"
	kind       = "RingTable"
)

// IDKind is how an id identifies a card.
type IDKind string

// The kinds of id, with an example of each.
const (
	IDIndex   IDKind = "index"   // 3
	IDName    IDKind = "name"    // lpu3, which is the same as index 3
	IDAddress IDKind = "address" // 0000:b1:00.1, or 0000:b1:00
	IDSerial  IDKind = "serial"  // XFL1A2B3C4D5
)

// ID is a card as a table names it.
type ID struct {
	Kind  IDKind
	Text  string // as it is written, but an address in lower case
	Index int    // for kinds index and name
	Line  int    // where the table names it first

	pointer string // JSON pointer to it on that line
}

// String is the id for people: an index is shown as the name of that LPU.
func (id ID) String() string {
	if id.Kind == IDIndex {
		return "lpu" + id.Text
	}
	return id.Text
}

// positional tells whether the id is a position among the cards that are present: when one is missing, it means another.
func (id ID) positional() bool { return id.Kind == IDIndex || id.Kind == IDName }

func (id ID) at() location { return location{id.Line, id.pointer} }

// key is equal for two ids that are known to mean the same card: only Kind and Text are set.
func (id ID) key() ID {
	key := ID{Kind: id.Kind, Text: id.Text}
	switch id.Kind {
	case IDName:
		key = indexID(id.Index)
	case IDAddress:
		key.Text, _, _ = strings.Cut(id.Text, ".")
	}
	return key
}

func indexID(i int) ID { return ID{Kind: IDIndex, Text: strconv.Itoa(i)} }

// Table is a ring table as it is written, not yet bound to cards.
type Table struct {
	Format Format
	Count  int  // the number of cards that the table gives (num_device); 0: it gives none
	IDs    []ID // every card that it names, in order of first mention; of a container's table, those in the container
	// Links is every cable once, in order of first mention, as positions in IDs: the second card is on the right of
	// the first, where left and right are known.
	Links [][2]int
	// Entries is the links in the order of the file, of a table in HyperDex's format.
	Entries []Entry
	// Container is how many cards the container has that the table is made for; 0: it is made for none.
	Container int

	file   string // it was read from
	json   bool   // it is JSON, and not YAML
	faulty bool   // Parse found an error
}

// Addresses is the PCI addresses that the table names, in ascending order: the cards that should be there,
// if the table is keyed by address. They are in lower case, and have a function only if the table gives one.
func (t *Table) Addresses() (addresses []string) {
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

// positions is the number of cards that a table with indices or names is made for: the given one,
// or more if the highest index needs more, or it names more. 0: the table identifies every card in
// another way, and so works with any number.
func (t *Table) positions() int {
	n := 0
	for _, id := range t.IDs {
		if id.positional() {
			n = max(n, id.Index+1)
		}
	}
	switch {
	case n > 0 && !t.byIndex():
		return max(t.cards(), n, len(t.IDs))
	case n > 0 || len(t.IDs) == 0:
		return max(t.cards(), n)
	}
	return 0
}

// cards is how many cards the table says it lists; 0: it does not say.
func (t *Table) cards() int { return cmp.Or(t.Container, t.Count) }

// byIndex tells whether the table names all its cards by index or name, so that the ones it leaves out are known.
func (t *Table) byIndex() bool {
	return !slices.ContainsFunc(t.IDs, func(id ID) bool { return !id.positional() })
}

// Parse reads a ring table in either format and reports, in one pass, everything that can be found wrong
// without knowing the machine; of many findings with the same id only the first 20 and how many more there are. After
// an error the table can only be shown: [Bind] returns no cabling for it. The table is nil if the text cannot be read
// at all. Warnings about the rings are given only if there is no error, because the error may be their cause.
func Parse(file string, data []byte) (*Table, finding.List) {
	r := &reader{report: newReport(file), known: map[ID]int{}, Table: Table{file: file}}
	root := r.document(data)
	if root == nil {
		return nil, r.done()
	}
	r.readTable(root)
	r.json, r.faulty = json.Valid(data), r.HasErrors()
	if !r.faulty {
		r.warn()
	}
	return &r.Table, r.done()
}

// reader makes a table out of a document.
type reader struct {
	report
	Table            // what was read up to now
	known map[ID]int // positions in IDs, by ID.key
	links []link
}

// name is the name, for people, of the card at a position in IDs.
func (r *reader) name(card int) string { return r.IDs[card].String() }

func (r *reader) readTable(root *yaml.Node) {
	keys, guess := map[string]bool{}, ""
	for i := 0; root.Kind == yaml.MappingNode && i < len(root.Content); i += 2 {
		key := root.Content[i].Value
		keys[key] = true
		guess = cmp.Or(guess, nearest.Word(key, slices.Concat(hyperdexKeys(), lpuctlKeys())))
	}
	header := keys["apiVersion"] || keys["kind"]
	switch {
	case !header && (keys["network"] || keys["num_device"]):
		r.readHyperdex(field{node: root})
	case header || keys["rings"] || keys["links"]:
		r.readLpuctl(field{node: root})
	case root.ShortTag() == "!!null" || root.Kind == yaml.MappingNode && len(keys) == 0:
		r.empty(location{line: root.Line})
	case slices.Contains(hyperdexKeys(), guess):
		r.readHyperdex(field{node: root})
	case guess != "":
		r.readLpuctl(field{node: root})
	default:
		r.add(finding.RingType, location{line: root.Line}, "", "this is not a ring table: it has neither \"network\" nor \"kind: RingTable\"").
			Remedy = "give the network table of hyperdex-net, or one with apiVersion, kind and rings"
	}
}

// The keys of both formats at the top.
func hyperdexKeys() []string { return []string{"network", "num_device"} }
func lpuctlKeys() []string   { return []string{"apiVersion", "kind", "rings", "links"} }

// field is a value in the document: of a key in an object, or an item of a list.
type field struct {
	key  string     // as it is written; "" for an item of a list
	node *yaml.Node // nil: the object does not have this key
	at   location   // of the key, or of the item
}

// object reads an object; its keys are as [canonical] returns them. If a key is there twice, the first one is used. It
// reports required keys that are missing and, unless known is nil, keys that are not known. If known is nil, other keys are
// only reported if they look like a required one that is missing.
func (r *reader) object(f field, known []string, required ...string) map[string]field {
	if f.node.Kind != yaml.MappingNode {
		r.wrongType(f, "an object", "")
		return nil
	}
	found := make(map[string]field, len(f.node.Content)/2)
	for i := 0; i+1 < len(f.node.Content); i += 2 {
		key := f.node.Content[i]
		value := field{key.Value, f.node.Content[i+1], location{key.Line, f.at.pointer + "/" + escape(key.Value)}}
		name := canonical(key.Value)
		if first, twice := found[name]; twice {
			r.add(finding.RingDuplicateKey, value.at, "", "the key %.40q is there twice: see %.40q on line %d", value.key, first.key, first.at.line)
			continue
		}
		found[name] = value
		if known != nil && !slices.Contains(known, name) {
			remedy := "remove it; allowed here: " + strings.Join(known, ", ")
			if meant := nearest.Word(value.key, known); meant != "" {
				remedy = fmt.Sprintf("did you mean %q?", meant)
			}
			r.add(finding.RingKey, value.at, "", "unknown key %.40q", value.key).Remedy = remedy
		}
	}
	for _, name := range required {
		if found[name].node == nil && (known != nil || !r.misspelt(found, name)) {
			r.add(finding.RingKey, f.at, "", "%q is missing here", name).Remedy = fmt.Sprintf("add %q", name)
		}
	}
	return found
}

// misspelt reports the key that looks like a certain one that is missing, if there is one.
func (r *reader) misspelt(found map[string]field, name string) bool {
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if value := found[key]; nearest.Word(key, []string{name}) != "" && !slices.Contains(linkKeys(), key) {
			r.add(finding.RingKey, value.at, "", "unknown key %.40q", value.key).Remedy = fmt.Sprintf("did you mean %q?", name)
			return true
		}
	}
	return false
}

// canonical is the one key for several that mean the same in HyperDex's format.
func canonical(key string) string {
	switch key {
	case "src", "src_bdf":
		return "src_id"
	case "dst", "dst_bdf":
		return "dst_id"
	}
	return key
}

// escape makes a key an element of a JSON pointer: of limited length, and without characters that control a terminal.
func escape(key string) string {
	key = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, key[:min(len(key), 40)])
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

// list reads the items of a list. A list that is missing or null is empty: jsoncpp, with which HyperDex writes, makes
// null of a value that nothing was appended to.
func (r *reader) list(f field) (items []field) {
	if f.node == nil || scalarTag(f.node) == "!!null" {
		return nil
	}
	if f.node.Kind != yaml.SequenceNode {
		r.wrongType(f, "a list", "")
		return nil
	}
	for i, n := range f.node.Content {
		items = append(items, field{node: n, at: location{n.Line, f.at.pointer + "/" + strconv.Itoa(i)}})
	}
	return items
}

// scalarTag is the YAML tag of a scalar, "!!int" for instance; "" for everything else.
func scalarTag(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.ShortTag()
}

// wrongType reports a value that is not what is wanted. The remedy is to write example or, if it is "", what is wanted.
func (r *reader) wrongType(f field, want, example string) {
	found := "an object"
	switch f.node.Kind {
	case yaml.SequenceNode:
		found = "a list"
	case yaml.AliasNode:
		found = "an alias"
	case yaml.ScalarNode:
		found = fmt.Sprintf("%.40q", f.node.Value)
	}
	r.add(finding.RingType, location{f.node.Line, f.at.pointer}, "", "this must be %s, not %s", want, found).
		Remedy = "write " + cmp.Or(example, want)
}

// id reads an id and returns its position in IDs. It does not report a missing one: object does.
func (r *reader) id(f field) (position int, ok bool) {
	if f.node == nil {
		return 0, false
	}
	id := ID{Text: f.node.Value, Line: f.node.Line, pointer: f.at.pointer}
	id.Kind, id.Index = identify(f.node)
	example, ok := `a PCI address ("0000:b1:00.1"), a name (lpu3), an index (3) or a serial number in quotes`, id.Kind != ""
	if r.directed() {
		example, ok = `an index (3) or a PCI address ("0000:b1:00.1")`, id.Kind == IDIndex || id.Kind == IDAddress
	}
	if !ok {
		if digits := lpuForm().FindStringSubmatch(id.Text); digits != nil && !r.directed() {
			example = "lpu" + digits[1]
		}
		r.wrongType(f, "the id of a card", example)
		return 0, false
	}
	if id.Kind == IDAddress {
		id.Text = strings.ToLower(id.Text)
		if strings.Count(id.Text, ":") == 1 { // as lspci shortens it
			id.Text = "0000:" + id.Text
		}
	}
	key := id.key()
	position, ok = r.known[key]
	if !ok {
		position = len(r.IDs)
		r.known[key] = position
		r.IDs = append(r.IDs, id)
	}
	return position, true
}

// addressForm is a PCI address as the kernel writes it, in either case and with or without the function, or as lspci writes it,
// without domain 0000; a domain above ffff has as many digits as it needs. serialForm is what a serial number can be: a colon
// would make it a misspelt address, and without a digit it would be a word such as yes. lpuForm is what somebody meant as a name.
var (
	addressForm = lazy.Regexp(`^(?i)(([0-9a-f]{4}|[1-9a-f][0-9a-f]{4,7}):)?[0-9a-f]{2}:[01][0-9a-f](\.[0-7])?$`)
	serialForm  = lazy.Regexp(`^[!-9;-~]*[0-9][!-9;-~]*$`)
	lpuForm     = lazy.Regexp(`^(?i)lpu[-_ ]?0*([0-9]+)$`)
)

const serialMax = 64 // characters

// identify tells what kind of id a value is; "" is none.
func identify(n *yaml.Node) (kind IDKind, index int) {
	switch scalarTag(n) {
	case "!!int":
		if index, ok := decimal(n.Value); ok {
			return IDIndex, index
		}
	case "!!str":
		digits, named := strings.CutPrefix(n.Value, "lpu")
		index, ok := decimal(digits)
		switch {
		case named && ok:
			return IDName, index
		case addressForm().MatchString(n.Value):
			return IDAddress, 0
		case len(n.Value) <= serialMax && serialForm().MatchString(n.Value) && !lpuForm().MatchString(n.Value):
			return IDSerial, 0
		}
	}
	return "", 0
}

// decimal reads a whole number without sign and leading zeros, up to 65535: a PCI domain has no more functions.
func decimal(text string) (int, bool) {
	v, err := strconv.ParseUint(text, 10, 16)
	return int(v), err == nil && strconv.FormatUint(v, 10) == text
}
