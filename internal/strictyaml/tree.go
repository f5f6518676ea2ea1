package strictyaml

import (
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/hyperaccel/lpuctl/internal/nearest"
)

// Value is a value in a document: of a key in a mapping, an item of a list, or the
// document itself.
type Value struct {
	Key  string // as it is written; of an item its position, from 0
	Line int    // of the key or, of an item, its own; from 1
	Node *yamlv3.Node

	in    *Value // nil: it is the document
	merge bool   // the key is that of a merge
}

// Itself returns the value with the line on which it begins, and not that of its key.
func (v *Value) Itself() *Value {
	itself := *v
	itself.Line = v.Node.Line
	return &itself
}

// Path returns the keys and positions that lead to the value, joined by dots; "" is the
// document.
func (v *Value) Path() string {
	if v.in == nil {
		return ""
	}
	return join(v.in.Path(), v.Key)
}

// Pointer returns the JSON pointer (RFC 6901) to the value. It shows only the beginnings
// of long keys, and no characters that control a terminal.
func (v *Value) Pointer() string {
	if v.in == nil {
		return ""
	}
	key := strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, v.Key[:min(len(v.Key), 40)])
	return v.in.Pointer() + "/" + strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

// Children returns the values of a mapping, or the items of a list.
func (v *Value) Children() (all []*Value) {
	step := 1
	if v.Node.Kind == yamlv3.MappingNode {
		step = 2
	}
	for i := 0; i+step <= len(v.Node.Content); i += step {
		key := v.Node.Content[i]
		child := &Value{Key: key.Value, Line: key.Line, Node: v.Node.Content[i+step-1], in: v, merge: key.ShortTag() == "!!merge"}
		if step == 1 {
			child.Key = strconv.Itoa(i)
		}
		all = append(all, child)
	}
	return all
}

// Report takes one mistake.
type Report func(kind Kind, at *Value, message, remedy string)

// Unique goes through the values of a mapping by the names of their keys. Of those with
// the same name it yields the first, and reports the others.
func (v *Value) Unique(name func(key string) string, report Report) iter.Seq2[string, *Value] {
	return func(yield func(string, *Value) bool) {
		seen := map[string]*Value{}
		for _, child := range v.Children() {
			name := name(child.Key)
			if first := seen[name]; first != nil {
				message := fmt.Sprintf("the key %.40q is there twice: see %.40q on line %d", child.Key, first.Key, first.Line)
				report(Duplicate, child, message, "keep one of them")
				continue
			}
			if seen[name] = child; !yield(name, child) {
				return
			}
		}
	}
}

// Unknown reports that the key is none of the known ones. The remedy is the one that it
// looks like, if there is one.
func (v *Value) Unknown(known []string, remedy string, report Report) {
	if meant := nearest.Word(v.Key, known); meant != "" {
		remedy = fmt.Sprintf("did you mean %q?", meant)
	}
	report(Unknown, v, fmt.Sprintf("unknown key %.40q", v.Key), remedy)
}

// Describe returns what the value is, for people, who may call a mapping otherwise.
func (v *Value) Describe(mapping string) string {
	switch v.Node.Kind {
	case yamlv3.MappingNode:
		return mapping
	case yamlv3.SequenceNode:
		return "a list"
	case yamlv3.AliasNode:
		return "an alias"
	}
	return fmt.Sprintf("%.40q", v.Node.Value)
}

// Find returns the value at a path below v. Else it returns the nearest one that contains
// it.
func (v *Value) Find(path string) (at *Value, found bool) {
	if v == nil || path == "" {
		return v, v != nil
	}
	at = v
	for _, child := range v.Children() {
		if rest, ok := strings.CutPrefix(path+".", child.Key+"."); ok && !found {
			at, found = child.Find(strings.TrimSuffix(rest, "."))
		}
	}
	return at, found
}

// LineOf returns the line of the value at a path. Else it returns that of the nearest
// value that contains it, and 0 if only the document does.
func (v *Value) LineOf(path string) int {
	at, found := v.Find(path)
	if !found && at == v {
		return 0
	}
	return at.Line
}
