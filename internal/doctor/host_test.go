package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/internal/versions"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

const runc = "Package: runc\nStatus: install ok installed\nVersion: "

// TestDevChars: a link that is missing is found where runc needs it, and the remedy makes it.
func TestDevChars(t *testing.T) {
	files := map[string]string{
		"/dev/ha0": "", "/usr/sbin/runc": "", "/run/systemd/system/": "", "/usr/lib/systemd/libsystemd-shared-252.so": "",
		"/var/lib/dpkg/status": runc + "1.1.5+ds1-1+deb12u1\n\n",
	}
	root := tree(t, files)
	s := wants(t, "no link", DevChars(root, one()), Warned, "dev-char-missing", "/dev/char/510:3 is no link to /dev/ha0", "with runc 1.1.5")
	for command := range strings.SplitSeq(s.Findings[0].Remedy, "; ") {
		if !strings.HasPrefix(command, "then ") {
			if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v %s", command, err, out)
			}
		}
	}
	wants(t, "the remedy was carried out", DevChars(root, one()), Well, "1 of 1")
	put(t, root, map[string]string{"/var/lib/dpkg/status": ""})
	wants(t, "a release that is not known, and the link", DevChars(root, one()), Well)
	wants(t, "no device file", DevChars(root, one(func(l *discovery.LPU) { l.Nodes[0].Path = "/dev/ha1" })), Absent, "no device file")
	unread := func(context.Context) (*discovery.Inventory, error) { return nil, fs.ErrPermission }
	wants(t, "a machine that cannot be read", DevChars(root, unread), Unknown, "permission denied", "run it as root")
	put(t, root, map[string]string{"/var/lib/dpkg/status": runc + "1.2.4\n\n"})
	wants(t, "a release that needs none", DevChars(root, one()), Absent)
	wants(t, "no runc", DevChars(tree(t, nil), one()), Absent)
}

// TestReleasesThatNeedLinks: which runc needs the links, with which systemd.
func TestReleasesThatNeedLinks(t *testing.T) {
	for _, c := range []struct {
		runc, systemd string
		needs         bool
	}{
		{"1.1.2", "252.0", false}, {"1.1.3", "252.0", true}, {"1.1.6", "252.0", true}, {"1.1.7", "252.0", false}, {"1.1.7", "239.0", true},
		{"1.3.0", "239.0", true}, {"1.3.0", "240.0", false}, {"1.3.0", "", false}, {"", "252.0", true}, {"1.1.2", "239.0", false},
	} {
		if got := why(versions.Parse(c.runc), versions.Parse(c.systemd)); (got != "") != c.needs {
			t.Errorf("runc %s, systemd %s: %q", c.runc, c.systemd, got)
		}
	}
}

// TestMemlocks: the limit of a running daemon counts, else that of its unit.
func TestMemlocks(t *testing.T) {
	const limits = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max locked memory         8388608              8388608              bytes     \n"
	files := map[string]string{
		"/proc/9/comm": "containerd\n", "/proc/9/limits": limits, "/proc/9/cgroup": "0::/system.slice/k3s.service\n",
		"/proc/9/status": "NSpid:\t9\n",
	}
	root := tree(t, files)
	wants(t, "a daemon", Memlocks(root, nil), Warned, "memlock-low", "k3s.service", "8 MiB", "64 MiB",
		"/etc/systemd/system/k3s.service.d/lpuctl-memlock.conf", "systemctl restart k3s.service")
	put(t, root, map[string]string{"/proc/9/limits": strings.ReplaceAll(limits, "8388608 ", "unlimited ")})
	wants(t, "any amount", Memlocks(root, func() (uint64, bool) { return 1 << 30, true }), Well, "this user 1 GiB", "k3s any amount")
	wants(t, "this user", Memlocks(root, func() (uint64, bool) { return 8 << 20, true }), Warned, "this user", "limits.d")
	wants(t, "root", Memlocks(root, func() (uint64, bool) { return 8 << 20, false }), Well, "this user any amount")

	root = tree(t, map[string]string{
		"/lib/systemd/system/containerd.service":                        "[Service]\nLimitMEMLOCK=infinity\n",
		"/etc/systemd/system/containerd.service.d/lpuctl-memlock.conf":  "[Service]\nLimitMEMLOCK=16M:32M\n",
		"/etc/systemd/system/containerd.service.d/aaa-memlock.conf":     "[Service]\nLimitMEMLOCK=1G\n",
		"/usr/lib/systemd/system/containerd.service.d/lpuctl-memlock.x": "",
	})
	wants(t, "a unit", Memlocks(root, nil), Warned, "32 MiB")
	wants(t, "nothing", Memlocks(tree(t, nil), nil), Absent)
}

