package lease

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// sleeping is a program that sleeps until it is ended.
func sleeping(t *testing.T) *exec.Cmd {
	t.Helper()
	program := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	return program
}

// script is an executable file with a script of the shell.
func script(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "hook")
	plant.File(t, name, "#!/bin/sh\n"+text+"\n")
	if err := os.Chmod(name, 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	return name
}

// TestHook: the program gets what it has to know and nothing else; how it ends is said with its last line; and of one that does not end
// in time nothing is left.
func TestHook(t *testing.T) {
	secret, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	t.Setenv("LEASE_SECRET", "x")
	nodes := []discovery.Node{{Path: "/dev/a"}, {Path: "/dev/b"}}
	l := &discovery.LPU{Name: "lpu3", Address: pci.Address{Bus: 0x43, Function: 1}, Nodes: nodes}
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	run := func(text string, limit time.Duration) (string, string) {
		t.Helper()
		said, err := (&Hook{Program: script(t, text), Limit: limit}).run(ctx, environment(l, 7))
		if err != nil {
			return said, err.Error()
		}
		return said, ""
	}
	said, why := run("pwd; env | sort; ls -l /proc/$$/fd", time.Minute)
	if why != "" || !strings.HasPrefix(said, "/\n") || strings.Contains(said, "SECRET") || strings.Contains(said, os.Args[0]) {
		t.Errorf("%s: %s", why, said)
	}
	for _, want := range []string{"HOOK=release", "LPU=lpu3", "ADDRESS=0000:43:00.1", "NODE=/dev/a /dev/b", "UID=7"} {
		if !strings.Contains(said, "LPUCTL_"+want+"\n") {
			t.Errorf("%s is not in\n%s", want, said)
		}
	}
	if said, why := run("echo broken >&2; exit 3", time.Minute); said != "broken" || why != "exit status 3" {
		t.Errorf("%q, %q", said, why)
	}
	said, why = run("yes | head -c 100000; echo; echo last", time.Minute)
	if len(said) > outputSaid || !strings.HasSuffix(said, "\nlast") || why != "" {
		t.Errorf("%d bytes, %q", len(said), why)
	}
	left := filepath.Join(t.TempDir(), "left")
	_, why = run("sleep 1000 & echo $! >"+left+".new; mv "+left+".new "+left+"; wait", 300*time.Millisecond)
	if !strings.Contains(why, "and was killed") {
		t.Errorf("%q", why)
	}
	if data, err := os.ReadFile(left); err == nil {
		await.For(t, "what it has started is killed too", func() bool {
			status, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(data)), "status"))
			return err != nil || strings.Contains(string(status), "\nState:\tZ")
		})
	}
	if _, err := (&Hook{}).run(t.Context(), nil); err != nil {
		t.Errorf("there is no hook: %v", err)
	}
	if _, err := (&Hook{Program: "/nowhere/hook", Limit: time.Minute}).run(t.Context(), nil); err == nil {
		t.Error("there is no such program")
	}
	open := script(t, "exit 0")
	if err := unix.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err = (&Hook{Program: open, Limit: time.Minute}).run(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "others may write to it") {
		t.Errorf("others can write it: %v", err)
	}
}

// TestAHookThatCannotStart has not failed if another user may have taken up what it needs: it runs after the next look.
func TestAHookThatCannotStart(t *testing.T) {
	b := cleaning(t)
	b.See(50, (&glimpse{began: 40, pool: 0xff}).view())
	a := &Arbiter{book: b, Log: slog.New(slog.DiscardHandler)}
	for _, err := range []error{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ETXTBSY} {
		a.hookEnded(b.due()[0], "", &os.PathError{Op: "fork/exec", Path: "/hook", Err: err})
		if len(b.due()) != 1 || !b.Watches() {
			t.Fatalf("%v: %+v", err, b.kept())
		}
	}
}
