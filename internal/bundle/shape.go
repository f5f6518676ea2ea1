package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	toml "github.com/pelletier/go-toml/v2"

	"github.com/hyperaccel/lpuctl/internal/strictyaml"
)

// errUnparsed is that of a redactor that cannot parse a file: it is not known what in it is
// secret, and its shape is taken.
var errUnparsed = errors.New("it cannot be parsed, and so it is not known what in it is secret")

var errOtherShape = fmt.Errorf("%w; without its words it does not break as it does with them", errUnparsed)

// shaped returns the shape of a file that cannot be parsed: a text without its words, at
// which parsers complain of the same in the same line. Words that are no secrets may stay.
func shaped(p string, data []byte, stay []string) ([]byte, error) {
	want, until := complaints(p, data)
	out := shape(data, stay, until)
	have, _ := complaints(p, out)
	same := func(a, b string) bool {
		return a == b || quoted.ReplaceAllString(a, "") == quoted.ReplaceAllString(b, "")
	}
	if len(want) == 0 || !slices.EqualFunc(want, have, same) {
		return nil, errOtherShape
	}
	return out, nil
}

// quoted is what an error says of the text itself.
var quoted = regexp.MustCompile("'[^']*'|\"[^\"]*\"|`[^`]*`|U\\+[0-9A-F]+")

// startOf is where a line begins, from 1.
func startOf(data []byte, line int) (at int) {
	for ; line > 1; line-- {
		at += bytes.IndexByte(data[at:], '\n') + 1
	}
	return at
}

// complaints are what the parsers of such a file say of it, with lines. until is behind the
// character at which one of JSON or TOML stops; 0: it does not.
func complaints(p string, data []byte) (all []string, until int) {
	if isTOML(p) {
		var d map[string]any
		err := toml.Unmarshal(data, &d)
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, column := at.Position()
			return []string{fmt.Sprint(line, err)}, min(startOf(data, line)+column, len(data))
		}
		return texts(err), 0
	}
	_, faults := strictyaml.ReadYAML(data)
	for _, f := range faults {
		all = append(all, fmt.Sprint(f.Line, f.Message))
	}
	err := json.Unmarshal(data, new(any))
	if at, ok := errors.AsType[*json.SyntaxError](err); ok {
		until = min(int(at.Offset), len(data))
		err = fmt.Errorf("%d: %w", bytes.Count(data[:until], []byte("\n")), err)
	}
	if isYAML := path.Ext(p) != ".json"; isYAML && len(all) == 0 {
		return nil, until
	}
	return append(all, texts(err)...), until
}

func texts(err error) []string {
	if err == nil {
		return nil
	}
	return []string{err.Error()}
}

// marks are what the syntax of YAML, JSON and TOML is made of.
const marks = "{}[]:,\"'#-&*!|>%@`?\\=.+<"

// literals are words of JSON and TOML that no other can stand for.
var literals = regexp.MustCompile(`^(true|false|null|inf|nan|0[xob][0-9]*|[0-9]+[eE]?[0-9]*)$`)

// shape returns a text of which letters are an a and digits a 1, and all that the syntax is
// made of is where it was. Of a word that a parser has begun (until) what it has read stays:
// that is not more than the beginning of null, and one letter.
func shape(data []byte, stay []string, until int) []byte {
	out := bytes.Clone(data)
	for i := 0; i < len(data); {
		if n := staying(data[i:], stay); n > 0 {
			i += n
			continue
		}
		n := wordLength(data[i:])
		if n == 0 {
			i += shapeRune(out, data, i)
			continue
		}
		word, from := data[i:i+n], 0
		if i < until && until <= i+n {
			from = until - i
		}
		isLiteral := literals.Match(word)
		for j := from; j < n; j++ {
			switch c := word[j]; {
			case c >= '0' && c <= '9':
				out[i+j] = '1'
			case !isLiteral:
				out[i+j] = 'a'
			}
		}
		i += n
	}
	return out
}

// staying is how many bytes at the beginning of a text stay.
func staying(text []byte, stay []string) int {
	for _, word := range stay {
		if word != "" && bytes.HasPrefix(text, []byte(word)) {
			return len(word)
		}
	}
	return 0
}

// wordLength is how many letters and digits of ASCII a text begins with.
func wordLength(text []byte) int {
	n := bytes.IndexFunc(text, func(r rune) bool {
		return (r < '0' || '9' < r) && (r < 'a' || 'z' < r) && (r < 'A' || 'Z' < r)
	})
	if n < 0 {
		return len(text)
	}
	return n
}

// shapeRune shapes what is no word, and returns how many bytes that is.
func shapeRune(out, data []byte, i int) int {
	r, n := utf8.DecodeRune(data[i:])
	switch {
	case r == utf8.RuneError && n == 1:
		out[i] = shapeByte(data[i])
	case r == '\\' && i+1 < len(data) && data[i+1] < utf8.RuneSelf: // an escape
		return 2
	case r < ' ' || unicode.IsSpace(r), unicode.IsControl(r), strings.ContainsRune("\u2028\u2029\ufeff\ufffe\uffff", r):
	case n > 1 || !strings.ContainsRune(marks, r):
		copy(out[i:], bytes.Repeat([]byte{'a'}, n))
	}
	return n
}

// shapeByte is for a byte that is not UTF-8: of it is kept what it would be there.
func shapeByte(b byte) byte {
	for _, kind := range []struct{ mask, is byte }{{0xC0, 0x80}, {0xE0, 0xC0}, {0xF0, 0xE0}, {0xF8, 0xF0}} {
		if b&kind.mask == kind.is {
			return max(kind.is, min(b, kind.is|2))
		}
	}
	return b
}

// sameLength makes a long text as long as it was, so that readers with a limit find it too
// large as before.
func sameLength(data []byte, was int) []byte {
	if was <= 64<<10 || len(data) >= was { // no reader has a lower limit
		return data
	}
	return append(data, bytes.Repeat([]byte("\n"), was-len(data))...)
}
