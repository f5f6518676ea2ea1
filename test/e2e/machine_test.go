// Package e2e proves lpuctl on what really consumes its work: podman, lspci, a file system that hangs, a
// process that is killed. The packages below it do so on the kubelet and on containerd; machine is what all three run on.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// obstacle is why this machine cannot run the tests.
var obstacle error

func TestMain(m *testing.M) {
	if dirs, address, hostile := strings.Cut(os.Getenv(strangerIn), ","); hostile {
		stranger(strings.Split(dirs, ":"), address)
	}
	if os.Getenv(listenerIn) != "" {
		listenForUevents()
	}
	obstacle = machine.Enter(nil)
	os.Exit(m.Run())
}

// need skips a test that lacks programs, or FUSE, or what every test needs.
func need(t *testing.T, things ...string) {
	t.Helper()
	machine.Need(t, obstacle, "", things...)
}

// How much memory a command may take, whatever it is given to read.
const (
	memoryLimit = 256 << 20 // bytes; it takes less than 20 MiB on a simulated server
	memoryCap   = 1 << 30   // bytes; nothing gets more, for the sake of the machine that runs the tests
)

// bounded runs a command that may meet anything: it must end in time, with little memory and without a crash,
// and print nothing but text.
func bounded(t *testing.T, command ...string) machine.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
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
		t.Errorf("%v: did not end within %v", command, await.Limit)
	}
	if usage := cmd.ProcessState.SysUsage().(*syscall.Rusage); usage.Maxrss > memoryLimit>>10 {
		t.Errorf("%v: took %d MiB of memory, more than %d", command, usage.Maxrss>>10, memoryLimit>>20)
	}
	r := machine.Result{Code: cmd.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errOut.String()}
	if i := strings.Index(r.Stderr, "goroutine "); i >= 0 {
		// Of hundreds of lines the first ones say what it was.
		r.Stderr = r.Stderr[:min(len(r.Stderr), i+1000)]
		t.Errorf("%v: crashed:\n%s", command, r.Stderr)
	}
	if said := r.Stdout + r.Stderr; strings.Contains(said, "panic") || strings.ContainsAny(said, "\x00\x1b\x7f") || !utf8.ValidString(said) {
		t.Errorf("%v: printed what is not for people: %.500q", command, said)
	}
	return r
}

// simulate writes a simulated node and returns its root.
func simulate(t *testing.T, args ...string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "node")
	machine.Lpuctl(t, append([]string{"--quiet", "simulate", root}, args...)...)
	return root
}
