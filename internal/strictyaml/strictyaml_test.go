package strictyaml

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type inner struct {
	Vendor string `json:"vendor"`
	On     *bool  `json:"on,omitempty"`
	Number uint8  `json:"number"`
}

type outer struct {
	Name  string   `json:"name"`
	Items []inner  `json:"items"`
	Words []string `json:"words"`
	One   *inner   `json:"one,omitempty"`

	Pointers []*inner `json:"pointers"`
}

func TestDecodeReportsEveryFault(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string // "line path: message | remedy"
	}{
		"good":         {"name: x\nitems:\n- {vendor: \"10ee\", on: false, number: 3}\nwords: [a, b]\n", nil},
		"json":         {`{"name": "x", "items": [{"vendor": "1"}]}`, nil},
		"empty":        {"", nil},
		"comment only": {"# nothing\n", nil},
		"null list":    {"items:\n", nil},
		"unknown key":  {"name: x\nitms: []\n", []string{`2 itms: unknown key "itms" | did you mean "items"?`}},
		"nested unknown": {"items:\n- vendor: a\n  frobnicate: 1\n",
			[]string{`3 items.0.frobnicate: unknown key "frobnicate" in items.0 | remove it`}},
		"duplicate": {"name: a\nname: b\n", []string{`2 name: the key "name" is there twice: see "name" on line 1 | keep one of them`}},
		"unquoted id": {"items: [{vendor: 5020}]\n",
			[]string{`1 items.0.vendor: items.0.vendor must be a string, not "5020" | put it in quotes: "5020"`}},
		"unquoted yes": {"name: yes\nwords: [\"no\"]\n", []string{`1 name: name must be a string, not "yes" | put it in quotes: "yes"`}},
		"not a bool":   {"one: {on: maybe}\n", []string{`1 one.on: one.on must be true or false, not "maybe" | write true or false`}},
		"out of range": {"one: {number: 300}\n",
			[]string{`1 one.number: one.number must be a whole number in range, not "300" | write a whole number in range`}},
		"not a list":    {"words: a\n", []string{`1 words: words must be a list, not "a" | write a list`}},
		"not a mapping": {"- a\n", []string{`1 : the document must be a mapping, not a list | write a mapping`}},
		"second document": {"name: a\n---\nname: b\n",
			[]string{`2 : a second document starts here | keep one document in the file`}},
		"alias":      {"name: &a x\nwords: [*a]\n", []string{`2 words.0: the alias *a is not supported | write the value itself`}},
		"empty item": {"pointers: [{vendor: a}, null]\n", []string{`1 pointers.1: pointers.1 is empty | remove it, or write a value`}},
		"empty struct": {"items: [null, {vendor: a, number: x}]\n", []string{
			`1 items.0: an item of items is empty | remove it, or write a value`, // and is not counted
			`1 items.0.number: items.0.number must be a whole number in range, not "x" | write a whole number in range`,
		}},
		"merge key": {"items: [&a {vendor: x}, {<<: *a, number: 1}]\n",
			[]string{`1 items.1.<<: the merge key << is not supported | write the values themselves`}},
		"text behind": {"{name: a}\nb\n", []string{
			`1 : not YAML: did not find expected <document start> | correct the YAML syntax of this line or the line above`,
		}},
		"two at once": {"nme: x\nwords: 3\n", []string{
			`1 nme: unknown key "nme" | did you mean "name"?`,
			`2 words: words must be a list, not "3" | write a list`,
		}},
		"CRLF and BOM": {"\ufeffname: x\r\nitems: []\r\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var into outer
			_, faults := Decode([]byte(c.text), &into)
			var got []string
			for _, f := range faults {
				got = append(got, fmt.Sprintf("%d %s: %s | %s", f.Line, f.Path, f.Message, f.Remedy))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecodeSyntaxErrorHasALine(t *testing.T) {
	_, faults := Decode([]byte("name: x\nitems: [\n"), &outer{})
	if len(faults) != 1 || faults[0].Line < 2 || !strings.HasPrefix(faults[0].Message, "not YAML: ") {
		t.Errorf("got %+v", faults)
	}
}

func TestLine(t *testing.T) {
	var into outer
	doc, faults := Decode([]byte("name: x\nitems:\n- vendor: a\n- vendor: b\n"), &into)
	if faults != nil {
		t.Fatal(faults)
	}
	for path, want := range map[string]int{"name": 1, "items": 2, "items.1.vendor": 4, "items.1.on": 4, "words": 0} {
		if got := doc.LineOf(path); got != want {
			t.Errorf("Line(%q) = %d, want %d", path, got, want)
		}
	}
	if into.Items[1].Vendor != "b" {
		t.Errorf("decoded %+v", into)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("name: x\nitems:\n- {vendor: \"10ee\", on: false}\n")
	f.Add("{\"name\": [1")
	f.Add("a: &a [*a]\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		var into outer
		doc, faults := Decode([]byte(text), &into)
		for _, fault := range faults {
			if fault.Message == "" || fault.Remedy == "" || fault.Line < 0 {
				t.Errorf("fault without words: %+v", fault)
			}
		}
		doc.LineOf("items.0")
	})
}

// TestNearKeys: of two keys that are as near as each other, the same is meant each time.
func TestNearKeys(t *testing.T) {
	for range 50 {
		var into struct {
			From string `json:"from"`
			Form string `json:"form"`
			Fold string `json:"fold"`
		}
		_, faults := Decode([]byte("foom: x\n"), &into)
		if len(faults) != 1 || faults[0].Remedy != `did you mean "form"?` {
			t.Fatalf("%+v", faults)
		}
	}
}