// enabled are the files of a unit that is enabled.
func enabled(unit string) map[string]string {
	return map[string]string{
		"/run/systemd/system/": "", "/lib/systemd/system/" + unit: "[Unit]\n",
		"/etc/systemd/system/x.target.wants/" + unit: "-> /lib/systemd/system/" + unit,
	}
}

// TestOwnUnits: an enabled service that does not run, and a refresh that does not come.
func TestOwnUnits(t *testing.T) {
	wants(t, "no systemd", OwnUnits(tree(t, nil)), Absent, "systemd does not run")
	wants(t, "no package", OwnUnits(tree(t, map[string]string{"/run/systemd/system/": ""})), Absent, "not installed")
	root := tree(t, enabled("lpuctl-serve.service"))
	wants(t, "an enabled service", OwnUnits(root), Broken, "unit-down", "lpuctl-serve.service", "does not run",
		"systemctl restart lpuctl-serve.service")
	put(t, root, map[string]string{"/run/systemd/units/invocation:lpuctl-serve.service": "-> 0123456789abcdef"})
	wants(t, "it runs", OwnUnits(root), Well, "serve.service")

	root = tree(t, enabled("lpuctl-cdi-refresh.path"))
	put(t, root, map[string]string{changed: ""})
	wants(t, "a refresh that was asked for now", OwnUnits(root), Well, "enabled: cdi-refresh.path")
	before := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(string(root), changed), before, before); err != nil {
		t.Fatal(err)
	}
	wants(t, "a refresh that does not come", OwnUnits(root), Broken, "lpuctl-cdi-refresh.path", "has not come")
	if err := errors.Join(os.RemoveAll(filepath.Join(string(root), changed)),
		os.Symlink("lpuctl-cdi-changed", filepath.Join(string(root), changed))); err != nil {
		t.Fatal(err)
	}
	wants(t, "what cannot be seen", OwnUnits(root), Unknown, "whether a refresh is asked for")

	root = tree(t, map[string]string{
		"/run/systemd/system/": "", "/lib/systemd/system/lpuctl-serve.service": "[Unit]\n",
		"/etc/systemd/system/lpuctl-exporter.service": "-> /dev/null",
	})
	wants(t, "installed only", OwnUnits(root), Absent, "no unit of lpuctl is enabled")
}

// TestSelfCheckIsAskedWhereAKubeletIs: the result counts where there is a kubelet.
func TestSelfCheckIsAskedWhereAKubeletIs(t *testing.T) {
	wants(t, "no kubelet", SelfCheck(tree(t, nil)), Absent, "no kubelet")
	files := map[string]string{"/var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n"}
	root := tree(t, files)
	wants(t, "no timer", SelfCheck(root), Absent, "no self-check is set up")
	put(t, root, enabled(checkTimer))
	wants(t, "no result", SelfCheck(root), Well) // a note: it is so after each boot
	write := func(cdi runtimes.State, at host.Moment) {
		t.Helper()
		found := runtimes.Runtime{Name: "containerd", Version: "2.2.9", CDI: cdi, AfterRestart: cdi, UsedByKubelet: true}
		if err := runtimes.NewResult([]runtimes.Runtime{found}, at, time.Minute).Write(
			filepath.Join(string(root), runtimes.ResultPath), host.Now()); err != nil {
			t.Fatal(err)
		}
	}
	put(t, root, map[string]string{"/var/lib/lpuctl/": ""})
	write(runtimes.On, host.Now())
	wants(t, "on", SelfCheck(root), Well, "CDI on")
	write(runtimes.Off, host.Now())
	wants(t, "off", SelfCheck(root), Broken, "cdi-off", "containerd 2.2.9")
	put(t, root, map[string]string{runtimes.ResultPath: "{"})
	wants(t, "what cannot be read", SelfCheck(root), Warned, "cdi-unknown")
}

