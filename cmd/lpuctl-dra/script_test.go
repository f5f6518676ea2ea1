package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hyperaccel/lpuctl/pkg/simulate"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lpuctl-dra": main})
}

// TestScripts runs the scripts in testdata/script on simulated nodes: a script finds an Orion server in the directory orion.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("LPUCTL_UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			_, err := simulate.Node{Profile: "orion"}.Write(e.Getenv("WORK") + "/orion")
			return err
		},
	})
}
