package proof

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"
)

// tree is a container as far as a promise goes: two device files, which are links to those
// of this machine, a mount with a library, a ring table.
func tree(t *testing.T) (in *Inside, p *Promise) {
	t.Helper()
	root := t.TempDir()
	const lib, table = "/usr/lib/vendor", "/opt/table.json"
	for file, text := range map[string]string{
		lib + "/version": "1", table: "{}",
		"/proc/self/mountinfo": "22 1 0:5 / / rw - overlay overlay rw\n" +
			"30 22 0:5 /x " + lib + " ro,nosuid - ext4 /dev/sda rw\n",
	} {
		if err := os.MkdirAll(filepath.Dir(root+file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(root+"/dev", 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"lpu0": "null", "lpu1": "zero"} {
		if err := os.Symlink("/dev/"+to, root+"/dev/"+link); err != nil {
			t.Fatal(err)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(root+lib, &st); err != nil {
		t.Fatal(err)
	}
	return &Inside{root, []string{"PATH=/bin", "LPU_VISIBLE_DEVICES=0,1", "EMPTY="}}, &Promise{
		LPUs:   []string{"lpu0", "lpu1"},
		Nodes:  []Node{{"lpu0", "/dev/lpu0", 1, 3}, {"lpu1", "/dev/lpu1", 1, 5}},
		Others: []Node{{"lpu2", "/dev/lpu2", 1, 7}},
		Env:    []Variable{{"LPU_VISIBLE_DEVICES", "0,1"}, {"EMPTY", ""}},
		Mounts: []Mount{{lib, "/opt/vendor/lib", st.Dev, st.Ino}},
		Table:  &Table{table, []byte("{}")},
	}
}

func TestInside(t *testing.T) {
	in, p := tree(t)
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	// What comes after the promise may never end.
	if err := in.Serve(io.MultiReader(bytes.NewReader(data), iotest.ErrReader(errors.New("read on"))), &out); err != nil {
		t.Fatal(err)
	}
	var a Answer
	err = json.Unmarshal(out.Bytes(), &a)
	if err != nil || !slices.Equal(a.Opened, []string{"/dev/lpu0", "/dev/lpu1"}) || len(a.Differences) > 0 {
		t.Errorf("%v: %s", err, out.String())
	}
	if err := in.Serve(strings.NewReader("[]"), &out); err == nil || !strings.Contains(err.Error(), "no promise") {
		t.Errorf("of what is no promise: %v", err)
	}
}

// TestDifferences: each thing that a container has other than promised is said once, and
// nothing else.
func TestDifferences(t *testing.T) {
	for want, change := range map[string]func(*Inside, *Promise){
		"/dev/lpu0: no such file or directory": func(in *Inside, _ *Promise) { remove(t, in, "/dev/lpu0") },
		"/dev/lpu0 is 1:5, and on the host 1:3: that is /dev/lpu1 of lpu1": func(in *Inside, _ *Promise) {
			remove(t, in, "/dev/lpu0")
			link(t, in, "/dev/zero", "/dev/lpu0")
		},
		"/dev/lpu0 is no character device": func(in *Inside, _ *Promise) {
			remove(t, in, "/dev/lpu0")
			link(t, in, "/etc/passwd", "/dev/lpu0")
		},
		"/dev/lpu2 is there: the node of lpu2, which was not asked for": func(in *Inside, _ *Promise) { link(t, in, "/dev/full", "/dev/lpu2") },
		"the variable EMPTY is not set, and was promised as ": func(in *Inside, _ *Promise) {
			in.Environ = in.Environ[:2]
		},
		"the variable LPU_VISIBLE_DEVICES is 1,0, and was promised as 0,1": func(in *Inside, _ *Promise) {
			in.Environ = append(in.Environ, "LPU_VISIBLE_DEVICES=1,0")
		},
		"the mount /usr/lib/vendor: no such file or directory": func(in *Inside, _ *Promise) { remove(t, in, "/usr/lib") },
		"nothing is mounted on /usr/lib/vendor": func(in *Inside, _ *Promise) {
			mountinfo(t, in, "22 1 0:5 / / rw - overlay overlay rw\n")
		},
		"/usr/lib/vendor can be written to": func(in *Inside, _ *Promise) {
			mountinfo(t, in, "30 22 0:5 /x /usr/lib/vendor ro - a b rw\n31 22 0:5 /x /usr/lib/vendor rw - a b rw\n")
		},
		"on /usr/lib/vendor is something else than /opt/vendor/lib of the host": func(_ *Inside, p *Promise) { p.Mounts[0].Inode++ },
		"the ring table /opt/table.json is not that of lpu0 lpu1":               func(_ *Inside, p *Promise) { p.Table.Data = []byte("[]") },
	} {
		in, p := tree(t)
		change(in, p)
		if a := in.Look(p); len(a.Differences) != 1 || a.Differences[0] != want || a.Nothing {
			t.Errorf("%q, want %q", a.Differences, want)
		}
	}
}

// TestShutNode: a node that cannot be opened is a difference with its reason.
func TestShutNode(t *testing.T) {
	for err, want := range map[error]string{
		unix.EPERM: "device cgroup", unix.EACCES: "mode of the node", unix.ENXIO: "no driver", unix.EBUSY: "",
	} {
		if got := whyShut(err); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%v: %s", err, got)
		}
	}
}

// TestIgnoredDevices: a container without anything of what was promised is one of an
// engine with CDI off.
func TestIgnoredDevices(t *testing.T) {
	_, p := tree(t)
	in := &Inside{Root: t.TempDir()}
	a := in.Look(p)
	r := &Result{}
	r.judge(a)
	if !a.Nothing || r.State != Failed || !strings.Contains(r.Why, "CDI is off") {
		t.Errorf("%+v: %+v", a, r)
	}
	// An LPU may have no variable, no mount and no table.
	in.Environ = []string{"EMPTY="}
	if a := in.Look(p); a.Nothing {
		t.Error("a container that has a variable has nothing")
	}
}

// TestLibraries: a library of another architecture, and one that needs what no mount
// brings, are differences; what the image brings is not.
func TestLibraries(t *testing.T) {
	in, p := tree(t)
	dir := in.Root + p.Mounts[0].Path
	write := func(name string, data []byte) {
		if err := os.MkdirAll(filepath.Dir(dir+"/"+name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/"+name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("libscript.so", []byte("INPUT(libx.so)"))
	write("libcut.so", []byte("\x7fELF"))
	other := map[string]uint16{"amd64": 183}[runtime.GOARCH] // EM_AARCH64
	if other == 0 {
		other = 62 // EM_X86_64
	}
	write("a/lib/libother.so.1", header(other))
	a := in.Look(p)
	got := map[string]Library{}
	for _, l := range a.Libraries {
		got[filepath.Base(l.Path)] = l
	}
	if len(got) != 3 || got["libscript.so"].Unread == "" || got["libcut.so"].Fault == "" ||
		!strings.Contains(got["libother.so.1"].Fault, "and the machine is") {
		t.Errorf("%+v", a.Libraries)
	}
	image, differences := fromImage([]Library{
		{Path: "/l/libone.so", Missing: []string{"libnowhere.so.9", systemLibrary(t)}},
		{Path: "/l/libtwo.so", Missing: []string{systemLibrary(t)}},
		got["libcut.so"], got["libscript.so"],
	})
	if !slices.Equal(image, []string{systemLibrary(t)}) || len(differences) != 2 ||
		differences[0] != "the library /l/libone.so needs libnowhere.so.9, which no mount brings" {
		t.Errorf("%q %q", image, differences)
	}
}

// systemLibrary is the name of a file where the dynamic linker looks.
func systemLibrary(t *testing.T) string {
	t.Helper()
	for _, dir := range systemDirs() {
		if files, _ := filepath.Glob(dir + "/*"); len(files) > 0 {
			return filepath.Base(files[0])
		}
	}
	t.Fatal("this machine has no library")
	return ""
}

// header is an ELF file of another machine, of 64 bits, without sections.
func header(machine uint16) []byte {
	h := make([]byte, 64)
	copy(h, "\x7fELF\x02\x01\x01")
	h[16], h[18], h[19], h[20], h[52] = 3, byte(machine), byte(machine>>8), 1, 64
	return h
}

func remove(t *testing.T, in *Inside, path string) {
	t.Helper()
	if err := os.RemoveAll(in.Root + path); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, in *Inside, to, path string) {
	t.Helper()
	if err := os.Symlink(to, in.Root+path); err != nil {
		t.Fatal(err)
	}
}

func mountinfo(t *testing.T, in *Inside, text string) {
	t.Helper()
	if err := os.WriteFile(in.Root+"/proc/self/mountinfo", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
