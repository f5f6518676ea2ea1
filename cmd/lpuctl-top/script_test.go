package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/statefile"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lpuctl-top": main})
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
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": code, "simulate": simulated, "leased": leased},
	})
}

// code runs lpuctl-top and wants this exit code: code 4 --root none --once.
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

// simulated writes an Orion server with faults of its LPUs, simulate DIR unbound:3, or one without LPUs: simulate DIR none.
func simulated(ts *testscript.TestScript, _ bool, args []string) {
	if args[1] == "none" {
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

// leased has alice lease lpu2 of a node since it was started, and bob reserve lpu4: leased DIR.
func leased(ts *testscript.TestScript, _ bool, args []string) {
	root := ts.MkAbs(args[0])
	plant := func(file, kind, list string) {
		path := filepath.Join(root, file)
		ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
		ts.Check(os.WriteFile(path, fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"boot":%q,"last":9,%s}`,
			statefile.APIVersion, kind, host.Now().Boot, list), 0o600))
	}
	const alices, bobs = `"lpus":[{"address":"0000:45:00.1","name":"lpu2"}]`, `"lpus":[{"address":"0000:83:00.1","name":"lpu4"}]`
	plant("run/lpuctl/leases.json", "Leases", fmt.Sprintf(
		`"leases":[{"id":"l7","uid":1000,"user":"alice","pid":12,%s,"since":1,"wish":{"count":1},"grant":{%[1]s,"reason":""}}]`, alices))
	plant("var/lib/lpuctl/leases.json", "Reservations", fmt.Sprintf(
		`"reservations":[{"id":"r8","uid":1001,"user":"bob","pid":1,%s,"reason":"a test","since":1,"until":%d}]`,
		bobs, host.SinceBoot()+time.Hour))
}
