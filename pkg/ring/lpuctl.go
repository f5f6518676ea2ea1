package ring

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hyperaccel/lpuctl/internal/nearest"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func (r *reader) readLpuctl(root *yaml.Node) {
	r.table.Format = FormatLpuctl
	same := func(key string) string { return key }
	top := r.members(root, place{}, same, []string{"apiVersion", "kind", "rings", "links"})
	r.checkHeader(top["apiVersion"], "apiVersion", apiVersion)
	r.checkHeader(top["kind"], "kind", kind)
	for i, n := range r.list(top["rings"]) {
		r.readRing(member{value: n, at: place{n.Line, "/rings/" + strconv.Itoa(i)}})
	}
	for i, n := range r.list(top["links"]) {
		at := place{n.Line, "/links/" + strconv.Itoa(i)}
		link := r.members(n, at, same, []string{"a", "b"})
		if link == nil {
			continue
		}
		a, ok1 := r.lpuctlID(link["a"], "a", at)
		b, ok2 := r.lpuctlID(link["b"], "b", at)
		if ok1 && ok2 {
			r.statements = append(r.statements, statement{from: a, to: b, at: at})
		}
	}
	if len(r.table.IDs) == 0 && !r.findings.HasErrors() {
		r.empty(place{line: root.Line})
	}
	r.checkLinks(false)
}

func (r *reader) checkHeader(m member, name, want string) {
	switch {
	case m.value == nil:
		r.add(finding.RingKey, place{}, nil, fmt.Sprintf("%q is missing", name), fmt.Sprintf("add \"%s: %s\"", name, want))
	case m.value.Kind != yaml.ScalarNode || m.value.Value != want:
		r.wrongType(m.value, m.at, want, "")
	}
}

func (r *reader) unknownKey(m member, valid []string) {
	remedy := "remove it; known here: " + strings.Join(valid, ", ")
	if meant := nearest.Word(m.name, valid); meant != "" {
		remedy = fmt.Sprintf("did you mean %q?", meant)
	}
	r.add(finding.RingKey, m.at, nil, fmt.Sprintf("unknown key %.40q", m.name), remedy)
}

// readRing reads one ring. A card that stands in a ring already has no port left, so its cables are not looked
// at any more.
func (r *reader) readRing(m member) {
	cards := r.list(m)
	if len(cards) == 0 && !r.findings.HasErrors() {
		r.empty(m.at)
		return
	}
	positions, sound := make([]int, 0, len(cards)), true
	for i, n := range cards {
		at := place{n.Line, m.at.pointer + "/" + strconv.Itoa(i)}
		known := len(r.table.IDs)
		position, ok := r.lpuctlID(member{value: n, at: at}, "", at)
		if ok && position < known {
			id := r.table.IDs[position]
			r.add(finding.RingDegree, at, []string{id.String()}, fmt.Sprintf("%s stands in the rings again (first on line %d)", id, id.Line), "a card has two ports: list it once")
			ok = false
		}
		sound = sound && ok
		positions = append(positions, position)
	}
	if !sound || len(positions) < 2 {
		return
	}
	for i, from := range positions {
		if i+1 == len(positions) && i < 2 {
			break // two cards: one cable
		}
		r.statements = append(r.statements, statement{from: from, to: positions[(i+1)%len(positions)], ring: true, at: m.at})
	}
}

// lpuctlID reads any id. name is the key it should stand under.
func (r *reader) lpuctlID(m member, name string, at place) (int, bool) {
	if m.value == nil {
		r.missing(at, name)
		return 0, false
	}
	const example = "a PCI address (\"0000:b1:00.1\"), a name (lpu3), an index (3) or a serial number in quotes"
	return r.id(m, example, func(text string) IDKind {
		_, isName := nameIndex(text)
		switch {
		case isName:
			return IDName
		case isAddress(text):
			return IDAddress
		case isSerial(text):
			return IDSerial
		}
		return ""
	})
}

// isSerial tells whether text can be a serial number: up to 64 printable characters of ASCII. A colon would
// make it an address that is misspelt.
func isSerial(text string) bool {
	return text != "" && len(text) <= 64 && !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || c == ':' })
}
