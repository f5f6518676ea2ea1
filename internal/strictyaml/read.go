package strictyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/hyperaccel/lpuctl/internal/lazy"
)

const space = " \t\r\n"

func tooLarge(format string, most int) Faults {
	return Faults{{Kind: TooLarge, Message: "the file has " + fmt.Sprintf(format, most), Remedy: "leave something out"}}
}

// flowMapping is the beginning of a mapping with a key that only YAML allows:
// {apiVersion: ...}.
var flowMapping = lazy.Regexp(`^{\s*[A-Za-z]`)

// Limits are the most that a document may have.
type Limits struct {
	Bytes  int
	Values int // approximately
	Depth  int // of JSON
}

// Read reads a document into a tree. Data that begins with a brace or a bracket must be
// JSON, unless a word without quotes follows. The tree is nil if the document is empty,
// or cannot be read.
func Read(data []byte, most Limits) (*Value, Faults) {
	// Each value but the first has one of these before it. Counting them limits the tree
	// before it is made.
	values := 0
	for _, separator := range []string{",", ":", "\n", "- ", "[", "{"} {
		values += bytes.Count(data, []byte(separator))
	}
	switch {
	case len(data) > most.Bytes:
		return nil, tooLarge("more than %d bytes", most.Bytes)
	case values > most.Values:
		return nil, tooLarge("more than %d values", most.Values)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	text := bytes.TrimLeft(data, space)
	if bytes.HasPrefix(text, []byte("[")) || bytes.HasPrefix(text, []byte("{")) && !flowMapping().Match(text) {
		return readJSON(data, most.Depth)
	}
	return ReadYAML(data)
}

// ReadYAML reads YAML, and so JSON, into a tree, as [Read] does.
func ReadYAML(data []byte) (*Value, Faults) {
	decoder := yamlv3.NewDecoder(bytes.NewReader(data))
	var root, next yamlv3.Node
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, notYAML(Syntax, err)
	}
	v := &Value{Line: root.Content[0].Line, Node: root.Content[0]}
	switch err := decoder.Decode(&next); {
	case errors.Is(err, io.EOF):
		return v, nil
	case err != nil:
		return v, notYAML(Second, err)
	}
	return v, second(next.Line)
}

// syntax is a fault in how a document is written, or what follows it.
func syntax(kind Kind, line int, language, problem string) Faults {
	remedy := "correct the " + language + " syntax of this line or the line above"
	return Faults{{Kind: kind, Line: line, Message: "not " + language + ": " + problem, Remedy: remedy}}
}

func notYAML(kind Kind, err error) Faults {
	line, problem := Place(err)
	return syntax(kind, line, "YAML", problem)
}

func second(line int) Faults {
	return Faults{{Kind: Second, Line: line, Message: "a second document starts here", Remedy: "keep one document in the file"}}
}

var yamlPlace = lazy.Regexp(`(?s)line (\d+): (.*)`)

// Place splits an error of a YAML library, such as "yaml: line 3: did not find ...". Line
// 0: it names none.
func Place(err error) (line int, problem string) {
	if m := yamlPlace().FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1])
		return line, m[2]
	}
	return 0, strings.TrimPrefix(err.Error(), "yaml: ")
}

func readJSON(data []byte, depth int) (*Value, Faults) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	var value json.RawMessage
	if err := decoder.Decode(&value); err != nil {
		end, problem := len(bytes.TrimRight(data, space)), "the file ends in the middle"
		if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
			end, problem = int(wrong.Offset)-1, wrong.Error() // the offset is behind the byte that is wrong
		}
		return nil, syntax(Syntax, lineAt(data, end), "JSON", problem)
	}
	var faults Faults
	if rest := bytes.TrimLeft(data[decoder.InputOffset():], space); len(rest) > 0 {
		faults = second(lineAt(data, len(data)-len(rest)))
	}
	tree := &jsonTree{data: data, decoder: json.NewDecoder(bytes.NewReader(data)), depth: depth, line: 1}
	tree.decoder.UseNumber()
	root := tree.value(0)
	if tree.deepLine > 0 {
		return nil, append(faults, syntax(Syntax, tree.deepLine, "JSON", fmt.Sprintf("nested deeper than %d levels", depth))...)
	}
	return &Value{Line: root.Line, Node: root}, faults
}

func lineAt(data []byte, offset int) int { return 1 + bytes.Count(data[:offset], []byte("\n")) }

// jsonTree reads valid JSON into a tree with the line of each value.
type jsonTree struct {
	data     []byte
	decoder  *json.Decoder
	depth    int // the most
	offset   int // the end of the first token of the last value
	line     int // the line of that end, from 1
	deepLine int // the first line that is nested too deeply; 0: there is none
}

func (t *jsonTree) value(depth int) *yamlv3.Node {
	token, _ := t.decoder.Token() // the JSON is valid
	end := int(t.decoder.InputOffset())
	t.line += bytes.Count(t.data[t.offset:end], []byte("\n"))
	t.offset = end
	n := &yamlv3.Node{Kind: yamlv3.ScalarNode, Line: t.line}
	switch v := token.(type) {
	case json.Delim:
		n.Kind = yamlv3.SequenceNode
		if v == '{' {
			n.Kind = yamlv3.MappingNode
		}
		if depth == t.depth && t.deepLine == 0 {
			t.deepLine = t.line
		}
		for t.decoder.More() { // in an object, keys and values in turn
			n.Content = append(n.Content, t.value(depth+1))
		}
		_, _ = t.decoder.Token() // the closing bracket
	case string:
		n.Tag, n.Value = "!!str", v
	case nil:
		n.Value = "null"
	default: // a number or a boolean: the YAML library finds its tag
		n.Value = fmt.Sprint(v)
	}
	return n
}
