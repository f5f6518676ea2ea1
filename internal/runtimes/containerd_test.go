package runtimes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// installContainerd makes a root on which a release of containerd is installed, and does not run, and a kubelet that uses it.
func installContainerd(t *testing.T, version string) (root string) {
	t.Helper()
	root = t.TempDir()
	writeFile(t, root, "usr/bin/containerd", "")
	writeFile(t, root, "var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n")
	if version != "" {
		writeFile(t, root, "var/lib/dpkg/status", "Package: containerd\nStatus: install ok installed\nVersion: "+version+"\n\n")
	}
	return root
}

func writeFile(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// containerdOn checks containerd on a machine.
func containerdOn(t *testing.T, root string, o Options) *Runtime {
	t.Helper()
	o.SpecDir = "/var/run/cdi"
	for _, r := range Check(t.Context(), root, o) {
		if r.Name == "containerd" {
			return &r
		}
	}
	t.Fatal("containerd is not found")
	return nil
}

// describe is what a check found, as text, without what every case of a daemon that is not there has.
func describe(root string, r *Runtime) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, after restart %s, by %s, specs from %v\n", r.CDI, r.AfterRestart, r.Source, r.SpecDirs)
	for _, f := range r.Findings {
		if f.ID == "socket-missing" {
			continue
		}
		fmt.Fprintf(&b, "%s\n", f)
		if f.Severity != "note" {
			fmt.Fprintf(&b, "  %s\n", f.Remedy)
		}
	}
	return strings.ReplaceAll(b.String(), root+"/", "")
}

// TestContainerdFiles holds the reading of config files against what was measured with the releases themselves. Each
// archive in testdata/containerd begins with a line that says so: releases, and what CDI is in each; the rest of its
// comment is for people. Its last file is what is found in the first release; LPUCTL_UPDATE=1 writes it.
func TestContainerdFiles(t *testing.T) {
	archives, err := filepath.Glob("testdata/containerd/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal("no archives", err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(string(archive.Comment), "\n")
			for i, claim := range strings.Fields(first) {
				version, want, _ := strings.Cut(claim, "=")
				root := installContainerd(t, version)
				for _, f := range archive.Files {
					writeFile(t, root, f.Name, string(f.Data))
				}
				r := containerdOn(t, root, Options{})
				if string(r.CDI) != want {
					t.Errorf("containerd %s: CDI is %s, want %s\n%s", version, r.CDI, want, describe(root, r))
				}
				if i == 0 {
					compareWant(t, path, archive, describe(root, r))
				}
			}
		})
	}
}

func compareWant(t *testing.T, path string, archive *txtar.Archive, got string) {
	t.Helper()
	last := len(archive.Files) - 1
	if os.Getenv("LPUCTL_UPDATE") != "" {
		if last < 0 || archive.Files[last].Name != "want" {
			archive.Files = append(archive.Files, txtar.File{Name: "want"})
			last++
		}
		archive.Files[last].Data = []byte(got)
		if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if last < 0 || archive.Files[last].Name != "want" {
		t.Fatal("the archive has no file want at its end: LPUCTL_UPDATE=1 writes it")
	}
	if diff := cmp.Diff(string(archive.Files[last].Data), got); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
}

// containerd starts with no directory that is both root and state, whoever names them.
func TestSameDirectory(t *testing.T) {
	const unit = "usr/lib/systemd/system/containerd.service"
	on := "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = true\n"
	for name, test := range map[string]struct {
		main, dropIn, exec string
		want               string // state, and where it is refused
	}{
		"the usual ones":                   {on, "", "", "on"},
		"both":                             {"root = \"/x\"\nstate = \"/x\"\n" + on, "", "", "off config.toml:1"},
		"the usual root":                   {"state = \"/var/lib/containerd\"\n" + on, "", "", "off config.toml:1"},
		"the usual state, below a comment": {"#\nroot = \"/run/containerd\"\n" + on, "", "", "off config.toml:2"},
		"a drop-in": {
			"imports = [\"/etc/containerd/x.toml\"]\nroot = \"/x\"\n" + on, "version = 2\nstate = \"/x\"\n", "", "off x.toml:2",
		},
		"the last one": {
			"imports = [\"/etc/containerd/x.toml\"]\nroot = \"/x\"\nstate = \"/x\"\n" + on, "version = 2\nstate = \"/y\"\n", "", "on",
		},
		"an empty one":      {"root = \"\"\nstate = \"\"\n" + on, "", "", "on"},
		"a flag":            {"root = \"/x\"\nstate = \"/x\"\n" + on, "", "--root /y", "on"},
		"a flag beside one": {"state = \"/x\"\n" + on, "", "--root=/x", "off config.toml:1"},
		"only flags":        {on, "", "--root=/x --state=/x", "off config.toml:0"},
	} {
		for _, version := range []string{"1.7.35", "2.2.9", "2.3.7"} {
			root := installContainerd(t, version)
			writeFile(t, root, containerdConfig, test.main)
			writeFile(t, root, "etc/containerd/x.toml", test.dropIn)
			writeFile(t, root, unit, "[Service]\nExecStart=/usr/bin/containerd "+test.exec+"\n")
			r := containerdOn(t, root, Options{})
			got := string(r.CDI)
			for _, f := range r.Findings {
				if f.ID == finding.ConfigRefused {
					got += fmt.Sprintf(" %s:%d", filepath.Base(f.File), f.Line)
				}
			}
			if got != test.want {
				t.Errorf("%s, containerd %s: got %s, want %s\n%s", name, version, got, test.want, describe(root, r))
			}
		}
	}
}
