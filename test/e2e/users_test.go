package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestUsers: a process that holds an LPU's node open is named with its container.
func TestUsers(t *testing.T) {
	p := newPodman(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "2", "--numbers", fuseNumbers)
	lpuctl(t, "--root", root, "cdi", "refresh")
	install(t, root)
	proc := root + "/proc"
	if err := os.Mkdir(proc, 0o555); err != nil {
		t.Fatal(err)
	}
	mount(t, "/proc", proc, "", unix.MS_BIND|unix.MS_REC, "")
	holder, err := os.OpenFile("/dev/lpu1", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	container := exec.Command(p.command[0], append(p.command[1:], "run", "--rm", "--network=none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024",
		"--device", "hyperaccel.ai/lpu=lpu0", "--rootfs", p.rootfs, "sh", "-c", "trap exit TERM; exec 3<>/dev/lpu0; sleep 60 & wait")...)
	if err := container.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = container.Process.Signal(unix.SIGTERM)
		_ = container.Wait()
	})
	type user struct {
		PID                int
		Command, Container string
	}
	var inventory struct{ LPUs []struct{ Users []user } }
	for range 100 {
		if err := json.Unmarshal([]byte(lpuctl(t, "--root", root, "list", "-o", "json")), &inventory); err != nil {
			t.Fatal(err)
		}
		if len(inventory.LPUs[0].Users) > 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	inContainer, here := inventory.LPUs[0].Users, inventory.LPUs[1].Users
	if len(inContainer) == 0 || len(inContainer[0].Container) != 64 {
		t.Errorf("lpu0 is used by %+v", inContainer)
	}
	if len(here) != 1 || here[0].PID != os.Getpid() || here[0].Container != "" {
		t.Errorf("lpu1 is used by %+v, want process %d", here, os.Getpid())
	}
	if out := lpuctl(t, "--root", root, "list"); !strings.Contains(out, " container ") {
		t.Errorf("list does not show the container:\n%s", out)
	}
	if r := run(t, binary(t), "--root", root, "allocate"); r.code != 3 || !strings.Contains(r.stderr, "1 LPU asked for, 0 of 2 free") {
		t.Errorf("allocate gives away what is used: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}
