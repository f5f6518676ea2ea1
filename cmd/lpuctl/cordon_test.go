package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/simulate"
)

// TestACordonIsToldAtOnce: the kubelet is told within 250 ms of the change of the file, though the next scan is ten seconds away; and no spec is
// written for it.
func TestACordonIsToldAtOnce(t *testing.T) {
	p := newProcesses(t, rand.New(rand.NewPCG(1, 2)))
	p.refreshAll()
	p.kill()
	p.serving = p.command("serve", "--interval", "10s", "--listen", "", "--plugin-dir", "/kubelet")
	if err := p.serving.Start(); err != nil {
		t.Fatal(err)
	}
	p.eventually()
	specs := p.written("var/run/cdi")
	id := p.ids()[1]
	var took []time.Duration
	for round := range 9 {
		command, want := p.command("cordon", "lpu1", "--reason", "a test"), api.Unhealthy
		if round%2 == 1 {
			command, want = p.command("uncordon", "lpu1"), api.Healthy
		}
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		info, err := os.Stat(filepath.Join(p.root, "var/lib/lpuctl/cordon.json"))
		if err != nil {
			t.Fatal(err)
		}
		start := info.ModTime()
		for p.kubelet.listed()[id] != want {
			if time.Since(start) > 30*time.Second {
				t.Fatalf("%s is not %s", id, want)
			}
			time.Sleep(time.Millisecond)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	t.Logf("from the change of the file to the kubelet, at most: %v", took)
	if median := took[len(took)/2]; median > 250*time.Millisecond {
		t.Errorf("the median is %v", median)
	}
	if after := p.written("var/run/cdi"); !slices.Equal(specs, after) {
		t.Errorf("the spec was written:\n%v\n%v", specs, after)
	}
}

// TestCordonsAtOnce: processes that cordon different LPUs at the same time lose nothing.
func TestCordonsAtOnce(t *testing.T) {
	const lpus = 8
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: lpus}).Write(root); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for i := range lpus {
		running.Go(func() {
			out, err := exec.Command("lpuctl", "--root", root, "cordon", fmt.Sprint(i), "--reason", fmt.Sprint("test ", i)).CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	running.Wait()
	a := &app{root: host.Root(root), env: noEnvironment, log: slog.New(slog.DiscardHandler)}
	inv, err := a.scan(t.Context(), discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range inv.LPUs {
		if l.Cordoned == nil || l.Cordoned.Reason != fmt.Sprint("test ", i) {
			t.Errorf("%s is %+v", l.Name, l.Cordoned)
		}
	}
}

// TestCordonWithoutTheRight: the error says what to do.
func TestCordonWithoutTheRight(t *testing.T) {
	for _, c := range []struct {
		err    error
		remedy string
	}{
		{&fs.PathError{Op: "open", Path: "/x", Err: unix.EACCES}, "run it with sudo"},
		{&fs.PathError{Op: "open", Path: "/x", Err: unix.EROFS}, "remount the file system"},
		{&fs.PathError{Op: "open", Path: "/x", Err: unix.ENOSPC}, "the disk is full"},
	} {
		if err := cordonError(c.err); codeOf(err) != exitFailed || !strings.Contains(remedyFor(err), c.remedy) {
			t.Errorf("%v: %d, %s", c.err, codeOf(err), remedyFor(err))
		}
	}
}

// watching is a list --watch that runs.
type watching struct {
	t      *testing.T
	lines  chan string
	cancel context.CancelFunc
	code   chan int
}

func watchList(t *testing.T, root string, args ...string) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watching{t, make(chan string, 1000), cancel, make(chan int, 1)}
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

// next is what is printed next.
func (w *watching) next() string {
	w.t.Helper()
	select {
	case text := <-w.lines:
		return text
	case code := <-w.code:
		w.t.Fatalf("it ended with %d", code)
	case <-time.After(20 * time.Second):
		w.t.Fatal("nothing is printed")
	}
	return ""
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
	if got := document.next(); !strings.HasPrefix(got, "{\n") || strings.Count(got, `"name": `) != 1 || !strings.Contains(got, `"health": "healthy"`) {
		t.Errorf("the first document is\n%s", got)
	}
	if err := machine.Unbind(2); err != nil {
		t.Fatal(err)
	}
	if got := table.next(); strings.Count(got, " healthy ") != 3 || !strings.Contains(got, " unhealthy ") {
		t.Errorf("after a driver was unbound:\n%s", got)
	}
	if got := document.next(); !strings.Contains(got, `"health": "unhealthy"`) {
		t.Errorf("after a driver was unbound:\n%s", got)
	}
	var out bytes.Buffer
	if code := run(t.Context(), []string{"--root", root, "cordon", "lpu0", "--reason", "a test"}, &out, &out, noEnvironment); code != exitDone {
		t.Fatal(out.String())
	}
	if got := table.next(); !strings.Contains(got, " healthy,cordoned ") {
		t.Errorf("after a cordon:\n%s", got)
	}
	for _, w := range []*watching{table, document} {
		w.cancel()
		if code := <-w.code; code != exitDone {
			t.Errorf("it ended with %d", code)
		}
		if n := len(w.lines); n > 0 {
			t.Errorf("printed besides: %d lists, %s", n, <-w.lines)
		}
	}
	for _, args := range [][]string{{"list", "-w", "lpu9"}, {"list", "-w", "-o", "name"}} {
		var out bytes.Buffer
		if code := run(t.Context(), append([]string{"--root", root}, args...), &out, &out, noEnvironment); code == exitDone {
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
	if code != exitFailed {
		t.Errorf("it ended with %d", code)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no space left") }
