package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
	"github.com/hyperaccel/lpuctl/test/killer"
)

const specName = "hyperaccel.ai-lpu.json"

// specDirNames are what a refresh leaves in the spec directory.
var specDirNames = []string{".hyperaccel.ai-lpu.lock", specName}

// sharedSpecDir makes one spec directory of the nodes' and returns it.
func sharedSpecDir(t *testing.T, roots ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, root := range roots {
		machine.BindMount(t, dir, filepath.Join(root, "var/run/cdi"))
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

// TestKilledAtEachStep kills a refresh before each step it makes from when it first looks at the spec directory:
// readers find the old spec or the new one, and the next refresh finds nothing in its way.
func TestKilledAtEachStep(t *testing.T) {
	need(t)
	for name, inPlace := range map[string]bool{"over an old spec": true, "where there is none": false} {
		t.Run(name, func(t *testing.T) {
			before, after := simulate(t, "--profile", "lpu", "--lpus", "3"), simulate(t, "--profile", "lpu", "--lpus", "4")
			dir := filepath.Join(after, "var/run/cdi")
			if inPlace {
				sharedSpecDir(t, before, after)
			}
			k := killing{
				dir: dir, spec: filepath.Join(dir, specName),
				refresh: []string{machine.Binary(t), "--root", after, "--quiet", "cdi", "refresh"},
				want:    []byte(machine.Lpuctl(t, "--root", after, "cdi", "generate")),
				kills:   map[string]int{}, found: map[string]bool{},
			}
			reset := func() {
				if err := os.RemoveAll(filepath.Join(after, "var")); err != nil {
					t.Fatal(err)
				}
			}
			if inPlace {
				k.old = []byte(machine.Lpuctl(t, "--root", before, "cdi", "generate"))
				reset = func() { machine.Lpuctl(t, "--root", before, "cdi", "refresh") }
			}
			k.atEachStep(t, reset)
		})
	}
}

// killing is what a series of kills needs and finds.
type killing struct {
	dir, spec string
	refresh   []string
	old, want []byte // the spec before, nil if there is none, and after
	kills     map[string]int
	found     map[string]bool
}

func (k *killing) atEachStep(t *testing.T, reset func()) {
	t.Helper()
	for n := 1; ; n++ {
		reset()
		step := k.killed(t, n)
		if step == "" { // it ended before; once more, because the tracer sometimes misses when the first call names the directory
			reset()
			step = k.killed(t, n)
		}
		if step == "" {
			break
		}
		k.kills[step]++
		k.judge(t, fmt.Sprintf("killed at step %d, %s", n, step))
	}
	total := 0
	for _, n := range k.kills {
		total += n
	}
	t.Logf("%d kills: %v; found %v", total, k.kills, slices.Sorted(maps.Keys(k.found)))
	if total < 5 || !k.found["the old spec"] || !k.found["the new spec"] || !k.found["a file half done"] {
		t.Error("the write phase was not hit")
	}
}

// killed kills a refresh before its step n; it returns "" if there is no such step.
func (k *killing) killed(t *testing.T, n int) string {
	t.Helper()
	step, err := (&killer.Killer{Dir: k.dir, Left: n, Changes: true}).Run(k.refresh...)
	if err != nil {
		t.Fatal(err)
	}
	return step
}

// judge looks at what a killed refresh has left, and at what the next one makes of it.
func (k *killing) judge(t *testing.T, when string) {
	t.Helper()
	got, err := os.ReadFile(k.spec)
	switch {
	case err == nil && bytes.Equal(got, k.want):
		k.found["the new spec"] = true
	case err == nil && k.old != nil && bytes.Equal(got, k.old), os.IsNotExist(err) && k.old == nil:
		k.found["the old spec"] = true
	default:
		t.Fatalf("%s: the spec is neither the old one nor the new one: %v\n%s", when, err, got)
	}
	if entries, err := os.ReadDir(k.dir); err == nil {
		for _, e := range entries {
			k.found["a file half done"] = k.found["a file half done"] || !slices.Contains(specDirNames, e.Name())
		}
	}
	if r := machine.Run(t, k.refresh...); r.Code != 0 || r.Stderr != "" {
		t.Fatalf("%s: the next refresh: exit code %d: %s", when, r.Code, r.Stderr)
	}
	if !bytes.Equal(read(t, k.spec), k.want) {
		t.Fatalf("%s: the next refresh has not put the new spec in place", when)
	}
	if diff := cmp.Diff(specDirNames, namesIn(t, k.dir)); diff != "" {
		t.Fatalf("%s: the next refresh leaves more:\n%s", when, diff)
	}
}

// TestManyRefreshesAtOnce: sixteen processes from two nodes leave one whole file.
func TestManyRefreshesAtOnce(t *testing.T) {
	need(t)
	roots := []string{simulate(t, "--profile", "lpu", "--lpus", "3"), simulate(t, "--profile", "lpu", "--lpus", "4")}
	dir := sharedSpecDir(t, roots...)
	var wanted []string
	for _, root := range roots {
		wanted = append(wanted, machine.Lpuctl(t, "--root", root, "cdi", "generate"))
	}
	var results [16]machine.Result
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() { results[i] = machine.Run(t, machine.Binary(t), "--root", roots[i%2], "cdi", "refresh") })
	}
	wg.Wait()
	for i, r := range results {
		if r.Code != 0 {
			t.Errorf("refresh %d: exit code %d: %s", i, r.Code, r.Stderr)
		}
	}
	if got := string(read(t, filepath.Join(dir, specName))); got != wanted[0] && got != wanted[1] {
		t.Errorf("the file is neither node's spec:\n%s", got)
	}
	if diff := cmp.Diff(specDirNames, namesIn(t, dir)); diff != "" {
		t.Errorf("in the directory:\n%s", diff)
	}
}

