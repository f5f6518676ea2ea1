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
	session := ""
	lpuctl := func(args ...string) string {
		var out, said bytes.Buffer
		session += "    $ bin/lpuctl " + strings.Join(args, " ") + "\n"
		args = strings.Fields(strings.ReplaceAll(strings.Join(args, " "), shown, root))
		if code := run(t.Context(), args, &out, &said, noEnvironment); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, said.String())
		}
		return out.String()
	}
	show := func(args ...string) {
		for line := range strings.Lines(lpuctl(args...)) {
			session += strings.TrimRight("    "+line, " \n") + "\n"
		}
	}
	show("--quiet", "simulate", shown, "--fault", "bad-state@5")
	show("--root", shown, "topology")
	show("--root", shown, "--quiet", "cdi", "refresh")
	show("--root", shown, "allocate", "-n", "4", "-o", "name")
	page(t, readme, "and look at it:\n\n", "\n## Choose your path", session)
	page(t, "../../docs/ring.svg", "", "</svg>\n", strings.TrimSuffix(lpuctl("--root", shown, "topology", "-o", "svg"), "</svg>\n"))

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
