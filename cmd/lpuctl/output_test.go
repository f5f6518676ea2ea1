package main

import (
	"bytes"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := &progress{out: &out, what: "files", next: time.Now().Add(time.Hour)}
	p.show(1, 9)
	p.clear()
	if out.Len() > 0 {
		t.Errorf("a short job shows %q", &out)
	}
	p.next = time.Now()
	p.show(2, 9)
	p.show(3, 9) // too soon
	p.clear()
	if got := out.String(); got != "\r2 of 9 files\r\x1b[K" {
		t.Errorf("got %q", got)
	}
	if isTerminal(&out) {
		t.Error("a buffer is a terminal")
	}
}