// TestBefore: what a host lacks is named, each by itself.
func TestBefore(t *testing.T) {
	files := map[string]string{
		"/proc/sys/kernel/osrelease": "6.1.0-18-amd64\n", "/sys/fs/cgroup/cgroup.controllers": "cpu\n", "/sys/bus/pci/devices/0000:00:00.0/": "",
		"/dev/null": "", "/lib/modules/6.1.0-18-amd64/modules.dep": "updates/dkms/xocl.ko.xz: kernel/drivers/x.ko\n", "/var/lib/": "",
		"/run/systemd/system/": "", "/etc/group": "root:x:0:\nlpu:x:997:\n", "/usr/lib/systemd/libsystemd-shared-252.so": "",
	}
	room := uint64(1 << 30)
	podman := runtimes.Runtime{Name: "podman", Version: "4.3.1"}
	found := []runtimes.Runtime{podman}
	diagnose := func(change map[string]string, without ...string) *Diagnosis {
		t.Helper()
		root := tree(t, files)
		put(t, root, change)
		for _, path := range without {
			if err := os.RemoveAll(filepath.Join(string(root), path)); err != nil {
				t.Fatal(err)
			}
		}
		return Diagnose(t.Context(), patience, Before(Host{
			Root: root, Drivers: []string{"xocl", "ha"}, Runtimes: func(context.Context) []runtimes.Runtime { return found },
			Free: func(string) (uint64, error) {
				if room == 0 {
					return 0, fs.ErrPermission
				}
				return room, nil
			},
		}))
	}
	lacks := func(what string, d *Diagnosis, link Link, state State, words ...string) {
		t.Helper()
		for _, s := range d.Steps {
			text := s.Says
			for _, f := range s.Findings {
				text += f.String() + " " + f.Remedy
			}
			for _, u := range s.Unseen {
				text += u.What + u.Why + u.Right
			}
			want := Well
			if s.Link == link {
				want = state
				for _, word := range words {
					if !strings.Contains(text, word) {
						t.Errorf("%s: no %q in %s", what, word, text)
					}
				}
			}
			if s.State != want {
				t.Errorf("%s: %s is %s, not %s: %s", what, s.Link, s.State, want, text)
			}
		}
		if len(d.Steps) != len(preLinks()) {
			t.Errorf("%s: %d steps", what, len(d.Steps))
		}
	}
	lacks("a host that lacks nothing", diagnose(nil), "", Well)
	lacks("an old kernel", diagnose(map[string]string{
		"/proc/sys/kernel/osrelease": "3.10.0-1160.el7.x86_64\n", "/lib/modules/3.10.0-1160.el7.x86_64/modules.dep": "extra/xocl.ko:\n",
	}), Kernel, Broken, "host-lacks", "statx")
	lacks("a kernel without openat2", diagnose(map[string]string{
		"/proc/sys/kernel/osrelease": "4.18.0\n", "/lib/modules/4.18.0/modules.dep": "extra/xocl.ko:\n",
	}), Kernel, Well, "openat2")
	lacks("control groups of version 1", diagnose(nil, "/sys/fs/cgroup/cgroup.controllers"), Cgroups, Warned, "version 1")
	lacks("no control groups", diagnose(nil, "/sys/fs/cgroup"), Cgroups, Unknown)
	lacks("no PCI", diagnose(nil, "/sys/bus"), Trees, Broken, "mount")
	lacks("a /dev of a container", diagnose(nil, "/dev"), Trees, Broken, "/dev")
	lacks("no driver", diagnose(map[string]string{"/lib/modules/6.1.0-18-amd64/modules.dep": "kernel/xoclx.ko:\n"}), Module, Broken,
		"no module xocl or ha")
	lacks("a driver of another kernel", diagnose(map[string]string{
		"/lib/modules/6.1.0-18-amd64/modules.dep": "", "/lib/modules/6.1.0-17-amd64/modules.dep": "updates/dkms/ha.ko:\n",
	}), Module, Broken, "ha for 6.1.0-17-amd64", "dkms autoinstall -k 6.1.0-18-amd64")
	lacks("a driver that is loaded", diagnose(map[string]string{"/sys/module/ha/": ""}, "/lib/modules"), Module, Well, "ha is loaded")
	lacks("modules that cannot be seen", diagnose(nil, "/lib/modules"), Module, Unknown, "look on the host")
	lacks("no systemd", diagnose(nil, "/run/systemd"), Booted, Warned, "does not run")
	lacks("no group", diagnose(map[string]string{"/etc/group": "lpus:x:1:\n"}), People, Absent, "the package makes it")
	room = 1 << 20
	lacks("little room", diagnose(nil), Room, Broken, "1 MiB")
	room = 0
	lacks("room that cannot be seen", diagnose(nil), Room, Unknown, "run it as root")
	room = 1 << 30
	old := runtimes.Runtime{Name: "docker", Version: "20.10.24", Findings: finding.List{finding.New(finding.CDIUnsupported,
		"docker", "too old", "")}}
	found = []runtimes.Runtime{old}
	lacks("a runtime that is too old", diagnose(nil), Engines, Broken, "cdi-unsupported")
	found = []runtimes.Runtime{old, podman}
	lacks("one of two", diagnose(nil), Engines, Warned, "podman 4.3.1")
	found = nil
	lacks("no runtime", diagnose(nil), Engines, Warned, "none is installed")
}
