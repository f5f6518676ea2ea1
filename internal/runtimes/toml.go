package runtimes

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// document is a TOML file: its values, and the line of each.
type document struct {
	path  string // on the machine
	shown string // the path, for messages
	data  []byte
	tree  map[string]any
	lines map[string]int // of keys, of tables and of strings in lists, by [lineKey]
}

// tomlError is what is wrong with a document, and on which line.
type tomlError struct {
	line    int
	message string
}

func (e *tomlError) Error() string { return e.message }

// errorLocation is the location of an error of readTOML.
func errorLocation(file string, err error) location {
	if e, ok := errors.AsType[*tomlError](err); ok {
		return location{file, e.line}
	}
	return location{file: file}
}

// readTOML reads a file. Its error is a *tomlError, or of the file system.
func (m machine) readTOML(path string) (*document, error) {
	data, err := m.Read(path, configMax)
	if err != nil {
		return nil, err
	}
	d, err := parseTOML(data)
	if err == nil {
		d.path, d.shown = path, m.Shown(path)
	}
	return d, err
}

func parseTOML(data []byte) (*document, error) {
	d := &document{data: data, tree: map[string]any{}, lines: map[string]int{}}
	if err := toml.Unmarshal(data, &d.tree); err != nil {
		fault := &tomlError{message: strings.TrimPrefix(err.Error(), "toml: ")}
		if e, ok := errors.AsType[*toml.DecodeError](err); ok {
			fault.line, _ = e.Position()
		}
		return nil, fault
	}
	l := locator{document: d, line: 1}
	var header []string
	var p unstable.Parser
	p.Reset(data)
	for p.NextExpression() {
		if e := p.Expression(); e.Kind == unstable.KeyValue {
			l.keyValue(e, header)
		} else {
			header = keysOf(e)
			l.mark(e.Child(), header)
		}
	}
	return d, nil
}

// locator finds the line of every key of a document, from its top to its end.
type locator struct {
	*document
	line   int // of offset
	offset uint32
}

// mark notes the line of a node as that of a path. The first one of a path counts.
func (l *locator) mark(n *unstable.Node, path []string) {
	l.line += bytes.Count(l.data[l.offset:n.Raw.Offset], []byte("\n"))
	l.offset = n.Raw.Offset
	if k := lineKey(path...); l.lines[k] == 0 {
		l.lines[k] = l.line
	}
}

// keyValue marks a key, the tables that it implies, and what is in its value.
func (l *locator) keyValue(e *unstable.Node, base []string) {
	path := slices.Concat(base, keysOf(e))
	for n := len(base) + 1; n <= len(path); n++ {
		l.mark(e, path[:n])
	}
	for it := e.Value().Children(); it.Next(); {
		switch child := it.Node(); child.Kind {
		case unstable.KeyValue:
			l.keyValue(child, path)
		case unstable.String:
			l.mark(child, append(path, string(child.Data)))
		}
	}
}

// keysOf are the parts of a dotted key.
func keysOf(e *unstable.Node) []string {
	var keys []string
	for it := e.Key(); it.Next(); {
		keys = append(keys, string(it.Node().Data))
	}
	return keys
}

// lineKey joins a path. Config files of containerd may write their own keys in any case.
func lineKey(path ...string) string { return strings.ToLower(strings.Join(path, "\x00")) }

// at is the location of a path in the file. For a table that only its subtables imply it
// is the first of them; for what is not there, the file as a whole.
func (d *document) at(path ...string) location {
	key := lineKey(path...)
	line := d.lines[key]
	for k, below := range d.lines {
		if d.lines[key] == 0 && strings.HasPrefix(k, key+"\x00") && (line == 0 || below < line) {
			line = below
		}
	}
	return location{d.shown, line}
}

// lookup finds a key in a table in any case, the exact one first, as go-toml does for
// containerd.
func lookup(t map[string]any, key string) any {
	if v, ok := t[key]; ok {
		return v
	}
	for _, k := range sortedNames(t) {
		if strings.EqualFold(k, key) {
			return t[k]
		}
	}
	return nil
}

// valueAt is what a path leads to in a tree; nil if there is nothing.
func valueAt(tree any, path ...string) any {
	for _, name := range path {
		table, _ := tree.(map[string]any)
		tree = lookup(table, name)
	}
	return tree
}

func sortedNames[V any](t map[string]V) []string { return slices.Sorted(maps.Keys(t)) }

// list reads an array of strings. That it is something else is an error.
func list(v any) ([]string, error) {
	items, ok := v.([]any)
	if !ok && v != nil {
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
