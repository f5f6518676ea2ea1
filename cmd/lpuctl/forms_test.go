package main

import (
	"bytes"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/simulate"
)

// TestCommandsOfTheBugForm: each command that the form asks for runs, on a node on which no spec is
// in place.
func TestCommandsOfTheBugForm(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion"}).Write(root); err != nil {
		t.Fatal(err)
	}
	form := readText(t, "../../.github/ISSUE_TEMPLATE/bug.yml")
	commands := regexp.MustCompile("`(?:sudo )?lpuctl ([a-z -]+)`").FindAllStringSubmatch(form, -1)
	for _, m := range commands {
		var said bytes.Buffer
		args := append(strings.Fields(m[1]), "--root", root)
		code := run(t.Context(), args, &said, &said, func(string) (string, bool) { return "", false })
		if !slices.Contains([]int{0, 3}, code) { // 3: it found something
			t.Errorf("lpuctl %s: exit code %d\n%s", m[1], code, &said)
		}
	}
	if len(commands) < 5 {
		t.Errorf("it asks for %d commands only", len(commands))
	}
}
