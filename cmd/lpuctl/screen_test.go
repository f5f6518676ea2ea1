package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/simulate"
)

// onTerminal runs lpuctl on a terminal of this size, and returns what that shows.
func onTerminal(t *testing.T, width, height uint16, env []string, args ...string) string {
	t.Helper()
	main, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer main.Close()
	number, err := unix.IoctlGetInt(int(main.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(main.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}); err != nil {
		t.Fatal(err)
	}
	shown := make(chan string)
	go func() {
		text, _ := io.ReadAll(main) // the end is an error of a terminal whose other side was closed
		shown <- string(text)
	}()
	run(t.Context(), args, terminal, io.Discard, variables(env...))
	terminal.Close()
	return strings.ReplaceAll(<-shown, "\r\n", "\n")
}

// variables is an environment of NAME=VALUE.
func variables(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, pair := range pairs {
			if n, value, _ := strings.Cut(pair, "="); n == name {
				return value, true
			}
		}
		return "", false
	}
}

// sickNode is a simulated server of eight LPUs, of which two are sick.
func sickNode(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "node")
	n := simulate.Node{Profile: "orion", LPUs: 8, Faults: []simulate.Fault{{Name: "unbound", Index: 1}, {Name: "bad-state", Index: 5}}}
	if _, err := n.Write(root); err != nil {
		t.Fatal(err)
	}
	return root
}

// piped runs lpuctl on pipes.
func piped(t *testing.T, env []string, args ...string) (out, said string, code int) {
	t.Helper()
	var o, e strings.Builder
	code = run(t.Context(), args, &o, &e, variables(env...))
	return o.String(), e.String(), code
}

// TestListOnTerminals: list fits 80 columns, shows more where there is room for it, and a pipe gets the columns of 80.
func TestListOnTerminals(t *testing.T) {
	root := sickNode(t)
	usual := []string{"NAME", "HEALTH", "USED-BY", "ADDRESS", "NUMA", "RING", "WHY"}
	for _, c := range []struct {
		width, height uint16
		columns       []string
	}{
		{80, 24, usual},
		{200, 50, []string{"NAME", "HEALTH", "USED-BY", "ADDRESS", "NUMA", "RING", "NODE", "LINK", "MODEL", "DRIVER", "WHY"}},
		{40, 24, []string{"NAME", "HEALTH", "USED-BY", "WHY"}},
		{0, 0, usual}, // it does not know its size
	} {
		text := onTerminal(t, c.width, c.height, []string{"TERM=dumb"}, "--root", root, "list")
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if got := strings.Fields(lines[0]); strings.Join(got, " ") != strings.Join(c.columns, " ") || len(lines) != 9 {
			t.Errorf("%dx%d: %d lines with the columns %v", c.width, c.height, len(lines), got)
		}
		for _, line := range lines {
			if c.width > 0 && len(line) > int(c.width) {
				t.Errorf("%dx%d: %d columns: %s", c.width, c.height, len(line), line)
			}
		}
	}
	out, _, _ := piped(t, nil, "--root", root, "list")
	if narrow := onTerminal(t, 80, 24, nil, "--root", root, "list"); out != narrow || len(out) == 0 {
		t.Errorf("a pipe gets\n%sand a terminal of 80 columns\n%s", out, narrow)
	}
	if _, _, code := piped(t, nil, "--root", root, "list", "--color", "perhaps"); code != cli.ExitUsage {
		t.Errorf("--color perhaps ends with %d", code)
	}
}

// TestWhyOnTerminals: why an LPU is sick is cut to the width of a terminal, and to that of no pipe.
func TestWhyOnTerminals(t *testing.T) {
	root := sickNode(t)
	const whole, cut = " no driver is bound to it (it needs xocl) [no-driver]\n", " no driver is bound to…\n"
	for _, c := range []struct{ locale, want string }{
		{"LANG=en_US.UTF-8", cut}, {"LC_ALL=C", " no driver is boun...\n"},
	} {
		if text := onTerminal(t, 80, 24, []string{c.locale}, "--root", root, "health"); !strings.Contains(text, c.want) {
			t.Errorf("with %s a terminal shows\n%s", c.locale, text)
		}
	}
	if text := onTerminal(t, 200, 50, nil, "--root", root, "health"); !strings.Contains(text, whole) {
		t.Errorf("a terminal of 200 columns shows\n%s", text)
	}
	if out, _, _ := piped(t, nil, "--root", root, "health"); !strings.Contains(out, whole) {
		t.Errorf("a pipe gets\n%s", out)
	}
}

