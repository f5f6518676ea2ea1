package health_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

var update = flag.Bool("update", false, "write the table of docs/health.md")

// TestPage holds the table of signals in docs/health.md against Signals and the table of findings.
func TestPage(t *testing.T) {
	const page, begin, end = "../../docs/health.md", "writes this table -->\n", "<!-- end of signals -->"
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), begin)
	_, after, foundEnd := strings.Cut(rest, end)
	if !found || !foundEnd {
		t.Fatalf("%s: no place for the table", page)
	}
	want := before + begin + table() + end + after
	switch {
	case *update:
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	case string(data) != want:
		t.Errorf("%s is not what the tables say: go test ./pkg/health -update", page)
	}
}

func table() string {
	var b strings.Builder
	b.WriteString("| id | class | source | for pods |\n|---|---|---|---|\n")
	for _, s := range health.Signals() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.ID, s.Class, s.Source, forPods(s))
	}
	return b.String()
}

// forPods says what a signal means for pods while the default policy holds.
func forPods(s health.Signal) string {
	p := health.DefaultPolicy()
	switch {
	case s.ID == finding.LinkDegraded || s.ID == finding.Hot:
		return "nothing; unhealthy if the config file says so"
	case s.ID == finding.NoAnswer:
		return fmt.Sprintf("nothing for %v, then unhealthy", p.ResetGrace)
	case s.Class == health.Passing:
		return fmt.Sprintf("nothing for %v, then unhealthy", p.Grace)
	case s.Class == health.Counter:
		return fmt.Sprintf("unhealthy for %.0f min after the last one", p.CounterQuiet.Minutes())
	case finding.RuleOf(s.ID).Severity != finding.Error:
		return "nothing"
	case s.Class == health.Latched:
		return "unhealthy until the driver is bound again"
	case s.Class == health.Confirmed:
		return fmt.Sprintf("unhealthy after %d readings", p.BadReadings)
	}
	return "unhealthy at once"
}

// TestSignals: each is in the table of findings, about LPUs, with a severity that fits its class, and each finding about an LPU that is
// an error is one of them.
func TestSignals(t *testing.T) {
	signals := map[finding.ID]health.Class{}
	for _, s := range health.Signals() {
		if _, twice := signals[s.ID]; twice || s.Source == "" {
			t.Errorf("%s is there twice, or has no source", s.ID)
		}
		signals[s.ID] = s.Class
		warning := finding.RuleOf(s.ID).Severity != finding.Error
		if hint := s.Class == health.Hint; hint != warning && s.Class != health.Latched {
			t.Errorf("%s is of class %s and is a %s", s.ID, s.Class, finding.RuleOf(s.ID).Severity)
		}
	}
	for _, g := range finding.Groups() {
		for _, r := range g.Rules {
			_, isSignal := signals[r.ID]
			if g.Area != "LPUs" && isSignal {
				t.Errorf("%s is a signal, and about %s", r.ID, g.Area)
			}
			// Of what is said of an LPU, these are not about the card: one is about the spec, the other about who has it.
			aboutCard := r.ID != finding.NotInSpec && r.ID != finding.HeldByOther && r.ID != finding.GivenTwice
			if g.Area == "LPUs" && !isSignal && r.Severity == finding.Error && aboutCard {
				t.Errorf("%s is no signal", r.ID)
			}
		}
	}
}
