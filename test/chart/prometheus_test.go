//go:build chart

package chart

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRules: promtool takes the rules, and each fires and does not fire when it should.
func TestRules(t *testing.T) {
	promtool := filepath.Join(tool(t, "PROMETHEUS"), "promtool")
	output(t, promtool, "check", "rules", filepath.Join(Dir, "files/rules.yaml"))
	output(t, promtool, "test", "rules", "testdata/alerts.yaml")
}

// emptyHere are metrics without series on a simulated node, which has no kernel of its own, no kubelet and no runtime.
var emptyHere = []string{
	"lpuctl_uevents_total",                                             // no kernel
	"lpuctl_lpu_aer_errors_total",                                      // there are some, and none that is new
	"lpuctl_kubelet_calls_total", "lpuctl_preferred_allocations_total", // nobody calls
	"lpuctl_stream_opened_timestamp_seconds",
	"lpuctl_container_lpu", "lpuctl_container_unconnected_lpus", "lpuctl_free_lpus", "lpuctl_longest_free_arc_lpus", "lpuctl_placeable",
	"lpuctl_pod_resources_timestamp_seconds", // nobody says which pods there are
	"lpuctl_runtime_cdi",                     // nobody has asked a runtime
}

// quietAlerts are those that do not fire on the simulated node, and whose expressions therefore are empty.
var quietAlerts = []string{"LPUConfigInvalid", "LPUScanStale", "LPUSpecDrift", "LPUStandbyTooLong"}

// TestPrometheus lets a Prometheus read a serve whose node has faults, and asks it what alerts and dashboard ask.
func TestPrometheus(t *testing.T) {
	address := serveFaulty(t)
	metrics := get(t, "http://"+address+"/metrics")
	check := exec.Command(filepath.Join(tool(t, "PROMETHEUS"), "promtool"), "check", "metrics")
	check.Stdin = strings.NewReader(metrics)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	api := startPrometheus(t, address)
	expressions, err := Expressions()
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(2 * time.Minute)
	for _, e := range expressions {
		if !mayBeEmpty(e) {
			waitForSeries(t, api, e, end)
		}
	}
}

func mayBeEmpty(e Expression) bool {
	name, isAlert := strings.CutPrefix(e.Where, "alert ")
	if isAlert && slices.Contains(quietAlerts, name) {
		return true
	}
	return slices.ContainsFunc(e.Metrics(), func(m string) bool { return slices.Contains(emptyHere, m) })
}

// waitForSeries asks until there is a series.
func waitForSeries(t *testing.T, api string, e Expression, end time.Time) {
	t.Helper()
	query := strings.NewReplacer("$instance", ".*", "$__rate_interval", "30s").Replace(e.Text)
	for {
		var answer struct {
			Status, Error string
			Data          struct{ Result []any }
		}
		text := get(t, api+"/api/v1/query?query="+url.QueryEscape(query))
		if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Status != "success" {
			t.Fatalf("%s: %s: %v %s", e.Where, query, err, text)
		}
		if len(answer.Data.Result) > 0 {
			return
		}
		if time.Now().After(end) {
			t.Errorf("%s: %s gives no series", e.Where, query)
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// serveFaulty runs serve on a simulated node with faults, and returns its address when it has read the node.
func serveFaulty(t *testing.T) string {
	t.Helper()
	lpuctl, node, address := tool(t, "LPUCTL"), filepath.Join(t.TempDir(), "node"), freeAddress(t)
	output(t, lpuctl, "simulate", node, "--fault", "unbound@2", "--fault", "aer-correctable@4", "--fault", "recovery@5")
	output(t, lpuctl, "--root", node, "cordon", "lpu6", "--reason", "test")
	start(t, lpuctl, "--root", node, "serve", "--listen", address)
	cordoned := regexp.MustCompile(`(?m)^lpuctl_lpu_cordoned\{lpu="lpu6".*\} 1$`)
	waitFor(t, "serve has read the node", "http://"+address+"/metrics", cordoned)
	// Broken while it runs, so that both are problems of the node: the last good table is kept, and the cordons are those from before.
	for _, name := range []string{"opt/hyperdex/hrt/xclbin/table.json", "var/lib/lpuctl/cordon.json"} {
		if err := os.WriteFile(filepath.Join(node, name), []byte("broken"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return address
}

// startPrometheus runs a Prometheus that reads an address each second and knows the alerts, and returns the URL of it.
func startPrometheus(t *testing.T, target string) string {
	t.Helper()
	rules, err := filepath.Abs(filepath.Join(Dir, "files/rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir, address := t.TempDir(), freeAddress(t)
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
  - job_name: lpuctl
    honor_labels: true
    static_configs: [{targets: ["%s"]}]
`, rules, target)
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, filepath.Join(tool(t, "PROMETHEUS"), "prometheus"), "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=error")
	waitFor(t, "Prometheus is ready", "http://"+address+"/-/ready", regexp.MustCompile("Ready"))
	return "http://" + address
}

// start runs a program until the test ends. What it said is shown if the test fails.
func start(t *testing.T, program string, args ...string) {
	t.Helper()
	var said bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // ended by the signal
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(program), said.String())
		}
	})
}

// freeAddress is one that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// waitFor asks until there is a good answer that has the text.
func waitFor(t *testing.T, what, address string, text *regexp.Regexp) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		status, body, err := ask(t, address)
		if err == nil && status == http.StatusOK && text.MatchString(body) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute: %d %v %s", what, status, err, body)
		}
	}
}

// get is the body of an answer, whatever its status.
func get(t *testing.T, address string) string {
	t.Helper()
	_, body, err := ask(t, address)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func ask(t *testing.T, address string) (status int, body string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}
