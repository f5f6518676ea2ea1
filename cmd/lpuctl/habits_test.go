package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/simulate"
)

// TestHabits: what people type from habit is refused with the command that lpuctl has for it, and that command works.
func TestHabits(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: 4}).Write(root); err != nil {
		t.Fatal(err)
	}
	for typed, want := range map[string]string{
		"info": "lpuctl list -o wide", "smi": "lpuctl list",
		"watch": "lpuctl list --watch", "events": "lpuctl list --watch", "free": "lpuctl allocate", "who": "lpuctl list", "users": "lpuctl list",
		"drain": "lpuctl cordon LPU --reason TEXT", "reset": "lpuctl health", "logs": "journalctl -u lpuctl-serve", "exec": "lpuctl run",
		"cdi install": "lpuctl cdi refresh", "cdi enable": "lpuctl runtime check", "runtime configure": "lpuctl runtime check",
		"list -v": "lpuctl list --log-level debug", "-v": "lpuctl --version", "list -A": "lpuctl list", "list --all": "lpuctl list",
		"list --short": "-o name", "version --short": "lpuctl version", "list --sort-by=x": "lpuctl list --no-headers | sort -k2",
		"list --wide": "-o wide", "health --wide": "", "health --version": "lpuctl version", "cdi refresh --version": "lpuctl version",
		"cdi refresh --output x": "lpuctl cdi generate --output FILE", "cordon --output json": "-o FORMAT", "list --output json": "-o FORMAT",
	} {
		_, said, code := piped(t, nil, append([]string{"--root", root}, strings.Fields(typed)...)...)
		_, remedy, _ := strings.Cut(strings.TrimSpace(said), "remedy: ")
		use, isHabit := strings.CutPrefix(remedy, "use ")
		use, _, _ = strings.Cut(use, " (")
		if code != cli.ExitUsage || isHabit != (want != "") || isHabit && use != want {
			t.Errorf("%s ends with %d and %q, want %q", typed, code, said, want)
		}
		if strings.HasSuffix(use, "--watch") || use == "lpuctl run" || !isHabit {
			continue
		}
		for command := range strings.SplitSeq(use, "; ") {
			command, _, _ = strings.Cut(command, " | ")
			command = strings.NewReplacer("LPU ", "lpu0 ", "FILE", filepath.Join(root, "file"), "FORMAT", "json").Replace(command)
			args, isOurs := strings.CutPrefix(command, "lpuctl")
			switch {
			case strings.HasPrefix(command, "-o"):
				args = "list " + command
			case !isOurs:
				continue
			}
			_, said, code := piped(t, nil, append([]string{"--root", root}, strings.Fields(args)...)...)
			if code != cli.ExitDone && code != cli.ExitFound {
				t.Errorf("%s is answered with %q, which ends with %d: %s", typed, command, code, said)
			}
		}
	}
	all, _, _ := piped(t, nil, "--root", root, "list")
	if got, _, _ := piped(t, nil, "--root", root, "get", "lpus"); got != all {
		t.Errorf("get lpus prints\n%s", got)
	}
	_, said, _ := piped(t, nil, "--root", sickNode(t), "cdi", "explain", "lpu1")
	if !strings.Contains(said, "\n  remedy: modprobe xocl; ") {
		t.Errorf("explain of an LPU without a driver says %s", said)
	}
}
