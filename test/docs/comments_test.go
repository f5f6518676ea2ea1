package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestComments: a line of the source that is shipped has at most 100 columns if it has a comment, which has none of the words that make
// a sentence hard to read.
func TestComments(t *testing.T) {
	words := regexp.MustCompile(`(?i)\b(anew|whoever|nobody|somebody|told|tells? (whether|if))\b`)
	for _, dir := range []string{"cmd", "internal", "pkg"} {
		if err := filepath.WalkDir(filepath.Join(top, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			for _, group := range file.Comments {
				for _, c := range group.List {
					at := files.Position(c.Pos())
					if end := at.Column + len(c.Text) - 1; end > 100 && !strings.HasPrefix(c.Text, "//nolint") {
						t.Errorf("%s: a comment that ends at column %d", at, end)
					}
					if m := words.FindString(c.Text); m != "" {
						t.Errorf("%s: %q in a comment", at, m)
					}
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
