// Package containerd proves `lpuctl runtime check`, and the specs that lpuctl writes, on real containerds of four
// releases, on nerdctl and on podman. The tests run as root in mount, PID and network namespaces of their own, where
// each containerd is the machine's own: its program, package, config and socket lie in the usual places. Nothing of
// the host is touched, and nothing outlives the tests. LPUCTL names the binary under test, TOOLS the directory that
// `make e2e-containerd-tools` fills.
package containerd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inNamespace marks the process that runs the tests, in its own namespaces.
const inNamespace = "LPUCTL_E2E_IN_NAMESPACE"

// Where things are in the namespaces.
const (
	nodeRoot = "/run/node"    // a simulated server
	self     = "/run/self"    // the whole machine once more, for --root
	wrappers = "/run/wrapper" // programs that come before the machine's
)

// obstacle is why this machine cannot run the tests.
var obstacle error

func TestMain(m *testing.M) {
	switch {
	case os.Getuid() != 0:
		obstacle = errors.New("root (run it with sudo)")
	case os.Getenv(inNamespace) == "":
		code, err := runInNamespaces()
		if err == nil {
			os.Exit(code)
		}
		obstacle = fmt.Errorf("namespaces: %w", err)
	default:
		obstacle = privateMachine()
	}
	os.Exit(m.Run())
}

// runInNamespaces runs this program once more, in namespaces of its own.
func runInNamespaces() (int, error) {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = []string{"LC_ALL=C", "CONTAINERS_CONF=/dev/null", inNamespace + "=1"}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, "LPUCTL_") && !strings.HasPrefix(name, "CONTAINER") && !strings.HasPrefix(name, "LC_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	// When the first process of a PID namespace ends the kernel ends all others, so no daemon can be left.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	err := cmd.Run()
	removeCgroups()
	if cmd.ProcessState == nil {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

// removeCgroups removes the empty cgroups that runtimes leave; no namespace hides them. One that is in use stays.
func removeCgroups() {
	for _, name := range []string{"k8s.io", "default", "libpod_parent/conmon", "libpod_parent"} {
		each, _ := filepath.Glob("/sys/fs/cgroup/*/" + name) // fails on a bad pattern only
		for _, dir := range append(each, "/sys/fs/cgroup/"+name) {
			_ = os.Remove(dir)
		}
	}
}

// privateMachine makes the namespaces usable: own mounts, own processes, own devices, loopback.
func privateMachine() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making / private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	for _, dir := range []string{"/dev", "/run", "/var/lib", "/opt"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mounting %s: %w", dir, err)
		}
	}
	for name, number := range map[string][2]uint32{
		"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9}, "tty": {5, 0}, "ptmx": {5, 2}, "fuse": {10, 229},
	} {
		if err := makeNode("/dev/"+name, number[0], number[1]); err != nil {
			return err
		}
	}
	for link, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(target, "/dev/"+link); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/dev/pts", "/dev/shm", "/dev/mqueue", "/run/cdi", self, wrappers} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	// Here programs and configs can be put where they belong.
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
	if err := unix.Mount("/", self, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting / on %s: %w", self, err)
	}
	return bringUpLoopback()
}

func makeNode(path string, major, minor uint32) error {
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.Chmod(path, 0o666) // whatever the umask
}

func bringUpLoopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
}

// need skips a test that lacks something, naming it; on CI that is a failure.
func need(t *testing.T, programs ...string) {
	t.Helper()
	var missing []string
	if obstacle != nil {
		missing = append(missing, obstacle.Error())
	}
	packages := map[string]string{"runc": "runc", "busybox": "busybox-static", "podman": "podman"}
	for _, p := range append([]string{"runc", "busybox"}, programs...) {
		if _, err := exec.LookPath(p); err != nil && packages[p] != "" {
			missing = append(missing, fmt.Sprintf("%s (apt-get install %s)", p, packages[p]))
		} else if err != nil {
			missing = append(missing, p+" (make e2e-containerd-tools)")
		}
	}
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		missing = append(missing, fmt.Sprintf("/dev/fuse (modprobe fuse): %v", err))
	} else {
		_ = f.Close()
	}
	if len(missing) == 0 {
		return
	}
	message := "missing: " + strings.Join(missing, ", ")
	if os.Getenv("CI") != "" {
		t.Fatal(message)
	}
	t.Skip(message)
}

// tool is the path of a program that make e2e-containerd-tools builds.
func tool(parts ...string) string {
	return filepath.Join(append([]string{os.Getenv("TOOLS")}, parts...)...)
}

// binary is the lpuctl under test.
func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("LPUCTL")
	if path == "" {
		t.Fatal("LPUCTL must name the binary to test (make e2e-containerd does)")
	}
	return path
}

// simulate makes this machine a simulated server of four LPUs in a ring, as far as a container runtime looks.
func simulate(t *testing.T) {
	t.Helper()
	output(t, binary(t), "--quiet", "simulate", nodeRoot, "--profile", "lpu", "--lpus", "4", "--numbers", "10:229") // those of fuse: such a node opens if the device cgroup lets it
	t.Cleanup(func() { _ = os.RemoveAll(nodeRoot) })
	write(t, nodeRoot+"/ring.yaml", "apiVersion: lpuctl.hyperaccel.ai/v1alpha1\nkind: RingTable\nrings: [[0, 1, 2, 3]]\n")
	output(t, binary(t), "--quiet", "--root", nodeRoot, "ring", "install", nodeRoot+"/ring.yaml")
	output(t, binary(t), "--quiet", "--root", nodeRoot, "cdi", "refresh")
	for n := range 4 {
		node := fmt.Sprintf("/dev/lpu%d", n)
		if err := makeNode(node, 10, 229); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(node) })
	}
	mount(t, nodeRoot+"/opt", "/opt", "", unix.MS_BIND)
	mount(t, nodeRoot+"/var/run/cdi", "/run/cdi", "", unix.MS_BIND)
}

// mount mounts until the test ends, with all that is mounted below by then.
func mount(t *testing.T, source, target, kind string, flags uintptr) {
	t.Helper()
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(source, target, kind, flags, ""); err != nil {
		t.Fatalf("mounting %s on %s: %v", source, target, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", target, err)
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// output runs a command to its end, wants success, and returns what it printed.
func output(t *testing.T, command ...string) string {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", command, err, out, errOut.String())
	}
	return string(out)
}
