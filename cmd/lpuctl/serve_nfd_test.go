package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/features"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
	"github.com/hyperaccel/lpuctl/pkg/simulate"
)

// featureBed is a feature file with clocks that the test sets.
type featureBed struct {
	*featureFile
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
	b.featureFile = newFeatureFile(host.Root(dir), slog.New(slog.NewTextHandler(&b.log, nil)), func(err error) { t.Error("it ends: ", err) })
	b.now, b.sinceBoot = func() time.Time { return b.wall }, func() time.Duration { return b.boot }
	b.take(featurePlan{path: "/features.d/lpuctl", lifetime: time.Hour, network: map[string]string{"topology.hyperaccel.ai/rack": "r1"}})
	b.lpus(8)
	return b
}

// lpus makes it a machine with as many LPUs.
func (b *featureBed) lpus(n int) {
	b.look(&discovery.Inventory{LPUs: make([]discovery.LPU, n)})
	b.settle()
}

// pass lets time pass, by both clocks.
func (b *featureBed) pass(d time.Duration) {
	b.wall, b.boot = b.wall.Add(d), b.boot+d
	b.settle()
}

// settle does what the goroutine of the file does after the next look at the machine.
func (b *featureBed) settle() {
	b.look(b.inventory)
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
	at, body, err := features.Split(data)
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
			b.pass(featureRetry)
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
	other.path = "/elsewhere/lpuctl"
	go func() {
		defer close(unblocked)
		b.take(other)
		for n := range 5 {
			b.look(&discovery.Inventory{LPUs: make([]discovery.LPU, n)})
			b.metrics()
		}
	}()
	select {
	case <-unblocked:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for the directory")
	}
	if log := b.log.String(); strings.Count(log, "features.d/lpuctl: no answer for 10s") != 1 {
		t.Errorf("log:\n%s", log)
	}
	b.pulse.Beat(time.Now().Add(-time.Hour))
	if err := b.Alive(); err != nil {
		t.Errorf("serve would be started again for a directory that hangs: %v", err)
	}
	other.path = "/features.d/lpuctl"
	b.take(other)
	close(released)
	<-done
	if err := b.Alive(); err != nil {
		t.Errorf("the directory answers again: %v", err)
	}
	b.pulse.Beat(time.Now().Add(-time.Hour))
	serve := observedServe{&plugin.Server{Plugin: plugin.New(plugin.Options{}, b.featureFile.log)}, &serveDaemon{features: b.featureFile}}
	if err := serve.Alive(); err == nil || err.Error() != "the loop that keeps the feature file has not turned for 1h0m0s" {
		t.Errorf("its goroutine has not turned for an hour: %v", err)
	}
	b.settle()
	b.want("count=4\n", b.wall.Add(time.Hour)) // the latest
}

// TestFeatureFileRefused: what was not written for this purpose, or is damaged, is replaced.
func TestFeatureFileRefused(t *testing.T) {
	for _, other := range []string{"", "a=1\n", "# +expiry-time=2020-01-01T00:00:00Z\n", strings.Repeat("x", features.MaxSize+1)} {
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
		for _, m := range b.metrics() {
			fmt.Fprintf(&text, "%+v", m)
		}
		return text.String()
	}
	if !strings.Contains(show(), fmt.Sprintf(":%v", float64(b.wall.Unix()))) {
		t.Errorf("metrics: %s, want %d", show(), b.wall.Unix())
	}
	b.take(featurePlan{path: "/features.d/lpuctl", lifetime: 10 * time.Minute})
	b.settle()
	b.want("count=8\n", b.wall.Add(10*time.Minute))
	if data, _ := os.ReadFile(b.file); strings.Contains(string(data), "rack") {
		t.Errorf("%s", data)
	}
	b.take(featurePlan{})
	b.pass(time.Hour)
	if show() != "" {
		t.Errorf("metrics: %s", show())
	}
	if data, _ := os.ReadFile(b.file); !strings.Contains(string(data), "count=8") {
		t.Errorf("the file was removed or written: %s", data)
	}
	unread := newFeatureFile(host.Root(dir), b.featureFile.log, b.end)
	unread.take(featurePlan{path: "/features.d/other", lifetime: time.Hour})
	unread.look(nil)
	unread.keep()
	if _, err := os.Lstat(filepath.Join(dir, "features.d/other")); err == nil {
		t.Error("a file about a machine of which nothing is known")
	}
}

