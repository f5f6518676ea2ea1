package runtimes

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// unitTree makes a machine of files; a text that begins with "-> " is what a link leads to.
func unitTree(t *testing.T, files map[string]string) host.Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(target, file)
		} else {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return host.Root(dir)
}

// TestUnitOf: what files say of a unit.
func TestUnitOf(t *testing.T) {
	root := unitTree(t, map[string]string{
		"/lib/systemd/system/a.service":                         "[Unit]\n",
		"/lib/systemd/system/b.service":                         "[Unit]\n",
		"/etc/systemd/system/b.service":                         "-> /dev/null",
		"/etc/systemd/system/multi-user.target.wants/a.service": "-> /lib/systemd/system/a.service",
		"/run/systemd/units/invocation:a.service":               "-> 0123",
		"/run/systemd/units/invocation:c.service2":              "-> 0123",
	})
	for name, want := range map[string]Unit{
		"a.service": {Installed: true, Enabled: true, Ran: true}, "b.service": {Masked: true}, "c.service": {},
	} {
		if got := UnitOf(root, name); got != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestReleasesOfTheHost: systemd by the name of its library, else the package; runc by the package.
func TestReleasesOfTheHost(t *testing.T) {
	const status = "Package: systemd\nStatus: install ok installed\nVersion: 247.3-7\n\n" +
		"Package: runc\nStatus: install ok installed\nVersion: 1.1.5+ds1\n\n"
	for library, want := range map[string]int{
		"/usr/lib/systemd/libsystemd-shared-252.so": 252, "/usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-257.so": 257,
		"/usr/lib/systemd/libsystemd-shared-239-78.el8.so": 239, "/usr/lib/other": 247,
	} {
		root := unitTree(t, map[string]string{library: "", "/var/lib/dpkg/status": status, "/usr/bin/runc": ""})
		if got := SystemdVersion(root); got.Number[0] != want {
			t.Errorf("%s: %+v", library, got)
		}
		if there, runc := Runc(root); !there || runc.Before("1.1.5") || !runc.Before("1.1.6") {
			t.Errorf("runc %v", runc)
		}
	}
	if there, _ := Runc(unitTree(t, nil)); there {
		t.Error("there is no runc")
	}
}

// TestKubeletThere: a kubelet is known by its process, also that of k3s, or by its files.
func TestKubeletThere(t *testing.T) {
	for name, c := range map[string]struct {
		files       map[string]string
		there, runs bool
	}{
		"none": {}, "config": {map[string]string{"/var/lib/kubelet/config.yaml": "kind: K\n"}, true, false},
		"process": {map[string]string{"/proc/5/comm": "kubelet\n", "/proc/5/cmdline": "kubelet\x00"}, true, true},
		"k3s":     {map[string]string{"/proc/5/comm": "k3s-server\n"}, true, true},
	} {
		if there, runs := Kubelet(unitTree(t, c.files)); there != c.there || runs != c.runs {
			t.Errorf("%s: %v, %v", name, there, runs)
		}
	}
}

// TestStarters: the limit of processes, by their units; that of a user's daemon is the user's.
func TestStarters(t *testing.T) {
	const head = "Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         "
	process := func(pid, comm, group, hard string) map[string]string {
		dir := "/proc/" + pid
		return map[string]string{
			dir + "/comm": comm + "\n", dir + "/cgroup": "0::" + group + "\n", dir + "/limits": head + "65536   " + hard + "   bytes\n",
			dir + "/status": "NSpid:\t" + pid + "\n",
		}
	}
	files := map[string]string{"/lib/systemd/system/crio.service": "[Service]\nLimitMEMLOCK=64K:1M\n",
		"/lib/systemd/system/containerd.service": "[Service]\n"}
	for _, p := range []map[string]string{
		process("7", "containerd", "/system.slice/containerd.service", "8388608"), process("8", "containerd",
			"/system.slice/containerd.service", "unlimited"),
		process("9", "containerd", "/user.slice/user-1000.slice/user@1000.service/x.service", "1024"), process("10", "containerd",
			"/system.slice/k3s.service", "unlimited"),
	} {
		maps.Copy(files, p)
	}
	got := Starters(unitTree(t, files))
	want := []Starter{{"containerd.service", 8 << 20}, {"crio.service", 1 << 20}, {"k3s.service", math.MaxUint64}}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, not %+v", got[i], want[i])
		}
	}
}
