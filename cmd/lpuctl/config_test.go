package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// FuzzParseConfig: whatever stands in a config file, it is read or every fault has words and a place, and
// what is read can be shown.
func FuzzParseConfig(f *testing.F) {
	good, err := os.ReadFile("../../testdata/config.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("cdi: {kind: a/b}\nmodels:\n- {name: x, match: [{class: \"12\"}], nodes: [\"path:/dev/../etc\"]}\n"))
	f.Add([]byte("models: [{name: bertha, enabled: no, management: {function: 9}}]"))
	f.Add([]byte("kind: Config\n---\nkind: Config\n"))
	f.Add([]byte("health: {badReadings: -1, goodFor: 1x, degradedLink: \"\", maxCelsius: 1e9}"))
	f.Add([]byte("topology:\n- {nodes: [a, \"b*\"], labels: {switch: s, a.b/c: d}}\n- {nodes: [b], labels: {rack: \"\"}}\n"))
	f.Add([]byte("models:\n- &a {name: x}\n- *a\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, findings := cli.ParseConfig("file", data)
		for _, finding := range findings {
			if finding.Message == "" || finding.Remedy == "" || finding.File != "file" {
				t.Errorf("a finding without words: %+v", finding)
			}
		}
		if len(findings) > 0 {
			return
		}
		if _, err := c.Annotated(func(string, string) {}); err != nil {
			t.Errorf("cannot be shown: %v", err)
		}
	})
}

// TestDefaultPolicy: without a config file health is judged as pkg/health says.
func TestDefaultPolicy(t *testing.T) {
	c, _ := cli.ParseConfig("", nil)
	if got := c.Health.Policy(); *got != health.DefaultPolicy() {
		t.Errorf("%+v", got)
	}
	all := "health: {badReadings: 3, goodReadings: 4, goodFor: 5s, resetGrace: 6s, grace: 7s, counterQuiet: 8s, " +
		"correctableErrors: 9, nonFatalErrors: 10, degradedLink: unhealthy, maxCelsius: 80}"
	c, findings := cli.ParseConfig("file", []byte(all))
	want := health.Policy{
		BadReadings: 3, GoodReadings: 4, GoodFor: 5 * time.Second, ResetGrace: 6 * time.Second, Grace: 7 * time.Second,
		CounterQuiet: 8 * time.Second, CorrectableErrors: 9, NonFatalErrors: 10, DegradedLink: "unhealthy", MaxCelsius: 80,
	}
	if got := c.Health.Policy(); len(findings) > 0 || *got != want {
		t.Errorf("%+v %v", got, findings)
	}
}

// TestFaultsInOrder: what is wrong with a section is said in the order of its keys, each time.
func TestFaultsInOrder(t *testing.T) {
	for range 50 {
		_, findings := cli.ParseConfig("file", []byte("leases: {maxHours: -1, maxLPUs: -2, pool: [lpu0]}"))
		var subjects []string
		for _, f := range findings {
			subjects = append(subjects, f.Subject)
		}
		if got := strings.Join(subjects, " "); got != "leases.pool.0 leases.maxLPUs leases.maxHours" {
			t.Fatal(got)
		}
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	root := newRootCommand(&app{})
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			continue
		}
		for _, c := range append(cmd.Commands(), cmd) {
			if !strings.Contains(c.Example, "lpuctl") || c.Short == "" {
				t.Errorf("%s has no example or no short help", c.CommandPath())
			}
		}
	}
}
