package containerd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/await"
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
	arbiter := machine.ServeLeases(t, nodeRoot)
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
	const shows = "echo has $LPU_VISIBLE_DEVICES; sleep 1" // so long that the lease is bound
	all := machine.Start(t, append(run("-n", "4", "--wait", "--"), byNerdctl(shows, "--rm", "{args}")...)...)
	await.Until(t, "a wish for all waits", func() error { return all.Says("waiting, place 1 of 1") })
	machine.Output(t, inNerdctl("rm", "-f", "left")...)
	await.Until(t, "it is fulfilled", func() error { return all.Says("has 0,1,2,3") })
	await.Until(t, "nothing is leased any more", leased(0))
}
