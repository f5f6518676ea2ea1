package features

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/await"
)

// featureBed is a feature file with clocks that the test sets.
type featureBed struct {
	*File
	t    *testing.T
	file string
	wall time.Time
	boot time.Duration
	log  bytes.Buffer
}

// newFeatureBed makes one that writes DIR/features.d/lpuctl, of a machine with 8 LPUs.
func newFeatureBed(t *testing.T, dir string) *featureBed {
	t.Helper()
	b := &featureBed{
		t: t, file: filepath.Join(dir, "features.d/lpuctl"),
		wall: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), boot: time.Hour,
	}
	if err := os.MkdirAll(filepath.Dir(b.file), 0o755); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&b.log, nil))
	b.File = NewFile(host.Root(dir), log, func(err error) { t.Error("it ends: ", err) }, host.OutOfReach)
	b.now, b.sinceBoot = func() time.Time { return b.wall }, func() time.Duration { return b.boot }
	b.take(Plan{Path: "/features.d/lpuctl", Lifetime: time.Hour, Network: map[string]string{"topology.hyperaccel.ai/rack": "r1"}})
	b.lpus(8)
	return b
}

// lpus makes it a machine with as many LPUs.
func (b *featureBed) lpus(n int) {
	b.Look(&discovery.Inventory{LPUs: make([]discovery.LPU, n)})
	b.settle()
}

// pass lets time pass, by both clocks.
func (b *featureBed) pass(d time.Duration) {
	b.wall, b.boot = b.wall.Add(d), b.boot+d
	b.settle()
}

// settle does what the goroutine of the file does after the next look at the machine.
func (b *featureBed) settle() {
	b.Look(b.inventory)
	select {
	case <-b.wake:
		b.keep()
	default:
	}
}

// want checks the file in place: a part of its text, and when it expires.
func (b *featureBed) want(text string, expiry time.Time) os.FileInfo {
	b.t.Helper()
	data, err := os.ReadFile(b.file)
	if err != nil {
		b.t.Fatal(err)
	}
	at, body, err := Split(data)
	if err != nil || !strings.Contains(body, text) || !at.Equal(expiry) {
		b.t.Errorf("%v %v\n%s\nwant %s until %v", err, at, body, text, expiry)
	}
	info, err := os.Lstat(b.file)
	if err != nil || info.Mode() != 0o644 {
		b.t.Errorf("%v %v", info.Mode(), err)
	}
	return info
}

// TestFeatureFileInTime: the file is written when there is something to say and at half of its time, and never with an expiry in the past
// or too far away, whatever the clock does.
func TestFeatureFileInTime(t *testing.T) {
	b := newFeatureBed(t, t.TempDir())
	first := b.want("hyperaccel.ai/lpu.count=8\n", b.wall.Add(time.Hour))
	written := b.wall
	b.want("topology.hyperaccel.ai/rack=r1\n", written.Add(time.Hour))
	b.pass(29 * time.Minute)
	b.lpus(8) // another inventory that says the same
	if info := b.want("count=8\n", written.Add(time.Hour)); !os.SameFile(first, info) {
		t.Error("written before half of the time was over")
	}
	b.pass(time.Minute)
	b.want("count=8\n", b.wall.Add(time.Hour))
	b.pass(time.Second)
	b.lpus(7)
	b.want("count=7\n", b.wall.Add(time.Hour))

	b.wall = b.wall.Add(-48 * time.Hour)
	b.settle()
	b.want("count=7\n", b.wall.Add(time.Hour)) // else the labels would stay for two days after a removal
	b.wall = b.wall.Add(48 * time.Hour)
	b.settle()
	last := b.want("count=7\n", b.wall.Add(time.Hour))
	b.wall = b.wall.Add(-30 * time.Second) // as clocks are corrected all the time
	b.settle()
	if info, _ := os.Lstat(b.file); !os.SameFile(last, info) {
		t.Error("written because of half a minute")
	}
	b.pass(3 * time.Hour) // the machine slept
	b.want("count=7\n", b.wall.Add(time.Hour))
	if strings.Count(b.log.String(), "\n") != 2 { // one for each text
		t.Errorf("log:\n%s", &b.log)
	}
	if err := os.Remove(b.file); err != nil {
		t.Fatal(err)
	}
	b.keep() // as once in a minute
	b.want("count=7\n", b.wall.Add(time.Hour))
}

