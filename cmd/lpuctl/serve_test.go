package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/plugin"
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
		if path == "/metrics" && answer.Header.Get("Content-Type") != plugin.MetricsType {
			t.Errorf("%s: %v", path, answer.Header)
		}
		_ = answer.Body.Close()
	}
	cancel()
	<-ended
}
