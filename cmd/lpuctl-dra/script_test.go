package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hyperaccel/lpuctl/test/scripts"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){program: main})
}

// TestScripts runs the scripts in testdata/script on simulated nodes.
func TestScripts(t *testing.T) {
	t.Parallel()
	scripts.Run(t, program, nil)
}
