package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/test/await"
)

// watching is a list --watch that runs.
type watching struct {
	t      *testing.T
	lines  chan string
	cancel context.CancelFunc
	code   chan int
	last   string // that was printed, without its first line
}

func watchList(t *testing.T, root string, args ...string) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watching{t: t, lines: make(chan string, 1000), cancel: cancel, code: make(chan int, 1)}
	go func() {
		args := append([]string{"--root", root, "list", "--watch"}, args...)
		w.code <- run(ctx, args, lineWriter(w.lines), io.Discard, noEnvironment)
	}()
	return w
}

// lineWriter sends what is written to it, as it is.
type lineWriter chan string

func (l lineWriter) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// until is the first that is printed and is as it should be. A look may see half of a change of the machine, and that is printed too.
func (w *watching) until(what string, is func(text string) bool) {
	w.t.Helper()
	text := w.next()
	for !is(text) {
		w.t.Logf("%s, not yet:\n%s", what, text)
		text = w.next()
	}
}

// next is what is printed next.
func (w *watching) next() string {
	w.t.Helper()
	select {
	case text := <-w.lines:
		w.isNew(text)
		return text
	case code := <-w.code:
		w.t.Fatalf("it ended with %d", code)
	case <-time.After(await.Limit):
		w.t.Fatal("nothing is printed")
	}
	return ""
}

// isNew wants what is printed to be another than before. The first line of a table is the time.
func (w *watching) isNew(text string) {
	w.t.Helper()
	_, rest, _ := strings.Cut(text, "\n")
	if rest == w.last {
		w.t.Errorf("printed again:\n%s", text)
	}
	w.last = rest
}

func TestListWatch(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	machine, err := (simulate.Node{Profile: "orion", LPUs: 4}).Start(root)
	if err != nil {
		t.Fatal(err)
	}
	table, document := watchList(t, root), watchList(t, root, "-o", "json", "lpu2")
	first := table.next()
	at, rest, _ := strings.Cut(first, "\n")
	if _, err := time.Parse(time.RFC3339, at); err != nil || !strings.HasPrefix(rest, "NAME ") || strings.Count(rest, " healthy ") != 4 {
		t.Errorf("the first table is\n%s", first)
	}
	got := document.next()
	if !strings.HasPrefix(got, "{\n") || strings.Count(got, `"name": `) != 1 || !strings.Contains(got, `"health": "healthy"`) {
		t.Errorf("the first document is\n%s", got)
	}
	if err := machine.Unbind(2); err != nil {
		t.Fatal(err)
	}
	table.until("after a driver was unbound", func(text string) bool {
		return strings.Count(text, " healthy ") == 3 && strings.Contains(text, " unhealthy ")
	})
	document.until("after a driver was unbound", func(text string) bool { return strings.Contains(text, `"health": "unhealthy"`) })
	cordon := []string{"--root", root, "cordon", "lpu0", "--reason", "a test"}
	if code := run(t.Context(), cordon, io.Discard, io.Discard, noEnvironment); code != cli.ExitDone {
		t.Fatalf("cordon ends with %d", code)
	}
	table.until("after a cordon", func(text string) bool { return strings.Contains(text, " healthy,cordoned ") })
	for _, w := range []*watching{table, document} {
		w.cancel()
		if code := <-w.code; code != cli.ExitDone {
			t.Errorf("it ended with %d", code)
		}
		for len(w.lines) > 0 {
			w.isNew(<-w.lines)
		}
	}
	for _, args := range [][]string{{"list", "-w", "lpu9"}, {"list", "-w", "-o", "name"}} {
		var out bytes.Buffer
		if code := run(t.Context(), append([]string{"--root", root}, args...), &out, &out, noEnvironment); code == cli.ExitDone {
			t.Errorf("%v ends with %d: %s", args, code, &out)
		}
	}
}

// TestListWatchOnAFullDisk ends.
func TestListWatchOnAFullDisk(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: 1}).Write(root); err != nil {
		t.Fatal(err)
	}
	code := run(t.Context(), []string{"--root", root, "list", "-w"}, brokenWriter{}, io.Discard, noEnvironment)
	if code != cli.ExitFailed {
		t.Errorf("it ended with %d", code)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no space left") }
