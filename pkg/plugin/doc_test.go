package plugin

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestInvariantsAreListed: doc.go names exactly the tests of invariants that there are.
func TestInvariantsAreListed(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := names(t, `func (TestInvariant\d+[A-Z]\w+)\(`, files...)
	if diff := cmp.Diff(declared, names(t, `\b(TestInvariant\d+[A-Z]\w+)\b`, "doc.go")); diff != "" {
		t.Errorf("- in the tests, + in doc.go:\n%s", diff)
	}
}

// names are the first groups of what an expression matches in files, sorted.
func names(t *testing.T, expression string, files ...string) []string {
	t.Helper()
	var all []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(expression).FindAllStringSubmatch(string(text), -1) {
			all = append(all, match[1])
		}
	}
	slices.Sort(all)
	return all
}
