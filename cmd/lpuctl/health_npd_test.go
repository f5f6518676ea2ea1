package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// npdConfig is the configuration of a custom plugin monitor of node-problem-detector. It ignores keys that it does not know.
type npdConfig struct {
	Plugin       string `json:"plugin"`
	PluginConfig struct {
		InvokeInterval  string `json:"invoke_interval"`
		Timeout         string `json:"timeout"`
		MaxOutputLength int    `json:"max_output_length"`
		Concurrency     int    `json:"concurrency"`
		UpdateByMessage bool   `json:"enable_message_change_based_condition_update"`
	} `json:"pluginConfig"`
	Source           string `json:"source"`
	MetricsReporting bool   `json:"metricsReporting"`
	Conditions       []struct{ Type, Reason, Message string }
	Rules            []struct {
		Type, Condition, Reason, Path, Timeout string
		Args                                   []string
	}
}

// TestConfigurationOfNPD: the configuration that we ship has only keys that node-problem-detector knows, and runs what lpuctl answers.
func TestConfigurationOfNPD(t *testing.T) {
	data, err := os.ReadFile("../../packaging/kubernetes/node-problem-detector.json")
	if err != nil {
		t.Fatal(err)
	}
	var c npdConfig
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		t.Fatal(err)
	}
	if c.Plugin != "custom" || len(c.Conditions) != 1 || len(c.Rules) != 1 {
		t.Fatalf("%+v", c)
	}
	rule, condition := c.Rules[0], c.Conditions[0]
	if rule.Type != "permanent" || rule.Condition != condition.Type || rule.Reason == condition.Reason {
		t.Errorf("the rule %+v does not set the condition %+v", rule, condition)
	}
	if c.PluginConfig.MaxOutputLength < npdWidth || len(condition.Message) > npdWidth {
		t.Errorf("it cuts lines after %d bytes, and the default message has %d", c.PluginConfig.MaxOutputLength, len(condition.Message))
	}
	limit := func(text string) time.Duration {
		t.Helper()
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	// A rule whose timeout is longer than that of all is an error, by which node-problem-detector ends.
	if limit(rule.Timeout) > limit(c.PluginConfig.Timeout) || limit(c.PluginConfig.Timeout) >= limit(c.PluginConfig.InvokeInterval) {
		t.Errorf("timeouts %s and %s, interval %s", rule.Timeout, c.PluginConfig.Timeout, c.PluginConfig.InvokeInterval)
	}
	node := filepath.Join(t.TempDir(), "node")
	faults := []simulate.Fault{{Name: "unbound", Index: 1}}
	if _, err := (simulate.Node{Profile: "orion", LPUs: 2, Faults: faults}).Write(node); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	args := append([]string{"--root", node}, rule.Args...)
	if code := run(t.Context(), args, &out, &errOut, func(string) (string, bool) { return "", false }); code != npdFaulty {
		t.Errorf("%v: exit code %d: %s%s", rule.Args, code, out.String(), errOut.String())
	}
}

// TestLinesForNPD: each finding about an LPU makes a line that fits, and the same one whatever was counted or measured.
func TestLinesForNPD(t *testing.T) {
	for _, group := range finding.Groups() {
		for _, rule := range group.Rules {
			line := func(message string) string {
				reasons := finding.List{{ID: rule.ID, Severity: finding.Error, Message: message}}
				l := discovery.LPU{Name: "lpu127", Health: health.Unhealthy, Reasons: reasons}
				text, faulty := npdLine([]discovery.LPU{l, l})
				if !faulty || len(text) > npdWidth {
					t.Errorf("%s: %q", rule.ID, text)
				}
				return text
			}
			if a, b := line("a sensor shows 97 °C"), line("a sensor shows 98 °C"); a != b {
				t.Errorf("%s: %q is not %q", rule.ID, a, b)
			}
		}
	}
}
