package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/long"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// said runs a command on a root and returns all that it says, with paths as below "/".
func said(t *testing.T, root string, args ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	run(t.Context(), append([]string{"--root", root}, args...), &out, &errOut, patient)
	text := out.String() + errOut.String()
	return strings.ReplaceAll(strings.ReplaceAll(text, root+"/", "/"), root, "/")
}

// patient is an environment in which a machine that has much to do does not cut a diagnosis short.
func patient(name string) (string, bool) {
	if name != "LPUCTL_WITHIN" {
		return "", false
	}
	return await.Limit.String(), true
}

// bundleOf packs a node and returns the file.
func bundleOf(t *testing.T, root string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "node.tar.gz")
	var out bytes.Buffer
	args := []string{"--root", root, "doctor", "--bundle", file, "--yes"}
	if code := run(t.Context(), args, &out, &out, patient); code != 0 {
		t.Fatal(code, out.String())
	}
	return file
}

func bundledNode(t *testing.T, faults ...simulate.Fault) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: 2, Faults: faults}).Write(root); err != nil {
		t.Fatal(err)
	}
	said(t, root, "cdi", "refresh")
	return root
}

// TestBundleReplays: commands say of a bundle what they say of the node, for each fault that a node can have.
func TestBundleReplays(t *testing.T) {
	nodes := map[string][]simulate.Fault{"healthy": nil}
	for _, kind := range simulate.FaultKinds() {
		nodes[kind.Name] = []simulate.Fault{{Name: kind.Name, Index: 0}}
	}
	for i, name := range slices.Sorted(maps.Keys(nodes)) {
		faults := nodes[name]
		if len(faults) > 0 && !long.Takes(i, 1) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			root := bundledNode(t, faults...)
			file := bundleOf(t, root)
			commands := []string{"doctor -o json", "list -o json"}
			if len(faults) == 0 {
				commands = append(commands, "topology", "cdi validate -o json", "health -o json", "describe lpu0", "ring check")
			}
			for _, command := range commands {
				args := strings.Fields(command)
				want, have := said(t, root, args...), said(t, file, args...)
				if have != want {
					t.Errorf("%s says\n%s\nof the bundle, and of the node\n%s", command, have, want)
				}
			}
		})
	}
}

// TestBundleReplaysForOthers: a bundle that root has made says the same to another user, who can make no device nodes.
func TestBundleReplaysForOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	root := bundledNode(t, simulate.Fault{Name: "node-mismatch", Index: 1})
	dir := t.TempDir()
	data, err := os.ReadFile(bundleOf(t, root))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "node.tar.gz")
	plant.File(t, file, string(data))
	for _, dir := range []string{filepath.Dir(dir), dir} { // the upper one, of the test, is closed to others
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // others read it
			t.Fatal(err)
		}
	}
	for _, command := range []string{"doctor -o json", "list -o json", "cdi validate -o json"} {
		other := exec.CommandContext(t.Context(), "/proc/self/exe")
		other.Args = append([]string{"lpuctl", "--root", file}, strings.Fields(command)...)
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
		other.Dir, other.Env = "/", append(os.Environ(), "LPUCTL_WITHIN="+await.Limit.String())
		var out bytes.Buffer
		other.Stdout, other.Stderr = &out, &out
		_ = other.Run() // it finds something
		if want := said(t, root, strings.Fields(command)...); out.String() != want {
			t.Errorf("%s says to another user\n%s\nand of the node\n%s", command, &out, want)
		}
	}
}

// TestBundleRuntimes: what a runtime's files say of its node is said of the bundle, whose files have no secrets.
func TestBundleRuntimes(t *testing.T) {
	root := bundledNode(t)
	plant.File(t, filepath.Join(root, "etc/docker/daemon.json"),
		`{"features": {"cdi": false}, "proxies": {"http-proxy": "http://kim:hunter2@proxy"}}`)
	plant.File(t, filepath.Join(root, "usr/bin/dockerd"), "")
	file := bundleOf(t, root)
	unpacked := t.TempDir()
	t.Setenv("TMPDIR", unpacked)
	for _, command := range []string{"runtime check -o json", "doctor -o json"} {
		if want, have := said(t, root, strings.Fields(command)...), said(t, file, strings.Fields(command)...); have != want {
			t.Errorf("%s says\n%s\nof the bundle, and of the node\n%s", command, have, want)
		}
	}
	if left, _ := os.ReadDir(unpacked); len(left) > 0 {
		t.Error("left behind:", left)
	}
}

// TestBundleOnlyLooks: no command that changes a node works on a bundle, and none is written without a yes.
func TestBundleOnlyLooks(t *testing.T) {
	root := bundledNode(t)
	file := bundleOf(t, root)
	for _, args := range [][]string{{"cdi", "refresh"}, {"cordon", "lpu0"}, {"doctor", "--bundle", file + "2", "--yes"}} {
		var out bytes.Buffer
		if code := run(t.Context(), append([]string{"--root", file}, args...), &out, &out, patient); code != cli.ExitUsage {
			t.Errorf("%v: exit code %d: %s", args, code, &out)
		}
	}
	var out bytes.Buffer
	args := []string{"--root", root, "doctor", "--bundle", file + "3"}
	if code := run(t.Context(), args, &out, &out, patient); code != cli.ExitUsage || !strings.Contains(out.String(), "--yes") {
		t.Errorf("without --yes: %d %s", code, &out)
	}
	if _, err := os.Lstat(file + "3"); err == nil {
		t.Error("it was written without a yes")
	}
}

// TestBundleDiff: what differs between two bundles is one line each, with exit 3.
func TestBundleDiff(t *testing.T) {
	before := bundleOf(t, bundledNode(t))
	after := bundleOf(t, bundledNode(t, simulate.Fault{Name: "unbound", Index: 1}))
	var out bytes.Buffer
	if code := run(t.Context(), []string{"doctor", "--diff", before, before}, &out, &out, patient); code != 0 || out.Len() > 0 {
		t.Error("nothing differs:", code, out.String())
	}
	if code := run(t.Context(), []string{"doctor", "--diff", before, after}, &out, &out, patient); code != cli.ExitFound {
		t.Error(code)
	}
	for _, want := range []string{
		"+ finding: error no-driver: lpu1", "~ card: 0000:44:00.1: xocl, now no driver", "~ link: driver: well, now broken", "spec: ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}
