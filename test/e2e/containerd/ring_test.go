package containerd

import (
	"os"
	"slices"
	"testing"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// orion makes this machine a simulated Orion server of eight LPUs in a ring, as far as a container runtime looks.
func orion(t *testing.T) machine.Server {
	t.Helper()
	machine.Lpuctl(t, "--quiet", "simulate", nodeRoot, "--profile", "orion", "--lpus", "8", "--numbers", machine.Numbers(t, 8))
	t.Cleanup(func() { _ = os.RemoveAll(nodeRoot) })
	machine.Lpuctl(t, "--quiet", "--root", nodeRoot, "cdi", "refresh")
	machine.Install(t, nodeRoot)
	return machine.ServerOf(t, nodeRoot)
}

// TestRing: in a container of each device HyperDex' program finds the ring table by which it computes over cables that are there.
func TestRing(t *testing.T) {
	need(t, nerdctl())
	e := newEngine(t, "2.4.2")
	server := orion(t)
	if err := e.start(); err != nil {
		t.Fatal(err)
	}
	devices := machine.DevicesByIndex(t, nodeRoot)
	if len(devices) != 8+48+1+1 {
		t.Errorf("there are %d devices", len(devices))
	}
	for name, lpus := range devices {
		printed, err := e.runs(name, machine.PrintRing)
		if err == nil {
			err = server.Right(printed, lpus...)
		}
		if err != nil {
			t.Errorf("CRI, %s: %v", name, err)
		}
	}
	for _, name := range []string{"lpu3", "lpu7-0", "lpu6-7-0-1", "all"} {
		printed, err := said(t, byNerdctl(machine.PrintRing, "--rm", "--device", "hyperaccel.ai/lpu="+name)...)
		if err == nil {
			err = server.Right(printed, devices[name]...)
		}
		if err != nil {
			t.Errorf("nerdctl, %s: %v", name, err)
		}
	}
	run := []string{machine.Binary(t), "--quiet", "--root", nodeRoot, "run", "--no-lease", "--memlock", "0", "-n", "4", "--must-include"}
	started := func(lpus string) string {
		return machine.Output(t, slices.Concat(run, []string{lpus, "--"}, byNerdctl(machine.PrintRing, "--rm", "{args}"))...)
	}
	if err := server.Right(started("5,6,7,0"), 5, 6, 7, 0); err != nil {
		t.Errorf("nerdctl by run, an arc: %v", err)
	}
	if err := server.Apart(started("7,0,3,4"), []int{7, 0}, []int{3, 4}); err != nil {
		t.Errorf("nerdctl by run, two pairs: %v", err)
	}
}

// TestRingThatIsReplaced: what is renamed over the host's ring table detaches that of a container that runs, which reads the host's then;
// what is written into it does not.
func TestRingThatIsReplaced(t *testing.T) {
	need(t, nerdctl())
	e := newEngine(t, "2.4.2")
	server := orion(t)
	if err := e.start(); err != nil {
		t.Fatal(err)
	}
	machine.Output(t, byNerdctl("exec sleep 1000", "-d", "--name", "runs", "--device", "hyperaccel.ai/lpu=lpu6-7-0-1")...)
	t.Cleanup(func() { _, _ = said(t, inNerdctl("rm", "-f", "runs")...) })
	judge := func() error {
		return server.Right(machine.Output(t, inNerdctl("exec", "runs", "sh", "-c", machine.PrintRing)...), 6, 7, 0, 1)
	}
	machine.ReplaceRingTable(t, nodeRoot, judge)
}
