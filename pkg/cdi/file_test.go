package cdi

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

func locate(t *testing.T, root string) File {
	t.Helper()
	f, err := Locate(root, "/var/run/cdi", DefaultKind)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func write(t *testing.T, f File, lpus int) error {
	t.Helper()
	return f.Write(context.Background(), mustSpec(t, node(lpus), Options{}))
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestWriteAndRemove(t *testing.T) {
	root := t.TempDir()
	// As on every Linux host: /var/run is an absolute link, which has to stay in the root.
	for _, err := range []error{
		os.Mkdir(filepath.Join(root, "var"), 0o755),
		os.Mkdir(filepath.Join(root, "run"), 0o755),
		os.Symlink("/run", filepath.Join(root, "var/run")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	f := locate(t, root)
	if want := filepath.Join(root, "run/cdi/hyperaccel.ai-lpu.json"); f.Path != want {
		t.Fatalf("located at %s, want %s", f.Path, want)
	}
	if removed, err := f.Remove(context.Background()); removed || err != nil {
		t.Errorf("removing nothing: %v, %v", removed, err)
	}
	if err := write(t, f, 2); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(f.Path)
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v: rootless runtimes could not read it", info.Mode(), err)
	}
	if spec, err := cdi.ReadSpec(f.Path, 0); err != nil || len(spec.Devices) != 5 {
		t.Errorf("%v, %v", spec, err)
	}
	if err := write(t, f, 2); err != nil {
		t.Fatal(err)
	}
	if again, err := os.Stat(f.Path); err != nil || os.SameFile(info, again) {
		t.Errorf("an equal spec was not renamed in anew: %v", err)
	}
	if diff := cmp.Diff([]string{".hyperaccel.ai-lpu.lock", "hyperaccel.ai-lpu.json"}, names(t, filepath.Dir(f.Path))); diff != "" {
		t.Error(diff)
	}
	if removed, err := f.Remove(context.Background()); !removed || err != nil {
		t.Errorf("%v, %v", removed, err)
	}
	if data, err := f.Read(); data != nil || err != nil {
		t.Errorf("after removal: %q, %v", data, err)
	}
}

func TestOddTargetsAreRefused(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	for name, make := range map[string]func(string) error{
		"link":      func(p string) error { return os.Symlink(victim, p) },
		"directory": func(p string) error { return os.Mkdir(p, 0o755) },
		"FIFO":      func(p string) error { return unix.Mkfifo(p, 0o644) },
	} {
		if err := os.WriteFile(victim, []byte("mine"), 0o644); err != nil {
			t.Fatal(err)
		}
		f := locate(t, t.TempDir())
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := make(f.Path); err != nil {
			t.Fatal(err)
		}
		_, removeErr := f.Remove(context.Background())
		_, readErr := f.Read()
		for what, err := range map[string]error{"write": write(t, f, 1), "remove": removeErr, "read": readErr} {
			if err == nil || !strings.Contains(err.Error(), f.Path) {
				t.Errorf("%s of a %s: %v", what, name, err)
			}
		}
		if data, err := os.ReadFile(victim); string(data) != "mine" {
			t.Errorf("the file behind a %s now holds %q, %v", name, data, err)
		}
	}
}

func TestASpecDirThatIsAFile(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "var"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := write(t, locate(t, root), 1); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("got %v", err)
	}
}

func TestAnotherFileWithOurNames(t *testing.T) {
	f := locate(t, t.TempDir())
	dir := filepath.Dir(f.Path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// None of these is in the way.
	put("nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: [{name: lpu0, containerEdits: {env: [A=B]}}]\n")
	put("broken.json", `{"kind": "hyperaccel.ai/lpu", `)
	put("other-names.yaml", "cdiVersion: 0.5.0\nkind: hyperaccel.ai/lpu\ndevices: [{name: virtual0, containerEdits: {env: [A=B]}}]\n")
	put("ignored.yml", string(seedSpec(t)))
	if err := unix.Mkfifo(filepath.Join(dir, "fifo.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := write(t, f, 2); err != nil {
		t.Fatal(err)
	}
	before, _ := f.Read()
	other := put("ha-cdi.json", string(seedSpec(t)))
	err := write(t, f, 3)
	conflict, ok := errors.AsType[*Conflict](err)
	if !ok || conflict.File != other || conflict.Device != "hyperaccel.ai/lpu=lpu0" {
		t.Errorf("got %v", err)
	}
	if after, _ := f.Read(); !bytes.Equal(after, before) {
		t.Error("the file changed though the write was refused")
	}
}

func TestLeftoversOfAKilledWriteGo(t *testing.T) {
	f := locate(t, filepath.Join(t.TempDir(), "a[b*"))
	if err := write(t, f, 1); err != nil {
		t.Fatal(err)
	}
	leftover := filepath.Join(filepath.Dir(f.Path), ".hyperaccel.ai-lpu.json1234")
	if err := os.WriteFile(leftover, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(t, f, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(leftover); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

func TestALockedDirectory(t *testing.T) {
	f := locate(t, t.TempDir())
	if err := write(t, f, 1); err != nil {
		t.Fatal(err)
	}
	unlock, err := f.lock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.Write(ctx, mustSpec(t, node(1), Options{})); err == nil || !strings.Contains(err.Error(), "holds the lock") {
		t.Errorf("got %v", err)
	}
}

func TestManyWritersLeaveOneValidFile(t *testing.T) {
	f := locate(t, t.TempDir())
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 5 {
				if err := f.Write(context.Background(), mustSpec(t, node(1+i%4), Options{})); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := cdi.ReadSpec(f.Path, 0); err != nil {
		t.Error(err)
	}
	if got := names(t, filepath.Dir(f.Path)); len(got) != 2 {
		t.Errorf("in the directory: %v", got)
	}
}

// TestLacksSurvives: whatever stands in our file, a name that it does not resolve is lacking, and serve goes on.
func TestLacksSurvives(t *testing.T) {
	for _, text := range []string{"", "null", "[]", "{", `{"kind": "hyperaccel.ai/lpu", "devices": [null]}`,
		`{"kind": "hyperaccel.ai/lpu", "devices": [{"name": "pci-0000-43-00.1", "containerEdits": {"deviceNodes": [null]}}]}`} {
		f := locate(t, t.TempDir())
		putFile(t, f.Path, []byte(text))
		if lacking, _ := f.Lacks(node(1)); !slices.Equal(lacking, []string{"pci-0000-43-00.1"}) {
			t.Errorf("%q: %v is lacking", text, lacking)
		}
	}
}
