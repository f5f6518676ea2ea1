package runtimes

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// document is a TOML file: its values, and where each of them stands.
type document struct {
	machine
	path  string // on the machine
	tree  map[string]any
	spots map[string]spot
}

// spot is where a key stands, and how it is written there.
type spot struct {
	line, last int    // lines of the key and its value, from 1
	written    string // the key as it would be repeated on the next line
	header     bool   // it is a [table]
	inline     bool   // it stands within { }
	braces     bool   // its value is a table in { }
}

// syntaxError is what is wrong with a document, and where.
type syntaxError struct {
	line    int
	message string
}

func (e *syntaxError) Error() string { return e.message }

// faultyAt is where an error of readTOML is.
func faultyAt(file string, err error) place {
	if syntax, ok := errors.AsType[*syntaxError](err); ok {
		return place{file, syntax.line}
	}
	return place{file: file}
}

// readTOML reads a file. Its error is a *syntaxError, or of the file system.
func (m machine) readTOML(path string) (*document, error) {
	data, err := m.Read(path, configMax)
	if err != nil {
		return nil, err
	}
	d, err := parseTOML(data)
	if err != nil {
		return nil, err
	}
	d.machine, d.path = m, path
	return d, nil
}

func parseTOML(data []byte) (*document, error) {
	d := &document{tree: map[string]any{}, spots: map[string]spot{}}
	if err := toml.Unmarshal(data, &d.tree); err != nil {
		fault := &syntaxError{message: strings.TrimPrefix(err.Error(), "toml: ")}
		if e, ok := errors.AsType[*toml.DecodeError](err); ok {
			fault.line, _ = e.Position()
		}
		return nil, fault
	}
	l := locator{spots: d.spots}
	for i, c := range data {
		if c == '\n' {
			l.ends = append(l.ends, i)
		}
	}
	var p unstable.Parser
	p.Reset(data)
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind == unstable.KeyValue {
			l.value(e, l.header, false)
			continue
		}
		l.header = keysOf(e)
		line := l.line(e.Child().Raw.Offset)
		l.mark(l.header, spot{line: line, last: line, header: true})
	}
	return d, nil
}

// locator goes through the expressions of a document.
type locator struct {
	spots  map[string]spot
	ends   []int    // offsets of the newlines
	header []string // the table that the expression stands under
}

func (l *locator) line(offset uint32) int {
	before, _ := slices.BinarySearch(l.ends, int(offset))
	return before + 1
}

// keysOf are the parts of a dotted key.
func keysOf(e *unstable.Node) []string {
	var keys []string
	for it := e.Key(); it.Next(); {
		keys = append(keys, string(it.Node().Data))
	}
	return keys
}

// value marks where a key, the tables on the way to it and what is in its value stand.
func (l *locator) value(e *unstable.Node, base []string, inline bool) {
	all := slices.Concat(base, keysOf(e))
	s := spot{line: l.line(e.Raw.Offset), last: l.line(e.Raw.Offset + e.Raw.Length - 1), inline: inline}
	for n := len(base) + 1; n <= len(all); n++ {
		s.written = dotted(all[len(l.header):n])
		s.braces = n == len(all) && e.Value().Kind == unstable.InlineTable
		l.mark(all[:n], s)
	}
	for it := e.Value().Children(); it.Next(); {
		child := it.Node()
		switch child.Kind {
		case unstable.KeyValue:
			l.value(child, all, true)
		case unstable.String:
			at := l.line(child.Raw.Offset)
			l.mark(append(slices.Clone(all), string(child.Data)), spot{line: at, last: at, inline: true})
		}
	}
}

// mark keeps the first spot of a path, but a header for a table that was only on the way to others before.
func (l *locator) mark(path []string, s spot) {
	k := spotKey(path...)
	if have, ok := l.spots[k]; !ok || s.header && !have.header {
		l.spots[k] = s
	}
}

// spotKey joins a path. Config files of containerd may write their own keys in any case.
func spotKey(path ...string) string { return strings.ToLower(strings.Join(path, "\x00")) }

// at is the place of a path in the file: where it or, if only that is written, what is below it begins. It is the
// file as a whole if neither is there.
func (d *document) at(path ...string) place {
	if len(path) == 0 {
		return place{file: d.Shown(d.path)}
	}
	line := d.spots[spotKey(path...)].line
	if line == 0 {
		below := spotKey(path...) + "\x00"
		for k, s := range d.spots {
			if strings.HasPrefix(k, below) && (line == 0 || s.line < line) {
				line = s.line
			}
		}
	}
	return place{d.Shown(d.path), line}
}

// dotted writes a key of several parts, each in quotes where it must be.
func dotted(keys []string) string {
	parts := make([]string, len(keys))
	for i, k := range keys {
		parts[i] = k
		if k == "" || strings.Trim(k, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
			parts[i] = strconv.Quote(k)
		}
	}
	return strings.Join(parts, ".")
}

// lookup finds a key in a table in any case, the exact one first, as go-toml does for containerd.
func lookup(t map[string]any, key string) any {
	if v, ok := t[key]; ok {
		return v
	}
	for _, k := range slices.Sorted(maps.Keys(t)) {
		if strings.EqualFold(k, key) {
			return t[k]
		}
	}
	return nil
}

// list reads an array of strings. That it is something else is an error.
func list(v any) ([]string, error) {
	if v == nil {
		return nil, nil
	}
	items, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("must be a list of strings, not %v", v)
	}
	texts := make([]string, len(items))
	for i, item := range items {
		if texts[i], ok = item.(string); !ok {
			return nil, fmt.Errorf("must be a list of strings, not of %v", item)
		}
	}
	return texts, nil
}
