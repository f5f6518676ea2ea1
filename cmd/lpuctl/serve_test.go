package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/node"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
	"github.com/hyperaccel/lpuctl/pkg/simulate"
)

// TestPart: a part goes on if it is wanted for the same, and has ended before one for something else begins.
func TestPart(t *testing.T) {
	var p part
	var log []string
	began := make(chan bool)
	run := func(purpose []string) {
		p.run(t.Context(), purpose, func(ctx context.Context) {
			log = append(log, purpose[0]+" begins")
			began <- true
			<-ctx.Done()
			log = append(log, purpose[0]+" ends")
		})
	}
	run([]string{"a"})
	<-began
	run([]string{"a"})
	run([]string{"b"})
	<-began
	p.end()
	if got := strings.Join(log, ", "); got != "a begins, a ends, b begins, b ends" {
		t.Errorf("log: %s", got)
	}
	new(part).end()
}

func TestListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	log := slog.New(slog.DiscardHandler)
	go func() {
		defer close(ended)
		(&app{log: log}).listen(ctx, taken.Addr().String(), &plugin.Server{Plugin: plugin.New(plugin.Options{}, log), Log: log})
	}()
	time.Sleep(50 * time.Millisecond)
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	url := "http://" + taken.Addr().String()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if answer, err := http.Get(url + "/healthz"); err == nil {
			_ = answer.Body.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody listens after the address became free")
		}
	}
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
}

// TestReloadKeepsWhatDidNotChange: of the parts of serve only those begin anew whose configuration is another one.
func TestReloadKeepsWhatDidNotChange(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion"}).Write(root); err != nil {
		t.Fatal(err)
	}
	config, _ := parseConfig("", nil)
	a := &app{root: host.Root(root), env: func(string) (string, bool) { return "", false }, log: slog.New(slog.DiscardHandler), config: config}
	ctx, cancel := context.WithCancel(t.Context())
	c, options := defaultServe(), plugin.Options{Strategy: plugin.DeviceSpecs}
	c.Listen = "127.0.0.1:0"
	s := &servant{app: a, plugin: plugin.New(options, a.log), lost: make(chan error)}
	parts := []*part{&s.watch, &s.guard, &s.registration, &s.http}
	begun := func() (ended []chan struct{}) {
		if err := s.run(ctx, c, options); err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			ended = append(ended, p.ended)
		}
		return ended
	}
	before := begun()
	for _, test := range []struct {
		what   string
		change func()
		anew   []bool // watch, guard, registration, http
	}{
		{"nothing", func() {}, []bool{false, false, false, false}},
		{"require-connected", func() { c.RequireConnected = true }, []bool{false, false, false, false}},
		{"listen", func() { c.Listen = "" }, []bool{false, false, false, true}},
		{"interval", func() { c.Interval = "2s" }, []bool{true, false, false, false}},
		{"models", func() { config.Models = config.Models[1:] }, []bool{true, false, false, false}},
		{"pre-start-check", func() { c.PreStartCheck = true }, []bool{false, false, true, true}},
		{"plugin-dir", func() { c.PluginDir = "/elsewhere" }, []bool{false, true, true, true}},
	} {
		test.change()
		after := begun()
		for i := range parts {
			if anew := after[i] != before[i]; anew != test.anew[i] {
				t.Errorf("%s: part %d began anew: %t", test.what, i, anew)
			}
		}
		before = after
	}
	cancel()
	for _, p := range parts {
		p.end()
	}
}