// TestFeatureFileOfTwo: instances that agree do not write what the other has written. Of two that disagree the later one wins, and the
// other one does not write before half of the time is over.
func TestFeatureFileOfTwo(t *testing.T) {
	dir := t.TempDir()
	a, b := newFeatureBed(t, dir), newFeatureBed(t, dir)
	first := a.want("count=8\n", a.wall.Add(time.Hour))
	a.pass(31 * time.Minute)
	b.pass(31 * time.Minute)
	second := a.want("count=8\n", a.wall.Add(time.Hour))
	if os.SameFile(first, second) || b.placed.expiry != a.placed.expiry {
		t.Error("not written again, or the other one does not know it")
	}
	b.pass(0)
	if info, _ := os.Lstat(a.file); !os.SameFile(second, info) {
		t.Error("the second one has written what was there")
	}
	b.lpus(7)
	third := b.want("count=7\n", b.wall.Add(time.Hour))
	for range 29 {
		a.pass(time.Minute)
		a.keep()
		b.pass(time.Minute)
		b.keep()
	}
	if info := b.want("count=7\n", b.wall.Add(31*time.Minute)); !os.SameFile(third, info) {
		t.Error("they took it from each other")
	}
	a.pass(time.Minute + time.Second)
	a.want("count=8\n", a.wall.Add(time.Hour))
}

// TestFeatureFileCannotBeWritten: it is said once, and the file is there soon after it can be.
func TestFeatureFileCannotBeWritten(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	type harm struct {
		harm, mend func(file string)
		want       string
	}
	cases := map[string]harm{
		"no directory": {
			func(file string) { must(os.RemoveAll(filepath.Dir(file))) },
			func(file string) { must(os.Mkdir(filepath.Dir(file), 0o755)) }, "no such file or directory",
		},
		"a file for the directory": {
			func(file string) {
				must(os.RemoveAll(filepath.Dir(file)))
				must(os.WriteFile(filepath.Dir(file), nil, 0o600))
			},
			func(file string) {
				must(os.Remove(filepath.Dir(file)))
				must(os.Mkdir(filepath.Dir(file), 0o755))
			}, "not a directory",
		},
		"a link": {
			func(file string) {
				must(os.Remove(file))
				must(os.Symlink("elsewhere", file))
			},
			func(file string) { must(os.Remove(file)) }, "a symbolic link, not a regular file",
		},
		"a link to the file": {
			func(file string) {
				must(os.Rename(file, filepath.Dir(file)+"/other"))
				must(os.Symlink("other", file))
			},
			func(file string) { must(os.Remove(file)) }, "a symbolic link, not a regular file",
		},
		"a link to another file": {
			func(file string) {
				must(os.Remove(file))
				must(os.WriteFile(filepath.Dir(file)+"/other", []byte("not ours"), 0o600))
				must(os.Symlink("other", file))
			},
			func(file string) {
				must(os.Remove(file))
				if other, err := os.ReadFile(filepath.Dir(file) + "/other"); string(other) != "not ours" {
					t.Error("written through a link", err)
				}
			}, "a symbolic link, not a regular file",
		},
		"a FIFO": {
			func(file string) {
				must(os.Remove(file))
				must(unix.Mkfifo(file, 0o600))
			},
			func(file string) { must(os.Remove(file)) }, "not a regular file",
		},
		"a full disk": {
			func(file string) { // as much as there is room for
				must(os.Remove(file))
				if err := os.WriteFile(filepath.Dir(file)+"/other", make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
					t.Fatal(err)
				}
			},
			func(file string) { must(os.Remove(filepath.Dir(file) + "/other")) }, "no space left on device",
		},
	}
	if os.Getuid() != 0 { // root may write to any directory
		cases["read-only"] = harm{
			func(file string) {
				must(os.Remove(file))
				must(os.Chmod(filepath.Dir(file), 0o555))
			},
			func(file string) { must(os.Chmod(filepath.Dir(file), 0o755)) }, "permission denied",
		}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if name == "a full disk" {
				if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
					t.Skip("needs root: only root can mount: ", err)
				}
				defer func() { must(unix.Unmount(dir, unix.MNT_DETACH)) }()
			}
			b := newFeatureBed(t, dir)
			c.harm(b.file)
			b.keep() // as once in a minute
			for range 60 {
				b.pass(time.Second)
			}
			if log := b.log.String(); strings.Count(log, "cannot be written") != 1 || !strings.Contains(log, c.want) {
				t.Errorf("log:\n%s", log)
			}
			c.mend(b.file)
			b.pass(retryAfter)
			b.want("count=8\n", b.wall.Add(time.Hour))
			if log := b.log.String(); strings.Count(log, "is in place") != 2 {
				t.Errorf("log:\n%s", log)
			}
		})
	}
}

