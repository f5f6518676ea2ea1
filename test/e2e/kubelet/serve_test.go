package kubelet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// serve starts the plugin as a node's daemon does.
func (b *bed) serve(args ...string) *machine.Daemon {
	b.t.Helper()
	return machine.Start(b.t, append([]string{machine.Binary(b.t), "serve", "--root", nodeRoot}, args...)...)
}

// waitRegistered waits until the kubelet watches the list of a plugin. From then on another one may end.
func waitRegistered(t *testing.T, plugin *machine.Daemon) {
	t.Helper()
	waitSaid(t, plugin, "msg=registered")
}

// waitSaid waits until the last that a plugin logged has a text.
func waitSaid(t *testing.T, plugin *machine.Daemon, text string) {
	t.Helper()
	await.Until(t, "the plugin says "+text, func() error {
		if said := plugin.Said(3000); !strings.Contains(said, text) {
			return errors.New(said)
		}
		return nil
	})
}

func TestPods(t *testing.T) {
	for _, runtime := range []struct{ name, binaries, config string }{
		{"containerd 2", os.Getenv("CONTAINERD"), containerd2},
		{"containerd 1.7 with CDI", os.Getenv("OLD_CONTAINERD"), fmt.Sprintf(containerd1, true)},
	} {
		t.Run(runtime.name, func(t *testing.T) {
			b := newBedOn(t, runtime.binaries, runtime.config)
			b.serve()
			b.waitAllocatable(8)
			used := map[int]bool{}
			for _, n := range []int{1, 2, 4} {
				for _, i := range b.check(t, b.run(fmt.Sprintf("pod%d", n), n), n, true) {
					if used[i] {
						t.Errorf("LPU %d is given twice", i)
					}
					used[i] = true
				}
			}
			if c := b.run("none", 0); len(c.env)+len(c.nodes) != 0 {
				t.Errorf("a pod that asks for no LPU has %v", c)
			}
			// One LPU is left.
			b.put("too-many", 2)
			p := b.waitPhase("too-many", "Failed")
			if p.Status.Reason != "UnexpectedAdmissionError" && !strings.HasPrefix(p.Status.Reason, "OutOf") {
				t.Errorf("the pod that finds no LPUs is %+v", p.Status)
			}
			b.remove("pod2")
			b.check(t, b.run("again", 2), 2, true)
		})
	}
}

// TestDeviceSpecs: a runtime that ignores CDI gives a container its LPUs all the same, if the plugin names the nodes.
func TestDeviceSpecs(t *testing.T) {
	b := newBedOn(t, os.Getenv("OLD_CONTAINERD"), fmt.Sprintf(containerd1, false))
	plugin := b.serve()
	b.waitAllocatable(8)
	if c := b.run("cdi", 2); len(c.nodes) != 0 {
		t.Errorf("this runtime is meant to ignore CDI, but the container has %v", c.nodes)
	}
	b.remove("cdi")
	plugin.Stop(unix.SIGTERM)
	b.serve("--device-list-strategy", "device-specs")
	b.waitAllocatable(8)
	b.check(t, b.run("one", 1), 1, true)
	b.check(t, b.run("four", 4), 4, true)
}

// fill gives every LPU to a pod of its own, and returns which pod has which LPU.
func (b *bed) fill() map[int]string {
	b.t.Helper()
	b.waitAllocatable(8)
	holder := map[int]string{}
	for i := range 8 {
		name := fmt.Sprintf("one%d", i)
		for _, lpu := range b.check(b.t, b.run(name, 1), 1, true) {
			holder[lpu] = name
		}
	}
	return holder
}

// TestFragmented: of five free LPUs in three places a pod of four gets those that are connected, across the end of
// the address order.
func TestFragmented(t *testing.T) {
	b := newBed(t)
	b.serve()
	holder := b.fill()
	b.remove(holder[3], holder[6], holder[7], holder[0], holder[1])
	if got := b.check(t, b.run("four", 4), 4, true); !slices.Equal(got, []int{6, 7, 0, 1}) {
		t.Errorf("got LPUs %v", got)
	}
	b.remove(holder[5])
	// LPUs 3 and 5 are free now, which are no neighbours.
	b.check(t, b.run("two", 2), 2, false)
}

// TestRequireConnected: an administrator may prefer no LPUs to LPUs that are not connected.
func TestRequireConnected(t *testing.T) {
	b := newBed(t)
	b.serve("--require-connected")
	holder := b.fill()
	b.remove(holder[3], holder[5])
	b.put("two", 2)
	if p := b.waitPhase("two", "Failed"); p.Status.Reason != "UnexpectedAdmissionError" {
		t.Errorf("the pod is %+v", p.Status)
	}
	b.remove(holder[4])
	b.check(t, b.run("connected", 3), 3, true)
}

