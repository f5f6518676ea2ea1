// Package machine gives tests a machine of their own: mount, PID and network namespaces in which every program finds
// its usual paths and ports. Nothing of the host is touched, and nothing outlives the tests. LPUCTL names the binary
// under test.
package machine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inNamespaces marks the process that runs the tests, in its own namespaces.
const inNamespaces = "LPUCTL_E2E_IN_NAMESPACES"

// Address is one of the loopback device that is no loopback address: nodes and API servers want such.
const Address = "192.0.2.1"

// FUSE is a device that tests may need: to serve a file system, and because an LPU's node has its numbers, see [Numbers].
const FUSE = "/dev/fuse"

// Enter gives a package's tests their machine, which prepare, unless it is nil, adds to: it runs the program once more,
// inside, and ends with it. Where this cannot be it returns why, for Need to tell.
func Enter(prepare func() error) (obstacle error) {
	switch {
	case os.Getuid() != 0:
		return errors.New("root (run it with sudo)")
	case os.Getenv(inNamespaces) != "":
		if err := setUp(); err != nil || prepare == nil {
			return err
		}
		return prepare()
	}
	before := cgroups()
	code, err := runInNamespaces()
	for _, dir := range cgroups() {
		if !slices.Contains(before, dir) {
			_ = os.Remove(dir) // one that is in use stays
		}
	}
	if err != nil {
		return fmt.Errorf("the right to make namespaces, CAP_SYS_ADMIN (in a container: run it with --privileged): %w", err)
	}
	os.Exit(code)
	return nil
}

// runInNamespaces runs this program again, in namespaces that end with it or with us.
func runInNamespaces() (code int, err error) {
	runtime.LockOSThread() // Pdeathsig speaks of the thread that forks
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(neutral(os.Environ()), inNamespaces+"=1")
	// When the first process of a PID namespace ends the kernel ends all others, so no daemon can be left.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL,
	}
	if err := cmd.Run(); cmd.ProcessState == nil {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

// neutral leaves out of an environment what would change the answers of the programs that the tests run. LPUCTL_LONG is
// for the tests themselves.
func neutral(environment []string) []string {
	kept := []string{"LC_ALL=C", "CONTAINERS_CONF=/dev/null"}
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		group, _, ofGroup := strings.Cut(name, "_")
		if !ofGroup || name == "LPUCTL_LONG" || !slices.Contains([]string{"LPUCTL", "CONTAINER", "CONTAINERD", "CONTAINERS", "LC"}, group) {
			kept = append(kept, variable)
		}
	}
	return kept
}

// cgroups are those that runtimes keep containers in, the inner ones first; no namespace hides them.
func cgroups() (found []string) {
	for _, name := range []string{"libpod_parent/conmon", "libpod_parent", "k8s.io", "default"} {
		for _, hierarchy := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
			dirs, _ := filepath.Glob(hierarchy + name) // fails on a bad pattern only
			found = append(found, dirs...)
		}
	}
	return found
}

// setUp gives the namespaces a /proc, a /dev, a /run, an /opt and a /var/lib of their own, a network, and no CDI spec.
func setUp() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making / private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	dirs := []string{"/dev", "/run", "/opt", "/var/lib"}
	if _, err := os.Stat("/etc/cdi"); err == nil {
		dirs = append(dirs, "/etc/cdi")
	}
	for _, dir := range dirs {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mounting %s: %w", dir, err)
		}
	}
	return errors.Join(fillDev(), os.Mkdir("/run/cdi", 0o755), bringUpLoopback())
}

// fillDev makes what every program expects in /dev.
func fillDev() error {
	for name, number := range map[string][2]uint32{
		"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9}, "kmsg": {1, 11},
		"tty": {5, 0}, "ptmx": {5, 2}, "fuse": {10, 229},
	} {
		if err := MakeNode("/dev/"+name, number[0], number[1]); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/dev/pts", "/dev/shm", "/dev/mqueue"} {
		if err := errors.Join(os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777|os.ModeSticky)); err != nil {
			return err
		}
	}
	for link, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(target, "/dev/"+link); err != nil {
			return err
		}
	}
	return nil
}

// MakeNode makes a character device that anybody may open, whatever the umask.
func MakeNode(path string, major, minor uint32) error {
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.Chmod(path, 0o666)
}

func bringUpLoopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }()
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	address, err := unix.NewIfreq("lo:1")
	if err != nil {
		return err
	}
	if err := address.SetInet4Addr(net.ParseIP(Address).To4()); err != nil {
		return err
	}
	return errors.Join(unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, up), unix.IoctlIfreq(s, unix.SIOCSIFADDR, address))
}

// Need skips a test that lacks something, naming it and how to get it; with CI set that is a failure. Things are FUSE,
// programs by name, and paths of what the command called tools makes.
func Need(t *testing.T, obstacle error, tools string, things ...string) {
	t.Helper()
	var missing []string
	if obstacle != nil {
		missing = append(missing, obstacle.Error())
	}
	for _, thing := range things {
		if what := lack(thing, tools); what != "" {
			missing = append(missing, what)
		}
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

// lack says of a thing that is missing how to get it; "" if it is there.
func lack(thing, tools string) string {
	if thing == FUSE {
		f, err := os.OpenFile(thing, os.O_RDWR, 0)
		if err != nil {
			return fmt.Sprintf("%s (modprobe fuse): %v", thing, err)
		}
		f.Close()
		return ""
	}
	_, err := exec.LookPath(thing)
	if err == nil {
		return ""
	}
	if filepath.IsAbs(thing) {
		return fmt.Sprintf("%s (%s)", thing, tools)
	}
	name := map[string]string{
		"lspci": "pciutils", "newuidmap": "uidmap", "busybox": "busybox-static", "setpriv": "util-linux", "ip": "iproute2",
	}[thing]
	if name == "" {
		name = thing
	}
	return fmt.Sprintf("%s (apt-get install %s)", thing, name)
}

// Mount mounts until the test ends, with all that is mounted below by then.
func Mount(t *testing.T, source, target, kind string, flags uintptr, options string) {
	t.Helper()
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		t.Fatalf("mounting %s on %s: %v", source, target, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", target, err)
		}
	})
}

// Write writes a file, and the directories above it.
func Write(t testing.TB, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}
