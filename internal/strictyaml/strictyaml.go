// Package strictyaml reads YAML, and so JSON, into Go values. It reports every mistake with its line: unknown and duplicate
// keys, values of the wrong type, a second document.
package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/hyperaccel/lpuctl/internal/nearest"
)

// Kind says what kind of mistake a Fault is.
type Kind string

// The kinds of mistakes.
const (
	Syntax    Kind = "syntax"
	Unknown   Kind = "unknown-key"
	Duplicate Kind = "duplicate-key"
	Type      Kind = "type"
	Null      Kind = "null" // an item of a list that would be a nil pointer

	// What decoders that are not strict read without an error.
	Second Kind = "second-document"
	Alias  Kind = "alias" // a merge key too
	Loose  Kind = "loose" // a scalar that is converted: 0 for a string, null for a number; an empty item of a list
)

// Strict tells whether only a strict decoder takes it for a mistake.
func (k Kind) Strict() bool { return k == Second || k == Alias || k == Loose }

// Fault is one mistake in a document.
type Fault struct {
	Kind    Kind
	Line    int    // from 1; 0: the document as a whole
	Path    string // of the value: keys and positions from 0, joined by dots, such as "models.0.match"
	Message string // what is wrong
	Remedy  string // what to do about it
}

// Document knows the line of each value in a text that Decode has read.
type Document struct{ lines map[string]int }

// Line is the line, from 1, of the value at path. Where the document has no such value it is the line of the nearest value
// that contains it, and 0 if there is none.
func (d *Document) Line(path string) int {
	line, i := d.lines[path], strings.LastIndexByte(path, '.')
	if line > 0 || i < 0 {
		return line
	}
	return d.Line(path[:i])
}

// Has tells whether the document has a value at path.
func (d *Document) Has(path string) bool { return d.lines[path] > 0 }

// Decode reads data into a struct with json tags, to which into points. It reports every mistake, and fills the struct only
// if there is none. An empty document is not a mistake.
func Decode(data []byte, into any) (*Document, []Fault) {
	w := &walker{doc: &Document{lines: map[string]int{}}}
	decoder := yamlv3.NewDecoder(bytes.NewReader(data))
	var root yamlv3.Node
	err := decoder.Decode(&root)
	if errors.Is(err, io.EOF) {
		return w.doc, nil
	}
	if err != nil {
		return w.doc, []Fault{syntaxFault(err)}
	}
	w.walk(root.Content[0], reflect.TypeOf(into).Elem(), "")
	var second yamlv3.Node
	if err := decoder.Decode(&second); err == nil {
		w.fault(Second, &second, "", "a second document starts here", "keep one document in the file")
	} else if !errors.Is(err, io.EOF) {
		f := syntaxFault(err)
		f.Kind = Second
		w.faults = append(w.faults, f)
	}
	if len(w.faults) > 0 {
		return w.doc, w.faults
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		return w.doc, []Fault{{Kind: Type, Message: err.Error(), Remedy: "correct the value"}}
	}
	return w.doc, nil
}

func syntaxFault(err error) Fault {
	f := Fault{Kind: Syntax, Remedy: "correct the YAML syntax of this line or the line above"}
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	place, rest, _ := strings.Cut(message, ": ")
	if n, err := strconv.Atoi(strings.TrimPrefix(place, "line ")); err == nil {
		f.Line, message = n, rest
	}
	f.Message = "not YAML: " + message
	return f
}

type walker struct {
	doc    *Document
	faults []Fault
}

func (w *walker) fault(kind Kind, n *yamlv3.Node, path, message, remedy string) {
	w.faults = append(w.faults, Fault{Kind: kind, Line: n.Line, Path: path, Message: message, Remedy: remedy})
}

// walk checks that a node, and all below it, can be read into a type.
func (w *walker) walk(n *yamlv3.Node, t reflect.Type, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	w.doc.lines[path] = n.Line
	switch {
	case n.Kind == yamlv3.AliasNode:
		w.fault(Alias, n, path, "the alias *"+n.Value+" is not supported", "write the value itself")
	case t.Kind() == reflect.Struct && n.Kind == yamlv3.MappingNode:
		w.walkMapping(n, fieldsOf(t), nil, path)
	case t.Kind() == reflect.Map && n.Kind == yamlv3.MappingNode:
		w.walkMapping(n, nil, t.Elem(), path)
	case t.Kind() == reflect.Slice && n.Kind == yamlv3.SequenceNode:
		w.walkList(n, t.Elem(), path)
	case n.Kind != yamlv3.ScalarNode || !scalarFits(n, t):
		w.mismatch(n, t, path)
	}
}

