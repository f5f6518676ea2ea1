package main

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/simulate"
)

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
	a := &app{App: cli.App{Root: host.Root(root), Env: noEnvironment, Log: slog.New(slog.DiscardHandler)}}
	inv, err := a.scan(t.Context())
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
		if err := stateError(c.err, "cordon and uncordon"); cli.CodeOf(err) != cli.ExitFailed || !strings.Contains(cli.RemedyFor(err), c.remedy) {
			t.Errorf("%v: %d, %s", c.err, cli.CodeOf(err), cli.RemedyFor(err))
		}
	}
}
