package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const readme = "../../README.md"

// TestReadme: the session in README is what the commands print, its picture what topology draws of the same server, its groups are those of
// the help, and it is short enough to be read.
func TestReadme(t *testing.T) {
	const shown = "/tmp/orion"
	root := filepath.Join(t.TempDir(), "orion")
	replaySession(t, readme, nil, shown, root)
	drawing := new(bytes.Buffer)
	if code := run(t.Context(), []string{"--root", root, "topology", "-o", "svg"}, drawing, drawing, noEnvironment); code != 0 {
		t.Fatal(drawing)
	}
	page(t, "../../docs/ring.svg", "", "</svg>\n", strings.TrimSuffix(drawing.String(), "</svg>\n"))

	commands := ""
	for _, g := range groups() {
		commands += fmt.Sprintf("- **%s**: %s\n", g.title, "`"+strings.Join(g.names, "`, `")+"`")
	}
	for _, c := range newRootCommand(&app{}).Commands() {
		if c.GroupID == "" && !c.Hidden && !slices.Contains([]string{"completion", "help", "version"}, c.Name()) {
			t.Errorf("%s is in no group", c.Name())
		}
	}
	page(t, readme, "## Commands\n\n", "\nEach has `--help`", commands)

	data, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	words := 0
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "    ") {
			words += len(strings.Fields(line))
		}
	}
	if words > 600 {
		t.Errorf("%s has %d words", readme, words)
	}
}
