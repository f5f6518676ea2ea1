package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const specName = "hyperaccel.ai-lpu.json"

// sharedSpecDir makes one spec directory of the nodes' and returns it.
func sharedSpecDir(t *testing.T, roots ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, root := range roots {
		here := filepath.Join(root, "var/run/cdi")
		if err := os.MkdirAll(here, 0o755); err != nil {
			t.Fatal(err)
		}
		mount(t, dir, here, "", unix.MS_BIND, "")
	}
	return dir
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestKilledAtEachStep kills a refresh, by SIGKILL, before each system call it makes that can change a file:
// readers find the old spec or the new one, and the next refresh finds nothing in its way.
func TestKilledAtEachStep(t *testing.T) {
	need(t, "strace")
	before, after := simulate(t, "--profile", "lpu", "--lpus", "3"), simulate(t, "--profile", "lpu", "--lpus", "4")
	dir := sharedSpecDir(t, before, after)
	spec := filepath.Join(dir, specName)
	lpuctl(t, "--root", after, "cdi", "refresh")
	want := read(t, spec)
	lpuctl(t, "--root", before, "cdi", "refresh")
	old := read(t, spec)
	kills, seen := 0, map[string]bool{}
	for _, call := range []string{"openat", "write", "fsync", "renameat", "unlinkat", "mkdirat", "flock", "close"} {
		for n := 1; ; n++ {
			lpuctl(t, "--root", before, "cdi", "refresh")
			r := run(t, "strace", "-f", "-qqq", "-o", "/dev/null", "-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", call, n),
				binary(t), "--root", after, "--quiet", "cdi", "refresh")
			got := read(t, spec)
			switch {
			case bytes.Equal(got, old):
				seen["old"] = true
			case bytes.Equal(got, want):
				seen["new"] = true
			default:
				t.Fatalf("killed at %s %d, the spec is neither the old one nor the new one:\n%s", call, n, got)
			}
			if r.code == 0 {
				break
			}
			kills++
			lpuctl(t, "--root", after, "cdi", "refresh")
			if diff := cmp.Diff([]string{".hyperaccel.ai-lpu.lock", specName}, namesIn(t, dir)); diff != "" {
				t.Fatalf("killed at %s %d, after the next refresh there is more:\n%s", call, n, diff)
			}
		}
	}
	t.Logf("%d kills", kills)
	if kills < 50 || !seen["old"] || !seen["new"] {
		t.Errorf("only %d kills, seen %v: the steps were not hit", kills, seen)
	}
}

// TestManyRefreshesAtOnce: sixteen processes from two nodes leave one whole file.
func TestManyRefreshesAtOnce(t *testing.T) {
	need(t)
	roots := []string{simulate(t, "--profile", "lpu", "--lpus", "3"), simulate(t, "--profile", "lpu", "--lpus", "4")}
	dir := sharedSpecDir(t, roots...)
	var wanted []string
	for _, root := range roots {
		wanted = append(wanted, lpuctl(t, "--root", root, "cdi", "generate"))
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if out, err := exec.Command(binary(t), "--root", roots[i%2], "cdi", "refresh").CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	if got := string(read(t, filepath.Join(dir, specName))); got != wanted[0] && got != wanted[1] {
		t.Errorf("the file is neither node's spec:\n%s", got)
	}
	if got := namesIn(t, dir); len(got) != 2 {
		t.Errorf("left in the directory: %v", got)
	}
}

// TestAFullOrFailingDisk: what cannot be written leaves what was there, and says why.
func TestAFullOrFailingDisk(t *testing.T) {
	need(t, "strace")
	before, after := simulate(t, "--profile", "lpu", "--lpus", "3"), simulate(t, "--profile", "lpu", "--lpus", "2")
	large := simulate(t, "--profile", "lpu", "--lpus", "64")
	dir := sharedSpecDir(t, before, after, large)
	mount(t, "tmpfs", dir, "tmpfs", 0, "size=16k")
	for _, root := range []string{before, after, large} { // the bind mounts show what was below
		mount(t, dir, filepath.Join(root, "var/run/cdi"), "", unix.MS_BIND, "")
	}
	spec := filepath.Join(dir, specName)
	lpuctl(t, "--root", before, "cdi", "refresh")
	old := read(t, spec)
	refused := func(what, hint string, command ...string) {
		t.Helper()
		r := run(t, command...)
		if r.code != 1 || !strings.Contains(r.stderr, hint) || !bytes.Equal(read(t, spec), old) {
			t.Errorf("%s: exit code %d, %s", what, r.code, r.stderr)
		}
		if got := namesIn(t, dir); len(got) != 2 {
			t.Errorf("%s leaves %v", what, got)
		}
	}
	refresh := []string{binary(t), "--root", after, "cdi", "refresh"}
	refused("a full disk", "hint: the disk is full", binary(t), "--root", large, "cdi", "refresh")
	for _, call := range []string{"write", "fsync", "renameat"} {
		refused("an error in "+call, "input/output error",
			append([]string{"strace", "-f", "-qqq", "-o", "/dev/null", "-e", "trace=" + call, "-e", "inject=" + call + ":error=EIO:when=1"}, refresh...)...)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	refused("a read-only file system", "hint: the file system is mounted read-only", refresh...)
}

// deviceNames are the names in a spec.
func deviceNames(t *testing.T, spec string) []string {
	t.Helper()
	var s struct{ Devices []struct{ Name string } }
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range s.Devices {
		names = append(names, d.Name)
	}
	return names
}
