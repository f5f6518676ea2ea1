package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/isolate"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/long"
	"github.com/hyperaccel/lpuctl/test/scripts"
)

// raceAtEnd keeps the race detector from holding up the end of each program that a test starts by a second.
const raceAtEnd = "atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	_ = os.Setenv("GORACE", raceAtEnd)
	testscript.Main(m, map[string]func(){"lpuctl": main, isolate.Stage: main})
}

// TestScripts runs the program as its users do. LPUCTL_UPDATE=1 rewrites the expected output in the scripts. With the race detector it
// runs the scripts that start one program beside another: the others take ten times as long with it.
func TestScripts(t *testing.T) {
	captures, err := filepath.Abs("../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if long.Race {
		files = slices.DeleteFunc(files, func(path string) bool { return !strings.Contains(readText(t, path), "&\n") })
	}
	testscript.Run(t, testscript.Params{
		Files:               files,
		UpdateScripts:       os.Getenv("LPUCTL_UPDATE") != "",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", raceAtEnd)
			env.Setenv("TESTDATA", captures)
			env.Setenv("LPUCTL_WITHIN", await.Limit.String()) // what the machine has to do besides says nothing of a node
			env.Setenv("EXAMPLES", examples)
			env.Setenv("BOOT", host.Now().Boot)
			env.Setenv("OURS", filepath.SplitList(env.Getenv("PATH"))[0]) // where lpuctl is, and nothing that this machine has
			return nil
		},
		Condition: func(name string) (bool, error) {
			switch name {
			case "root":
				return os.Getuid() == 0, nil
			case "mounts": // whether a test may mount in a namespace of its own
				return exec.Command("unshare", "-rm", "mount", "-t", "tmpfs", "none", "/tmp").Run() == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
		Cmds: map[string]scripts.Command{"code": scripts.Code("lpuctl")},
	})
}