// TestColorOnTerminals: only a terminal has colours, and not if its user wants none; the words are the same.
func TestColorOnTerminals(t *testing.T) {
	root := sickNode(t)
	const painted = "\x1b[31munhealthy\x1b[0m"
	plain, _, _ := piped(t, nil, "--root", root, "list")
	for _, c := range []struct {
		env, flag string
		colours   bool
	}{
		{"TERM=xterm", "auto", true},
		{"TERM=dumb", "auto", false},
		{"TERM=", "auto", false},
		{"TERM=xterm NO_COLOR=1", "auto", false},
		{"TERM=xterm NO_COLOR=", "auto", true},
		{"TERM=xterm NO_COLOR=1", "always", true},
		{"TERM=xterm", "never", false},
	} {
		text := onTerminal(t, 80, 24, strings.Fields(c.env), "--root", root, "--color", c.flag, "list")
		if strings.Contains(text, painted) != c.colours {
			t.Errorf("%s --color %s shows\n%q", c.env, c.flag, text)
		}
		for _, code := range []string{"\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"} {
			text = strings.ReplaceAll(text, code, "")
		}
		if text != plain {
			t.Errorf("%s --color %s says other words:\n%s", c.env, c.flag, text)
		}
	}
	_, said, _ := piped(t, []string{"LPUCTL_COLOR=always"}, "--root", root, "health")
	if !strings.Contains(said, "\x1b[31merror\x1b[0m: lpu1: ") {
		t.Errorf("LPUCTL_COLOR=always says\n%q", said)
	}
	if _, _, code := piped(t, nil, "--root", root, "--quiet", "cdi", "refresh"); code != cli.ExitFound {
		t.Fatalf("cdi refresh ends with %d", code)
	}
	if err := os.Remove(filepath.Join(root, "dev/dri/renderD134")); err == nil { // else there is no dev without root
		out, _, _ := piped(t, nil, "--root", root, "--color", "always", "cdi", "diff")
		if !strings.Contains(out, "\x1b[31m-") || !strings.Contains(out, "\n--- ") {
			t.Errorf("cdi diff shows\n%s", out)
		}
	}
}

// TestASCII: where the locale is C, nothing beyond ASCII is printed, and documents are as ever.
func TestASCII(t *testing.T) {
	root := sickNode(t)
	for _, args := range []string{"list", "health", "topology", "describe lpu0 lpu5", "demo", "cdi diff", ""} {
		out, said, _ := piped(t, []string{"LC_ALL=C"}, append([]string{"--root", root}, strings.Fields(args)...)...)
		for i, c := range out + said {
			if c > '~' {
				t.Errorf("%s prints %q at %d", args, c, i)
				break
			}
		}
	}
	for _, args := range [][]string{{"topology", "-o", "json"}, {"list", "-o", "yaml"}, {"topology", "-o", "svg"}} {
		args = append([]string{"--root", root}, args...)
		here, _, _ := piped(t, []string{"LC_ALL=C", "LPUCTL_COLOR=always"}, args...)
		if there, _, _ := piped(t, nil, args...); here != there {
			t.Errorf("%v is another document with LC_ALL=C", args)
		}
	}
}

// TestDiffWithoutASpec is one line.
func TestDiffWithoutASpec(t *testing.T) {
	root := sickNode(t)
	out, _, code := piped(t, nil, "--root", root, "cdi", "diff")
	if code != cli.ExitFound || strings.Count(out, "\n") != 1 || !strings.Contains(out, ": not there; lpuctl cdi refresh would write it") {
		t.Errorf("cdi diff ends with %d and prints\n%s", code, out)
	}
}

// TestHealthWatchOfASickLPU: it shows what is wrong, and complains of nothing else.
func TestHealthWatchOfASickLPU(t *testing.T) {
	root := sickNode(t)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var said strings.Builder
	ended := lineWriter(make(chan string, 100))
	go func() {
		run(ctx, []string{"--root", root, "health", "--watch"}, ended, &said, noEnvironment)
		close(ended)
	}()
	<-ended
	end()
	for range ended { // until it has ended
	}
	if text := said.String(); !strings.Contains(text, "error: lpu1: ") || strings.Contains(text, "lpuctl: ") {
		t.Errorf("it says %q", text)
	}
}
