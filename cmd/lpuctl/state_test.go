package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
)

// TestSandboxesMayWriteTheState: the units and the DaemonSet see everything else read-only.
func TestSandboxesMayWriteTheState(t *testing.T) {
	for file, line := range map[string]string{
		"systemd/lpuctl-cdi-refresh.service":   "\nStateDirectory=" + filepath.Base(node.StateDir) + "\n",
		"systemd/lpuctl-runtime-check.service": "\nStateDirectory=" + filepath.Base(node.StateDir) + "\n",
		"systemd/lpuctl-serve.service":         "\nStateDirectory=" + filepath.Base(node.StateDir) + "\n",
		"packaging/kubernetes/lpuctl.yaml":     "mountPath: /host" + node.StateDir + "}\n",
	} {
		text, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil || !strings.Contains(string(text), line) {
			t.Errorf("%s: no %q (%v)", file, line, err)
		}
	}
}

// TestTheUnitKnowsTheArbiter: it starts it again after a signal, for which the exit code is not the one of an arbiter that has nothing to
// do.
func TestTheUnitKnowsTheArbiter(t *testing.T) {
	text := readText(t, "../../systemd/lpuctl-lease.service")
	for _, line := range []string{
		"Restart=always", fmt.Sprintf("RestartPreventExitStatus=%d %d", cli.ExitDone, cli.ExitUsage),
		fmt.Sprintf("SuccessExitStatus=%d", exitStopped),
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no %q", line)
		}
	}
	dir := simulated(t)
	listener, err := lease.Listen(filepath.Join(dir, "socket"), -1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	file, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	program := filepath.Join(dir, "lpuctl")
	self, err := os.Executable()
	if err := errors.Join(err, os.Symlink(self, program)); err != nil {
		t.Fatal(err)
	}
	// As systemd starts it.
	cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, program, "--root", dir, "lease", "serve")
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), "LISTEN_FDS=1", "LISTEN_FDNAMES=lpuctl-lease.socket"), []*os.File{file}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	c, err := lease.Dial(filepath.Join(dir, "socket"))
	if err == nil {
		_, err = c.List(t.Context()) // it serves
		defer func() { _ = c.Close() }()
	}
	if err := errors.Join(err, cmd.Process.Signal(unix.SIGTERM)); err != nil {
		t.Error(err)
	}
	if err := <-ended; cmd.ProcessState.ExitCode() != exitStopped {
		t.Errorf("a signal: %v", err)
	}
}

// TestResultOfTheSelfCheck: serve looks for it where it is written, and the unit writes it as often as the timer starts the unit.
func TestResultOfTheSelfCheck(t *testing.T) {
	if filepath.Dir(runtimes.ResultPath) != node.StateDir {
		t.Errorf("%s is not in %s", runtimes.ResultPath, node.StateDir)
	}
	for file, line := range map[string]string{
		"systemd/lpuctl-runtime-check.service": "\nExecStart=/usr/bin/lpuctl --quiet runtime check --write-result --period 5m\n",
		"systemd/lpuctl-runtime-check.timer":   "\nOnUnitActiveSec=5m\n",
	} {
		if text := readText(t, filepath.Join("../..", file)); !strings.Contains(text, line) {
			t.Errorf("%s: no %q", file, line)
		}
	}
}

// TestServeAsksTheResult: it has the answer of the file at the first look.
func TestServeAsksTheResult(t *testing.T) {
	memory := node.Memory{Dir: t.TempDir()}
	if a := cli.AskResult(memory)(); a.CDI != node.CDIUnknown || a.Reason == nil {
		t.Errorf("without a file: %+v", a)
	}
	used := runtimes.Runtime{Name: "containerd", CDI: runtimes.Off, AfterRestart: runtimes.Off, UsedByKubelet: true}
	path := filepath.Join(memory.Dir, filepath.Base(runtimes.ResultPath))
	if err := runtimes.NewResult([]runtimes.Runtime{used}, host.Now(), time.Minute).Write(path, host.Now()); err != nil {
		t.Fatal(err)
	}
	ask := cli.AskResult(memory)
	if a := ask(); a.CDI != node.CDIOff {
		t.Errorf("%+v", a)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	before := host.SinceBoot() / cli.ResultInterval
	if a := ask(); a.CDI != node.CDIOff && before == host.SinceBoot()/cli.ResultInterval {
		t.Errorf("it has looked again before the next beat: %+v", a)
	}
}
