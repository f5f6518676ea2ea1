package containerd

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// TestLeasedNerdctl: a container that nerdctl has left behind keeps its lease until it ends, although no process of it has the connection:
// the lease is bound to its id. One in the foreground has its lease as long.
func TestLeasedNerdctl(t *testing.T) {
	need(t, nerdctl())
	e := newEngine(t, "2.4.2")
	simulate(t)
	machine.BindMount(t, "/proc", nodeRoot+"/proc")
	if err := e.start(); err != nil {
		t.Fatal(err)
	}
	arbiter := serveLeases(t)
	run := func(options ...string) []string {
		return append([]string{machine.Binary(t), "--root", nodeRoot, "run", "--memlock", "0"}, options...)
	}
	leased := func(n int) func() error {
		return func() error {
			if got := strings.Count(machine.Lpuctl(t, "--root", nodeRoot, "list", "-o", "json"), `"leased"`); got != n {
				return fmt.Errorf("%d LPUs are leased, not %d: %s", got, n, arbiter.Said(2000))
			}
			return nil
		}
	}
	machine.Output(t, append(run("-n", "3", "--"), byNerdctl("exec sleep 1000", "-d", "--name", "left", "{args}")...)...)
	t.Cleanup(func() { _, _ = said(t, inNerdctl("rm", "-f", "left")...) })
	if err := leased(3)(); err != nil {
		t.Fatal(err)
	}
	if r := machine.Run(t, append(run("-n", "2", "--"), byNerdctl("true", "--rm", "{args}")...)...); r.Code != 125 {
		t.Errorf("two more: exit code %d: %s", r.Code, r.Stderr)
	}
	got, err := said(t, append(run("--"), byNerdctl("echo $LPU_DEVICE_INDEX", "--rm", "{args}")...)...)
	if err != nil || got != "3\n" {
		t.Errorf("the last one: %q, %v", got, err)
	}
	all := machine.Start(t, append(run("-n", "4", "--wait", "--"), byNerdctl("echo has $LPU_VISIBLE_DEVICES", "--rm", "{args}")...)...)
	machine.Eventually(t, 20*time.Second, "a wish for all waits", func() error { return says(all, "waiting, place 1 of 1") })
	machine.Output(t, inNerdctl("rm", "-f", "left")...)
	machine.Eventually(t, time.Minute, "it is fulfilled", func() error { return says(all, "has 0,1,2,3") })
	machine.Eventually(t, 20*time.Second, "nothing is leased any more", leased(0))
}

// serveLeases starts an arbiter of the node.
func serveLeases(t *testing.T) *machine.Daemon {
	t.Helper()
	const socket = nodeRoot + "/run/lpuctl/lease.sock"
	d := machine.Start(t, machine.Binary(t), "--root", nodeRoot, "lease", "serve", "--socket", socket)
	t.Cleanup(func() { d.Stop(unix.SIGTERM) })
	machine.Eventually(t, 20*time.Second, "the arbiter listens", func() error { _, err := os.Stat(socket); return err })
	return d
}

func says(d *machine.Daemon, what string) error {
	if text := d.Said(10000); !strings.Contains(text, what) {
		return errors.New(text)
	}
	return nil
}
