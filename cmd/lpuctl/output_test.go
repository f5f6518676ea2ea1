package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
)

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := &cli.Progress{Out: &out, What: "files", Next: time.Now().Add(time.Hour)}
	p.Show(1, 9)
	p.Clear()
	if out.Len() > 0 {
		t.Errorf("a short job shows %q", &out)
	}
	p.Next = time.Now()
	p.Show(2, 9)
	p.Show(3, 9) // too soon
	p.Clear()
	if got := out.String(); got != "\r2 of 9 files\r\x1b[K" {
		t.Errorf("got %q", got)
	}
	if cli.IsTerminal(&out) {
		t.Error("a buffer is a terminal")
	}
}
