package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
	"github.com/hyperaccel/lpuctl/test/await"
)

// TestComponent: a component goes on if its configuration is the same, and has ended before it starts with another.
func TestComponent(t *testing.T) {
	var c component[[]string]
	var log []string
	began := make(chan bool)
	start := func(config []string) {
		c.start(t.Context(), config, func(ctx context.Context, config []string) {
			log = append(log, config[0]+" begins")
			began <- true
			<-ctx.Done()
			log = append(log, config[0]+" ends")
		})
	}
	start([]string{"a"})
	<-began
	start([]string{"a"})
	start([]string{"b"})
	<-began
	c.stop()
	if got := strings.Join(log, ", "); got != "a begins, a ends, b begins, b ends" {
		t.Errorf("log: %s", got)
	}
	new(component[int]).stop()
}

func TestListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	said := lineWriter(make(chan string, 100))
	log := slog.New(slog.NewTextHandler(said, nil))
	go func() {
		defer close(ended)
		node.Listen(ctx, taken.Addr().String(), &plugin.Server{Plugin: plugin.New(plugin.Options{}, log), Log: log}, log)
	}()
	saysNext := func(words string) {
		t.Helper()
		for text := ""; !strings.Contains(text, words); {
			select {
			case text = <-said:
			case <-time.After(await.Limit):
				t.Fatalf("it does not say so: %s", words)
			}
		}
	}
	saysNext("are not served")
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	url := "http://" + taken.Addr().String()
	await.Until(t, "it listens after the address became free", func() error {
		answer, err := http.Get(url + "/healthz")
		if err == nil {
			_ = answer.Body.Close()
		}
		return err
	})
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 200, "/": 404} {
		answer, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != want {
			t.Errorf("%s: %s", path, answer.Status)
		}
		if path == "/metrics" && answer.Header.Get("Content-Type") != node.MetricsType {
			t.Errorf("%s: %v", path, answer.Header)
		}
		_ = answer.Body.Close()
	}
	cancel()
	<-ended
	saysNext("health and metrics are served")
}

// TestReloadKeepsWhatDidNotChange: only the components of serve whose configuration has changed start again.
func TestReloadKeepsWhatDidNotChange(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion"}).Write(root); err != nil {
		t.Fatal(err)
	}
	config, _ := cli.ParseConfig("", nil)
	a := &app{App: cli.App{Root: host.Root(root), Env: noEnvironment, Log: slog.New(slog.DiscardHandler), Config: config}}
	ctx, cancel := context.WithCancel(t.Context())
	c, options := cli.DefaultServe(), plugin.Options{Strategy: plugin.DeviceSpecs}
	c.Listen = "127.0.0.1:0"
	d := &serveDaemon{
		app: a, plugin: plugin.New(options, a.Log), fail: func(err error) { t.Error(err) }, detached: &plugin.Detached{},
	}
	d.plugin.Node.Gate = &owner.Gate{File: owner.File{Dir: root}, Me: owner.Plugin, Log: a.Log}
	start := func() []int {
		d.run(ctx, c, options)
		return []int{d.watch.starts, d.guard.starts, d.registration.starts, d.pods.starts, d.http.starts}
	}
	before := start()
	for _, test := range []struct {
		what   string
		change func()
		again  []bool // watch, guard, registration, pods, http
	}{
		{"nothing", func() {}, []bool{false, false, false, false, false}},
		{"require-connected", func() { c.RequireConnected = true }, []bool{false, false, false, false, false}},
		{"listen", func() { c.Listen = "" }, []bool{false, false, false, false, true}},
		{"interval", func() { c.Interval = "2s" }, []bool{true, false, false, false, false}},
		{"models", func() { config.Models = config.Models[1:] }, []bool{true, false, false, false, false}},
		{"health", func() { config.Health.MaxCelsius = 90 }, []bool{true, false, false, false, false}},
		{"pre-start-check", func() { c.PreStartCheck = true }, []bool{false, false, true, true, true}},
		{"nfd", func() { c.NFD = "/features" }, []bool{false, false, false, false, false}},
		{"nfd-expiry", func() { c.NFDExpiry = "2h" }, []bool{false, false, false, false, false}},
		{"pod-resources", func() { c.PodResources = "/pods.sock" }, []bool{false, false, false, true, false}},
		{"plugin-dir", func() { c.PluginDir = "/elsewhere" }, []bool{false, true, true, true, true}},
	} {
		test.change()
		after := start()
		for i := range after {
			if again := after[i] != before[i]; again != test.again[i] {
				t.Errorf("%s: component %d started again: %t", test.what, i, again)
			}
		}
		before = after
	}
	if scan := d.watch.config.scan; scan.Policy.MaxCelsius != 90 {
		t.Errorf("it scans with %+v", scan)
	}
	if len(d.features.Metrics()) == 0 {
		t.Error("no feature file is kept")
	}
	cancel()
	d.watch.stop()
	d.guard.stop()
	d.registration.stop()
	d.pods.stop()
	d.http.stop()
}

// TestServeNamesAnotherPlugin: serve looks for others in the kubelet's directory below its root. It ends in the midst of a look.
func TestServeNamesAnotherPlugin(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: 2}).Write(root); err != nil {
		t.Fatal(err)
	}
	plugins := filepath.Join(root, "p") // short: the path of a socket has at most 107 bytes
	if err := os.Mkdir(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(plugins, "xilinx_u55c-0-fpga.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	args := []string{"--root", root, "serve", "--listen", "", "--plugin-dir", "/p", "--device-list-strategy", "device-specs"}
	for range 10 { // now and then the look is over before serve is
		if !serveUntil(t, args, "id=other-plugin", "amd.com/xilinx_u55c-0") {
			t.Error("the log does not name it")
		}
	}
}

// serveUntil runs serve until it logs a line with these words, and checks that no look goes on after its end: such a look could
// still write. It returns false if there is no such line in 20 seconds.
func serveUntil(t *testing.T, args []string, words ...string) (logged bool) {
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	log, write := io.Pipe()
	go func() {
		run(ctx, args, io.Discard, write, func(string) (string, bool) { return "", false })
		stacks := make([]byte, 1<<20)
		if stacks = stacks[:runtime.Stack(stacks, true)]; bytes.Contains(stacks, []byte("watchLPUs")) {
			t.Errorf("serve has ended, but a look goes on:\n%s", stacks)
		}
		_ = write.Close()
	}()
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(lines.Text(), word) }) {
			logged = true
			cancel()
		}
	}
	return logged
}
