package broken

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of docs/doctor-notes.md")

const (
	page  = "../../docs/doctor-notes.md"
	begin = "<!-- broken nodes: go test ./test/broken -run TestPage -update -->\n"
	end   = "<!-- end of broken nodes -->\n"
)

// TestPage holds the table in docs/doctor-notes.md against the rows.
func TestPage(t *testing.T) {
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", page)
	}
	want := before + begin + table() + end + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(data) != want {
		t.Errorf("%s is not what the rows say: go test ./test/broken -run TestPage -update", page)
	}
}

// table is how many remedies are commands that were carried out, and how many are told, by link.
func table() string {
	var links []string
	carried, told := map[string]int{}, map[string]int{}
	reported := 0
	for _, r := range rows() {
		if r.reports != "" {
			reported++
		}
		for _, c := range r.finds {
			if !slices.Contains(links, c.link) {
				links = append(links, c.link)
			}
			if c.told == "" {
				carried[c.link]++
			} else {
				told[c.link]++
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d nodes, of which %d are like reports of users of other projects:\n\n"+
		"| link that breaks | remedies that are commands, and were carried out | remedies in words |\n|---|---|---|\n", len(rows()), reported)
	all, words := 0, 0
	for _, l := range links {
		fmt.Fprintf(&b, "| `%s` | %d | %d |\n", l, carried[l], told[l])
		all, words = all+carried[l], words+told[l]
	}
	fmt.Fprintf(&b, "| all | %d | %d |\n\n", all, words)
	return b.String()
}

// TestRows: there are as many rows as promised, and each has a name of its own.
func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows() {
		if seen[r.name] || len(r.finds) == 0 || r.breaks == "" {
			t.Errorf("%s: it is there twice, breaks nothing or finds nothing", r.name)
		}
		seen[r.name] = true
	}
	if len(seen) < 60 {
		t.Errorf("%d rows, fewer than 60", len(seen))
	}
}
