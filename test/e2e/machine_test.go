// Package e2e proves lpuctl on what really consumes its work: podman, lspci, a file system that hangs, a
// process that is killed. The tests run as root in mount and PID namespaces of their own, so that nothing of
// the host is touched and no process outlives them. LPUCTL names the binary under test.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// inNamespace marks the process that runs the tests, in its own namespaces.
const inNamespace = "LPUCTL_E2E_IN_NAMESPACE"

func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		os.Exit(m.Run()) // every test names what it lacks
	}
	if os.Getenv(inNamespace) != "" {
		if err := privateMachine(); err != nil {
			fmt.Fprintln(os.Stderr, "e2e: setting up the namespace:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	before := podmanCgroups()
	err := runInNamespaces()
	removeCgroups(before)
	if errors.Is(err, fs.ErrPermission) {
		os.Exit(m.Run()) // every test names what it lacks
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
}

// runInNamespaces runs this program again, in namespaces that end with it or with us.
func runInNamespaces() error {
	runtime.LockOSThread() // Pdeathsig speaks of the thread that forks
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(neutral(os.Environ()), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	return cmd.Run()
}

// neutral leaves out of an environment what would change the answers of the programs that the tests run.
func neutral(environment []string) []string {
	kept := []string{"LC_ALL=C", "CONTAINERS_CONF=/dev/null"}
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "LPUCTL_") || strings.HasPrefix(name, "CONTAINERS_") || strings.HasPrefix(name, "LC_") {
			continue
		}
		kept = append(kept, variable)
	}
	return kept
}

// podmanCgroups are the cgroups that podman keeps its containers in; no namespace hides them.
func podmanCgroups() map[string]bool {
	there := map[string]bool{}
	for _, pattern := range []string{"/sys/fs/cgroup/libpod_parent", "/sys/fs/cgroup/*/libpod_parent"} {
		found, _ := filepath.Glob(pattern) // fails on a bad pattern only
		for _, dir := range found {
			there[dir] = true
		}
	}
	return there
}

// removeCgroups removes those that were not there before; one that is in use stays.
func removeCgroups(before map[string]bool) {
	for dir := range podmanCgroups() {
		if before[dir] {
			continue
		}
		_ = os.Remove(filepath.Join(dir, "conmon"))
		_ = os.Remove(dir)
	}
}

// privateMachine gives the namespaces a /dev, a /run, an /opt and a /var/lib of their own, and no CDI spec.
func privateMachine() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making / private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	dev, err := os.MkdirTemp("", "lpuctl-e2e-dev-")
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dev, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for name, number := range map[string][2]uint32{
		"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9}, "tty": {5, 0}, "ptmx": {5, 2}, "fuse": {10, 229},
	} {
		if err := makeNode(filepath.Join(dev, name), number[0], number[1]); err != nil {
			return err
		}
	}
	for _, d := range []string{"pts", "shm", "mqueue"} {
		d = filepath.Join(dev, d)
		if err := errors.Join(os.Mkdir(d, 0o777), os.Chmod(d, 0o777|os.ModeSticky)); err != nil {
			return err
		}
	}
	for link, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(target, filepath.Join(dev, link)); err != nil {
			return err
		}
	}
	if err := unix.Mount(dev, "/dev", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	_ = os.Remove(dev)
	for _, d := range []string{"/run", "/opt", "/var/lib", "/etc/cdi"} {
		if err := unix.Mount("tmpfs", d, "tmpfs", 0, "mode=755"); err != nil && (d != "/etc/cdi" || !errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("mounting %s: %w", d, err)
		}
	}
	return os.MkdirAll("/run/cdi", 0o755)
}

func makeNode(path string, major, minor uint32) error {
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.Chmod(path, 0o666) // whatever the umask
}

// need skips a test that lacks a tool or a device, naming it and how to get it; on CI that is a failure.
func need(t *testing.T, tools ...string) {
	t.Helper()
	packages := map[string]string{
		"lspci": "pciutils", "newuidmap": "uidmap", "busybox": "busybox-static", "setpriv": "util-linux",
	}
	var missing []string
	if os.Getuid() != 0 {
		missing = append(missing, "root (run it with sudo)")
	} else if os.Getenv(inNamespace) == "" {
		missing = append(missing, "the right to make namespaces, CAP_SYS_ADMIN (in a container: run it with --privileged)")
	}
	for _, tool := range tools {
		if tool == fuseDevice {
			if f, err := os.OpenFile(tool, os.O_RDWR, 0); err != nil {
				missing = append(missing, fmt.Sprintf("%s (modprobe fuse): %v", tool, err))
			} else {
				f.Close()
			}
			continue
		}
		if _, err := exec.LookPath(tool); err != nil {
			name := packages[tool]
			if name == "" {
				name = tool
			}
			missing = append(missing, fmt.Sprintf("%s (apt-get install %s)", tool, name))
		}
	}
	if len(missing) == 0 {
		return
	}
	message := "missing: " + strings.Join(missing, ", ")
	if os.Getenv("CI") == "true" {
		t.Fatal(message)
	}
	t.Skip(message)
}

// fuseDevice is a device that a test may need: for FUSE, and because nodes with its numbers really open.
const fuseDevice = "/dev/fuse"

// result is what a command left behind.
type result struct {
	code           int
	stdout, stderr string
}

// run runs a command to its end; that it exits with another code than 0 is no failure by itself.
func run(t *testing.T, command ...string) result {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("%v: %v", command, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// binary is the lpuctl under test.
func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("LPUCTL")
	if path == "" {
		t.Fatal("LPUCTL must name the binary to test (make e2e does)")
	}
	return path
}

// How long a command may take, and how much memory, whatever it is given to read.
const (
	timeLimit   = 5 * time.Second
	memoryLimit = 256 << 20 // bytes; it takes less than 20 MiB on a simulated server
	memoryCap   = 1 << 30   // bytes; nothing gets more, for the sake of the machine that runs the tests
)

// bounded runs a command that may meet anything: it must end in time, with little memory and without a crash,
// and print nothing but text.
func bounded(t *testing.T, command ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// It may have ended already, which is fine.
	_ = unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: memoryCap, Max: memoryCap}, nil)
	err := cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("%v: %v", command, err)
	}
	if ctx.Err() != nil {
		t.Errorf("%v: did not end within %v", command, timeLimit)
	}
	if usage := cmd.ProcessState.SysUsage().(*syscall.Rusage); usage.Maxrss > memoryLimit>>10 {
		t.Errorf("%v: took %d MiB of memory, more than %d", command, usage.Maxrss>>10, memoryLimit>>20)
	}
	r := result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
	if i := strings.Index(r.stderr, "goroutine "); i >= 0 {
		// Of hundreds of lines the first ones say what it was.
		r.stderr = r.stderr[:min(len(r.stderr), i+1000)]
		t.Errorf("%v: crashed:\n%s", command, r.stderr)
	}
	if said := r.stdout + r.stderr; strings.Contains(said, "panic") || strings.ContainsAny(said, "\x00\x1b\x7f") || !utf8.ValidString(said) {
		t.Errorf("%v: printed what is not for people: %.500q", command, said)
	}
	return r
}

