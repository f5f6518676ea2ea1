package runtimes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestNothingInstalled(t *testing.T) {
	if all := Check(t.Context(), t.TempDir(), Options{}); all == nil || len(all) != 0 {
		t.Errorf("found %v", all)
	}
}

// A file that hangs costs the answer of its runtime only. Opening a FIFO that nobody writes to hangs.
func TestHang(t *testing.T) {
	root := installContainerd(t, "2.4.2")
	writeFile(t, root, "usr/bin/x", "")
	if err := unix.Mkfifo(filepath.Join(root, "usr/bin/podman"), 0o644); err != nil {
		t.Fatal(err)
	}
	all := Check(t.Context(), root, Options{Timeout: 200 * time.Millisecond})
	if len(all) != 2 || all[0].CDI != On {
		t.Fatalf("found %+v", all)
	}
	if podman := all[1]; podman.Name != "podman" || podman.CDI != Unknown || !slices.Equal(findings(&podman), []string{"files-stalled"}) {
		t.Errorf("found %+v", all)
	}
}

// What is no regular file is not waited for, and what is too large is not read.
func TestUnreadableConfig(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a FIFO":      func(path string) error { return unix.Mkfifo(path, 0o644) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"a loop":      func(path string) error { return os.Symlink(filepath.Base(path), path) },
		"too large":   func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("#", configMax+1)), 0o644) },
	} {
		for _, file := range []string{containerdConfig, "/etc/containerd/conf.d/a.toml"} {
			root := installContainerd(t, "2.2.9")
			writeFile(t, root, "etc/containerd/conf.d/README", "")
			if file != containerdConfig {
				writeFile(t, root, containerdConfig, "version = 3\nimports = [\"conf.d/*.toml\"]\n")
			}
			if err := make(filepath.Join(root, file)); err != nil {
				t.Fatal(err)
			}
			r := containerdOn(t, root, Options{})
			if r.CDI != Unknown || !slices.Equal(findings(r), []string{"config-unreadable"}) || r.Findings[1].File != filepath.Join(root, file) {
				t.Errorf("%s is %s: %s", file, name, describe(root, r))
			}
		}
	}
}

func TestManyImports(t *testing.T) {
	root := installContainerd(t, "2.2.9")
	writeFile(t, root, containerdConfig, "version = 3\nimports = [\"conf.d/*.toml\"]\n")
	for i := range 100 {
		text := fmt.Sprintf("version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_cdi = %t\n", i == 99)
		writeFile(t, root, fmt.Sprintf("etc/containerd/conf.d/%03d.toml", i), text)
	}
	if r := containerdOn(t, root, Options{}); r.CDI != On || r.Findings[0].File != root+"/etc/containerd/conf.d/099.toml" {
		t.Errorf("got %s", describe(root, r))
	}
	for i := 100; i < importsMax+1; i++ {
		writeFile(t, root, fmt.Sprintf("etc/containerd/conf.d/%04d.toml", i), "")
	}
	if r := containerdOn(t, root, Options{}); !slices.Equal(findings(r), []string{"config-refused"}) {
		t.Errorf("got %s", describe(root, r))
	}
}

