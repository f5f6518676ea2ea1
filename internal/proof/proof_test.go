package proof

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/test/await"
)

// fakePodman is a podman that does as a script says, and writes down what it is asked for.
// It returns a proof by it, and a function that returns what was asked for.
func fakePodman(t *testing.T, script string) (p *Proof, asked func() string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	text := "#!/bin/sh\necho \"$*\" >>" + log + "\n" + script
	if err := os.WriteFile(filepath.Join(dir, podman), []byte(text), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	program := filepath.Join(dir, "static")
	if err := os.WriteFile(program, header(uint16(machineOf("amd64"))), 0o600); err != nil {
		t.Fatal(err)
	}
	p = &Proof{
		Promise: &Promise{LPUs: []string{"lpu0"}}, Program: program, Timeout: time.Minute, TempDir: dir,
		Started: func(args []string) ([]string, error) {
			return strings.Split(strings.Replace(strings.Join(args, "\n"), "{args}", "--device\nlpu0", 1), "\n"), nil
		},
	}
	return p, func() string {
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
}

func prove(t *testing.T, p *Proof) *Result {
	t.Helper()
	var got *Result
	if err := p.Run(t.Context(), []string{podman}, func(r *Result) { got = r }); err != nil {
		t.Fatal(err)
	}
	if dirs, _ := filepath.Glob(filepath.Join(p.TempDir, Prefix+"*")); len(dirs) > 0 {
		t.Errorf("left: %s", dirs)
	}
	return got
}

const answer = `echo '{"opened": ["/dev/lpu0"], "differences": [], "libraries": []}'` + "\n"

// TestProved: one container is started, as lpuctl run starts it, and removes itself.
func TestProved(t *testing.T) {
	p, asked := fakePodman(t, "[ $1 = ps ] || "+answer)
	r := prove(t, p)
	if r.State != Proved || len(r.Opened) != 1 {
		t.Errorf("%+v", r)
	}
	lines := strings.Split(strings.TrimSpace(asked()), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[1], "run --rm -i --network none --name lpuctl-proof-") ||
		!strings.Contains(lines[1], " --device lpu0 --rootfs ") || !strings.HasSuffix(lines[1], " /lpuctl doctor --inside -") {
		t.Errorf("%s", asked())
	}
}

// TestControl: an engine that starts a container without the LPUs and none with them has
// failed; one that starts none has proved nothing. Both have their own words.
func TestControl(t *testing.T) {
	for script, want := range map[string]State{
		`case "$*" in *"--device lpu0"*) echo unresolvable >&2; exit 126;; run*) ` + answer + `;; esac`: Failed,
		`case $1 in run) echo unresolvable >&2; exit 126;; esac`:                                        Unprovable,
		`case $1 in run) echo unresolvable >&2; echo no JSON; exit 1;; esac`:                            Unprovable,
	} {
		p, asked := fakePodman(t, script)
		if r := prove(t, p); r.State != want || r.Words != "unresolvable" || r.Why == "" || r.Remedy == "" {
			t.Errorf("%+v, want %s", r, want)
		}
		if strings.Count(asked(), "rm -f "+Prefix) != 2 {
			t.Errorf("what is left is not removed:\n%s", asked())
		}
	}
	p, _ := fakePodman(t, "echo broken >&2; exit 1")
	if r := prove(t, p); r.State != Unprovable || r.Words != "broken" {
		t.Errorf("%+v", r)
	}
}

// TestSlowEngine: an engine that does not answer in time is ended, and so is one when the
// user interrupts; what was made is removed each time.
func TestSlowEngine(t *testing.T) {
	p, asked := fakePodman(t, "[ $1 != run ] || exec sleep 1000")
	p.Timeout = 100 * time.Millisecond
	if r := prove(t, p); r.State != Unprovable || !strings.Contains(r.Why, "no answer within 100ms") {
		t.Errorf("%+v", r)
	}
	p.Timeout = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	before := asked()
	ended := make(chan error)
	go func() {
		ended <- p.Run(ctx, []string{podman}, func(r *Result) { t.Errorf("%+v", r) })
	}()
	await.Until(t, "the container is started", func() error {
		if !strings.Contains(strings.TrimPrefix(asked(), before), "run ") {
			return errors.New(asked())
		}
		return nil
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(strings.TrimPrefix(asked(), before), "rm -f ") {
		t.Errorf("%v\n%s", err, asked())
	}
}

// TestLeftBehind: what a process has made that does not run any more is swept, and what
// one has made that runs is not.
func TestLeftBehind(t *testing.T) {
	now := time.Now()
	mine := self(now)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	dead := fmt.Sprintf("%d.1.%d.%d", gone.Process.Pid, pidNamespace(), now.Unix())
	reused := fmt.Sprintf("%d.1.%d.%d", os.Getpid(), pidNamespace(), now.Unix())
	elsewhere := fmt.Sprintf("%d.1.7.%d", gone.Process.Pid, now.Unix())
	long := now.Add(3 * Longest)
	for owner, want := range map[string]bool{mine: false, dead: true, reused: true, elsewhere: false, "web": false, "": false} {
		if got := leftBehind(owner, now); got != want {
			t.Errorf("%s: %v", owner, got)
		}
	}
	if !leftBehind(elsewhere, long) {
		t.Error("what is old stays")
	}
	script := "[ $1 != ps ] || echo " + Prefix + dead + " " + Prefix + mine + " other\n[ $1 != run ] || " + answer
	p, asked := fakePodman(t, script)
	for _, owner := range []string{dead, mine} {
		if err := os.Mkdir(filepath.Join(p.TempDir, Prefix+owner+"-1"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Run(t.Context(), []string{podman}, func(*Result) {}); err != nil {
		t.Fatal(err)
	}
	if got := asked(); strings.Count(got, "rm -f") != 1 || !strings.Contains(got, "rm -f "+Prefix+dead+"\n") {
		t.Errorf("%s", got)
	}
	if dirs, _ := filepath.Glob(filepath.Join(p.TempDir, Prefix+"*")); len(dirs) != 1 || !strings.Contains(dirs[0], mine) {
		t.Errorf("%s", dirs)
	}
}

// TestImage: the image has one layer, of lpuctl alone.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	program, file := filepath.Join(dir, "program"), filepath.Join(dir, "image.tar")
	if err := os.WriteFile(program, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeImage(file, "localhost/x:1", program); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var names []string
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		data, err := io.ReadAll(r)
		if err != nil || h.Name == "manifest.json" && !strings.Contains(string(data), `"RepoTags": ["localhost/x:1"]`) {
			t.Errorf("%v: %s", err, data)
		}
	}
	if strings.Join(names, " ") != "layer.tar config.json manifest.json" {
		t.Errorf("%s", names)
	}
}

// TestLog: a container's log in the form of CRI, with a line in two parts.
func TestLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	text := "2026-11-28T21:00:00Z stdout P {\"a\":\n2026-11-28T21:00:00Z stderr F bad\n2026-11-28T21:00:01Z stdout F  1}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, words, err := readLog(file); err != nil || string(out) != `{"a": 1}` || words != "bad\n" {
		t.Errorf("%q %q %v", out, words, err)
	}
}