// lpuctl runs the binary under test and wants exit code 0.
func lpuctl(t *testing.T, args ...string) string {
	t.Helper()
	r := run(t, append([]string{binary(t)}, args...)...)
	if r.code != 0 {
		t.Fatalf("lpuctl %v: exit code %d\n%s", args, r.code, r.stderr)
	}
	return r.stdout
}

// simulate writes a simulated node and returns its root.
func simulate(t *testing.T, args ...string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "node")
	lpuctl(t, append([]string{"--quiet", "simulate", root}, args...)...)
	return root
}

// mount mounts until the test ends.
func mount(t *testing.T, source, target, kind string, flags uintptr, options string) {
	t.Helper()
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		t.Fatalf("mounting %s on %s: %v", source, target, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
}

// install makes this namespace the simulated node, as far as a container runtime looks: nodes, what the
// software installed, and the spec directory.
func install(t *testing.T, root string) {
	t.Helper()
	nodes, err := filepath.Glob(filepath.Join(root, "dev/lpu*"))
	if err != nil || len(nodes) == 0 {
		t.Fatalf("the node has no device nodes: %v", err)
	}
	for _, n := range nodes {
		var st unix.Stat_t
		if err := unix.Lstat(n, &st); err != nil {
			t.Fatal(err)
		}
		here := filepath.Join("/dev", filepath.Base(n))
		if err := makeNode(here, unix.Major(st.Rdev), unix.Minor(st.Rdev)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(here) })
	}
	for _, dir := range []string{"/opt/hyperaccel", "/run/cdi"} {
		source := filepath.Join(root, dir)
		if dir == "/run/cdi" {
			source = filepath.Join(root, "var/run/cdi")
		}
		for _, d := range []string{source, dir} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		mount(t, source, dir, "", unix.MS_BIND, "")
	}
}
