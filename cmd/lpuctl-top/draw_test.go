package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/watch"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/machines"
)

// terminal is a terminal on which a program draws, and what it was sent.
type terminal struct {
	master, slave *os.File

	mu   sync.Mutex
	text strings.Builder
}

// newTerminal makes a terminal of 80 columns and 24 rows.
func newTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	machines.Must(t, err, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0),
		unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
	slave, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	machines.Must(t, err)
	s := &terminal{master: master, slave: slave}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(s, master) // it ends with an error when the slave is closed
	}()
	t.Cleanup(func() {
		_ = slave.Close()
		<-done
		_ = master.Close()
	})
	return s
}

// Write takes what the program has written.
func (s *terminal) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(text)
}

func (s *terminal) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), text)
}

func (s *terminal) eventually(t *testing.T, text string) {
	t.Helper()
	await.For(t, "the terminal is sent "+text, func() bool { return s.has(text) })
}

// TestScreen: the LPUs are on the terminal, keys are heard, and q ends the program and leaves the terminal as it was. Only what changes is
// written, so it waits for words that come at once.
func TestScreen(t *testing.T) {
	_, root := machines.Start(t, simulate.Node{Profile: "orion", Faults: []simulate.Fault{{Name: "unbound", Index: 5}}})
	s := newTerminal(t)
	var errOut strings.Builder
	env := map[string]string{"TERM": "xterm", "LC_ALL": "C", "NO_COLOR": "1"}
	ended := make(chan int, 1)
	go func() {
		ended <- run(context.Background(), []string{"--root", root}, s.slave, s.slave, &errOut,
			func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	}()
	s.eventually(t, "7 healthy, 1 unhealthy")
	s.eventually(t, "no driver")
	s.eventually(t, "hOlder")
	s.eventually(t, "\x1b[?1049h")
	press := func(keys string) { machines.Must(t, second(s.master.WriteString(keys))) }
	press("h")
	s.eventually(t, "sort: health")
	press(" ")
	s.eventually(t, "PAUSED")
	press("q")
	select {
	case code := <-ended:
		if code != 0 || errOut.String() != "" {
			t.Errorf("exit code %d: %s", code, errOut.String())
		}
	case <-time.After(await.Limit):
		t.Fatal("q does not end it")
	}
	s.eventually(t, "\x1b[?1049l") // the reader of the terminal may be behind
}

func second[T any](_ T, err error) error { return err }

// TestSensorsOfServe: while the metrics of serve say what sensors say, they are not read here; when serve ends, they are.
func TestSensorsOfServe(t *testing.T) {
	m, root := machines.Start(t, simulate.Node{Profile: "orion", LPUs: 2})
	serve := node.New(slog.New(slog.DiscardHandler))
	watcher := watch.New(root, watch.Options{}, func() time.Duration { return time.Hour })
	update := func() {
		if serve.Update(t.Context(), node.Spec{ReadOnly: true}, watcher.Scan) == nil {
			t.Fatal("no snapshot")
		}
	}
	update()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = node.WriteMetrics(w, serve.Metrics()...)
	}))
	defer server.Close()
	a := &app{in: strings.NewReader("")}
	a.Env = func(string) (string, bool) { return "", false }
	a.Root, a.Log, a.Out, a.Err = host.Root(root), slog.New(slog.DiscardHandler), io.Discard, io.Discard
	k, err := newLooker(a, strings.TrimPrefix(server.URL, "http://"))
	machines.Must(t, err)
	scan, _, err := a.Remembering(discovery.Options{})
	machines.Must(t, err)
	clock := time.Hour
	k.watcher = watch.New(root, watch.Options{Scan: scan}, func() time.Duration { return clock })
	look := func(celsius float64, source string, limit float64) {
		t.Helper()
		k.slow = time.Time{}
		l, err := k.look(t.Context())
		machines.Must(t, err)
		r := l.LPUs[0].Readings
		if h := r.Hottest(); h == nil || h.Celsius != celsius || r.Source != source || h.Limit() != limit {
			t.Errorf("%+v, want %v C by %s", r, celsius, source)
		}
	}
	look(44, "serve", 97)
	machines.Must(t, m.Set(0, "hwmon/temp2_input", "50000"))
	clock += time.Minute // all is due
	look(44, "serve", 97)
	if inv, err := k.watcher.Scan(t.Context()); err != nil || inv.LPUs[0].Driver == "" || inv.LPUs[0].Reading.Sensors != nil {
		t.Errorf("sensors are read beside serve: %v", err)
	}
	watcher = watch.New(root, watch.Options{}, func() time.Duration { return time.Hour })
	update()
	look(50, "serve", 97)
	server.Close()
	machines.Must(t, m.Set(0, "hwmon/temp2_input", "51000"))
	look(51, "top", 97)
}
