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

<!-- The tables are made of pkg/finding/table.go: go test ./pkg/finding -update -->

Every problem that lpuctl reports, by its id. An *error* makes something unusable, a *warning* needs attention, a *note* explains. The
remedy that lpuctl prints has the names and paths of the case. In ` + "`cdi validate`" + `, problems of other kinds' files are notes.
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
