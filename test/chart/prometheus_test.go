//go:build chart

package chart

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
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

// absentHere are metrics that no simulated node has, and why.
var absentHere = map[string]string{
	"lpuctl_uevents_total": "there is no kernel that would tell of a simulated node",
}

// later are alerts of something that is long ago: what they ask is asked for a time at which it will be.
var later = map[string]time.Duration{"alert LPUScanStale": 62 * time.Second}

// TestPrometheus lets a Prometheus read nodes with faults, and asks it what alerts and dashboard ask. All names are those that lpuctl has,
// and those that the documentation has.
func TestPrometheus(t *testing.T) {
	faulty := startFaulty(t)
	addresses := []string{faulty.addresses[0], faulty.addresses[1], serveWithoutKubelet(t)}
	var names []string
	for _, address := range addresses {
		names = append(names, exported(t, address)...)
	}
	documented, err := Documented("docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	sameNames(t, append(names, slices.Collect(maps.Keys(absentHere))...), documented)
	addresses = append(addresses, serveMetricsOfDriver(t))
	expressions, err := Expressions()
	if err != nil {
		t.Fatal(err)
	}
	api := startPrometheus(t, addresses)
	waitForSeries(t, api, Expression{"Prometheus reads", "lpuctl_lpu_aer_errors_total > 0"}, time.Now().Add(time.Minute))
	faulty.countErrors(t)
	end := time.Now().Add(2 * time.Minute)
	for _, e := range expressions {
		if !slices.ContainsFunc(e.Metrics(), func(name string) bool { return absentHere[name] != "" }) {
			waitForSeries(t, api, e, end)
		}
	}
}

// serveMetricsOfDriver serves the metrics of a DRA driver to which all happens that alerts tell of: without a cluster there is none. The
// names are those of the driver's page, which a test of cmd/lpuctl-dra holds against the program.
func serveMetricsOfDriver(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/dra-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	var count atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.ReplaceAll(text, []byte("COUNT"), strconv.AppendInt(nil, count.Add(1), 10)))
	}))
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://")
	documented, err := Documented("docs/dra.md")
	if err != nil {
		t.Fatal(err)
	}
	got := exported(t, address)
	slices.Sort(got)
	slices.Sort(documented)
	if got = slices.Compact(got); !slices.Equal(got, documented) {
		t.Errorf("testdata/dra-metrics.txt has %v, docs/dra.md %v", got, documented)
	}
	return address
}

// TestExporter: the metrics of a node without Kubernetes are those that its page says.
func TestExporter(t *testing.T) {
	lpuctl, node, address := tool(t, "LPUCTL"), filepath.Join(t.TempDir(), "node"), freeAddress(t)
	output(t, lpuctl, "simulate", node, "--fault", "aer-correctable@4")
	output(t, lpuctl, "--root", node, "cdi", "refresh")
	start(t, lpuctl, "--root", node, "exporter", "--listen", address)
	waitFor(t, "the exporter has read the node", "http://"+address+"/readyz", regexp.MustCompile("ok"))
	names := exported(t, address)
	ofNode, err := Documented("docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	own, err := Documented("docs/exporter.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !slices.Contains(ofNode, name) && !slices.Contains(own, name) {
			t.Errorf("docs/exporter.md does not have %s", name)
		}
	}
	for _, name := range own {
		if !slices.Contains(names, name) && exporterAbsent[name] == "" {
			t.Errorf("the exporter has no %s", name)
		}
	}
}

// exporterAbsent are metrics of the exporter that the simulated node does not have, and why.
var exporterAbsent = map[string]string{
	"lpuctl_lpu_holder":   "nobody has a node of an LPU open there",
	"lpuctl_lpu_leased":   "nobody has leased an LPU there",
	"lpuctl_lpu_reserved": "nobody has reserved an LPU there",
}

