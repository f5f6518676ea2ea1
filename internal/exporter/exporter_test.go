package exporter

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/filelock"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/pods"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// TestRefused: the exporter is refused where the DRA driver runs, and only there; before its first look it is not ready.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	of := &pods.Node{Root: host.Root(dir), StateDir: dir, Log: slog.New(slog.DiscardHandler)}
	e := New(of, discovery.Options{}, node.Memory{Dir: dir}, node.Spec{})
	if err := e.Refused(); err != nil {
		t.Error(err)
	}
	if _, err := e.Ready(); err == nil {
		t.Error("it is ready before it has looked")
	}
	shown := filelock.Presence{Path: filepath.Join(dir, "owner-dra")}
	if err := shown.Show(); err != nil {
		t.Fatal(err)
	}
	if err := e.Refused(); !errors.As(err, new(*TakenError)) {
		t.Error(err)
	}
}