// TestRequireConnectedUnasked: where a policy of the Topology Manager leaves the kubelet no choice of LPUs it does not ask which are
// preferred.
func TestRequireConnectedUnasked(t *testing.T) {
	b := prepare(t, os.Getenv("CONTAINERD"), containerd2)
	b.flags = []string{"--topology-manager-policy", "best-effort"}
	b.startKubelet()
	b.serve("--require-connected", "--numa", "on")
	holder := b.fill()
	b.remove(holder[1], holder[3]) // of one NUMA node
	preferred := func() int {
		return b.metric("http://127.0.0.1:9477/metrics", `lpuctl_kubelet_calls_total{method="GetPreferredAllocation",code="OK"}`)
	}
	before := preferred()
	b.put("two", 2)
	p := b.waitPhase("two", "Failed")
	if !strings.Contains(p.Status.Message, "they are not connected to each other") || preferred() != before {
		t.Errorf("the kubelet asked %d times, the pod is %+v", preferred()-before, p.Status)
	}
	b.remove(holder[2])
	b.check(t, b.run("connected", 2), 2, true)
}

func TestKubeletRestarts(t *testing.T) {
	b := newBed(t)
	plugin := b.serve()
	b.waitAllocatable(8)
	b.check(t, b.run("before", 2), 2, true)
	var took []time.Duration
	for range 20 {
		b.kubelet.Stop(unix.SIGTERM)
		b.startKubelet()
		took = append(took, b.waitAllocatable(8).Round(time.Millisecond))
	}
	t.Logf("from a healthy kubelet to 8 allocatable LPUs: median %v, longest %v", slices.Sorted(slices.Values(took))[10], slices.Max(took))
	if !plugin.Running() {
		t.Error("the plugin ended")
	}
	b.waitPhase("before", "Running")
	b.check(t, b.run("after", 4), 4, true)
}

func TestPluginKilled(t *testing.T) {
	b := newBed(t)
	for i := range 5 {
		plugin := b.serve()
		b.waitAllocatable(8)
		b.check(t, b.run(fmt.Sprintf("pod%d", i), 1), 1, true)
		plugin.Stop(unix.SIGKILL)
		b.waitAllocatable(0)
	}
	b.serve()
	b.waitAllocatable(8)
	b.check(t, b.run("last", 2), 2, true)
	if left, _ := filepath.Glob("/var/lib/kubelet/device-plugins/*.sock"); len(left) != 2 {
		t.Errorf("sockets that nobody serves are left: %v", left)
	}
}

// TestUpgrade: a new plugin is started before the old one is told to end; at no moment an LPU is missing.
func TestUpgrade(t *testing.T) {
	b := newBed(t)
	old := b.serve("--overlap")
	b.waitAllocatable(8)
	watched := b.watchAllocatable()
	for i := range 5 {
		next := b.serve("--overlap")
		waitRegistered(t, next)
		pod := fmt.Sprintf("pod%d", i)
		b.put(pod, 1) // under load
		old.Stop(unix.SIGTERM)
		b.check(t, b.inspect(pod+"-"+nodeName), 1, true)
		old = next
	}
	if least, _ := watched(8); least != 8 {
		t.Errorf("at one moment only %d LPUs were allocatable", least)
	}
}

// TestReload: SIGHUP takes a new configuration in while the kubelet notices nothing; one with faults changes nothing.
func TestReload(t *testing.T) {
	b := newBed(t)
	started := time.Now()
	plugin := b.serve()
	b.waitAllocatable(8)
	t.Logf("from the start of the process to 8 allocatable LPUs: %v", time.Since(started).Round(time.Millisecond))
	holder := b.fill()
	b.remove(holder[3], holder[5])
	reload := func(config string) {
		t.Helper()
		machine.Write(t, nodeRoot+"/etc/lpuctl/config.yaml", "serve: "+config+"\n")
		if err := unix.Kill(plugin.PID(), unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		if n, err := b.allocatable(); n != 6+2 || err != nil {
			t.Errorf("%d allocatable after a reload: %v", n, err)
		}
	}
	reload("{requireConnected: true}")
	b.put("strict", 2)
	if p := b.waitPhase("strict", "Failed"); p.Status.Reason != "UnexpectedAdmissionError" {
		t.Errorf("the pod is %+v", p.Status)
	}
	reload("{requireConnected: sometimes}")
	b.put("still-strict", 2)
	b.waitPhase("still-strict", "Failed")
	reload("{}")
	b.check(t, b.run("two", 2), 2, false)
	if n := b.registrations(); n != 1 {
		t.Errorf("registered %d times", n)
	}
	if rss := machine.Status(t, plugin.PID(), "VmRSS"); rss > 30<<10 {
		t.Errorf("%d KiB resident", rss)
	} else {
		t.Logf("%d KiB resident", rss)
	}
}