// exported are the names of the samples that an address has. promtool must have nothing against them.
func exported(t *testing.T, address string) []string {
	t.Helper()
	text := get(t, "http://"+address+"/metrics")
	check := exec.Command(filepath.Join(tool(t, "PROMETHEUS"), "promtool"), "check", "metrics")
	check.Stdin = strings.NewReader(text)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^(lpuctl_\w+)[{ ]`).FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// sameNames compares the metrics that there are with those that are documented.
func sameNames(t *testing.T, got, want []string) {
	t.Helper()
	for _, name := range got {
		if !slices.Contains(want, name) {
			t.Errorf("docs/kubernetes.md does not have %s", name)
		}
	}
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("no serve has %s, which docs/kubernetes.md has", name)
		}
	}
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
		at := time.Now().Add(later[e.Where]).Unix()
		text := get(t, fmt.Sprintf("%s/api/v1/query?query=%s&time=%d", api, url.QueryEscape(query), at))
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

// faultyNode is a simulated node with faults, a kubelet, and two instances of serve, of which the second stands by.
type faultyNode struct {
	dir       string
	addresses []string // of both instances
}

// runtimeWithoutCDI are files of a containerd that the kubelet uses, and that has CDI off.
var runtimeWithoutCDI = map[string]string{
	"usr/bin/containerd":           "",
	"var/lib/dpkg/status":          "Package: containerd\nStatus: install ok installed\nVersion: 1.7.35\n\n",
	"var/lib/kubelet/config.yaml":  "kind: KubeletConfiguration\n",
	"etc/containerd/config.toml":   "version = 2\n",
	"etc/lpuctl/config.yaml":       "apiVersion: lpuctl.hyperaccel.ai/v1alpha1\nkind: Config\n",
	"etc/features.d/somebody-else": "",
}

// startFaulty lets serve read a node with everything on, and then breaks what can break while it runs: the ring table, of which the last
// good one is kept; the cordons, likewise; the configuration; the CDI spec.
func startFaulty(t *testing.T) *faultyNode {
	t.Helper()
	lpuctl := tool(t, "LPUCTL")
	n := &faultyNode{dir: filepath.Join(t.TempDir(), "n"), addresses: []string{freeAddress(t), freeAddress(t)}}
	output(t, lpuctl, "simulate", n.dir, "--fault", "unbound@2", "--fault", "aer-correctable@4", "--fault", "recovery@5")
	output(t, lpuctl, "--root", n.dir, "cordon", "lpu6", "--reason", "test")
	for name, text := range runtimeWithoutCDI {
		n.write(t, name, text)
	}
	_ = exec.Command(lpuctl, "--root", n.dir, "runtime", "check", "--write-result").Run() // its exit code says that CDI is off
	if _, err := os.Stat(filepath.Join(n.dir, "var/lib/lpuctl/runtime.json")); err != nil {
		t.Fatal(err)
	}
	id := func(i int) string {
		return fmt.Sprintf("pci-0000-%s-00.1", [8]string{"43", "44", "45", "46", "83", "84", "85", "86"}[i])
	}
	var ids []string
	for i := range 8 {
		ids = append(ids, id(i))
	}
	// lpu1, lpu3 and lpu7 are left: no two of them are connected.
	k := startKubelet(t, n.dir, ids, map[string][]string{"apart": {id(0), id(4)}, "twice": {id(2)}})
	for i, address := range n.addresses {
		start(t, lpuctl, "--root", n.dir, "serve", "--listen", address, "--pod-resources", "--nfd", "/etc/features.d/lpuctl", "--node-name", "n1")
		if i == 0 {
			k.start(t, []string{id(1), id(3), id(7)})
		}
	}
	for _, sample := range []string{
		`lpuctl_lpu_cordoned\{lpu="lpu6".*\} 1`, `lpuctl_container_unconnected_lpus\{.*\} 2`, `lpuctl_runtime_cdi\{answer="off"\} 1`,
		`lpuctl_nfd_file_written_timestamp_seconds .*`, `lpuctl_registered 1`,
	} {
		waitFor(t, sample, "http://"+n.addresses[0]+"/metrics", regexp.MustCompile(`(?m)^`+sample+`$`))
	}
	// At its first look serve corrects all of the spec, so both have to have looked before it is broken.
	for _, sample := range []string{`lpuctl_standby 1`, `lpuctl_spec_drift\{.*\} 0`} {
		waitFor(t, "the second: "+sample, "http://"+n.addresses[1]+"/metrics", regexp.MustCompile(`(?m)^`+sample+`$`))
	}
	for _, name := range []string{"opt/hyperdex/hrt/xclbin/table.json", "var/lib/lpuctl/cordon.json", "etc/lpuctl/config.yaml"} {
		n.write(t, name, "broken")
	}
	n.change(t, "var/run/cdi/hyperaccel.ai-lpu.json", `"nosuid"`, `"noexec"`)
	return n
}

// countErrors lets the kernel count more errors of lpu4, while Prometheus reads the node.
func (n *faultyNode) countErrors(t *testing.T) {
	t.Helper()
	n.change(t, "sys/bus/pci/devices/0000:83:00.1/aer_dev_correctable", " 7\n", " 9\n")
}

func (n *faultyNode) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(n.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// change replaces text in a file as a whole file, and wants it to be there.
func (n *faultyNode) change(t *testing.T, name, before, after string) {
	t.Helper()
	path := filepath.Join(n.dir, name)
	data, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(data, []byte(before)) {
		t.Fatalf("%s: %v: no %q in\n%s", name, err, before, data)
	}
	changed := bytes.ReplaceAll(data, []byte(before), []byte(after))
	if err := errors.Join(os.WriteFile(path+".new", changed, 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// serveWithoutKubelet runs serve on a node whose kubelet is not there, and returns its address.
func serveWithoutKubelet(t *testing.T) string {
	t.Helper()
	lpuctl, node, address := tool(t, "LPUCTL"), filepath.Join(t.TempDir(), "n"), freeAddress(t)
	output(t, lpuctl, "simulate", node, "--lpus", "2")
	start(t, lpuctl, "--root", node, "serve", "--listen", address)
	waitFor(t, "serve has read the node", "http://"+address+"/metrics", regexp.MustCompile(`(?m)^lpuctl_lpu_healthy\{`))
	return address
}

// startPrometheus runs a Prometheus that reads addresses each second and knows the alerts, and returns the URL of it.
func startPrometheus(t *testing.T, targets []string) string {
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
`, rules, strings.Join(targets, `", "`))
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

// freeAddress is one that nobody listens on. Its port is below those that the kernel gives
// out itself, so that no other program gets it in the meantime.
func freeAddress(t *testing.T) string {
	t.Helper()
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.N(12000))
		if listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address); err == nil {
			_ = listener.Close()
			return address
		}
	}
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
