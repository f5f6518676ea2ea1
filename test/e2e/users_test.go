package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// TestUsers: a process that holds an LPU's node open is named with its container.
func TestUsers(t *testing.T) {
	p := newPodman(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "2", "--numbers", machine.Numbers(t, 2))
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	proc := root + "/proc"
	if err := os.Mkdir(proc, 0o555); err != nil {
		t.Fatal(err)
	}
	machine.Mount(t, "/proc", proc, "", unix.MS_BIND|unix.MS_REC, "")
	holder, err := os.OpenFile("/dev/lpu1", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	container := machine.Start(t, p.Container("trap exit TERM; exec 3<>/dev/lpu0; sleep 60 & wait", device("lpu0")...)...)
	t.Cleanup(func() { container.Stop(unix.SIGTERM) })
	type user struct {
		PID                int
		Command, Container string
	}
	var inventory struct{ LPUs []struct{ Users []user } }
	await.Until(t, "lpu0 is used", func() error {
		if err := json.Unmarshal([]byte(machine.Lpuctl(t, "--root", root, "list", "-o", "json")), &inventory); err != nil {
			t.Fatal(err)
		}
		if len(inventory.LPUs[0].Users) == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	inContainer, here := inventory.LPUs[0].Users, inventory.LPUs[1].Users
	if len(inContainer[0].Container) != 64 {
		t.Errorf("lpu0 is used by %+v", inContainer)
	}
	if len(here) != 1 || here[0].PID != os.Getpid() || here[0].Container != "" {
		t.Errorf("lpu1 is used by %+v, want process %d", here, os.Getpid())
	}
	if out := machine.Lpuctl(t, "--root", root, "list"); !strings.Contains(out, " container ") {
		t.Errorf("list does not show the container:\n%s", out)
	}
	r := machine.Run(t, machine.Binary(t), "--root", root, "allocate")
	if r.Code != 3 || !strings.Contains(r.Stderr, "1 LPU asked for, 0 of 2 free") {
		t.Errorf("allocate gives away what is used: exit %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
}
