package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// nextOf are the commands that a glance names.
func nextOf(t *testing.T, text string) (commands []string) {
	t.Helper()
	_, rest, found := strings.Cut(text, "\nNext:\n")
	for line := range strings.Lines(rest) {
		command, _, isCommand := strings.Cut(line, "  # ")
		if isCommand {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	if !found || len(commands) != 3 {
		t.Errorf("there are no three next commands:\n%s", text)
	}
	return commands
}

// TestGlance: lpuctl alone says how many LPUs can be used, how the spec is, what is first wrong, and names commands that work.
func TestGlance(t *testing.T) {
	sick := sickNode(t)
	sound := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: 8}).Write(sound); err != nil {
		t.Fatal(err)
	}
	none := t.TempDir() // without a PCI bus
	look := func(root string, want ...string) {
		t.Helper()
		out, said, code := piped(t, nil, "--root", root)
		if code != cli.ExitDone || said != "" {
			t.Errorf("it ends with %d: %s", code, said)
		}
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("%q is not in\n%s", text, out)
			}
		}
		for _, command := range nextOf(t, out) {
			args := strings.Fields(strings.ReplaceAll(command, "/tmp/lpus", filepath.Join(none, "lpus")))
			if args[0] != "lpuctl" || args[1] == "demo" { // a test of its own
				continue
			}
			if _, said, code := piped(t, nil, args[1:]...); code != cli.ExitDone && code != cli.ExitFound {
				t.Errorf("%s ends with %d: %s", command, code, said)
			}
		}
	}
	look(none, "no LPU on this node\n", "  lpuctl demo  ")
	look(sound, "8 LPUs, 8 usable\nCDI spec: none is installed\n", " cdi refresh  ")
	look(sound, "8 LPUs, 8 usable\nCDI spec: "+sound+"/var/run/cdi/hyperaccel.ai-lpu.json is up to date\n", " runtime check  ")
	look(sick, "8 LPUs, 6 usable\n", "\nerror: lpu1: no driver", "\n  remedy: modprobe xocl",
		"\nand 1 other finding (lpuctl --root ", " describe lpu1  ")
	if _, _, code := piped(t, nil, "--root", sound, "--quiet", "cordon", "lpu3", "--reason", "x"); code != cli.ExitDone {
		t.Fatalf("cordon ends with %d", code)
	}
	look(sound, "8 LPUs, 7 usable, 1 cordoned\n")
	if out, _, code := piped(t, nil, "--root", filepath.Join(none, "nowhere")); code != cli.ExitFailed || out != "" {
		t.Errorf("of no machine it prints %q with %d", out, code)
	}
}

// TestNextSteps: where LPUs are leased, the next command is run; what root must do says so to others.
func TestNextSteps(t *testing.T) {
	inv := &discovery.Inventory{LPUs: []discovery.LPU{{Name: "lpu0", Usable: true}}}
	if got := nextSteps(inv, rightSpec, true); got[0].command != "lpuctl run -n 1 -- COMMAND" {
		t.Errorf("first comes %s", got[0].command)
	}
	if got := nextSteps(inv, oldSpec, false); got[0].command != "sudo lpuctl cdi refresh" {
		t.Errorf("first comes %s", got[0].command)
	}
	here := &app{App: cli.App{Root: "/"}}
	want := "sudo lpuctl cdi refresh"
	if os.Geteuid() == 0 {
		want = "lpuctl cdi refresh"
	}
	if got := here.typed("sudo lpuctl cdi refresh"); got != want {
		t.Errorf("it is typed as %s", got)
	}
}
