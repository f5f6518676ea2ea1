package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// TestDetachedTable: the kernel takes the ring table of a container away when another file takes the place of the host's, and lpuctl
// names the container until it is started again.
func TestDetachedTable(t *testing.T) {
	p := newPodman(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "4", "--numbers", machine.Numbers(t, 4))
	const table, onHost = "/usr/lib/hyperaccel/table.json", "/opt/hyperaccel/lib/table.json" // as the model mounts the directory
	here := filepath.Join(root, onHost)
	machine.Write(t, here, "the host's\n")
	machine.Write(t, filepath.Join(root, "etc/lpuctl/config.yaml"), "models:\n- name: lpu\n  ringTable: "+table+"\n")
	machine.InstallRing(t, root, "[0, 1, 2, 3]")
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	machine.BindMount(t, filepath.Join(root, "run/lpuctl/ring"), "/run/lpuctl/ring")
	machine.BindMount(t, "/proc", filepath.Join(root, "proc"))
	lost := func() string { return machine.Run(t, machine.Binary(t), "--root", root, "health").Stderr }
	start := func() *machine.Daemon {
		t.Helper()
		script := "trap exit TERM; echo reads $(cat " + table + "); while sleep 0.1; do [ ! -e /usr/lib/hyperaccel/again ] || break; done; " +
			"echo reads again $(cat " + table + "); sleep 60 & wait"
		c := machine.Start(t, p.Container(script, device("lpu1")...)...)
		t.Cleanup(func() { c.Stop(unix.SIGTERM) })
		await.Until(t, "the container runs", func() error { return c.Says("reads") })
		return c
	}
	c := start()
	if err := c.Says("num_device"); err != nil {
		t.Errorf("it has no table of its own: %v", err)
	}
	machine.Write(t, here, "in place\n")
	if said := lost(); strings.Contains(said, "ring-table-detached") {
		t.Error(said)
	}
	machine.Write(t, here+".new", "another file\n")
	if err := os.Rename(here+".new", here); err != nil {
		t.Fatal(err)
	}
	if said := lost(); !strings.Contains(said, " container ") || !strings.Contains(said, "it has lpu1 and reads "+onHost+" of the host") {
		t.Errorf("nothing is found: %s", said)
	}
	machine.Write(t, filepath.Join(root, "opt/hyperaccel/lib/again"), "")
	await.Until(t, "the container reads the host's table", func() error { return c.Says("reads again another file") })
	c.Stop(unix.SIGTERM)
	start()
	await.Until(t, "the former container is gone", func() error {
		if said := lost(); strings.Contains(said, "ring-table-detached") {
			return errors.New(said)
		}
		return nil
	})
}
