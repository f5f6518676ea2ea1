package ring

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hyperaccel/lpuctl/internal/lazy"
	"github.com/hyperaccel/lpuctl/internal/nearest"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Format is the format of a ring table.
type Format string

const (
	// FormatHyperdex is the network table that HyperDex's hyperdex-net writes, as
	// HyperDex's documentation shows it:
	//
	//	{"network": [{"src_id": 0, "dst_id": 1, "direction": "Right"}, ...], "num_device": 4}
	//
	// The keys of the ends are src, src_id or src_bdf and likewise dst; an end is the
	// index of a card or the PCI address of one of its functions. Right says that dst is
	// on the right of src. Either each cable is listed once, or each is listed twice,
	// from both ends (once Right, once Left). Other keys are accepted: the format is not
	// ours. Two keys are ours: num_container_device, which [WriteContainer] writes, and
	// num_node_device of [WriteNode] say how many cards the container or the node has.
	// Indices from this number on are none of them.
	FormatHyperdex Format = "hyperdex"
	// FormatLpuctl is the format of lpuctl, in YAML or JSON:
	//
	//	apiVersion: lpuctl.hyperaccel.ai/v1alpha1
	//	kind: RingTable
	//	rings: [["0000:43:00.1", "0000:44:00.1", "0000:83:00.1"]]
	//	links: [{a: lpu3, b: lpu4}, {a: lpu4, b: lpu5}]
	//
	// with rings, links or both. rings lists each closed ring in the order of its cables,
	// and a card without cables as a ring of one; links lists single cables, of a chain
	// for instance. An id is a PCI address, a name (lpu3), an index or a serial number; a
	// serial number of digits needs quotes. Where left and right are known, b is on the
	// right of a, and each card in a ring on the right of the one before it. Unknown keys
	// are errors.
	FormatLpuctl Format = "lpuctl"
)

const kind = "RingTable"

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
	Text  string // as it is written, but an address in lower case and with its domain
	Index int    // for kinds index and name
	Line  int    // where the table names it first
	// Address is that of kind address. Its function is 0 if Text has none.
	Address pci.Address

	pointer string // JSON pointer to it on that line
}

// String is the id for people: an index is shown as the name of that LPU.
func (id ID) String() string {
	if id.Kind == IDIndex {
		return "lpu" + id.Text
	}
	return id.Text
}

// positional reports whether the id is a position among the cards that are present: when
// one is missing, it means another.
func (id ID) positional() bool { return id.Kind == IDIndex || id.Kind == IDName }

func (id ID) at() location { return location{id.Line, id.pointer} }

// key is equal for two ids that are known to mean the same card.
func (id ID) key() ID {
	switch id.Kind {
	case IDName:
		return indexID(id.Index)
	case IDAddress:
		return ID{Kind: IDAddress, Address: id.Address.Sibling(0)}
	}
	return ID{Kind: id.Kind, Text: id.Text}
}

// Name returns how the card with an index is called: lpu3.
func Name(index int) string { return indexID(index).String() }

func indexID(i int) ID { return ID{Kind: IDIndex, Text: strconv.Itoa(i)} }

// Table is a ring table as it is written, not yet bound to cards.
type Table struct {
	Format Format
	Count  int // the number of cards that the table gives (num_device); 0: it gives none
	// IDs is every card that it names, in order of first mention; of a container's table,
	// those in the container.
	IDs []ID
	// Links is every cable once, in order of first mention, as positions in IDs: the
	// second card is on the right of the first, where left and right are known.
	Links [][2]int
	// Entries is the links in the order of the file, of a table in HyperDex's format.
	Entries []Entry
	// Container is how many cards the container has that the table is made for, or the
	// node; 0: they are those that it names.
	Container int
	OfNode    bool // it is made for a node, as [WriteNode] writes it, and so lists all cables
	// Extra is keys of a table in HyperDex's format that are not known, quoted; of many
	// only the first. What lpuctl writes does not have them.
	Extra []string

	file   string // it was read from
	json   bool   // it is JSON, and not YAML
	faulty bool   // Parse found an error
}

