package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestAssumptions: the assumptions of docs/hardware.md are numbered from 1 on without a gap, and each
// has a statement, a source, what stands on it, and a check.
func TestAssumptions(t *testing.T) {
	heading := regexp.MustCompile(`(?m)^### HW-(\d+)\n`)
	text := readPage(t, "docs/hardware.md")
	places := heading.FindAllStringSubmatchIndex(text, -1)
	if len(places) == 0 {
		t.Fatal("there are none")
	}
	parts := regexp.MustCompile(`(?s)^\n[^-#].*?\n\n- Source: .+?\n- Stands on it: .+?\n- Check: .+?\n(\n|$)`)
	for i, place := range places {
		id := "HW-" + text[place[2]:place[3]]
		if want := "HW-" + strconv.Itoa(i+1); id != want {
			t.Fatalf("%s stands where %s should", id, want)
		}
		end := len(text)
		if i+1 < len(places) {
			end = places[i+1][0]
		}
		entry := text[place[1]:end]
		if !parts.MatchString(entry) || strings.Count(entry, "\n- ") != 3 {
			t.Errorf("%s: it has no statement, source, what stands on it and check, in this order:\n%s", id, entry)
		}
	}
}

// TestAssumptionsThatAreNamed: what source, tests or pages name is in docs/hardware.md.
func TestAssumptionsThatAreNamed(t *testing.T) {
	known, id := readPage(t, "docs/hardware.md"), regexp.MustCompile(`\bHW-\d+\b|#hw-\d+\b`)
	named := 0
	for _, dir := range []string{"cmd", "docs", "internal", "packaging", "pkg", "systemd", "test"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !slices.Contains([]string{".go", ".md", ".rules", ".yaml", ".5", ".8"}, filepath.Ext(file)) {
				return err
			}
			page, err := filepath.Rel(top, file)
			if err != nil {
				return err
			}
			for _, name := range id.FindAllString(readPage(t, page), -1) {
				named++
				if name = strings.ToUpper(strings.TrimPrefix(name, "#")); !strings.Contains(known, "\n### "+name+"\n") {
					t.Errorf("%s: there is no %s in docs/hardware.md", page, name)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if named == 0 {
		t.Error("none is named")
	}
}