// TestFeatureFileHangs: while the directory hangs nothing else waits: not the look at the machine, not a reload, not the metrics.
func TestFeatureFileHangs(t *testing.T) {
	b := newFeatureBed(t, t.TempDir())
	var hangs atomic.Bool
	hanging, released, done := make(chan bool), make(chan bool), make(chan bool)
	b.now = func() time.Time { // it is asked between the reads and the writes of the file
		if hangs.CompareAndSwap(true, false) {
			close(hanging)
			<-released
		}
		return b.wall
	}
	b.inventory, b.body = &discovery.Inventory{LPUs: make([]discovery.LPU, 7)}, "another text"
	b.boot += time.Minute
	hangs.Store(true)
	go func() {
		defer close(done)
		b.keep()
	}()
	<-hanging
	unblocked := make(chan bool)
	b.boot += time.Minute
	other := b.plan
	other.Path = "/elsewhere/lpuctl"
	go func() {
		defer close(unblocked)
		b.take(other)
		for n := range 5 {
			b.Look(&discovery.Inventory{LPUs: make([]discovery.LPU, n)})
			b.Metrics()
		}
	}()
	select {
	case <-unblocked:
	case <-time.After(await.Limit):
		t.Fatal("it waits for the directory")
	}
	if log := b.log.String(); strings.Count(log, "features.d/lpuctl: no answer for 10s") != 1 {
		t.Errorf("log:\n%s", log)
	}
	b.pulse.Beat(time.Now().Add(-time.Hour))
	if err := b.Alive(); err != nil {
		t.Errorf("serve would be started again for a directory that hangs: %v", err)
	}
	other.Path = "/features.d/lpuctl"
	b.take(other)
	close(released)
	<-done
	if err := b.Alive(); err != nil {
		t.Errorf("the directory answers again: %v", err)
	}
	b.pulse.Beat(time.Now().Add(-time.Hour))
	if err := b.Alive(); err == nil || err.Error() != "the loop that keeps the feature file has not turned for 1h0m0s" {
		t.Errorf("its goroutine has not turned for an hour: %v", err)
	}
	b.settle()
	b.want("count=4\n", b.wall.Add(time.Hour)) // the latest
}

// TestFeatureFileRefused: what was not written for this purpose, or is damaged, is replaced.
func TestFeatureFileRefused(t *testing.T) {
	for _, other := range []string{"", "a=1\n", "# +expiry-time=2020-01-01T00:00:00Z\n", strings.Repeat("x", MaxSize+1)} {
		b := newFeatureBed(t, t.TempDir())
		if err := os.WriteFile(b.file, []byte(other), 0o600); err != nil {
			t.Fatal(err)
		}
		b.keep()
		b.want("count=8\n", b.wall.Add(time.Hour))
	}
}

