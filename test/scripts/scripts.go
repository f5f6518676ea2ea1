// Package scripts runs the scripts of a program in testdata/script on simulated nodes.
package scripts

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hyperaccel/lpuctl/internal/simulate"
)

// Command is a command of scripts.
type Command = func(*testscript.TestScript, bool, []string)

// Run runs the scripts: a script finds an Orion server in the directory orion. Beside its own commands it has code and simulate.
// LPUCTL_UPDATE=1 rewrites the expected output in them.
func Run(t *testing.T, program string, own map[string]Command) {
	commands := map[string]Command{"code": Code(program), "simulate": simulated}
	maps.Copy(commands, own)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("LPUCTL_UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			_, err := simulate.Node{Profile: "orion"}.Write(e.Getenv("WORK") + "/orion")
			return err
		},
		Cmds: commands,
	})
}

// Code returns the command that runs a program and wants an exit code: code 3 --root orion plan claim.yaml.
func Code(program string) Command {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		err := ts.Exec(program, args[1:]...)
		got := "0"
		if err != nil {
			got = err.Error()
		}
		if got != args[0] && got != "exit status "+args[0] {
			ts.Fatalf("%s %v: %s, want exit code %s", program, args[1:], got, args[0])
		}
	}
}

// simulated writes an Orion server with faults of its LPUs, simulate DIR unbound:3, or one without LPUs: simulate DIR none.
func simulated(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 2 && args[1] == "none" {
		ts.Check(os.MkdirAll(filepath.Join(ts.MkAbs(args[0]), "sys/bus/pci/devices"), 0o755))
		return
	}
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
