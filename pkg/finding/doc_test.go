package finding

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/findings.md")

const (
	page  = "../../docs/findings.md"
	intro = `# Findings

Everything that lpuctl finds out of order, with the id that scripts can rely on. The tables are made of the one in
[pkg/finding/table.go](../pkg/finding/table.go): after a change of it, ` + "`go test ./pkg/finding -update`" + ` writes them again.

An *error* makes something unusable, a *warning* needs a look, a *note* explains. ` +
		`A finding names its file and line where there is one, and has
a remedy; where it knows names and paths, the remedy is more precise than the one below. In ` +
		"`cdi validate`" + `, a file of another kind is
its maker's business: what is wrong with it is a note.
`
)

// TestPage holds docs/findings.md against the table.
func TestPage(t *testing.T) {
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, examples, ok := strings.Cut(string(data), "## Examples\n")
	if !ok {
		t.Fatalf("%s: no section with examples", page)
	}
	want := intro + tables() + "\n## Examples\n" + examples
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(data) != want {
		t.Errorf("%s is not what the table says: go test ./pkg/finding -update", page)
	}
}

func tables() string {
	var b strings.Builder
	for _, g := range Groups() {
		fmt.Fprintf(&b, "\n## %s\n\n| id | severity | meaning | remedy |\n|---|---|---|---|\n", g.Area)
		for _, r := range g.Rules {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.ID, r.Severity, r.Meaning, r.Remedy)
		}
	}
	return b.String()
}
