package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

func newPodman(t *testing.T) machine.Podman {
	t.Helper()
	need(t, "podman", "runc", "busybox", machine.FUSE)
	return machine.NewPodman(t)
}

func device(names ...string) []string {
	var options []string
	for _, name := range names {
		options = append(options, "--device", "hyperaccel.ai/lpu="+name)
	}
	return options
}

func lines(parts ...string) string { return strings.Join(parts, "\n") + "\n" }

// firstOfOne is what inspect says of the index of a container's only LPU in the container.
const firstOfOne = "env LPU_RING_ORDER=0"

// lpu is what inspect says of one LPU that a container has.
func lpu(t *testing.T, n int) string { return strings.TrimSuffix(machine.Inspected(t, n), "\n") }

func TestPodman(t *testing.T) {
	p := newPodman(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "4", "--numbers", machine.Numbers(t, 4))
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	const version, lib = "env LPU_DRIVER_VERSION=1.0.0", "lib 1.0.0"
	one := lines("env LPU_DEVICE_INDEX=0", version, firstOfOne, "env LPU_VISIBLE_DEVICES=0", lpu(t, 0), lib)
	two := lines("env LPU_DEVICE_INDEX=2", version, firstOfOne, "env LPU_VISIBLE_DEVICES=2", lpu(t, 2), lib)
	for _, c := range []struct {
		name    string
		options []string
		want    string
	}{
		{"one", device("lpu0"), one},
		{"another", device("lpu2"), two},
		{"as a user", append(device("lpu0"), "--user", "1000:1000"), one},
		{"all", device("all"), lines(version, "env LPU_VISIBLE_DEVICES=0,1,2,3", "env NUM_LPU_DEVICES=4",
			lpu(t, 0), lpu(t, 1), lpu(t, 2), lpu(t, 3), lib)},
		{"two by address", device("pci-0000-43-00.0", "pci-0000-45-00.0"), lines(version, lpu(t, 0), lpu(t, 2), lib)},
		{"none", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := p.Run(t, machine.Inspect, c.options...)
			if r.Code != 0 || r.Stdout != c.want {
				t.Errorf("exit code %d\n%sin the container:\n%swant:\n%s", r.Code, r.Stderr, r.Stdout, c.want)
			}
		})
	}
	t.Run("unknown", func(t *testing.T) {
		r := p.Run(t, machine.Inspect, device("lpu4")...)
		if r.Code != 126 || r.Stdout != "" || !strings.Contains(r.Stderr, "unresolvable CDI devices hyperaccel.ai/lpu=lpu4") {
			t.Errorf("exit code %d: %s", r.Code, r.Stderr)
		}
	})
	// That a node opens above says something only if the cgroup keeps the same node shut without the device.
	first := machine.DeviceNumbers(t, 1)[0]
	own := fmt.Sprintf(`mknod /own c %d %d && echo made; (exec 3<>/own) && echo opens`, first.Major, first.Minor)
	mknod := []string{"--cap-add", "MKNOD"}
	t.Run("a node of its own stays shut", func(t *testing.T) {
		if r := p.Run(t, own, mknod...); r.Stdout != "made\n" || !strings.Contains(r.Stderr, "Operation not permitted") {
			t.Errorf("%s%s", r.Stdout, r.Stderr)
		}
	})
	t.Run("a node of its own opens with the device", func(t *testing.T) {
		if r := p.Run(t, own, append(mknod, device("lpu0")...)...); r.Stdout != "made\nopens\n" {
			t.Errorf("%s%s", r.Stdout, r.Stderr)
		}
	})
}