// TestNetworkOfTheNode: the labels of the entry that matches the name, which is --node-name or else the host name; none, and an error
// with both places, if two match.
func TestNetworkOfTheNode(t *testing.T) {
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	text := "topology:\n- nodes: [a*]\n  labels: {rack: r1}\n- nodes: [\"*z\"]\n  labels: {rack: r2}\n" +
		"- nodes: [\"" + strings.ToLower(hostname) + "\"]\n  labels: {rack: r3}\n"
	config, findings := cli.ParseConfig("config.yaml", []byte(text))
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	a := &app{cli.App{Config: config}}
	for name, want := range map[string]string{"a": "r1", "bz": "r2", "": "r3", "other": ""} {
		a.NodeName = name
		labels, entry, err := a.network()
		if labels["topology.hyperaccel.ai/rack"] != want || err != nil || (entry == "") != (want == "") {
			t.Errorf("%s: %v %s %v", name, labels, entry, err)
		}
	}
	a.NodeName = "az"
	if _, _, err := a.network(); err == nil || err.Error() !=
		"topology: two entries match node az (by --node-name): those of config.yaml:2 and config.yaml:4" {
		t.Errorf("%v", err)
	}
}

// TestServeKeepsTheFeatureFile runs serve on a simulated node: the file is there, follows a lost card within five seconds, follows the
// config file, stays as it is when that has two entries for the node, and stays behind.
func TestServeKeepsTheFeatureFile(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	m, err := simulate.Node{Profile: "orion"}.Start(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"kubelet", "features.d", "etc/lpuctl"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	configure := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, cli.DefaultConfigFile), []byte("topology:\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("- {nodes: [\"node-a*\"], labels: {switch: leaf-1}}\n")
	listen := freeAddress(t)
	serve := exec.Command("lpuctl", "--root", root, "serve", "--plugin-dir", "/kubelet", "--listen", listen, "--nfd", "/features.d/lpuctl")
	serve.Env = append(os.Environ(), "LPUCTL_NODE_NAME=node-a7")
	logFile := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(logFile)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	serve.Stderr = log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = serve.Process.Kill() })
	file := filepath.Join(root, "features.d/lpuctl")
	wait := func(limit time.Duration, what, name, text string) time.Duration {
		t.Helper()
		for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			data, _ := os.ReadFile(name)
			if strings.Contains(string(data), text) {
				return time.Since(start)
			}
			if time.Since(start) > limit {
				said, _ := os.ReadFile(logFile)
				t.Fatalf("%s: no %q after %v:\n%s\n%s", what, text, limit, data, said)
			}
		}
	}
	wait(30*time.Second, "at the start", file, "topology.hyperaccel.ai/switch=leaf-1\n")
	wait(0, "at the start", file, "\nhyperaccel.ai/lpu.count=8\n")
	wait(0, "at the start", file, "\nhyperaccel.ai/lpu.ring.sizes=8\n")
	wait(5*time.Second, "the log", logFile, "the feature file is in place") // it is synced before it is written down
	if metrics := get(t, "http://"+listen+"/metrics"); !strings.Contains(metrics, "\nlpuctl_nfd_file_written_timestamp_seconds 1") {
		t.Error(metrics)
	}
	if err := m.Unplug(3); err != nil {
		t.Fatal(err)
	}
	t.Log("a lost card is in the file after", wait(5*time.Second, "a lost card", file, "\nhyperaccel.ai/lpu.count=7\n"))
	wait(0, "a lost card", file, "\nhyperaccel.ai/lpu.ring.sizes=7\n")

	configure("- {nodes: [\"node-a*\"], labels: {switch: leaf-2}}\n- {nodes: [\"*7\"], labels: {switch: leaf-3}}\n")
	if err := serve.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	wait(30*time.Second, "two entries", logFile, "two entries match node node-a7 (by --node-name)")
	wait(0, "two entries", file, "switch=leaf-1\n")
	configure("- {nodes: [\"node-a*\"], labels: {switch: leaf-2}}\n")
	if err := serve.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	wait(30*time.Second, "another switch", file, "switch=leaf-2\n")
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := serve.Wait(); err != nil {
		t.Error(err)
	}
	wait(0, "after the end", file, "\nhyperaccel.ai/lpu.count=7\n")
	if left, _ := filepath.Glob(filepath.Join(root, "features.d/.*")); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

// freeAddress is an address at which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return address
}

func get(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	return bodyOf(t, answer)
}

func bodyOf(t *testing.T, answer *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