// Addresses returns the PCI addresses that the table names, in ascending order: the cards
// that should be there, if the table is keyed by address. Where the table gives no
// function it is the given one.
func (t *Table) Addresses(function uint8) (addresses []pci.Address) {
	for _, id := range t.IDs {
		switch {
		case id.Kind != IDAddress:
		case strings.Contains(id.Text, "."):
			addresses = append(addresses, id.Address)
		default:
			addresses = append(addresses, id.Address.Sibling(function))
		}
	}
	slices.SortFunc(addresses, pci.Address.Compare)
	return addresses
}

// positions is the number of cards that a table with indices or names is made for: the
// given one, or more if the highest index needs more, or it names more. 0: the table
// identifies every card in another way, and so works with any number.
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

// Has reports whether an index is that of a card of the table or, if it is made for a
// container, of the container.
func (t *Table) Has(index int) bool { return index < t.positions() }

// ofContainer reports whether the table is made for a container, which may have some
// cards of a ring only.
func (t *Table) ofContainer() bool { return t.Container > 0 && !t.OfNode }

// cards is how many cards the table says it lists; 0: it does not say.
func (t *Table) cards() int { return cmp.Or(t.Container, t.Count) }

// byIndex reports whether the table names all its cards by index or name, so that the
// ones it leaves out are known.
func (t *Table) byIndex() bool {
	return !slices.ContainsFunc(t.IDs, func(id ID) bool { return !id.positional() })
}

// Cabling returns how the cards are cabled of a table that names all of them by index or
// name. It is nil for others, which need [Bind], and for a table with errors.
func (t *Table) Cabling() *Cabling {
	if t == nil || t.faulty || !t.byIndex() {
		return nil
	}
	links := make([][2]int, len(t.Links))
	for i, l := range t.Links {
		links[i] = [2]int{t.IDs[l[0]].Index, t.IDs[l[1]].Index}
	}
	return newCabling(t.positions(), links)
}

// Parse reads a ring table in either format and reports, in one pass, everything that can
// be found wrong without knowing the machine; of many findings with the same id only the
// first 20 and how many more there are. After an error the table can only be shown:
// [Bind] returns no cabling for it. The table is nil if the text cannot be read at all.
// Warnings about the rings are given only if there is no error, because the error may be
// their cause.
func Parse(file string, data []byte) (*Table, finding.List) {
	r := &parser{report: newReport(file), known: map[ID]int{}, Table: Table{file: file}}
	root := r.document(data)
	if root == nil {
		return nil, r.done()
	}
	r.readTable(root)
	r.json, r.faulty = json.Valid(data), r.HasErrors()
	if !r.faulty {
		if !r.ofContainer() { // where one has only some cards of a ring, cables to others are not missing
			r.checkRings()
		}
		r.checkHyperdex()
	}
	return &r.Table, r.done()
}

// parser makes a table out of a document.
type parser struct {
	report
	Table            // what was read up to now
	known map[ID]int // positions in IDs, by ID.key
	links []link
}

// name is the name, for people, of the card at a position in IDs.
func (r *parser) name(card int) string { return r.IDs[card].String() }

func (r *parser) readTable(root field) {
	keys, guess := map[string]bool{}, ""
	for _, f := range root.Children() {
		keys[f.Key] = true
		guess = cmp.Or(guess, nearest.Word(f.Key, slices.Concat(hyperdexKeys(), lpuctlKeys())))
	}
	header := keys["apiVersion"] || keys["kind"]
	switch {
	case !header && (keys["network"] || keys["num_device"]):
		r.readHyperdex(root)
	case header || keys["rings"] || keys["links"]:
		r.readLpuctl(root)
	case root.Node.ShortTag() == "!!null" || root.Node.Kind == yaml.MappingNode && len(keys) == 0:
		r.empty(location{line: root.Line})
	case slices.Contains(hyperdexKeys(), guess):
		r.readHyperdex(root)
	case guess != "":
		r.readLpuctl(root)
	default:
		r.add(finding.RingType, location{line: root.Line}, "", "this is not a ring table: it has neither \"network\" nor \"kind: RingTable\"").
			Remedy = "give the network table of hyperdex-net, or one with apiVersion, kind and rings"
	}
}

