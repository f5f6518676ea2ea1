package main

import (
	"os"
	"strings"
	"testing"
)

// FuzzParseConfig: whatever stands in a config file, it is read or every fault has words and a place, and
// what is read can be shown.
func FuzzParseConfig(f *testing.F) {
	good, err := os.ReadFile("../../testdata/config.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("cdi: {kind: a/b}\nmodels:\n- {name: x, match: [{class: \"12\"}], nodes: [\"path:/dev/../etc\"]}\n"))
	f.Add([]byte("models: [{name: bertha, enabled: no, management: {function: 9}}]"))
	f.Add([]byte("kind: Config\n---\nkind: Config\n"))
	f.Add([]byte("models:\n- &a {name: x}\n- *a\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, findings := parseConfig("file", data)
		for _, finding := range findings {
			if finding.Message == "" || finding.Remedy == "" || finding.File != "file" {
				t.Errorf("a finding without words: %+v", finding)
			}
		}
		if len(findings) > 0 {
			return
		}
		if _, err := c.annotated(func(string, string) {}); err != nil {
			t.Errorf("cannot be shown: %v", err)
		}
	})
}

func TestEveryCommandHasAnExample(t *testing.T) {
	root := newRootCommand(&app{})
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			continue
		}
		for _, c := range append(cmd.Commands(), cmd) {
			if !strings.Contains(c.Example, "lpuctl") || c.Short == "" {
				t.Errorf("%s has no example or no short help", c.CommandPath())
			}
		}
	}
}
