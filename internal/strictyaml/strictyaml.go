// Package strictyaml reads YAML and JSON into trees and Go values. It reports every
// mistake with its line: unknown and duplicate keys, values of the wrong type, a second
// document.
package strictyaml

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// Kind says what kind of mistake a Fault is.
type Kind string

// The kinds of mistakes.
const (
	Syntax    Kind = "syntax"
	Unknown   Kind = "unknown-key"
	Duplicate Kind = "duplicate-key"
	TooLarge  Kind = "too-large"
	Type      Kind = "type"
	Null      Kind = "null" // an item of a list that would be a nil pointer

	// What decoders that are not strict read without an error.
	Second Kind = "second-document"
	Alias  Kind = "alias" // a merge key too
	// Loose is a scalar that is converted: 0 for a string, null for a number; an empty item
	// of a list.
	Loose Kind = "loose"
)

// Strict reports whether only a strict decoder takes it for a mistake.
func (k Kind) Strict() bool { return k == Second || k == Alias || k == Loose }

// Fault is one mistake in a document.
type Fault struct {
	Kind    Kind
	Line    int    // from 1; 0: the document as a whole
	Path    string // of the value: keys and positions from 0, joined by dots, such as "models.0.match"
	Message string // what is wrong
	Remedy  string // what to do about it
}

// Faults are the mistakes in a document.
type Faults []Fault

// Add adds a mistake in the meaning of the value at a path.
func (f *Faults) Add(path, message, remedy string) {
	*f = append(*f, Fault{Path: path, Message: message, Remedy: remedy})
}

// Decode reads data into a struct with json tags, to which into points. It reports every
// mistake, and fills the struct only if there is none. An empty document is not a
// mistake, and has no value.
func Decode(data []byte, into any) (*Value, Faults) {
	root, faults := ReadYAML(data)
	if root == nil {
		return nil, faults
	}
	var w walker
	w.walk(root, reflect.TypeOf(into).Elem())
	if w.faults = append(w.faults, faults...); len(w.faults) > 0 {
		return root, w.faults
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		return root, Faults{{Kind: Type, Message: err.Error(), Remedy: "correct the value"}}
	}
	return root, nil
}

type walker struct{ faults Faults }

func (w *walker) report(kind Kind, at *Value, message, remedy string) {
	if kind == Unknown && at.in.in != nil {
		message += " in " + at.in.Path()
	}
	w.faults = append(w.faults, Fault{Kind: kind, Line: at.Line, Path: at.Path(), Message: message, Remedy: remedy})
}

// walk checks that a value, and all below it, can be read into a type.
func (w *walker) walk(v *Value, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch n := v.Node; {
	case n.Kind == yamlv3.AliasNode:
		w.report(Alias, v.Itself(), "the alias *"+n.Value+" is not supported", "write the value itself")
	case t.Kind() == reflect.Struct && n.Kind == yamlv3.MappingNode:
		w.walkMapping(v, Fields(t), nil)
	case t.Kind() == reflect.Map && n.Kind == yamlv3.MappingNode:
		w.walkMapping(v, nil, t.Elem())
	case t.Kind() == reflect.Slice && n.Kind == yamlv3.SequenceNode:
		w.walkList(v, t.Elem())
	case n.Kind != yamlv3.ScalarNode || !scalarFits(n, t):
		w.mismatch(v, t)
	}
}

// walkList checks the items of a list. Decoders pass over an empty one, and do not count
// it, unless it is a pointer to be. So the list loses it.
func (w *walker) walkList(v *Value, t reflect.Type) {
	items := v.Children()
	v.Node.Content = nil
	for _, item := range items {
		item.Key = strconv.Itoa(len(v.Node.Content))
		empty, pointer := item.Node.ShortTag() == "!!null", t.Kind() == reflect.Pointer
		switch {
		case !empty:
			w.walk(item, t)
		case pointer:
			w.report(Null, item, item.Path()+" is empty", "remove it, or write a value")
		default:
			w.report(Loose, item, "an item of "+cmp.Or(v.Path(), "the list")+" is empty", "remove it, or write a value")
		}
		if !empty || pointer {
			v.Node.Content = append(v.Node.Content, item.Node)
		}
	}
}

// walkMapping checks a mapping. fields has the type of the value of each key that it may
// have. Where every is not nil, the mapping may have any keys, and every is the type of
// their values.
func (w *walker) walkMapping(v *Value, fields map[string]reflect.Type, every reflect.Type) {
	for key, value := range v.Unique(func(key string) string { return key }, w.report) {
		t := cmp.Or(fields[key], every)
		switch {
		case value.merge:
			w.report(Alias, value, "the merge key << is not supported", "write the values themselves")
		case t == nil:
			value.Unknown(slices.Sorted(maps.Keys(fields)), "remove it", w.report)
		default:
			w.walk(value, t)
		}
	}
}

// Fields returns the keys that a struct is decoded from, by their json names, with the types
// of their values.
func Fields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			fields[name] = f.Type
		}
	}
	return fields
}

// scalarFits reports whether a scalar, with the type that YAML gives it, can be read into
// t. A null can be read into lists and mappings: it is their zero value.
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

// isOldBool reports whether YAML 1.1 takes a plain word for a truth value, and YAML 1.2
// for a string.
func isOldBool(word string) bool {
	return slices.Contains([]string{"y", "yes", "on", "n", "no", "off"}, strings.ToLower(word))
}

func (w *walker) mismatch(v *Value, t reflect.Type) {
	n := v.Node
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
	message := fmt.Sprintf("%s must be %s, not %s", cmp.Or(v.Path(), "the document"), want, v.Describe("a mapping"))
	w.report(kind, v.Itself(), message, remedy)
}

// converts reports whether decoders convert a scalar with this tag to a type.
func converts(tag string, t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String:
		return tag != "!!binary"
	case reflect.Int, reflect.Int64, reflect.Uint8, reflect.Uint32:
		return tag == "!!null" || tag == "!!float"
	}
	return tag == "!!null"
}

func join(path, element string) string {
	if path == "" {
		return element
	}
	return path + "." + element
}
