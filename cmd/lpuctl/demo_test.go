package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
)

// TestDemoInterrupted: a demo that is interrupted leaves nothing behind either.
func TestDemoInterrupted(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errOut bytes.Buffer
	code := run(ctx, []string{"demo"}, &out, &errOut, os.LookupEnv)
	left, err := os.ReadDir(dir)
	if code != cli.ExitFailed || len(left) > 0 || err != nil || errOut.String() != "lpuctl: interrupted\n" {
		t.Errorf("exit code %d, left %v, %v: %s", code, left, err, errOut.String())
	}
	if !strings.Contains(out.String(), "$ lpuctl simulate ") || strings.Contains(out.String(), " list\n\n") {
		t.Errorf("went on after it was interrupted:\n%s", out.String())
	}
}
