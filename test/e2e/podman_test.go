package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fuseNumbers are those of /dev/fuse: a node with them opens where the device cgroup lets it, and only there.
const fuseNumbers = "10:229"

// image is what podman imports the root file system as; no registry is asked.
const image = "localhost/lpuctl-e2e:1"

// podman is a podman with storage of its own and an image, and a root file system, of busybox.
type podman struct {
	command []string
	rootfs  string
}

func newPodman(t *testing.T) podman {
	t.Helper()
	need(t, "podman", "runc", "busybox", "tar", fuseDevice)
	store := t.TempDir()
	p := podman{rootfs: makeRootfs(t, filepath.Join(store, "rootfs"))}
	p.command = []string{
		"podman", "--root", store + "/root", "--runroot", store + "/run", "--tmpdir", store + "/tmp",
		"--storage-driver", "vfs", "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--log-level", "error",
	}
	t.Cleanup(func() { _ = unix.Unmount(store+"/root/vfs", unix.MNT_DETACH) })
	p.importImage(t)
	return p
}

// importImage makes the image of the root file system.
func (p podman) importImage(t *testing.T) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "rootfs.tar")
	if r := run(t, "tar", "-cf", archive, "-C", p.rootfs, "."); r.code != 0 {
		t.Fatal(r.stderr)
	}
	if err := errors.Join(os.Chmod(archive, 0o644), os.Chmod(filepath.Dir(archive), 0o755), os.Chmod(filepath.Dir(filepath.Dir(archive)), 0o755)); err != nil {
		t.Fatal(err)
	}
	if r := run(t, slices.Concat(p.command, []string{"import", "--quiet", archive, image})...); r.code != 0 {
		t.Fatalf("podman import: %s", r.stderr)
	}
}

func makeRootfs(t *testing.T, root string) string {
	t.Helper()
	for _, d := range []string{"bin", "dev", "proc", "sys", "tmp", "usr/lib", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/busybox"), data, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, applet := range []string{"sh", "ls", "cat", "env", "stat", "touch", "mknod", "id", "sort", "sleep"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", applet)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// run starts a container with options and runs a shell script in it. The limits are given because podman would
// raise them, which a machine may forbid.
func (p podman) run(t *testing.T, script string, options ...string) result {
	t.Helper()
	return run(t, slices.Concat(p.command, []string{"run", "--rm", "--network=none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"},
		options, []string{image, "sh", "-c", script})...)
}

// inspect prints what a container has got of LPUs: variables, nodes with numbers and whether they open, mounts.
const inspect = `env | sort | while read v; do case $v in LPU_*|NUM_LPU*) echo "env $v";; esac; done
for n in /dev/lpu*; do [ -e $n ] || continue; echo "node $n $(stat -c %t:%T $n)"; (exec 3<>$n) 2>/dev/null && echo "opens $n"; done
if [ -e /usr/lib/hyperaccel/version ]; then
  echo "lib $(cat /usr/lib/hyperaccel/version)"; touch /usr/lib/hyperaccel/x 2>/dev/null && echo "lib is writable"
fi; true`

func device(names ...string) []string {
	var options []string
	for _, name := range names {
		options = append(options, "--device", "hyperaccel.ai/lpu="+name)
	}
	return options
}

func lines(parts ...string) string { return strings.Join(parts, "\n") + "\n" }

// lpu is what inspect says of one LPU that a container has.
func lpu(n int) string { return fmt.Sprintf("node /dev/lpu%d a:e5\nopens /dev/lpu%[1]d", n) }

func TestPodman(t *testing.T) {
	p := newPodman(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "4", "--numbers", fuseNumbers)
	lpuctl(t, "--root", root, "cdi", "refresh")
	install(t, root)
	const version, lib = "env LPU_DRIVER_VERSION=1.0.0", "lib 1.0.0"
	one := lines("env LPU_DEVICE_INDEX=0", version, "env LPU_VISIBLE_DEVICES=0", lpu(0), lib)
	for _, c := range []struct {
		name    string
		options []string
		want    string
	}{
		{"one", device("lpu0"), one},
		{"another", device("lpu2"), strings.ReplaceAll(strings.ReplaceAll(one, "=0\n", "=2\n"), "lpu0", "lpu2")},
		{"as a user", append(device("lpu0"), "--user", "1000:1000"), one},
		{"all", device("all"), lines(version, "env LPU_VISIBLE_DEVICES=0,1,2,3", "env NUM_LPU_DEVICES=4", lpu(0), lpu(1), lpu(2), lpu(3), lib)},
		{"two by address", device("pci-0000-43-00.0", "pci-0000-45-00.0"), lines(version, lpu(0), lpu(2), lib)},
		{"none", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := p.run(t, inspect, c.options...)
			if r.code != 0 || r.stdout != c.want {
				t.Errorf("exit code %d\n%sin the container:\n%swant:\n%s", r.code, r.stderr, r.stdout, c.want)
			}
		})
	}
	t.Run("unknown", func(t *testing.T) {
		if r := p.run(t, inspect, device("lpu4")...); r.code != 126 || r.stdout != "" || !strings.Contains(r.stderr, "unresolvable CDI devices hyperaccel.ai/lpu=lpu4") {
			t.Errorf("exit code %d: %s", r.code, r.stderr)
		}
	})
	// That a node opens above says something only if the cgroup keeps the same node shut without the device.
	const own = `mknod /tmp/own c 10 229 && echo made; (exec 3<>/tmp/own) && echo opens`
	mknod := []string{"--cap-add", "MKNOD"}
	t.Run("a node of its own stays shut", func(t *testing.T) {
		if r := p.run(t, own, mknod...); r.stdout != "made\n" || !strings.Contains(r.stderr, "Operation not permitted") {
			t.Errorf("%s%s", r.stdout, r.stderr)
		}
	})
	t.Run("a node of its own opens with the device", func(t *testing.T) {
		if r := p.run(t, own, append(mknod, device("lpu0")...)...); r.stdout != "made\nopens\n" {
			t.Errorf("%s%s", r.stdout, r.stderr)
		}
	})
}

