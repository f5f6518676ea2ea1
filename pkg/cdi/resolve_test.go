package cdi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
)

var specDirs = []string{"/etc/cdi", "/var/run/cdi"}

func putFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestResolve(t *testing.T) {
	root := t.TempDir()
	if err := write(t, locate(t, root), 1); err != nil {
		t.Fatal(err)
	}
	old := strings.ReplaceAll(string(seedSpec(t)), `"lpu0"`, `"old"`)
	putFile(t, filepath.Join(root, "etc/cdi/seed.json"), seedSpec(t)) // shadowed
	putFile(t, filepath.Join(root, "etc/cdi/old.json"), []byte(old))  // served from there
	putFile(t, filepath.Join(root, "etc/cdi/gpu.yaml"), []byte("kind: nvidia.com/gpu\n"))
	devices, findings, err := (&Validator{Root: host.Root(root), Kind: DefaultKind}).Resolve(context.Background(), specDirs)
	if err != nil {
		t.Fatal(err)
	}
	ours := locate(t, root).Path
	want := []Resolved{
		{"hyperaccel.ai/lpu=old", filepath.Join(root, "etc/cdi/old.json"), []string{"/dev/lpu0"}, nil, nil},
		{"hyperaccel.ai/lpu=lpu0", ours, []string{"/dev/lpu0"}, nil, nil},
		{"hyperaccel.ai/lpu=pci-0000-43-00.1", ours, []string{"/dev/lpu0"}, nil, nil},
		{"hyperaccel.ai/lpu=all", ours, []string{"/dev/lpu0"}, nil, nil},
	}
	if diff := cmp.Diff(want, devices); diff != "" {
		t.Error(diff)
	}
	if len(findings) != 1 || findings[0].ID != "foreign-spec" || findings[0].Severity != "note" {
		t.Errorf("findings %v", findings)
	}
	// A second file with our names in one directory takes the device away from everybody.
	putFile(t, filepath.Join(root, "var/run/cdi/second.json"), seedSpec(t))
	devices, findings, err = (&Validator{Root: host.Root(root), Kind: DefaultKind}).Resolve(context.Background(), specDirs)
	if err != nil || len(devices) != 3 {
		t.Errorf("%v, %v", devices, err)
	}
	var refused int
	for _, f := range findings {
		if f.ID == "spec-refused" {
			refused++
		}
	}
	if refused != 2 {
		t.Errorf("findings %v", findings)
	}
}

func TestResolveDoesNotHang(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc/cdi"), 0o755); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(root, "etc/cdi/fifo.json")
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, _, err := (&Validator{Root: host.Root(root), Kind: DefaultKind}).Resolve(ctx, specDirs)
	if err == nil || !strings.Contains(err.Error(), "etc/cdi") {
		t.Errorf("got %v", err)
	}
	// Let the reader that was given up on end.
	if w, err := os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
		w.Close()
	}
}

// TestResolveSurvives: a file that makes the library crash is an error, and the process goes on.
func TestResolveSurvives(t *testing.T) {
	for _, list := range []string{"deviceNodes", "mounts", "hooks", "netDevices"} {
		root := t.TempDir()
		text := "cdiVersion: 1.1.0\nkind: example.com/gpu\ndevices:\n- {name: a, containerEdits: {" + list + ": [null]}}\n"
		putFile(t, filepath.Join(root, "etc/cdi/gpu.yaml"), []byte(text))
		_, _, err := (&Validator{Root: host.Root(root), Kind: DefaultKind}).Resolve(t.Context(), specDirs)
		if !errors.Is(err, ErrCrash) || !strings.Contains(err.Error(), "etc/cdi") {
			t.Errorf("%s: %v", list, err)
		}
	}
}

// TestResolveUnreadable: where a directory cannot be listed the library reads no further; that is an error, not no device.
func TestResolveUnreadable(t *testing.T) {
	root := t.TempDir()
	if err := write(t, locate(t, root), 1); err != nil {
		t.Fatal(err)
	}
	putFile(t, filepath.Join(root, "etc/cdi"), nil)
	devices, _, err := (&Validator{Root: host.Root(root), Kind: DefaultKind}).Resolve(t.Context(), specDirs)
	if err == nil || !strings.Contains(err.Error(), "etc/cdi: not a directory") {
		t.Errorf("got %v, %v", devices, err)
	}
}

// TestResolveShowsHostPaths: a container gets the node that is on the host, and the common ones.
func TestResolveShowsHostPaths(t *testing.T) {
	root := t.TempDir()
	putFile(t, filepath.Join(root, "etc/cdi/odd.yaml"), []byte("cdiVersion: 0.5.0\nkind: "+DefaultKind+"\n"+
		"containerEdits: {deviceNodes: [{path: /dev/b}, {path: /dev/a}]}\n"+
		"devices: [{name: x, containerEdits: {deviceNodes: [{path: /dev/a, hostPath: /dev/other}]}}]\n"))
	devices, findings, err := (&Validator{Root: host.Root(root), Kind: DefaultKind}).Resolve(t.Context(), specDirs)
	if err != nil || len(findings) > 0 || len(devices) != 1 {
		t.Fatalf("%v %v %v", devices, findings, err)
	}
	if diff := cmp.Diff([]string{"/dev/b", "/dev/other:/dev/a"}, devices[0].Nodes); diff != "" {
		t.Error(diff)
	}
}

// TestResolveSaysWhatOldLibrariesDoNotRead: a spec directory that is a link, and one of root's alone.
func TestResolveSaysWhatOldLibrariesDoNotRead(t *testing.T) {
	root := t.TempDir()
	if err := write(t, locate(t, root), 1); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "var/run/cdi")
	if err := errors.Join(os.Rename(dir, filepath.Join(root, "moved")), os.Symlink("/moved", dir)); err != nil {
		t.Fatal(err)
	}
	devices, findings, err := (&Validator{Root: host.Root(root), Kind: DefaultKind}).Resolve(t.Context(), specDirs)
	if err != nil || len(devices) != 3 || len(findings) != 1 || findings[0].ID != "spec-dir-link" {
		t.Errorf("%v %v %v", devices, findings, err)
	}
}

// FuzzReadSpec holds what is read of a spec directory against junk: whatever lies there, Resolve and the
// search for conflicts end without a panic.
func FuzzReadSpec(f *testing.F) {
	seed, err := os.ReadFile("../../testdata/seed-spec.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte("cdiVersion: 0.5.0\nkind: hyperaccel.ai/lpu\ndevices:\n- {name: lpu0, containerEdits: {}}\n"))
	f.Add([]byte(`{"kind": "hyperaccel.ai/lpu", "devices": [null]}`))
	f.Add([]byte("cdiVersion: 0.5.0\nkind: hyperaccel.ai/lpu\ndevices:\n- {name: lpu0, containerEdits: {mounts: [null]}}\n"))
	f.Add([]byte("kind: a/b\n---\nkind: hyperaccel.ai/lpu"))
	f.Fuzz(func(t *testing.T, data []byte) {
		root := t.TempDir()
		putFile(t, filepath.Join(root, "var/run/cdi/other.json"), data)
		_, _, err := (&Validator{Root: host.Root(root), Kind: DefaultKind}).Resolve(context.Background(), specDirs)
		if err != nil && !errors.Is(err, ErrCrash) {
			t.Fatal(err)
		}
		// It may define our names, but whether it does is all that may be said.
		_, err = locate(t, root).Writable(mustSpec(t, node(1), Options{}))
		if _, isConflict := errors.AsType[*Conflict](err); err != nil && !isConflict {
			t.Error(err)
		}
	})
}
