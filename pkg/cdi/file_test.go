package cdi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hyperaccel/lpuctl/internal/host"
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
	return held(f, func(h *Held) error { return h.Write(mustSpec(t, node(lpus), Options{})) })
}

// held does something under the lock of a file.
func held(f File, do func(*Held) error) error {
	h, err := f.Hold(context.Background())
	if err != nil {
		return err
	}
	defer h.Release()
	return do(h)
}

func remove(f File) (removed bool, err error) {
	err = held(f, func(h *Held) (err error) {
		removed, err = h.Remove()
		return err
	})
	return removed, err
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
	if removed, err := remove(f); removed || err != nil {
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
	if removed, err := remove(f); !removed || err != nil {
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
		_, removeErr := remove(f)
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
	// One file is: what it defines too stays if our file has it, and is not added if it has not. The rest is written.
	other := put("ha-cdi.json", string(seedSpec(t)))
	for _, has := range []bool{true, false} {
		err := write(t, f, 3)
		conflict, ok := errors.AsType[*Conflict](err)
		if !ok || conflict.File != other || !slices.Equal(conflict.Devices, []string{"lpu0"}) {
			t.Errorf("got %v", err)
		}
		data, _ := f.Read()
		devices := Devices(data)
		if slices.ContainsFunc(devices, sameName("lpu0")) != has || !slices.ContainsFunc(devices, sameName("lpu2")) {
			t.Errorf("had lpu0: %v, and now %s", has, data)
		}
		if _, err := remove(f); err != nil {
			t.Fatal(err)
		}
	}
	// Nothing is left of a spec of this one device.
	spec := mustSpec(t, node(1), Options{Devices: []string{"lpu0"}})
	if err := held(f, func(h *Held) error { return h.Write(spec) }); err == nil {
		t.Error("no conflict")
	}
	if data, err := f.Read(); data != nil || err != nil {
		t.Errorf("there is %s, %v", data, err)
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
	h, err := f.Hold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := f.Hold(ctx); err == nil || !strings.Contains(err.Error(), "holds the lock") {
		t.Errorf("got %v", err)
	}
}

func TestManyWritersLeaveOneValidFile(t *testing.T) {
	f := locate(t, t.TempDir())
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 5 {
				if err := write(t, f, 1+i%4); err != nil {
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

// TestDriftSurvives: whatever stands in our file, a device that it does not define is missing, and serve goes on.
func TestDriftSurvives(t *testing.T) {
	for _, text := range []string{"", "null", "[]", "{", `{"kind": "hyperaccel.ai/lpu", "devices": [null]}`,
		`{"kind": "hyperaccel.ai/lpu", "devices": [{"name": "pci-0000-43-00.1", "containerEdits": {"deviceNodes": [null]}}]}`} {
		f := locate(t, t.TempDir())
		putFile(t, f.Path, []byte(text))
		inv := node(1)
		d, _ := f.Drift(inv, mustSpec(t, inv, Options{}))
		if !slices.Contains(slices.Concat(d.Missing, d.Wrong), "pci-0000-43-00.1") {
			t.Errorf("%q: %v", text, &d)
		}
	}
}

// TestTheLockIsItsOwnersAlone: who can open a lock file can hold its lock for ever.
func TestTheLockIsItsOwnersAlone(t *testing.T) {
	f := locate(t, t.TempDir())
	lock := filepath.Join(filepath.Dir(f.Path), ".hyperaccel.ai-lpu.lock")
	putFile(t, lock, nil) // as release 0.1 made it
	if err := os.Chmod(lock, 0o644); err != nil {
		t.Fatal(err)
	}
	stranger, err := os.Open(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if err := unix.Flock(int(stranger.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := write(t, f, 1); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(lock); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the lock file is %v, %v", info.Mode(), err)
	}
}

func TestAResultIsTakenOnlyFromALaterScan(t *testing.T) {
	f := locate(t, t.TempDir())
	at := func(ms int) host.Moment {
		return host.Moment{Boot: "b", SinceBoot: time.Duration(ms) * time.Millisecond}
	}
	taken := func(after host.Moment, request string) (got string) {
		t.Helper()
		if err := held(f, func(h *Held) error { h.Recall(after, request, &got); return nil }); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := taken(at(0), "r"); got != "" {
		t.Errorf("of nothing: %q", got)
	}
	if err := held(f, func(h *Held) error {
		if err := h.Write(mustSpec(t, node(2), Options{})); err != nil {
			return err
		}
		return errors.Join(h.Remember(at(7), "r", "a much longer outcome"), h.Remember(at(5), "r", "done"))
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what    string
		after   host.Moment
		request string
		want    string
	}{
		{"the scan began later", at(4), "r", "done"},
		{"at the same time", at(5), "r", ""},
		{"earlier", at(6), "r", ""},
		{"another request", at(4), "s", ""},
		{"another boot", host.Moment{Boot: "c"}, "r", ""},
		{"boot not known", host.Moment{}, "r", ""},
	} {
		if got := taken(c.after, c.request); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	putFile(t, f.Path, []byte("edited meanwhile"))
	if got := taken(at(4), "r"); got != "" {
		t.Errorf("of a file that was edited: %q", got)
	}
}

func TestDrift(t *testing.T) {
	inv := node(3)
	strange := func(change func(s *specs.Spec)) Drift {
		t.Helper()
		have := mustSpec(t, inv, Options{})
		change(have)
		return newComparison(inv, mustSpec(t, inv, Options{}), func(path string) bool { return path != "/dev/gone" }).drift(have)
	}
	device := func(s *specs.Spec, name string) *specs.Device {
		return &s.Devices[slices.IndexFunc(s.Devices, func(d specs.Device) bool { return d.Name == name })]
	}
	nodes := func(s *specs.Spec, name string) []*specs.DeviceNode {
		return device(s, name).ContainerEdits.DeviceNodes
	}
	stranger := func(name, path string) specs.Device {
		return specs.Device{Name: name, ContainerEdits: specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{{Path: path}}}}
	}
	own, other := inv.LPUs[0].Nodes[0], inv.LPUs[1].Nodes[0]
	all := strings.Split("lpu0 lpu1 lpu2 pci-0000-43-00.1 pci-0000-44-00.1 pci-0000-45-00.1 all", " ")
	for _, c := range []struct {
		what   string
		change func(*specs.Spec)
		want   Drift
	}{
		{"nothing", func(*specs.Spec) {}, Drift{}},
		{"another card's node", func(s *specs.Spec) { nodes(s, "lpu0")[0].Path = other.Path }, Drift{Wrong: []string{"lpu0"}}},
		{"another card's node on the host", func(s *specs.Spec) { nodes(s, "lpu0")[0].HostPath = other.Path }, Drift{Wrong: []string{"lpu0"}}},
		{"its own node on the host", func(s *specs.Spec) { nodes(s, "lpu0")[0].HostPath = own.Path }, Drift{}},
		{"another card's numbers", func(s *specs.Spec) {
			nodes(s, "lpu0")[0].Major, nodes(s, "lpu0")[0].Minor = int64(other.Major), int64(other.Minor)
		}, Drift{Wrong: []string{"lpu0"}}},
		{"its own numbers", func(s *specs.Spec) {
			nodes(s, "lpu0")[0].Major, nodes(s, "lpu0")[0].Minor = int64(own.Major), int64(own.Minor)
		}, Drift{}},
		{"a node for everybody", func(s *specs.Spec) {
			s.ContainerEdits.DeviceNodes = []*specs.DeviceNode{{Path: "/dev/kmsg"}}
		}, Drift{Wrong: all}},
		{"a variable for everybody", func(s *specs.Spec) { s.ContainerEdits.Env = append(s.ContainerEdits.Env, "A=B") }, Drift{Other: all}},
		{"half of all", func(s *specs.Spec) {
			e := &device(s, "all").ContainerEdits
			e.DeviceNodes = e.DeviceNodes[:1]
		}, Drift{Missing: []string{"all"}}},
		{"another mount", func(s *specs.Spec) {
			device(s, "lpu2").ContainerEdits.Mounts = []*specs.Mount{{HostPath: "/a", ContainerPath: "/b"}}
		}, Drift{Other: []string{"lpu2"}}},
		{"a ring table of another cabling", func(s *specs.Spec) {
			device(s, "lpu2").ContainerEdits.Mounts = []*specs.Mount{{HostPath: RingTableDir + "/old.json", ContainerPath: "/b"}}
		}, Drift{Tables: []string{"lpu2"}}},
		{"a set that is none any more, with a ring table", func(s *specs.Spec) {
			set := stranger("lpu0-2", own.Path)
			set.ContainerEdits.Mounts = []*specs.Mount{{HostPath: RingTableDir + "/old.json", ContainerPath: "/b"}}
			s.Devices = append(s.Devices, set)
		}, Drift{Tables: []string{"lpu0-2"}}},
		{"a hook", func(s *specs.Spec) {
			device(s, "lpu2").ContainerEdits.Hooks = []*specs.Hook{{HookName: "prestart", Path: "/bin/true"}}
		}, Drift{Other: []string{"lpu2"}}},
		{"one is missing", func(s *specs.Spec) { s.Devices = s.Devices[1:] }, Drift{Missing: []string{"lpu0"}}},
		{"an LPU that is gone", func(s *specs.Spec) {
			s.Devices = append(s.Devices, stranger("lpu7", own.Path))
		}, Drift{Wrong: []string{"lpu7"}}},
		{"a PCI address that is gone", func(s *specs.Spec) {
			s.Devices = append(s.Devices, stranger("pci-0000-99-00.1", own.Path))
		}, Drift{Wrong: []string{"pci-0000-99-00.1"}}},
		{"an LPU that is gone with its node", func(s *specs.Spec) {
			s.Devices = append(s.Devices, stranger("lpu7", "/dev/gone"))
		}, Drift{Dangling: []string{"lpu7"}}},
		{"a node that is gone", func(s *specs.Spec) { nodes(s, "lpu0")[0].Path = "/dev/gone" }, Drift{Dangling: []string{"lpu0"}}},
		{"a set that is none any more", func(s *specs.Spec) {
			s.Devices = append(s.Devices, stranger("lpu0-2", own.Path))
		}, Drift{Other: []string{"lpu0-2"}}},
		{"a set with another's node", func(s *specs.Spec) {
			s.Devices = append(s.Devices, stranger("lpu0-2", other.Path))
		}, Drift{Wrong: []string{"lpu0-2"}}},
		{"a name of another release", func(s *specs.Spec) {
			s.Devices = append(s.Devices, stranger("uuid-1", other.Path))
		}, Drift{Other: []string{"uuid-1"}}},
		{"a name of another release for what is no LPU", func(s *specs.Spec) {
			s.Devices = append(s.Devices, stranger("uuid-1", "/dev/kmsg"))
		}, Drift{Wrong: []string{"uuid-1"}}},
	} {
		if diff := cmp.Diff(c.want, strange(c.change)); diff != "" {
			t.Errorf("%s: %s", c.what, diff)
		}
	}
}
