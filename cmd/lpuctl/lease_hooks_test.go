package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestAFaultyConfigForgetsNoHook: while it is not known whether there is one, what is kept back for it stays so.
func TestAFaultyConfigForgetsNoHook(t *testing.T) {
	for config, want := range map[string]bool{
		"leases: {hook: /hook}": true, "leases: {hook: hook}": true, "leases: {maxLPUs: 1}": false, "leases: {maxlpus: 1}": true, "": false,
	} {
		dir := t.TempDir()
		plant.File(t, filepath.Join(dir, "etc/lpuctl/config.yaml"), config)
		a := &app{App: cli.App{Root: host.Root(dir), Env: func(string) (string, bool) { return "", false }, Log: slog.New(slog.DiscardHandler)}}
		if arbiter, err := a.newArbiter(); err != nil || (arbiter.Hook != nil) != want {
			t.Errorf("%s: %v, %v", config, arbiter, err)
		}
	}
}

// TestAMendedConfigIsRead: an arbiter that was started with a faulty config gives LPUs away when that is mended, and knows then whether
// there is a hook. It keeps no LPU back for one that there is not.
func TestAMendedConfigIsRead(t *testing.T) {
	for mended, why := range map[string]string{"leases: {maxLPUs: 1}": "", "leases: {hook: /hook}": "/hook: no such file or directory"} {
		dir := leaseNode(t)
		_, dial, stop := leasing(t, dir, "leases: {maxlpus: 1}", func(*lease.Arbiter) {})
		wish := lease.Wish{Selection: lease.Selection{Count: 1}}
		if _, err := dial().Wish(t.Context(), wish, nil); err == nil {
			t.Error("the config is faulty")
		}
		plant.File(t, filepath.Join(dir, "etc/lpuctl/config.yaml"), mended)
		first := dial()
		g, err := first.Wish(t.Context(), wish, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = first.Close()
		wish.Must = append(wish.Must, g.LPUs[0].Address)
		await.Until(t, mended, func() error {
			c := dial()
			defer func() { _ = c.Close() }()
			_, err := c.Wish(t.Context(), wish, nil)
			switch {
			case why == "":
				return err
			case err == nil:
				return errors.New("the hook has not run")
			case strings.Contains(err.Error(), why):
				return nil
			}
			return err
		})
		stop()
	}
}

// TestWithProgram: the name of a process has no lines and columns of its own.
func TestWithProgram(t *testing.T) {
	name := fmt.Sprintf("/proc/%d/comm", os.Getpid())
	before, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	set := func(comm []byte) {
		if err := os.WriteFile(name, comm, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set([]byte("a\n7\tl3 \x1b[2Jb"))
	defer set(bytes.TrimSpace(before))
	if p := withProgram(lease.Peer{PID: os.Getpid()}); p.Command != "a7l3 [2Jb" {
		t.Errorf("%q", p.Command)
	}
}
