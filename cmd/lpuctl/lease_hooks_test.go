package main

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestAFaultyConfigForgetsNoHook: while it is not known whether there is one, what is kept back for it stays so.
func TestAFaultyConfigForgetsNoHook(t *testing.T) {
	for config, want := range map[string]bool{
		"leases: {hook: /hook}": true, "leases: {hook: hook}": true, "leases: {maxLPUs: 1}": false, "leases: {maxlpus: 1}": true, "": false,
	} {
		dir := t.TempDir()
		plant.File(t, filepath.Join(dir, "etc/lpuctl/config.yaml"), config)
		a := &app{cli.App{Root: host.Root(dir), Env: func(string) (string, bool) { return "", false }, Log: slog.New(slog.DiscardHandler)}}
		if arbiter, err := a.newArbiter(); err != nil || (arbiter.Hook != nil) != want {
			t.Errorf("%s: %v, %v", config, arbiter, err)
		}
	}
}
