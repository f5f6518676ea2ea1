package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/test/await"
)

// TestRootEndsTheLeaseOfACommand: run says so, also to who has asked for quiet, and ends the command. The arbiter ends nothing.
func TestRootEndsTheLeaseOfACommand(t *testing.T) {
	dir := leaseNode(t)
	_, dial, stop := leasing(t, dir, "", func(a *lease.Arbiter) {
		a.Describe = func(_ context.Context, p lease.Peer) (lease.Peer, *lease.Refusal) {
			if p.UID = 1000; p.PID == os.Getpid() {
				p.UID = 0
			}
			return p, nil
		}
	})
	defer stop()
	socket := filepath.Join(dir, lease.Socket)
	if err := errors.Join(os.MkdirAll(filepath.Dir(socket), 0o755), os.Symlink("/socket", socket)); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{
		"lpuctl", "--root", dir, "--quiet", "run", "--for", "1h", "--no-isolation", "--memlock", "0", "--",
		"sh", "-c", "echo ready; exec sleep 1000",
	}
	cmd.Stderr, cmd.SysProcAttr = &said, &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(await.Limit, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }).Stop()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		_ = cmd.Wait()
		t.Fatalf("%q, %v: %s", line, err, &said)
	}
	root := dial()
	defer func() { _ = root.Close() }()
	l, err := root.List(t.Context())
	if err != nil || len(l.Leases) != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	if ended, err := root.End(t.Context(), l.Leases[0].ID); err != nil || ended.UID != 1000 || ended.PID != cmd.Process.Pid {
		t.Fatalf("%+v, %v", ended, err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 128+int(unix.SIGTERM) {
		t.Errorf("it ended with %d", code)
	}
	text := said.String()
	if !strings.HasPrefix(text, "warning: run: root ended the lease at 20") || !strings.Contains(text, "Z: terminated [lease-ended]\n") {
		t.Errorf("it said %q", text)
	}
}