// walkList checks the items of a list. Decoders pass over an empty one, and do not count it, unless it is a pointer to be.
func (w *walker) walkList(n *yamlv3.Node, t reflect.Type, path string) {
	count := 0
	for _, child := range n.Content {
		item := join(path, strconv.Itoa(count))
		empty, pointer := child.ShortTag() == "!!null", t.Kind() == reflect.Pointer
		switch {
		case !empty:
			w.walk(child, t, item)
		case pointer:
			w.fault(Null, child, item, item+" is empty", "remove it, or write a value")
		default:
			w.fault(Loose, child, item, "an item of "+cmp.Or(path, "the list")+" is empty", "remove it, or write a value")
		}
		if !empty || pointer {
			count++
		}
	}
}

// walkMapping checks a mapping. fields has the type of the value of each key that it may have. Where every is not nil, the
// mapping may have any keys, and every is the type of their values.
func (w *walker) walkMapping(n *yamlv3.Node, fields map[string]reflect.Type, every reflect.Type, path string) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		if line, again := seen[key.Value]; again {
			w.fault(Duplicate, key, at, fmt.Sprintf("key %q is already on line %d", key.Value, line), "keep one of them")
			continue
		}
		seen[key.Value] = key.Line
		if key.ShortTag() == "!!merge" {
			w.fault(Alias, key, at, "the merge key << is not supported", "write the values themselves")
			continue
		}
		t := cmp.Or(fields[key.Value], every)
		if t == nil {
			w.unknown(key, fields, path)
			continue
		}
		w.walk(value, t, at)
		w.doc.lines[at] = key.Line
	}
}

func (w *walker) unknown(key *yamlv3.Node, fields map[string]reflect.Type, path string) {
	remedy := "remove it"
	if meant := nearest.Word(key.Value, slices.Collect(maps.Keys(fields))); meant != "" {
		remedy = fmt.Sprintf("did you mean %q?", meant)
	}
	where := ""
	if path != "" {
		where = " in " + path
	}
	w.fault(Unknown, key, join(path, key.Value), fmt.Sprintf("unknown key %q%s", key.Value, where), remedy)
}

// fieldsOf maps the json names of a struct to their types.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			fields[name] = f.Type
		}
	}
	return fields
}

// scalarFits tells whether a scalar, with the type that YAML gives it, can be read into t. A null can be read into lists and
// mappings: it is their zero value.
func scalarFits(n *yamlv3.Node, t reflect.Type) bool {
	switch tag := n.ShortTag(); t.Kind() {
	case reflect.String:
		return tag == "!!str" && (n.Style != 0 || !isOldBool(n.Value))
	case reflect.Bool:
		return tag == "!!bool"
	case reflect.Int, reflect.Int64:
		_, err := strconv.ParseInt(n.Value, 0, 64)
		return tag == "!!int" && err == nil
	case reflect.Uint8, reflect.Uint32:
		_, err := strconv.ParseUint(n.Value, 0, t.Bits())
		return tag == "!!int" && err == nil
	case reflect.Slice, reflect.Struct, reflect.Map:
		return tag == "!!null"
	}
	return false
}

// isOldBool tells whether YAML 1.1 takes a plain word for a truth value, and YAML 1.2 for a string.
func isOldBool(word string) bool {
	return slices.Contains([]string{"y", "yes", "on", "n", "no", "off"}, strings.ToLower(word))
}

func (w *walker) mismatch(n *yamlv3.Node, t reflect.Type, path string) {
	names := map[reflect.Kind]string{
		reflect.String: "a string", reflect.Bool: "true or false", reflect.Slice: "a list", reflect.Struct: "a mapping", reflect.Map: "a mapping",
	}
	want := cmp.Or(names[t.Kind()], "a whole number in range")
	remedy := "write " + want
	if t.Kind() == reflect.String && n.Kind == yamlv3.ScalarNode {
		remedy = fmt.Sprintf("put it in quotes: %q", n.Value)
	}
	kind := Type
	if n.Kind == yamlv3.ScalarNode && converts(n.ShortTag(), t) {
		kind = Loose
	}
	w.fault(kind, n, path, fmt.Sprintf("%s must be %s, not %s", cmp.Or(path, "the document"), want, describe(n)), remedy)
}

// converts tells whether decoders convert a scalar with this tag to a type.
func converts(tag string, t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String:
		return tag != "!!binary"
	case reflect.Int, reflect.Int64, reflect.Uint8, reflect.Uint32:
		return tag == "!!null" || tag == "!!float"
	}
	return tag == "!!null"
}

func describe(n *yamlv3.Node) string {
	switch n.Kind {
	case yamlv3.MappingNode:
		return "a mapping"
	case yamlv3.SequenceNode:
		return "a list"
	}
	return fmt.Sprintf("%.40q", n.Value)
}

func join(path, element string) string {
	if path == "" {
		return element
	}
	return path + "." + element
}
