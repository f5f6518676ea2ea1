package hostile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
)

// Groups is where control groups of any name can be made (cgroups(7)), as where they are delegated to a user.
func Groups(t testing.TB) (dir string) {
	t.Helper()
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"} {
		if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err != nil {
			continue
		}
		if dir, err := os.MkdirTemp(mount, "lpuctl"); err == nil { //nolint:usetesting // it is a control group
			t.Cleanup(func() { RemoveGroup(t, dir) })
			return dir
		}
	}
	t.Skip("only root can make control groups, where they are mounted")
	return ""
}

// Group makes a control group of a user, and puts a process into it that end ends. The group stays until the test ends.
func Group(t testing.TB, dir string, uid int) (end func()) {
	t.Helper()
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, uid, -1)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { RemoveGroup(t, dir) })
	process, end := sleeping(t)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(fmt.Sprint(process)), 0o600); err != nil {
		t.Fatal(err)
	}
	return end
}

// sleeping is a process that ends with the test or before.
func sleeping(t testing.TB) (pid int, stop func()) {
	t.Helper()
	pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "1000"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	stop = func() {
		if !ended {
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = unix.Wait4(pid, nil, 0, nil)
			ended = true
		}
	}
	t.Cleanup(stop)
	return pid, stop
}

// RemoveGroup removes a control group. It waits for the kernel, which takes a process out of its group a moment after it ends.
func RemoveGroup(t testing.TB, dir string) {
	t.Helper()
	await.Until(t, "the control group is gone", func() error {
		if err := os.Remove(dir); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	})
}
