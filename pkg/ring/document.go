package ring

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

const (
	maxSize   = 1 << 20 // bytes; a ring of 64 cards takes 8 KiB
	maxValues = 200_000 // about; more than 10,000 links
	maxDepth  = 32      // a ring table needs four levels
)

// document reads data into a tree, or reports why it cannot and returns nil. Both syntaxes become the tree
// of the YAML library, so that one reader serves both. What begins with a brace or a bracket is JSON, held to
// its rules, unless a plain word follows, as in {apiVersion: ...}, which only YAML has.
func (r *report) document(data []byte) *yaml.Node {
	if len(data) > maxSize {
		r.add(finding.RingTooLarge, place{}, nil, fmt.Sprintf("%d bytes are no ring table: the limit is %d", len(data), maxSize), "give the ring table, not another file")
		return nil
	}
	// Each value but the first has one of these bytes before it. Counting them first bounds the tree.
	values := 0
	for _, separator := range []string{",", ":", "\n", "- ", "[", "{"} {
		values += bytes.Count(data, []byte(separator))
	}
	if values > maxValues {
		r.add(finding.RingTooLarge, place{}, nil, "more values than any ring table has", "give the ring table, not another file")
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	text := bytes.TrimLeft(data, " \t\r\n")
	if len(text) == 0 {
		r.empty(place{})
		return nil
	}
	if text[0] == '[' || text[0] == '{' && !startsWord(text[1:]) {
		return r.readJSON(data)
	}
	return r.readYAML(data)
}

func startsWord(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	return len(text) > 0 && (text[0]|0x20 >= 'a' && text[0]|0x20 <= 'z')
}

func (r *report) empty(at place) {
	r.add(finding.RingEmpty, at, nil, "the table is empty", "write the table again with hyperdex-net, or list the rings")
}

func (r *report) syntax(line int, message string) {
	r.add(finding.RingSyntax, place{line: line}, nil, message, "correct the syntax there or just above")
}

func (r *report) trailing(line int) {
	r.add(finding.RingTrailing, place{line: line}, nil, "something follows the table", "keep one table in the file")
}

func (r *report) readYAML(data []byte) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var root, second yaml.Node
	if err := decoder.Decode(&root); errors.Is(err, io.EOF) {
		r.empty(place{})
		return nil
	} else if err != nil {
		r.syntax(splitLine(err))
		return nil
	}
	if err := decoder.Decode(&second); err == nil {
		r.trailing(second.Line)
	} else if !errors.Is(err, io.EOF) {
		line, _ := splitLine(err)
		r.trailing(line)
	}
	return root.Content[0]
}

// splitLine takes the line out of an error of the YAML library, "yaml: line 3: did not find ...".
func splitLine(err error) (line int, message string) {
	message = strings.TrimPrefix(err.Error(), "yaml: ")
	if where, rest, ok := strings.Cut(message, ": "); ok {
		if n, err := strconv.Atoi(strings.TrimPrefix(where, "line ")); err == nil {
			line, message = n, rest
		}
	}
	return line, "not YAML: " + message
}

func (r *report) readJSON(data []byte) *yaml.Node {
	j := &jsonReader{data: data, decoder: json.NewDecoder(bytes.NewReader(data)), line: 1}
	j.decoder.UseNumber()
	root, err := j.value(0)
	if err != nil {
		message := err.Error()
		if errors.Is(err, io.EOF) {
			j.line, message = 1+bytes.Count(bytes.TrimRight(data, "\r\n"), []byte("\n")), "the file ends in the middle"
		}
		r.syntax(j.line, "not JSON: "+message)
		return nil
	}
	if _, err := j.token(); !errors.Is(err, io.EOF) {
		r.trailing(j.line)
	}
	return root
}

// jsonReader reads JSON with the lines that values stand on.
type jsonReader struct {
	data    []byte
	decoder *json.Decoder
	offset  int // of what line counts
	line    int
}

func (j *jsonReader) token() (json.Token, error) {
	token, err := j.decoder.Token()
	end := int(j.decoder.InputOffset())
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		end = int(syntax.Offset)
	}
	end = max(j.offset, min(end, len(j.data)))
	j.line += bytes.Count(j.data[j.offset:end], []byte("\n"))
	j.offset = end
	return token, err
}

func (j *jsonReader) value(depth int) (*yaml.Node, error) {
	token, err := j.token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: j.line}
	switch v := token.(type) {
	case json.Delim:
		if depth == maxDepth {
			return nil, fmt.Errorf("nested deeper than %d levels", maxDepth)
		}
		return n, j.contents(n, v, depth+1)
	case string:
		n.Tag, n.Value = "!!str", v
	case json.Number:
		n.Tag, n.Value = "!!float", v.String()
		if !strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!int"
		}
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(v)
	case nil:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, nil
}

// contents reads an array, or an object as the keys and values in turn, up to its closing bracket.
func (j *jsonReader) contents(n *yaml.Node, opening json.Delim, depth int) error {
	n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
	if opening == '{' {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
	}
	for j.decoder.More() {
		child, err := j.value(depth)
		if err != nil {
			return err
		}
		n.Content = append(n.Content, child)
	}
	_, err := j.token()
	return err
}