// TestQuadlet: podman's generator makes a unit of the example, and the device in it brings a
// container the LPU.
func TestQuadlet(t *testing.T) {
	p := newPodman(t)
	examples, err := filepath.Abs("../../examples/quadlet")
	if err != nil {
		t.Fatal(err)
	}
	generator := exec.CommandContext(t.Context(), os.Getenv("QUADLET"), "-dryrun")
	generator.Env = append(os.Environ(), "QUADLET_UNIT_DIRS="+examples)
	units, err := generator.Output()
	if err != nil {
		t.Fatalf("make e2e builds the generator: %v\n%s", err, units)
	}
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/podman run .* --device (\S+) `).FindSubmatch(units)
	if start == nil || !bytes.Contains(units, []byte("\nAfter=lpuctl-cdi-refresh.service\n")) {
		t.Fatalf("there is no unit that starts podman with a device after the refresh:\n%s", units)
	}
	root := simulate(t, "--profile", "lpu", "--lpus", "1", "--numbers", machine.Numbers(t, 1))
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	if r := p.Run(t, machine.Inspect, "--device", string(start[1])); r.Code != 0 || !strings.Contains(r.Stdout, lpu(t, 0)) {
		t.Errorf("exit code %d\n%sin the container:\n%s", r.Code, r.Stderr, r.Stdout)
	}
}

// TestPodmanWithTheSeedsSpec: the published example gives a container what our spec of such a node gives it, but for a variable that is
// younger than the example.
func TestPodmanWithTheSeedsSpec(t *testing.T) {
	p := newPodman(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "1", "--numbers", machine.Numbers(t, 1))
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	ours := p.Run(t, machine.Inspect, device("lpu0")...)
	machine.Lpuctl(t, "--root", root, "cdi", "remove")
	seed, err := os.ReadFile("../../testdata/seed-spec.json")
	if err != nil {
		t.Fatal(err)
	}
	// This podman may know no later version than 0.5.0, and the example needs no later one.
	seed = bytes.Replace(seed, []byte("0.6.0"), []byte("0.5.0"), 1)
	if err := os.WriteFile("/run/cdi/seed.json", seed, 0o644); err != nil {
		t.Fatal(err)
	}
	theirs := p.Run(t, machine.Inspect, device("lpu0")...)
	ours.Stdout = strings.Replace(ours.Stdout, firstOfOne+"\n", "", 1)
	if ours.Code != 0 || !strings.Contains(ours.Stdout, lpu(t, 0)) || ours != theirs {
		t.Errorf("ours:\n%+v\nthe example's:\n%+v", ours, theirs)
	}
}

// ordinaryUser is the home of a user who is written into copies of the account files, and the start of a command that runs as that user.
func ordinaryUser(t *testing.T) (home string, command []string) {
	t.Helper()
	need(t, "setpriv", "newuidmap", "podman", "runc", "busybox", machine.FUSE)
	accounts(t)
	const uid = 4242
	home, err := os.MkdirTemp("/tmp", "lpuctl-e2e-home-") //nolint:usetesting // a user's home: every directory above is open to him
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if err := os.Chown(home, uid, uid); err != nil {
		t.Fatal(err)
	}
	user := strconv.Itoa(uid)
	return home, []string{
		"setpriv", "--reuid", user, "--regid", user, "--clear-groups", "env", "-C", home, "HOME=" + home, "XDG_RUNTIME_DIR=" + home,
	}
}

// accounts adds a user to the account files, with subordinate uids.
func accounts(t *testing.T) {
	t.Helper()
	for file, line := range map[string]string{
		"/etc/passwd": "lpue2e:x:4242:4242::/tmp:/bin/sh\n", "/etc/group": "lpue2e:x:4242:\n",
		"/etc/subuid": "lpue2e:500000:65536\n", "/etc/subgid": "lpue2e:500000:65536\n",
	} {
		withLine(t, file, line)
	}
}

// TestRootlessPodman: podman of an ordinary user gives a container what root's does.
func TestRootlessPodman(t *testing.T) {
	home, user := ordinaryUser(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "2", "--numbers", machine.Numbers(t, 2))
	machine.InstallRing(t, root, "[0, 1]")
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	p := machine.PodmanIn(home, append(user, "podman")...)
	p.Import(t)
	const version, lib = "env LPU_DRIVER_VERSION=1.0.0", "lib 1.0.0"
	both := lines("env LPU_CONNECTED=true", version, "env LPU_RING_ORDER=0,1", "env LPU_VISIBLE_DEVICES=0,1",
		"env NUM_LPU_DEVICES=2", lpu(t, 0), lpu(t, 1), lib)
	for name, want := range map[string]string{
		"lpu0": lines("env LPU_DEVICE_INDEX=0", version, firstOfOne, "env LPU_VISIBLE_DEVICES=0", lpu(t, 0), lib), "lpu0-1": both, "all": both,
	} {
		if r := p.Run(t, machine.Inspect, device(name)...); r.Code != 0 || r.Stdout != want {
			t.Errorf("%s: exit code %d\n%sin the container:\n%swant:\n%s", name, r.Code, r.Stderr, r.Stdout, want)
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
	machine.Mount(t, duplicate, file, "", unix.MS_BIND, "")
}

// TestPodmanWithSets gives a container four LPUs that are cabled one to the next, once across the end of the
// address order.
func TestPodmanWithSets(t *testing.T) {
	p := newPodman(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "8", "--numbers", machine.Numbers(t, 8))
	machine.InstallRing(t, root, "[0, 1, 2, 3, 4, 5, 6, 7]")
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	const version, lib = "env LPU_DRIVER_VERSION=1.0.0", "lib 1.0.0"
	for name, c := range map[string]struct{ visible, order, nodes string }{
		"lpu2-3-4-5": {"2,3,4,5", "0,1,2,3", lines(lpu(t, 2), lpu(t, 3), lpu(t, 4), lpu(t, 5))},
		"lpu6-7-0-1": {"6,7,0,1", "2,3,0,1", lines(lpu(t, 0), lpu(t, 1), lpu(t, 6), lpu(t, 7))},
	} {
		r := p.Run(t, machine.Inspect, device(name)...)
		want := lines("env LPU_CONNECTED=true", version, "env LPU_RING_ORDER="+c.order, "env LPU_VISIBLE_DEVICES="+c.visible,
			"env NUM_LPU_DEVICES=4") + c.nodes + lines(lib)
		if r.Code != 0 || r.Stdout != want {
			t.Errorf("%s: exit code %d\n%sin the container:\n%swant:\n%s", name, r.Code, r.Stderr, r.Stdout, want)
		}
	}
}
