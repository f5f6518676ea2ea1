package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// TestServeWithACardThatHangs: scans come again and again, and the card that hangs costs one thread, not one for each.
func TestServeWithACardThatHangs(t *testing.T) {
	need(t, machine.FUSE)
	root := simulate(t)
	serial, err := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices", cardAddress, "xmc.u.*/serial_num"))
	if err != nil || len(serial) != 1 {
		t.Fatal(serial, err)
	}
	here := hang(t, root, nil, filepath.Base(filepath.Dir(serial[0]))+"/serial_num")
	cmd := exec.Command(machine.Binary(t), "--root", here, "serve", "--interval", "100ms", "--listen", "")
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	time.Sleep(4 * time.Second)
	before := machine.Status(t, cmd.Process.Pid, "Threads")
	time.Sleep(6 * time.Second)
	// Threads also come with a busy machine; 60 scans would leave 60.
	if after := machine.Status(t, cmd.Process.Pid, "Threads"); after > before+15 {
		t.Errorf("%d threads became %d: each scan leaves one behind", before, after)
	}
	const most = 30 << 10 // KiB
	if rss := machine.Status(t, cmd.Process.Pid, "VmRSS"); rss > most {
		t.Errorf("it takes %d KiB of memory", rss)
	} else {
		t.Logf("%d threads, %d KiB resident", before, rss)
	}
	spec, err := os.ReadFile(filepath.Join(root, "var/run/cdi/hyperaccel.ai-lpu.json"))
	if err != nil || !strings.Contains(string(spec), `"pci-0000-43-00.1"`) {
		t.Errorf("the other cards have no spec: %v", err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v:\n%s", err, log.String())
		}
	case <-time.After(await.Limit):
		t.Error("SIGTERM does not end it")
	}
}

// TestServeInBadPlaces: what it cannot write to is told, and it goes on if that may pass.
func TestServeInBadPlaces(t *testing.T) {
	need(t)
	for name, c := range map[string]struct {
		spoil func(t *testing.T, root string)
		want  string
		ends  bool // or goes on
	}{
		"the disk is full": {func(t *testing.T, root string) {
			machine.Mount(t, "tmpfs", root+"/var/run/cdi", "tmpfs", 0, "size=8k")
		}, "no space left on device", false},
		"the sockets' directory is read-only": {func(t *testing.T, root string) {
			dir := root + "/p"
			if err := os.WriteFile(dir+"/kubelet.sock", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			machine.Mount(t, dir, dir, "", unix.MS_BIND, "")
			if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
		}, "/p: is read-only in this mount namespace", true}, // which only a new sandbox may mend
		"the sockets' directory is missing": {func(t *testing.T, root string) {
			if err := os.Remove(root + "/p"); err != nil {
				t.Fatal(err)
			}
		}, "no such file or directory", false},
	} {
		t.Run(name, func(t *testing.T) {
			root := simulate(t)
			for _, dir := range []string{"/var/run/cdi", "/p"} {
				if err := os.MkdirAll(root+dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			c.spoil(t, root)
			// The plugin directory is /p because the path of a socket must be short.
			began := time.Now()
			d := machine.Start(t, machine.Binary(t), "--root", root, "serve", "--listen", "", "--plugin-dir", "/p")
			await.Until(t, "it says so", func() error { return d.Says(c.want) })
			if c.ends {
				await.For(t, "it ends", func() bool { return !d.Running() })
			} else {
				time.Sleep(3 * time.Second) // in which it could say so again and again
			}
			if d.Running() == c.ends {
				t.Error("it has ended")
			}
			d.Stop(unix.SIGTERM)
			if code := d.ExitCode(); c.ends && code != 1 {
				t.Errorf("exit code %d", code)
			}
			if n := strings.Count(d.Said(1<<20), c.want); n > 4*int(1+time.Since(began).Seconds()) {
				t.Errorf("it said so %d times in %v", n, time.Since(began))
			}
			if left, _ := filepath.Glob(root + "/var/run/cdi/*.json*"); len(left) > 0 && c.want == "no space left on device" {
				t.Errorf("half a spec is left: %v", left)
			}
		})
	}
}