// The keys of both formats at the top.
func hyperdexKeys() []string { return []string{"network", "num_device"} }
func lpuctlKeys() []string   { return []string{"apiVersion", "kind", "rings", "links"} }

// object reads an object; its keys are as [canonical] returns them. If a key is there
// twice, the first one is used. It reports required keys that are missing and, unless
// known is nil, keys that are not known. If known is nil, other keys are only reported if
// they look like a required one that is missing.
func (r *parser) object(f field, known []string, required ...string) map[string]field {
	if f.Node.Kind != yaml.MappingNode {
		r.wrongType(f, "an object", "")
		return nil
	}
	found := make(map[string]field, len(f.Node.Content)/2)
	for name, value := range f.Unique(canonical, r.fault) {
		found[name] = value
		if known != nil && !slices.Contains(known, name) {
			value.Unknown(known, "remove it; allowed here: "+strings.Join(known, ", "), r.fault)
		}
	}
	for _, name := range required {
		if found[name] == nil && (known != nil || !r.misspelt(found, name)) {
			r.add(finding.RingKey, at(f), "", "%q is missing here", name).Remedy = fmt.Sprintf("add %q", name)
		}
	}
	return found
}

// misspelt reports the key that looks like a certain one that is missing, if there is
// one.
func (r *parser) misspelt(found map[string]field, name string) bool {
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if value := found[key]; nearest.Word(key, []string{name}) != "" && !slices.Contains(linkKeys(), key) {
			value.Unknown([]string{name}, "", r.fault)
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

// list reads the items of a list. A list that is missing or null is empty: jsoncpp, with
// which HyperDex writes, makes null of a value that nothing was appended to.
func (r *parser) list(f field) (items []field) {
	if f == nil || scalarTag(f.Node) == "!!null" {
		return nil
	}
	if f.Node.Kind != yaml.SequenceNode {
		r.wrongType(f, "a list", "")
		return nil
	}
	return f.Children()
}

// scalarTag is the YAML tag of a scalar, "!!int" for instance; "" for everything else.
func scalarTag(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.ShortTag()
}

// wrongType reports a value that is not what is wanted. The remedy is to write example
// or, if it is "", what is wanted.
func (r *parser) wrongType(f field, want, example string) {
	r.add(finding.RingType, at(f.Itself()), "", "this must be %s, not %s", want, f.Describe("an object")).
		Remedy = "write " + cmp.Or(example, want)
}

// id reads an id and returns its position in IDs. It does not report a missing one:
// object does.
func (r *parser) id(f field) (position int, ok bool) {
	if f == nil {
		return 0, false
	}
	id := ID{Text: f.Node.Value, Line: f.Node.Line, pointer: f.Pointer()}
	id.Kind, id.Index = identify(f.Node)
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
		address, hasFunction, _ := pci.ParseLoose(id.Text)
		id.Address, id.Text = address, address.String()
		if !hasFunction {
			id.Text = strings.TrimSuffix(id.Text, ".0")
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

// serialForm is what a serial number can be: a colon would make it a misspelt address,
// and without a digit it would be a word such as yes. lpuForm is what was probably meant
// as a name.
var (
	serialForm = lazy.Regexp(`^[!-9;-~]*[0-9][!-9;-~]*$`)
	lpuForm    = lazy.Regexp(`^(?i)lpu[-_ ]?0*([0-9]+)$`)
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
		_, _, address := pci.ParseLoose(n.Value)
		switch {
		case named && ok:
			return IDName, index
		case address:
			return IDAddress, 0
		case len(n.Value) <= serialMax && serialForm().MatchString(n.Value) && !lpuForm().MatchString(n.Value):
			return IDSerial, 0
		}
	}
	return "", 0
}

// decimal reads a whole number without sign and leading zeros, up to 65535: a PCI domain
// has no more functions.
func decimal(text string) (int, bool) {
	v, err := strconv.ParseUint(text, 10, 16)
	return int(v), err == nil && strconv.FormatUint(v, 10) == text
}