// TestAFullOrFailingDisk: what cannot be written leaves what was there, and says why and what to do.
func TestAFullOrFailingDisk(t *testing.T) {
	need(t, "strace")
	// Each case makes the refresh fail and may return how to make the disk well again.
	for name, c := range map[string]struct {
		lpus  string // of the node whose refresh fails
		fail  []string
		spoil func(t *testing.T, dir string) (mend func())
		says  string
	}{
		"full disk":             {lpus: "64", says: "no space left on device"},
		"file not synced":       {lpus: "2", fail: failing("fsync"), says: "input/output error"},
		"file not renamed":      {lpus: "2", fail: failing("renameat"), says: "input/output error"},
		"lock refused":          {lpus: "2", fail: failing("flock"), says: "input/output error"},
		"read-only file system": {lpus: "2", spoil: readOnly, says: "read-only file system"},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := simulate(t, "--profile", "lpu", "--lpus", "3"), simulate(t, "--profile", "lpu", "--lpus", c.lpus)
			small := t.TempDir()
			machine.Mount(t, "tmpfs", small, "tmpfs", 0, "size=32k")
			for _, root := range []string{before, after} {
				machine.BindMount(t, small, filepath.Join(root, "var/run/cdi"))
			}
			machine.Lpuctl(t, "--root", before, "cdi", "refresh")
			old := read(t, filepath.Join(small, specName))
			mend := func() {}
			if c.spoil != nil {
				mend = c.spoil(t, small)
			}
			r := machine.Run(t, append(c.fail, machine.Binary(t), "--root", after, "cdi", "refresh")...)
			wantRefused(t, r, filepath.Join(after, "var/run/cdi"), c.says)
			if !bytes.Equal(read(t, filepath.Join(small, specName)), old) {
				t.Error("the spec is not what it was")
			}
			mend()
			machine.Lpuctl(t, "--root", before, "cdi", "refresh")
			if diff := cmp.Diff(specDirNames, namesIn(t, small)); diff != "" {
				t.Errorf("after the next refresh:\n%s", diff)
			}
		})
	}
}

// failing is the command that makes the first such system call of the command after it fail.
func failing(call string) []string {
	return []string{"strace", "-f", "-qqq", "-o", "/dev/null", "-e", "trace=" + call, "-e", "inject=" + call + ":error=EIO:when=1"}
}

func readOnly(t *testing.T, dir string) (mend func()) {
	t.Helper()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=32k"); err != nil {
			t.Fatal(err)
		}
	}
}

// wantRefused wants exit code 1 and one message, with the path, the reason and a remedy.
func wantRefused(t *testing.T, r machine.Result, path, reason string) {
	t.Helper()
	message, remedy, _ := strings.Cut(r.Stderr, "\n")
	says := strings.HasPrefix(message, "lpuctl: ") && strings.Contains(message, path) && strings.Contains(message, reason)
	if r.Code != 1 || r.Stdout != "" || !says {
		t.Errorf("exit code %d, want 1, and a message with %s and %q:\n%s%s", r.Code, path, reason, r.Stdout, r.Stderr)
	}
	if !strings.HasPrefix(remedy, "  remedy: ") || strings.Count(remedy, "\n") != 1 {
		t.Errorf("want one remedy below the message:\n%s", r.Stderr)
	}
}

// TestADirectoryThatIsNotSynced: the new spec is in place, yet whether it survives a power cut is not known.
func TestADirectoryThatIsNotSynced(t *testing.T) {
	need(t, "strace")
	before, after := simulate(t, "--profile", "lpu", "--lpus", "3"), simulate(t, "--profile", "lpu", "--lpus", "4")
	dir := sharedSpecDir(t, before, after)
	machine.Lpuctl(t, "--root", before, "cdi", "refresh")
	here := filepath.Join(after, "var/run/cdi")
	r := machine.Run(t, "strace", "-f", "-qqq", "-o", "/dev/null", "-P", here,
		"-e", "trace=fsync", "-e", "inject=fsync:error=EIO", machine.Binary(t), "--root", after, "cdi", "refresh")
	wantRefused(t, r, here, "input/output error")
	if got, want := string(read(t, filepath.Join(dir, specName))), machine.Lpuctl(t, "--root", after, "cdi", "generate"); got != want {
		t.Errorf("the spec is not the new one:\n%s", got)
	}
}

// TestNoDirectory: a file that stands where the spec directory should be is named.
func TestNoDirectory(t *testing.T) {
	need(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "1")
	dir := filepath.Join(root, "var/run/cdi")
	machine.Write(t, dir, "")
	wantRefused(t, machine.Run(t, machine.Binary(t), "--root", root, "cdi", "refresh"), dir, "not a directory")
}
