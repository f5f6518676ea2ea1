package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/hyperaccel/lpuctl/internal/lazy"
	"github.com/hyperaccel/lpuctl/internal/strictyaml"
)

// Fault is one mistake in what was given.
type Fault struct {
	File    string
	Line    int // from 1; 0: the file as a whole
	Message string
	Remedy  string
}

func (f Fault) Error() string {
	if f.Line == 0 {
		return f.File + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

// Faults are all that is wrong with what was given.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// source is where an object stands: in a document, below a path (an item of a list).
type source struct {
	file string
	line int // of the document's first line, from 1
	text []byte
	path string
}

// document is one document of a file, as JSON.
type document struct {
	source
	json []byte
}

// fault is a fault at a path below the object, such as "spec.devices.requests[0]".
func (s *source) fault(path, remedy, format string, args ...any) Fault {
	return Fault{File: s.file, Line: s.lineOf(path), Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

// below is the object at a path of this one.
func (s *source) below(path string) source {
	at := *s
	at.path = join(s.path, path)
	return at
}

func join(path, rest string) string {
	if path == "" || rest == "" || rest[0] == '[' {
		return path + rest
	}
	return path + "." + rest
}

// lineOf is the line of a value, or of the nearest one that contains it. Documents are
// read a second time for it, because it is wanted for faults only.
func (s *source) lineOf(path string) int {
	if s.text == nil {
		return 0
	}
	root, _ := strictyaml.ReadYAML(s.text)
	if root == nil {
		return s.line
	}
	at, found := root.Find(keys(join(s.path, path)))
	if !found {
		at = at.Itself()
	}
	return s.line + at.Line - 1
}

// keys returns a path with positions as keys: of a.b[0].c it is a.b.0.c.
func keys(path string) string { return strings.NewReplacer("[", ".", "]", "").Replace(path) }

// documents splits a file. JSON, in which large dumps come, is not taken apart as YAML.
func documents(file string, data []byte) ([]document, Faults) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if text := bytes.TrimLeft(data, " \t\r\n"); len(text) > 0 && text[0] == '{' {
		if docs, ok := jsonDocuments(file, data); ok {
			return docs, nil
		}
	}
	var docs []document
	var faults Faults
	for _, s := range split(file, data) {
		converted, err := yaml.YAMLToJSONStrict(s.text)
		switch {
		case err != nil:
			faults = append(faults, s.syntax(err))
		case string(converted) != "null": // nothing but comments
			docs = append(docs, document{s, converted})
		}
	}
	return docs, faults
}

func jsonDocuments(file string, data []byte) (docs []document, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return docs, true
		} else if err != nil {
			return nil, false
		}
		start := decoder.InputOffset() - int64(len(raw))
		docs = append(docs, document{source{file: file, line: 1 + bytes.Count(data[:start], []byte("\n")), text: raw}, raw})
	}
}

// split finds the documents of YAML. A marker at the beginning of a line ends one
// wherever it stands.
func split(file string, data []byte) (parts []source) {
	begin, line, first := 0, 1, 1
	add := func(end int) { parts = append(parts, source{file: file, line: first, text: data[begin:end]}) }
	for at := 0; at < len(data); {
		end := at + bytes.IndexByte(data[at:], '\n') + 1
		if end == at {
			end = len(data)
		}
		switch marker := strings.TrimRight(string(data[at:min(end, at+5)]), " \t\r\n"); {
		case marker == "---" || marker == "...":
			add(at)
			begin, first = end, line+1
		case strings.HasPrefix(marker, "--- "): // the document begins behind the marker
			add(at)
			begin, first = at+3, line
		}
		at, line = end, line+1
	}
	add(len(data))
	return parts
}

func (s *source) syntax(err error) Fault {
	line, problem := strictyaml.Place(err)
	return Fault{
		File: s.file, Line: s.line + max(line, 1) - 1, Message: "not YAML: " + oneLine(problem), Remedy: "correct this line or the one above",
	}
}

// oneLine makes one line of a message that has several.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// decode reads the object into a Go type. Unknown and double keys are faults if strict is
// set; a dump of a newer cluster may have keys that are not known here.
func (d *document) decode(into any, strict bool) (faults Faults) {
	unknown, err := kjson.UnmarshalStrict(d.json, into)
	if err != nil {
		return Faults{d.mistyped(err)}
	}
	if !strict {
		return nil
	}
	for _, err := range unknown {
		path := ""
		if at, ok := errors.AsType[kjson.FieldError](err); ok {
			path = at.FieldPath()
		}
		faults = append(faults, d.fault(path, "remove it, or correct its name", "%s", err))
	}
	return faults
}

// goField is what encoding/json says of the Go type before the path.
var goField = lazy.Regexp(`^json: cannot unmarshal (\S+) into Go struct field [^.\s]*\.(\S+) of type (\S+)$`)

// goValue is what it says of a value that has no path.
var goValue = lazy.Regexp(`^json: cannot unmarshal (\S+) into Go value of type`)

func (d *document) mistyped(err error) Fault {
	m := goField().FindStringSubmatch(err.Error())
	if whole := goValue().FindStringSubmatch(err.Error()); whole != nil {
		return d.fault("", "write an object, as in: kubectl explain resourceclaim", "got %s, expected an object", whole[1])
	}
	if m == nil {
		return d.fault("", "correct the value", "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	wanted := map[string]string{"string": "text", "bool": "true or false"}[m[3]]
	switch {
	case strings.HasPrefix(m[3], "int"), strings.HasPrefix(m[3], "uint"):
		wanted = "a whole number"
	case strings.HasPrefix(m[3], "[]"):
		wanted = "a list"
	case wanted == "":
		wanted = "an object"
	}
	f := d.fault("", "correct the value", "%s: got %s, expected %s", m[2], m[1], wanted)
	if root, _ := strictyaml.ReadYAML(d.text); root != nil {
		if line := lineOfKind(root, strings.Split(keys(join(d.path, m[2])), "."), m[1]); line > 0 {
			f.Line = d.line + line - 1
		}
	}
	return f
}

// lineOfKind is the line of the first value of a kind of JSON at a path without
// positions, 0 if there is none.
func lineOfKind(v *strictyaml.Value, path []string, kind string) int {
	for _, child := range v.Children() {
		rest := path
		switch {
		case len(path) > 0 && child.Key == path[0]:
			rest = path[1:]
		case v.Node.Kind == yamlv3.MappingNode:
			continue
		}
		if line := lineOfKind(child, rest, kind); line > 0 {
			return line
		}
	}
	if len(path) == 0 && kindOf(v.Node) == kind {
		return v.Node.Line
	}
	return 0
}

func kindOf(n *yamlv3.Node) string {
	switch {
	case n.Kind == yamlv3.MappingNode:
		return "object"
	case n.Kind == yamlv3.SequenceNode:
		return "array"
	case n.ShortTag() == "!!int", n.ShortTag() == "!!float":
		return "number"
	case n.ShortTag() == "!!bool":
		return "bool"
	}
	return "string"
}
