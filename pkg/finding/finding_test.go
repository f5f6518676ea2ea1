package finding

import (
	"regexp"
	"slices"
	"testing"
)

// TestTable holds what every row has to have, and that none is there twice.
func TestTable(t *testing.T) {
	form := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	seen := map[ID]bool{}
	for _, g := range Groups() {
		for _, r := range g.Rules {
			if seen[r.ID] || !form.MatchString(string(r.ID)) || r.Meaning == "" || r.Remedy == "" {
				t.Errorf("bad row %+v", r)
			}
			if !slices.Contains([]Severity{Error, Warning, Note}, r.Severity) {
				t.Errorf("bad severity in %+v", r)
			}
			seen[r.ID] = true
		}
	}
}

// TestListGrowsIntoNewMemory: a copy of a list that somebody else goes on adding to is never written to.
func TestListGrowsIntoNewMemory(t *testing.T) {
	var list List
	list.Add(Gone, "lpu0", "it is gone", "")
	list.Add(Gone, "lpu0", "it is gone", "")
	list.Add(Gone, "lpu0", "it is gone", "")
	left := list
	left.Add(Offline, "left", "x", "")
	list.Add(NoNode, "list", "x", "")
	if left[3].Subject != "left" || list[3].Subject != "list" {
		t.Errorf("one list wrote into the other: %v, %v", left[3], list[3])
	}
}

func TestNewTakesWhatTheTableSays(t *testing.T) {
	f := New(SpecMode, "spec.json", "only some users may read it", "")
	if f.Severity != Warning || f.Remedy != RuleOf(SpecMode).Remedy {
		t.Errorf("got %+v", f)
	}
	const want = "warning: spec.json: /etc/cdi/spec.json:3: only some users may read it [spec-mode]"
	if got := f.At("/etc/cdi/spec.json", 3).String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