// TestFeatureFileLeavesNothingBehind: what a killed process has left is removed when the file is written the next time, and what another
// one is writing, or somebody has put there, is not.
func TestFeatureFileLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	b := newFeatureBed(t, dir)
	put := func(name string, age time.Duration) {
		t.Helper()
		name = filepath.Join(dir, "features.d", name)
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want ...string) {
		t.Helper()
		b.pass(30 * time.Minute)
		b.want("count=8\n", b.wall.Add(time.Hour))
		var left []string
		entries, err := os.ReadDir(filepath.Join(dir, "features.d"))
		for _, e := range entries {
			left = append(left, e.Name())
		}
		if err != nil || !slices.Equal(left, append(want, "lpuctl")) {
			t.Errorf("%v %v, want %v", left, err, want)
		}
	}
	for _, name := range []string{".lpuctl.swp", ".lpuctl-1", ".lpuctl123", ".lpuctl"} {
		put(name, time.Hour)
	}
	put(".lpuctl456", 0)
	expect(".lpuctl", ".lpuctl-1", ".lpuctl.swp", ".lpuctl456")
	put(".lpuctl456", 11*time.Minute)
	expect(".lpuctl", ".lpuctl-1", ".lpuctl.swp")
}

// TestFeatureDirectoryCutOff: one that is gone for this process and was there ends serve, and one that was never there does not: that would
// be so again.
func TestFeatureDirectoryCutOff(t *testing.T) {
	name := filepath.Join(t.TempDir(), "features.d")
	if err := os.Mkdir(name, 0o755); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	dir := fmt.Sprint("/proc/self/fd/", open.Fd()) // as a mount it stays when the directory is removed
	before, after := newFeatureBed(t, t.TempDir()), newFeatureBed(t, t.TempDir())
	if err := before.cutOff(dir); err != nil {
		t.Error(err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := before.cutOff(dir); err == nil || !strings.Contains(err.Error(), "has been removed") {
			t.Errorf("got %v", err)
		}
		if err := after.cutOff(dir); err != nil {
			t.Error(err)
		}
	}
}

// TestFeatureFilePlans: a plan takes effect at once; without a path there is no file and no metric, and as long as nothing is known of the
// machine neither.
func TestFeatureFilePlans(t *testing.T) {
	dir := t.TempDir()
	b := newFeatureBed(t, dir)
	show := func() string {
		var text strings.Builder
		for _, m := range b.Metrics() {
			fmt.Fprintf(&text, "%+v", m)
		}
		return text.String()
	}
	if !strings.Contains(show(), fmt.Sprintf(":%v", float64(b.wall.Unix()))) {
		t.Errorf("metrics: %s, want %d", show(), b.wall.Unix())
	}
	b.take(Plan{Path: "/features.d/lpuctl", Lifetime: 10 * time.Minute})
	b.settle()
	b.want("count=8\n", b.wall.Add(10*time.Minute))
	if data, _ := os.ReadFile(b.file); strings.Contains(string(data), "rack") {
		t.Errorf("%s", data)
	}
	b.take(Plan{})
	b.pass(time.Hour)
	if show() != "" {
		t.Errorf("metrics: %s", show())
	}
	if data, _ := os.ReadFile(b.file); !strings.Contains(string(data), "count=8") {
		t.Errorf("the file was removed or written: %s", data)
	}
	unread := NewFile(host.Root(dir), b.File.log, b.end, host.OutOfReach)
	unread.take(Plan{Path: "/features.d/other", Lifetime: time.Hour})
	unread.Look(nil)
	unread.keep()
	if _, err := os.Lstat(filepath.Join(dir, "features.d/other")); err == nil {
		t.Error("a file about a machine of which nothing is known")
	}
}
