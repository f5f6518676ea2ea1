package machine

import (
	"bytes"
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
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hyperaccel/lpuctl/test/await"
)

// Result is what a command left behind.
type Result struct {
	Code           int // of exit
	Stdout, Stderr string
}

// Run runs a command to its end; that it exits with another code than 0 is no failure by itself.
func Run(t *testing.T, command ...string) Result {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("%v: %v", command, err)
	}
	return Result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// Output runs a command to its end, wants exit code 0, and returns what it printed.
func Output(t *testing.T, command ...string) string {
	t.Helper()
	r := Run(t, command...)
	if r.Code != 0 {
		t.Fatalf("%v: exit code %d\n%s%s", command, r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// Binary is the lpuctl under test.
func Binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("LPUCTL")
	if path == "" {
		t.Fatal("LPUCTL must name the binary to test (make e2e, e2e-kubelet and e2e-containerd do)")
	}
	return path
}

// Lpuctl runs the binary under test, wants exit code 0, and returns what it printed.
func Lpuctl(t *testing.T, args ...string) string {
	t.Helper()
	return Output(t, append([]string{Binary(t)}, args...)...)
}

// Daemon is a program that runs until it is stopped, at the latest when the test ends.
type Daemon struct {
	t     *testing.T
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// Start starts a daemon in /. If the test fails the end of what it logged is shown.
func Start(t *testing.T, command ...string) *Daemon {
	t.Helper()
	log, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	d := &Daemon{t, exec.Command(command[0], command[1:]...), log.Name(), make(chan struct{})}
	d.cmd.Dir = "/"
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait()
		close(d.ended)
	}()
	t.Cleanup(func() {
		d.Stop(unix.SIGKILL)
		if t.Failed() {
			t.Logf("== %s (process %d) said at the end:\n%s", filepath.Base(command[0]), d.PID(), d.Said(3000))
		}
	})
	return d
}

// Stop sends a signal to the daemon's process group and waits for the daemon to end.
func (d *Daemon) Stop(signal syscall.Signal) {
	d.t.Helper()
	if !d.Running() {
		return
	}
	_ = unix.Kill(-d.PID(), signal) // it may have ended by now
	select {
	case <-d.ended:
	case <-time.After(await.Limit):
		d.t.Errorf("%v: %v does not end it within %v", d.cmd.Args, signal, await.Limit)
		_ = unix.Kill(-d.PID(), unix.SIGKILL)
		<-d.ended
	}
}

// Running tells whether the daemon has not ended.
func (d *Daemon) Running() bool {
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

// ExitCode is that of a daemon that has ended.
func (d *Daemon) ExitCode() int { return d.cmd.ProcessState.ExitCode() }

// PID is the number of the daemon's process.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Said is the end of what the daemon logged, at most n bytes.
func (d *Daemon) Said(n int) string {
	data, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-n):])
}

// Says is an error with the latest of what the daemon logged, unless what is in it.
func (d *Daemon) Says(what string) error {
	if text := d.Said(10000); !strings.Contains(text, what) {
		return errors.New(text)
	}
	return nil
}

// ServeLeases starts the arbiter of a node, which anybody may ask.
func ServeLeases(t *testing.T, root string) *Daemon {
	t.Helper()
	socket := root + "/run/lpuctl/lease.sock"
	d := Start(t, Binary(t), "--root", root, "lease", "serve", "--socket", socket)
	t.Cleanup(func() { d.Stop(unix.SIGTERM) })
	await.Until(t, "the arbiter listens", func() error { return os.Chmod(socket, 0o666) })
	return d
}

// Dial makes a connection that is opened by the first call, and again whenever it broke.
func Dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Status is a number of /proc/PID/status, memory in KiB.
func Status(t *testing.T, pid int, field string) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	_, after, found := strings.Cut(string(data), "\n"+field+":")
	if _, err := fmt.Sscan(after, &n); !found || err != nil {
		t.Fatalf("%s: %v", field, err)
	}
	return n
}
