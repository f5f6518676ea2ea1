package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestIndex: docs/README.md has each page of the manual once.
func TestIndex(t *testing.T) {
	index := readPage(t, "docs/README.md")
	for _, page := range pages(t, "docs") {
		name := filepath.Base(page)
		if n := strings.Count(index, "]("+name+")"); n != 1 && name != "README.md" {
			t.Errorf("docs/README.md has %s %d times", name, n)
		}
	}
}

// TestAnchors: the heading to which a page links is there.
func TestAnchors(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]*)#([^)]+)\)`)
	for _, page := range pages(t, ".", "docs", "docs/adr", "examples") {
		for _, m := range link.FindAllStringSubmatch(readPage(t, page), -1) {
			to := page
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(page), m[1])
			}
			if filepath.Ext(to) == ".md" && exists(to) && !slices.Contains(anchors(readPage(t, to)), m[2]) {
				t.Errorf("%s: %s has no heading #%s", page, to, m[2])
			}
		}
	}
}

// anchors are what GitHub makes of the headings of a page.
func anchors(text string) (found []string) {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for line := range strings.Lines(text) {
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			found = append(found, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-"))
		}
	}
	return found
}

// TestWords: what users read does not grow. That is all of docs but the tables of findings, which are made of code, and the pages for
// contributors.
func TestWords(t *testing.T) {
	const limit = 25_000
	_, contributors, found := strings.Cut(readPage(t, "docs/README.md"), "**For contributors**\n")
	if !found {
		t.Fatal("docs/README.md has no pages for contributors")
	}
	words := 0
	for _, page := range pages(t, "docs") {
		if name := filepath.Base(page); name != "findings.md" && !strings.Contains(contributors, "]("+name+")") {
			words += len(strings.Fields(readPage(t, page)))
		}
	}
	if words > limit {
		t.Errorf("docs has %d words for users: the limit is %d; say nothing twice", words, limit)
	}
}

// TestExamplesOfPages: what a tutorial shows of a file is in the example, which is tried.
func TestExamplesOfPages(t *testing.T) {
	for page, example := range map[string]string{
		"docs/start-quadlet.md": "examples/quadlet/lpu.container",
		"docs/start-docker.md":  "examples/compose/compose.yaml",
	} {
		lines, shown := strings.Split(readPage(t, example), "\n"), 0
		_, block, _ := strings.Cut(readPage(t, page), lines[slices.IndexFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "#") })])
		for line := range strings.Lines(block) {
			line, is := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "    ")
			if !is && line != "" {
				break
			}
			if shown++; !slices.Contains(lines, line) {
				t.Errorf("%s: %s has not the line %q", page, example, line)
			}
		}
		if shown < 4 {
			t.Errorf("%s shows %d lines of %s", page, shown, example)
		}
	}
}

// TestSessions: a tutorial says of each command that is not lpuctl's which test runs it, or proves what it does, or why none does.
func TestSessions(t *testing.T) {
	mark := regexp.MustCompile(`^<!-- (?:(?:run|proven) by (test/\S+\.go) (Test\w+)|not run: .+) -->$`)
	tutorials, err := filepath.Glob(filepath.Join(top, "docs/start-*.md"))
	if err != nil || len(tutorials) < 7 {
		t.Fatal(err, tutorials)
	}
	for _, path := range tutorials {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		marked := false
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			command, is := strings.CutPrefix(line, prompt)
			switch m := mark.FindStringSubmatch(line); {
			case m != nil:
				if marked = true; m[1] != "" && (!exists(m[1]) || !strings.Contains(readPage(t, m[1]), "func "+m[2]+"(")) {
					t.Errorf("%s: there is no %s in %s", path, m[2], m[1])
				}
			case line != "" && !strings.HasPrefix(line, "    "):
				marked = false
			case is && !marked && !strings.HasPrefix(strings.TrimPrefix(command, "sudo "), "lpuctl "):
				t.Errorf("%s: it does not say which test runs %s", path, command)
			}
		}
	}
}