// TestPodmanWithTheSeedsSpec: the published example gives a container what our spec of such a node gives it.
func TestPodmanWithTheSeedsSpec(t *testing.T) {
	p := newPodman(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "1", "--numbers", fuseNumbers)
	lpuctl(t, "--root", root, "cdi", "refresh")
	install(t, root)
	ours := p.run(t, inspect, device("lpu0")...)
	lpuctl(t, "--root", root, "cdi", "remove")
	seed, err := os.ReadFile("../../testdata/seed-spec.json")
	if err != nil {
		t.Fatal(err)
	}
	// This podman may know no later version than 0.5.0, and the example needs no later one.
	seed = bytes.Replace(seed, []byte("0.6.0"), []byte("0.5.0"), 1)
	if err := os.WriteFile("/run/cdi/seed.json", seed, 0o644); err != nil {
		t.Fatal(err)
	}
	theirs := p.run(t, inspect, device("lpu0")...)
	if ours.code != 0 || !strings.Contains(ours.stdout, lpu(0)) || ours != theirs {
		t.Errorf("ours:\n%+v\nthe example's:\n%+v", ours, theirs)
	}
}

// TestRootlessPodman runs podman as a user who is written into copies of the account files.
func TestRootlessPodman(t *testing.T) {
	need(t, "setpriv", "newuidmap")
	p := newPodman(t)
	const uid = "4242"
	for file, line := range map[string]string{
		"/etc/passwd": "lpue2e:x:4242:4242::/tmp:/bin/sh\n", "/etc/group": "lpue2e:x:4242:\n",
		"/etc/subuid": "lpue2e:500000:65536\n", "/etc/subgid": "lpue2e:500000:65536\n",
	} {
		withLine(t, file, line)
	}
	root := simulate(t, "--profile", "lpu", "--lpus", "2", "--numbers", fuseNumbers)
	installRing(t, root, "[0, 1]")
	lpuctl(t, "--root", root, "cdi", "refresh")
	install(t, root)
	home, err := os.MkdirTemp("/tmp", "lpuctl-e2e-home-") //nolint:usetesting // a user's home: every directory above is open to him
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	p.rootfs = makeRootfs(t, home+"/rootfs")
	if r := run(t, "chown", "-R", uid+":"+uid, home); r.code != 0 {
		t.Fatal(r.stderr)
	}
	p.command = []string{
		"setpriv", "--reuid", uid, "--regid", uid, "--clear-groups",
		"env", "-C", home, "HOME=" + home, "XDG_RUNTIME_DIR=" + home, "podman", "--root", home + "/root", "--runroot", home + "/run",
		"--storage-driver", "vfs", "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--log-level", "error",
	}
	p.importImage(t)
	const version, lib = "env LPU_DRIVER_VERSION=1.0.0", "lib 1.0.0"
	both := lines("env LPU_CONNECTED=true", version, "env LPU_RING_ORDER=0,1", "env LPU_VISIBLE_DEVICES=0,1", "env NUM_LPU_DEVICES=2", lpu(0), lpu(1), lib)
	for name, want := range map[string]string{
		"lpu0": lines("env LPU_DEVICE_INDEX=0", version, "env LPU_VISIBLE_DEVICES=0", lpu(0), lib), "lpu0-1": both, "all": both,
	} {
		if r := p.run(t, inspect, device(name)...); r.code != 0 || r.stdout != want {
			t.Errorf("%s: exit code %d\n%sin the container:\n%swant:\n%s", name, r.code, r.stderr, r.stdout, want)
		}
	}
}

