// Package kubelet proves `lpuctl serve` on the real kubelet, containerd and scheduler. The tests run as root in
// mount, PID and network namespaces of their own, where every program finds its usual paths and ports, nothing
// of the host is touched, and nothing outlives the tests. LPUCTL names the binary under test; KUBERNETES,
// CONTAINERD and CONTAINERD_OLD name the directories that `make e2e-kubelet-tools` fills.
package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inNamespace marks the process that runs the tests, in its own namespaces.
const inNamespace = "LPUCTL_E2E_IN_NAMESPACE"

// nodeIP is an address of the loopback device that is no loopback address: nodes and API servers want such.
const nodeIP = "192.0.2.1"

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
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	// When the first process of a PID namespace ends the kernel ends all others, so no daemon can be left.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	if err := cmd.Run(); cmd.ProcessState == nil {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

// privateMachine makes the namespaces usable: own mounts, own processes, loopback.
func privateMachine() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making / private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := unix.Mount("tmpfs", "/dev", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mounting /dev: %w", err)
	}
	for name, number := range map[string][2]uint32{
		"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9}, "kmsg": {1, 11}, "tty": {5, 0}, "ptmx": {5, 2},
	} {
		node := filepath.Join("/dev", name)
		if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(number[0], number[1]))); err != nil {
			return fmt.Errorf("%s: %w", node, err)
		}
		if err := os.Chmod(node, 0o666); err != nil { // whatever the umask
			return err
		}
	}
	return bringUpLoopback()
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
	var ip [4]byte
	if _, err := fmt.Sscanf(nodeIP, "%d.%d.%d.%d", &ip[0], &ip[1], &ip[2], &ip[3]); err != nil {
		return err
	}
	return errors.Join(unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, up), address.SetInet4Addr(ip[:]), unix.IoctlIfreq(s, unix.SIOCSIFADDR, address))
}

// need skips a test that lacks something, naming it; on CI that is a failure.
func need(t *testing.T, programs ...string) {
	t.Helper()
	var missing []string
	if obstacle != nil {
		missing = append(missing, obstacle.Error())
	}
	for tool, name := range map[string]string{"runc": "runc", "busybox": "busybox-static"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, fmt.Sprintf("%s (apt-get install %s)", tool, name))
		}
	}
	for _, p := range programs {
		if _, err := os.Stat(p); err != nil {
			missing = append(missing, p+" (make e2e-kubelet-tools)")
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

// binary is the lpuctl under test.
func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("LPUCTL")
	if path == "" {
		t.Fatal("LPUCTL must name the binary to test (make e2e-kubelet does)")
	}
	return path
}

func kubernetes(program string) string { return filepath.Join(os.Getenv("KUBERNETES"), program) }

// mount mounts until the test ends, with all that is mounted below by then.
func mount(t *testing.T, source, target, kind string, flags uintptr) {
	t.Helper()
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

// eventually tries until there is no error.
func eventually(t *testing.T, limit time.Duration, what string, try func() error) {
	t.Helper()
	start := time.Now()
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Since(start) > limit {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// daemon is a program that runs until it is stopped, at the latest when the test ends.
type daemon struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// start starts a daemon. If the test fails the end of what it logged is shown.
func start(t *testing.T, command ...string) *daemon {
	t.Helper()
	log, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{exec.Command(command[0], command[1:]...), make(chan struct{})}
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait()
		close(d.done)
	}()
	t.Cleanup(func() {
		d.stop(unix.SIGKILL)
		if data, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("== %s (process %d) said at the end:\n%s", filepath.Base(command[0]), d.cmd.Process.Pid, data[max(0, len(data)-3000):])
		}
		_ = log.Close()
	})
	return d
}

// stop sends a signal to the daemon's process group and waits for the daemon to end.
func (d *daemon) stop(signal syscall.Signal) {
	if d.running() {
		_ = unix.Kill(-d.cmd.Process.Pid, signal)
	}
	<-d.done
}

func (d *daemon) running() bool {
	select {
	case <-d.done:
		return false
	default:
		return true
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
