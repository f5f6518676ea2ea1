package node_test

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/watch"
)

// brokenDisks are ways in which nothing can be written to a directory, not even by root. Each returns what mends it.
func brokenDisks() map[string]func(w *world, dir string) (mend func()) {
	link := func(to string) func(w *world, dir string) func() {
		return func(w *world, dir string) func() {
			return replaced(w, dir, func() error { return os.Symlink(to, dir) })
		}
	}
	return map[string]func(w *world, dir string) func(){
		"full":            fillUp,
		"read-only":       link("/proc/self/fdinfo"), // where nobody can make a file
		"not mounted":     link("/nowhere/lpuctl"),
		"a loop of links": link("lpuctl"),
		"not a directory": func(w *world, dir string) func() {
			return replaced(w, dir, func() error { return os.WriteFile(dir, nil, 0o600) })
		},
		"taken by something": takeNames,
	}
}

// fillUp makes all disks behave as a full one does: a file can be made, and only a few bytes can be written to it. It does so for the
// whole process, in which go test writes files too, so that this needs a process of its own.
func fillUp(w *world, _ string) (mend func()) {
	var before unix.Rlimit
	w.must(unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
	signal.Ignore(unix.SIGXFSZ) // which would end the process
	w.must(unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 16, Max: before.Max}))
	return func() {
		w.must(unix.Setrlimit(unix.RLIMIT_FSIZE, &before))
		signal.Reset(unix.SIGXFSZ)
	}
}

// replaced puts something else in the place of a directory for a while.
func replaced(w *world, dir string, other func() error) (mend func()) {
	w.must(errors.Join(os.Rename(dir, dir+".aside"), other()))
	return func() { w.must(errors.Join(os.Remove(dir), os.Rename(dir+".aside", dir))) }
}

// takeNames puts directories where the files should be: no file can replace them.
func takeNames(w *world, dir string) (mend func()) {
	files := []string{filepath.Join(dir, "health.json"), filepath.Join(dir, "last-ring.yaml")}
	for _, file := range files {
		w.must(errors.Join(os.RemoveAll(file), os.Mkdir(file, 0o700)))
	}
	return func() { w.must(errors.Join(os.Remove(files[0]), os.Remove(files[1]))) }
}

// TestADiskThatCannotBeWritten: the health is judged on, the trouble is told once, and what is known is written as soon as the disk
// takes it, for the next program to go on with. The trouble may have begun before the program.
func TestADiskThatCannotBeWritten(t *testing.T) {
	const alone = "LPUCTL_TEST_ALONE" // is set in a process of its own
	for name, spoil := range brokenDisks() {
		for when, before := range map[string]func(p *program){"later": func(p *program) { p.update() }, "from the start": func(*program) {}} {
			t.Run(name+" "+when, func(t *testing.T) {
				if name != "full" || os.Getenv(alone) != "" {
					onABrokenDisk(t, spoil, before)
					return
				}
				itself := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
				itself.Env = append(os.Environ(), alone+"=1")
				if out, err := itself.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

func onABrokenDisk(t *testing.T, spoil func(w *world, dir string) (mend func()), before func(p *program)) {
	t.Helper()
	w := newWorld(t)
	p := w.program()
	p.remember()
	w.must(os.MkdirAll(p.Memory.Dir, 0o755))
	before(p)
	nothing := func() error { return nil }
	for i, step := range []struct {
		change func() error
		want   string // the health of each device
	}{
		{nothing, "HHHH"},
		{func() error { return w.machine.AllOnes(2, true) }, "HHHH"}, // it may be in a reset
		{nothing, "HHHH"},
		{nothing, "HHHH"},
		{nothing, "HHHH"},
		{nothing, "HHHH"},
		{nothing, "HHUH"},
		{func() error { return w.machine.Power(0, "D3cold", "active") }, "UHUH"},
		{func() error { return errors.Join(w.machine.AllOnes(2, false), w.machine.Power(0, "D0", "active")) }, "UHUH"},
		{nothing, "UHUH"},
		{nothing, "UHUH"},
		{nothing, "HHHH"},
		{func() error { return w.machine.Power(1, "D3cold", "active") }, "HUHH"},
	} {
		w.now = w.now.Add(time.Second)
		w.must(step.change())
		mend := spoil(w, p.Memory.Dir)
		s := p.update()
		mend()
		if health(s) != step.want || !s.Settled {
			t.Errorf("after step %d: %s, want %s; settled: %t", i, health(s), step.want, s.Settled)
		}
	}
	if n := strings.Count(p.log.String(), "cannot be kept for the next start"); n != 1 {
		t.Errorf("told %d times:\n%s", n, p.log)
	}
	w.now = w.now.Add(time.Second)
	p.update() // nothing has changed but the disk
	if got := names(t, p.Memory.Dir); got != "health.json last-ring.yaml" {
		t.Errorf("in the directory: %s", got)
	}
	next := w.program()
	next.Memory = p.Memory
	records, err := next.Memory.Records()
	w.must(err)
	w.must(w.machine.Power(1, "D0", "active"))
	next.watcher = watch.New(w.root, watch.Options{Records: records}, w.sinceBoot)
	if s := next.update(); health(s) != "HUHH" {
		t.Errorf("the next program forgets that lpu1 was sick a moment ago: %s", health(s))
	}
}

// names are those of the files in a directory.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}
