package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const top = "../.."

// readPage is the text of a page at a path from the top of the source.
func readPage(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(top, name))
	return !errors.Is(err, fs.ErrNotExist)
}

// TestPaths: what the pages about the source name in backticks is there, if it looks like a path of the repository, and
// a name that they say is in a file is in that file.
func TestPaths(t *testing.T) {
	path := regexp.MustCompile("`((?:cmd|docs|examples|internal|packaging|pkg|systemd|test|\\.ci)/[\\w./-]+|[\\w-]*\\.?[\\w-]+\\.(?:md|yml))`")
	nameIn := regexp.MustCompile("`(?:\\w+\\.)?(\\w+)` (?:of|in)\\s`([\\w./-]+\\.go)`")
	source := []string{"CONTRIBUTING.md", "docs/architecture.md", "docs/hardware.md"}
	for _, page := range append(pages(t, "docs/adr"), source...) {
		text := readPage(t, page)
		paths := path.FindAllStringSubmatch(text, -1)
		if len(paths) == 0 && slices.Contains(source, page) {
			t.Errorf("%s: names no path", page)
		}
		for _, m := range paths {
			if !exists(m[1]) {
				t.Errorf("%s: there is no %s", page, m[1])
			}
		}
		for _, m := range nameIn.FindAllStringSubmatch(text, -1) {
			if exists(m[2]) && !strings.Contains(readPage(t, m[2]), m[1]) {
				t.Errorf("%s: there is no %s in %s", page, m[1], m[2])
			}
		}
	}
}

// TestRooms: the table of rooms is short enough to be read, it has every package,
// and a file that a row names is in a directory of that row.
func TestRooms(t *testing.T) {
	table := readPage(t, "docs/architecture.md")
	_, table, _ = strings.Cut(table, "## Rooms\n")
	table, _, found := strings.Cut(table, "## Imports\n")
	if !found {
		t.Fatal("docs/architecture.md has no rooms before the imports")
	}
	room := regexp.MustCompile("`((?:cmd|docs|examples|internal|packaging|pkg|systemd|test)/[\\w/-]+)(?:/\\w+\\.go)?`")
	file := regexp.MustCompile("`(\\w+\\.go)`")
	rows, rooms := 0, map[string]bool{}
	for row := range strings.Lines(table) {
		var here []string
		for _, m := range room.FindAllStringSubmatch(row, -1) {
			here = append(here, m[1])
			rooms[m[1]] = true
		}
		for _, m := range file.FindAllStringSubmatch(row, -1) {
			if !slices.ContainsFunc(here, func(dir string) bool { return exists(filepath.Join(dir, m[1])) }) {
				t.Errorf("there is no %s in %v", m[1], here)
			}
		}
		if len(here) > 0 {
			rows++
		}
	}
	if rows > 27 {
		t.Errorf("the table of rooms has %d rows, too many to be read", rows)
	}
	for _, dir := range slices.Concat(packages(t, "internal"), packages(t, "pkg")) {
		if !rooms[dir] {
			t.Errorf("the table of rooms has no %s", dir)
		}
	}
}

// packages are the directories below one that have Go files.
func packages(t *testing.T, below string) (dirs []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(top, below, "*", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(below, err)
	}
	for _, f := range files {
		if dir := filepath.Join(below, filepath.Base(filepath.Dir(f))); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// pages are the paths of all pages in these directories, from the top of the source. There is at
// least one in each.
func pages(t *testing.T, dirs ...string) (found []string) {
	t.Helper()
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(top, dir, "*.md"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %d pages", dir, err, len(files))
		}
		for _, file := range files {
			found = append(found, filepath.Join(dir, filepath.Base(file)))
		}
	}
	return found
}

// TestLinks: what a page links to is there.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`) // neither within the page nor to another site
	for _, page := range pages(t, ".", "docs", "docs/adr", "examples") {
		for _, m := range link.FindAllStringSubmatch(readPage(t, page), -1) {
			if to := filepath.Join(filepath.Dir(page), m[1]); !exists(to) {
				t.Errorf("%s: there is no %s", page, to)
			}
		}
	}
}

// TestDecisions: each file of docs/adr has the form that its list asks for, the list has each, and
// the numbers have no gap.
func TestDecisions(t *testing.T) {
	form := regexp.MustCompile(`(?s)\A# (\d+)\. ([^\n]+)\n\n` +
		`Status: (?:accepted|superseded by \d+), \d{4}-\d\d-\d\d\n\n` +
		`## Context\n\n[^#]+\n\n## Decision\n\n[^#]+\n\n## Consequences\n\n- .+\n\z`)
	index := readPage(t, "docs/adr/README.md")
	decisions := slices.DeleteFunc(pages(t, "docs/adr"), func(page string) bool { return filepath.Base(page) == "README.md" })
	for i, page := range decisions {
		text, name := readPage(t, page), filepath.Base(page)
		m := form.FindStringSubmatch(text)
		if m == nil {
			t.Errorf("%s: it has no title, status with a date, context, decision and consequences, in this order", page)
			continue
		}
		if m[1] != strconv.Itoa(i+1) || !strings.HasPrefix(name, fmt.Sprintf("%04d-", i+1)) {
			t.Errorf("%s is of decision %s, and stands where %d should", page, m[1], i+1)
		}
		if line := fmt.Sprintf("%s. [%s](%s)\n", m[1], m[2], name); !strings.Contains(index, line) {
			t.Errorf("docs/adr/README.md has not the line %s", line)
		}
		if lines := strings.Count(text, "\n"); lines < 10 || lines > 25 {
			t.Errorf("%s: it has %d lines", page, lines)
		}
	}
	if in := strings.Count(index, ".md)\n"); in != len(decisions) {
		t.Errorf("docs/adr/README.md lists %d decisions, and there are %d", in, len(decisions))
	}
}
