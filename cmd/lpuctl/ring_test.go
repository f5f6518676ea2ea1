package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/simulate"
)

// ringNode is a node with some LPUs, and a function that runs lpuctl on it and wants an exit code. It returns what was printed.
func ringNode(t *testing.T, lpus int) (root string, run func(code int, args ...string) string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: lpus}).Write(root); err != nil {
		t.Fatal(err)
	}
	return root, func(code int, args ...string) string {
		t.Helper()
		cmd := exec.Command("lpuctl", args...)
		cmd.Env = append(os.Environ(), "LPUCTL_ROOT="+root)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%v: exit code %d, want %d:\n%s", args, got, code, out)
		}
		return string(out)
	}
}

// TestConvertOfWhatIsThere: the table for HyperDex numbers the LPUs that are present, and no other.
func TestConvertOfWhatIsThere(t *testing.T) {
	root, run := ringNode(t, 4)
	table := filepath.Join(t.TempDir(), "table.json")
	run(cli.ExitDone, "ring", "install", filepath.Join(root, "opt/hyperdex/hrt/xclbin/table.json"))
	for _, function := range []string{"0000:44:00.0", "0000:44:00.1"} {
		if err := os.Remove(filepath.Join(root, "sys/bus/pci/devices", function)); err != nil {
			t.Fatal(err)
		}
	}
	run(cli.ExitDone, "ring", "convert", "--output", table)
	run(cli.ExitFound, "ring", "read", table, "-n", "4")
	if out := run(cli.ExitDone, "ring", "read", table, "-n", "3"); !strings.Contains(out, "as a line: lpu1 lpu2 lpu0\n") {
		t.Error(out)
	}
	for _, to := range []string{"hyperdex", "lpuctl"} {
		out := run(cli.ExitFound, "ring", "convert", "--to", to, "--lpus", "lpu0,lpu1")
		if !strings.Contains(out, "lpu1 is not available") || !strings.Contains(out, "remedy: see lpuctl describe lpu1") {
			t.Error(out)
		}
	}
}

// TestConvertOfSeveralRings: HyperDex takes each ring by itself, and no step leads from one to the other.
func TestConvertOfSeveralRings(t *testing.T) {
	_, run := ringNode(t, 16)
	table := filepath.Join(t.TempDir(), "table.json")
	run(cli.ExitDone, "ring", "convert", "--output", table)
	for _, n := range []string{"9", "16"} {
		run(cli.ExitFound, "ring", "read", table, "-n", n)
	}
	if out := run(cli.ExitDone, "ring", "read", table, "-n", "8", "--busy", "2"); !strings.Contains(out, "as a line: lpu8 lpu9 ") {
		t.Error(out)
	}
}

// TestHyperdexReadsItsOwnTable: while another table is installed, or named, HyperDex' own is judged all the same.
func TestHyperdexReadsItsOwnTable(t *testing.T) {
	root, run := ringNode(t, 4)
	own := filepath.Join(root, "opt/hyperdex/hrt/xclbin/table.json")
	run(cli.ExitDone, "ring", "install", own)
	shuffled, err := os.ReadFile("../../pkg/ring/testdata/ring-file-order.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, shuffled, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"list"}, {"ring", "check", "--strict"}, {"ring", "check", "--strict", "--ring-table", filepath.Join(root, "etc/lpuctl/ring.yaml")},
	} {
		code := cli.ExitFound
		if args[0] == "list" {
			code = cli.ExitDone
		}
		if out := run(code, args...); strings.Count(out, "[ring-file-order]") != 1 || !strings.Contains(out, own) {
			t.Errorf("%v: %s", args, out)
		}
	}
	run(cli.ExitDone, "ring", "convert", "--output", own)
	if out := run(cli.ExitDone, "ring", "check", "--strict"); strings.Contains(out, own) {
		t.Error(out)
	}
}