// Links and absolute imports stay within the root, whatever characters it has.
func TestWithinRoot(t *testing.T) {
	root := filepath.Join(installContainerd(t, ""), `a[b*?\`)
	writeFile(t, root, "usr/bin/containerd", "")
	writeFile(t, root, "var/lib/dpkg/status", "Package: containerd.io\nStatus: install ok installed\nVersion: 2.2.9-1\n")
	writeFile(t, root, "srv/containerd/config.toml", "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n")
	writeFile(t, root, "srv/containerd/conf.d/a.toml", "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_cdi = false\n")
	_ = os.Mkdir(filepath.Join(root, "etc"), 0o755)
	if err := os.Symlink("/srv/containerd", filepath.Join(root, "etc/containerd")); err != nil {
		t.Fatal(err)
	}
	r := containerdOn(t, root, Options{})
	if r.CDI != Off || r.Findings[0].File != filepath.Join(root, "/etc/containerd/conf.d/a.toml") {
		t.Errorf("got %s", describe(root, r))
	}
}

// Before 1.7.17 a pattern was relative to where containerd was started.
func TestPatternBefore1_7_17(t *testing.T) {
	for version, want := range map[string]State{"1.7.16": Off, "1.7.17": On} {
		root := installContainerd(t, version)
		writeFile(t, root, containerdConfig, "version = 2\nimports = [\"conf.d/*.toml\"]\n")
		writeFile(t, root, "etc/containerd/conf.d/a.toml", "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = true\n")
		if r := containerdOn(t, root, Options{}); r.CDI != want {
			t.Errorf("%s: %s", version, describe(root, r))
		}
	}
}

func TestMaxCDI(t *testing.T) {
	for target, want := range map[string]string{
		"containerd=1.6.20": "", "containerd=1.7.5": "0.5.0", "containerd=v1.7.35": "0.8.0", "containerd=1.7.35-k3s1": "0.8.0",
		"containerd=2.4.2": "1.1.0", "podman=4.3.1": "0.5.0",
		"docker=28.2": "1.0.0", "cri-o=1.28.4": "0.6.0", "podman=4.0": "",
		"containerd=2.0.4": "0.8.0", "containerd=2.0.5": "1.0.0", "containerd=2.2.0": "1.0.0",
		"docker=24.0.9": "", "docker=25.0.16": "0.6.0", "docker=25.0.17": "0.8.0", "docker=26.0.2": "0.6.0", "docker=26.1.5": "0.7.0",
		"docker=27.3.1": "0.7.0", "docker=27.5.1": "0.8.0", "docker=28.0.4": "0.8.0", "docker=29.1.0": "1.0.0", "docker=29.2.0": "1.1.0",
		"cri-o=1.23.5": "", "cri-o=1.24.6": "0.3.0", "cri-o=1.27.0": "0.5.0", "cri-o=1.31.0": "0.8.0", "cri-o=1.34.0": "1.0.0",
		"podman=4.1.1": "0.4.0", "podman=4.9.4": "0.6.0", "podman=5.1.2": "0.7.0", "podman=5.4.2": "0.8.0", "podman=5.5.0": "1.0.0",
	} {
		consumer, version, _ := strings.Cut(target, "=")
		if got, err := MaxCDI(consumer, version); got != want || err != nil {
			t.Errorf("%s: %q %v, want %q", target, got, err, want)
		}
	}
	for _, bad := range []string{"", "podman", "podman=", "podman=new", "lxc=1.0", "=1", "containerd=1.-7"} {
		consumer, version, _ := strings.Cut(bad, "=")
		if _, err := MaxCDI(consumer, version); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// What the Go linker writes into a program tells the versions of its modules, and the one its makers give it.
func TestReadBuild(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lpuctl")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", file, "-ldflags=-s -X 'example.com/version.Version=v1.2.3'",
		"github.com/hyperaccel/lpuctl/cmd/lpuctl")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if r, maxCDI := readBuild(file, []string{"github.com/pelletier/go-toml/v2"}); r.Before("2.0") || maxCDI != "1.1.0" {
		t.Errorf("the version of a module is %q, and it loads cdiVersion %q", r.Text, maxCDI)
	}
	if r, _ := readBuild(file, []string{"github.com/hyperaccel/lpuctl"}); r.Text != "1.2.3" {
		t.Errorf("the version that is linked in is %q", r.Text)
	}
	if r, maxCDI := readBuild("/proc/version", nil); r.Known() || maxCDI != "" {
		t.Errorf("what is no program has version %q", r.Text)
	}
}

// Two containerds of different versions leave it unknown which one a service runs.
func TestTwoVersions(t *testing.T) {
	root := installContainerd(t, "1.7.35")
	writeFile(t, root, "usr/local/bin/containerd", "")
	r := containerdOn(t, root, Options{})
	if r.CDI != Unknown || r.Version != "" || !strings.Contains(describe(root, r), "usr/bin/containerd is 1.7.35, ") {
		t.Errorf("got %s", describe(root, r))
	}
}

func BenchmarkCheckFiles(b *testing.B) {
	root := b.TempDir()
	for name, text := range map[string]string{
		"usr/bin/containerd": "", "var/lib/dpkg/status": "Package: containerd\nStatus: install ok installed\nVersion: 1.7.35\n",
		"etc/containerd/config.toml":   "version = 2\nimports = [\"conf.d/*.toml\"]\n",
		"etc/containerd/conf.d/a.toml": "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = true\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if all := Check(b.Context(), root, Options{}); len(all) != 1 || all[0].CDI != On {
			b.Fatal(all)
		}
	}
}
