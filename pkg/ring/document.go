package ring

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/hyperaccel/lpuctl/internal/lazy"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// MaxSize is the most bytes of a ring table. A ring of 64 cards takes 8 KiB.
const MaxSize = 1 << 20

const (
	maxValues = 200_000 // approximately; enough for more than 10,000 links
	maxDepth  = 32      // a ring table needs four levels

	space = " \t\r\n"
)

// flowMapping is the beginning of an object with a key that only YAML allows: {apiVersion: ...}.
var flowMapping = lazy.Regexp(`^{\s*[A-Za-z]`)

// document reads data into a tree, or reports why it cannot and returns nil. Both JSON and YAML become the tree
// of the YAML library, so that the same code reads both. Data that begins with a brace or a bracket must be JSON, unless
// a word without quotes follows.
func (r *report) document(data []byte) *yaml.Node {
	if len(data) > MaxSize {
		r.add(finding.RingTooLarge, location{}, "", "the file has more than %d bytes, which no ring table has", MaxSize)
		return nil
	}
	// Each value but the first has one of these before it. Counting them limits the tree before it is made.
	values := 0
	for _, separator := range []string{",", ":", "\n", "- ", "[", "{"} {
		values += bytes.Count(data, []byte(separator))
	}
	if values > maxValues {
		r.add(finding.RingTooLarge, location{}, "", "the file has too many values for a ring table")
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	text := bytes.TrimLeft(data, space)
	if len(text) == 0 {
		r.empty(location{})
		return nil
	}
	if text[0] == '[' || text[0] == '{' && !flowMapping().Match(text) {
		return r.readJSON(data)
	}
	return r.readYAML(data)
}

func (r *report) syntax(line int, language, problem string) {
	r.add(finding.RingSyntax, location{line: line}, "", "not %s: %s", language, problem)
}

func (r *report) trailing(line int) {
	r.add(finding.RingTrailing, location{line: line}, "", "there is more text after the table")
}

func (r *report) readYAML(data []byte) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var root, second yaml.Node
	err := decoder.Decode(&root)
	if errors.Is(err, io.EOF) {
		r.empty(location{})
		return nil
	}
	if err != nil {
		line, problem := splitError(err)
		r.syntax(line, "YAML", problem)
		return nil
	}
	if err := decoder.Decode(&second); err == nil {
		r.trailing(second.Line)
	} else if !errors.Is(err, io.EOF) {
		line, _ := splitError(err)
		r.trailing(line)
	}
	return root.Content[0]
}

var yamlPrefix = lazy.Regexp(`^(?:yaml: )?(?:line ([0-9]+): )?`)

// splitError splits an error of the YAML library, such as "yaml: line 3: did not find ...". Line 0: it names none.
func splitError(err error) (line int, problem string) {
	prefix := yamlPrefix().FindStringSubmatch(err.Error())
	line, _ = strconv.Atoi(prefix[1])
	return line, err.Error()[len(prefix[0]):]
}

func (r *report) readJSON(data []byte) *yaml.Node {
	decoder := json.NewDecoder(bytes.NewReader(data))
	var value json.RawMessage
	if err := decoder.Decode(&value); err != nil {
		end, problem := len(bytes.TrimRight(data, space)), "the file ends in the middle"
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			end, problem = int(syntax.Offset)-1, syntax.Error() // the offset is behind the byte that is wrong
		}
		r.syntax(lineAt(data, end), "JSON", problem)
		return nil
	}
	rest := bytes.TrimLeft(data[decoder.InputOffset():], space)
	if len(rest) > 0 {
		r.trailing(lineAt(data, len(data)-len(rest)))
	}
	tree := &jsonTree{data: data, decoder: json.NewDecoder(bytes.NewReader(data)), line: 1}
	tree.decoder.UseNumber()
	root := tree.value(0)
	if tree.deepLine > 0 {
		r.syntax(tree.deepLine, "JSON", fmt.Sprintf("nested deeper than %d levels", maxDepth))
		return nil
	}
	return root
}

func lineAt(data []byte, offset int) int { return 1 + bytes.Count(data[:offset], []byte("\n")) }

// jsonTree reads valid JSON into a tree with the line of each value.
type jsonTree struct {
	data     []byte
	decoder  *json.Decoder
	offset   int // the end of the first token of the last value
	line     int // the line of that end, from 1
	deepLine int // the first line that is nested too deeply; 0: there is none
}

func (t *jsonTree) value(depth int) *yaml.Node {
	token, _ := t.decoder.Token() // the JSON is valid
	end := int(t.decoder.InputOffset())
	t.line += bytes.Count(t.data[t.offset:end], []byte("\n"))
	t.offset = end
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: t.line}
	switch v := token.(type) {
	case json.Delim:
		n.Kind = yaml.SequenceNode
		if v == '{' {
			n.Kind = yaml.MappingNode
		}
		if depth == maxDepth && t.deepLine == 0 {
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
