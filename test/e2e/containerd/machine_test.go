// Package containerd proves `lpuctl runtime check`, and the specs that lpuctl writes, on real containerds of four
// releases, on nerdctl and on podman. Each containerd is its machine's own: program, package, config and socket lie in
// the usual places. TOOLS names the directory that `make e2e-containerd-tools` fills.
package containerd

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// Where things are on the machine.
const (
	nodeRoot = "/run/node"    // a simulated server
	self     = "/run/self"    // the whole machine once more, for --root
	wrappers = "/run/wrapper" // programs that come before the machine's
)

// obstacle is why this machine cannot run the tests.
var obstacle error

func TestMain(m *testing.M) {
	obstacle = machine.Enter(prepare)
	os.Exit(m.Run())
}

// prepare makes room for containerds in /etc and /usr/bin, and shows the whole machine once more.
func prepare() error {
	for i, dir := range []string{"/etc", "/usr/bin"} {
		upper, work := fmt.Sprintf("/run/upper%d", i), fmt.Sprintf("/run/work%d", i)
		if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
			return err
		}
		if err := unix.Mount("overlay", dir, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dir, upper, work)); err != nil {
			return fmt.Errorf("an overlay on %s: %w", dir, err)
		}
	}
	for _, dir := range []string{"/etc/cdi", "/etc/cni", "/etc/containerd"} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Mkdir(wrappers, 0o755), os.Mkdir(self, 0o755)); err != nil {
		return err
	}
	if err := unix.Mount("/", self, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting / on %s: %w", self, err)
	}
	return nil
}

// need skips a test that lacks the programs, or what every test needs.
func need(t *testing.T, programs ...string) {
	t.Helper()
	machine.Need(t, obstacle, "make e2e-containerd-tools", append(programs, "runc", "busybox", machine.FUSE)...)
}

// tool is the path of a program that make e2e-containerd-tools builds.
func tool(path string) string { return os.Getenv("TOOLS") + "/" + path }

// simulate makes this machine a simulated server of four LPUs in a ring, as far as a container runtime looks.
func simulate(t *testing.T) {
	t.Helper()
	machine.Lpuctl(t, "--quiet", "simulate", nodeRoot, "--profile", "lpu", "--lpus", "4", "--numbers", machine.Numbers(t, 4))
	t.Cleanup(func() { _ = os.RemoveAll(nodeRoot) })
	machine.InstallRing(t, nodeRoot, "[0, 1, 2, 3]")
	machine.Lpuctl(t, "--quiet", "--root", nodeRoot, "cdi", "refresh")
	machine.Install(t, nodeRoot)
}
