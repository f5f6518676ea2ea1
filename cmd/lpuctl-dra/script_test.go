package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hyperaccel/lpuctl/internal/simulate"
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
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": code, "simulate": simulated},
	})
}

// code runs lpuctl-dra and wants this exit code: code 3 --root orion plan claim.yaml.
func code(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(program, args[1:]...)
	got := "0"
	if err != nil {
		got = err.Error()
	}
	if got != args[0] && got != "exit status "+args[0] {
		ts.Fatalf("%s %v: %s, want exit code %s", program, args[1:], got, args[0])
	}
}

// simulated writes an Orion server with faults of its LPUs: simulate DIR unbound:3.
func simulated(ts *testscript.TestScript, _ bool, args []string) {
	n := simulate.Node{Profile: "orion"}
	for _, text := range args[1:] {
		name, index, _ := strings.Cut(text, ":")
		number, err := strconv.Atoi(index)
		ts.Check(err)
		n.Faults = append(n.Faults, simulate.Fault{Name: name, Index: number})
	}
	_, err := n.Write(ts.MkAbs(args[0]))
	ts.Check(err)
}