// withLine puts a copy of a file with one more line in the file's place, in this namespace only.
func withLine(t *testing.T, file, line string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`^[^:]+`).FindString(line)
	if bytes.Contains(data, []byte("\n"+name+":")) {
		return
	}
	duplicate := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(duplicate, append(data, line...), 0o644); err != nil {
		t.Fatal(err)
	}
	mount(t, duplicate, file, "", unix.MS_BIND, "")
}

// installRing makes a ring of LPUs, by index, the node's table.
func installRing(t *testing.T, root, ring string) {
	t.Helper()
	table := filepath.Join(t.TempDir(), "ring.yaml")
	text := "apiVersion: lpuctl.hyperaccel.ai/v1alpha1\nkind: RingTable\nrings: [" + ring + "]\n"
	if err := os.WriteFile(table, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	lpuctl(t, "--root", root, "ring", "install", table)
}

// TestPodmanWithSets gives a container four LPUs that are cabled one to the next, once across the end of the
// address order.
func TestPodmanWithSets(t *testing.T) {
	p := newPodman(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "8", "--numbers", fuseNumbers)
	installRing(t, root, "[0, 1, 2, 3, 4, 5, 6, 7]")
	lpuctl(t, "--root", root, "cdi", "refresh")
	install(t, root)
	const version, lib = "env LPU_DRIVER_VERSION=1.0.0", "lib 1.0.0"
	for name, c := range map[string]struct{ visible, order, nodes string }{
		"lpu2-3-4-5": {"2,3,4,5", "0,1,2,3", lines(lpu(2), lpu(3), lpu(4), lpu(5))},
		"lpu6-7-0-1": {"6,7,0,1", "2,3,0,1", lines(lpu(0), lpu(1), lpu(6), lpu(7))},
	} {
		r := p.run(t, inspect, device(name)...)
		want := lines("env LPU_CONNECTED=true", version, "env LPU_RING_ORDER="+c.order, "env LPU_VISIBLE_DEVICES="+c.visible, "env NUM_LPU_DEVICES=4") + c.nodes + lines(lib)
		if r.code != 0 || r.stdout != want {
			t.Errorf("%s: exit code %d\n%sin the container:\n%swant:\n%s", name, r.code, r.stderr, r.stdout, want)
		}
	}
}
