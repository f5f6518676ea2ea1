// Package docs holds the documentation for contributors against the source that it speaks of.
package docs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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
	path := regexp.MustCompile("`((?:cmd|docs|internal|packaging|pkg|systemd|test|\\.ci)/[\\w./-]+|[\\w-]*\\.?[\\w-]+\\.(?:md|yml))`")
	nameIn := regexp.MustCompile("`(?:\\w+\\.)?(\\w+)` (?:of|in)\\s`([\\w./-]+\\.go)`")
	for _, page := range []string{"CONTRIBUTING.md", "docs/architecture.md", "docs/hardware.md"} {
		text := readPage(t, page)
		paths := path.FindAllStringSubmatch(text, -1)
		if len(paths) == 0 {
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

// TestLinks: what a page links to is there.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(top, "docs/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`) // neither within the page nor to another site
	for _, file := range append(pages, filepath.Join(top, "README.md"), filepath.Join(top, "CONTRIBUTING.md")) {
		page, err := filepath.Rel(top, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(readPage(t, page), -1) {
			if to := filepath.Join(filepath.Dir(page), m[1]); !exists(to) {
				t.Errorf("%s: there is no %s", page, to)
			}
		}
	}
}
