package containerd

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// The devices that containers ask for: an LPU, a set of neighbours on the ring, all.
const one, set, all = "lpu0", "lpu0-1", "all"

// gets is what inspect says in a container that asked for a device.
func gets(t *testing.T, device string) string {
	t.Helper()
	some := func(n int, order string) string {
		return "env LPU_CONNECTED=true\nenv LPU_DRIVER_VERSION=1.0.0\n" +
			fmt.Sprintf("env LPU_RING_ORDER=%[1]s\nenv LPU_VISIBLE_DEVICES=%[1]s\nenv NUM_LPU_DEVICES=%[2]d\n", order, n) +
			nodes(t, n)
	}
	return map[string]string{
		one: "env LPU_DEVICE_INDEX=0\nenv LPU_DRIVER_VERSION=1.0.0\nenv LPU_RING_ORDER=0\nenv LPU_VISIBLE_DEVICES=0\n" + nodes(t, 1),
		set: some(2, "0,1"),
		all: some(4, "0,1,2,3"),
	}[device]
}

// nodes is what inspect says of the first n LPUs, and of the software.
func nodes(t *testing.T, n int) (text string) {
	t.Helper()
	for i := range n {
		text += machine.Inspected(t, i)
	}
	return text + "lib 1.0.0\n"
}

// compare runs inspect in a container of each device.
func compare(t *testing.T, run func(device string) (string, error)) {
	t.Helper()
	for _, device := range []string{one, set, all} {
		if got, err := run(device); err != nil || got != gets(t, device) {
			t.Errorf("%s: %v\n%swant:\n%s", device, err, got, gets(t, device))
		}
	}
}

// said is what a command prints, and what it complains of if it fails.
func said(t *testing.T, command ...string) (string, error) {
	t.Helper()
	r := machine.Run(t, command...)
	if r.Code != 0 {
		return r.Stdout, fmt.Errorf("%v: exit code %d: %s", command, r.Code, r.Stderr)
	}
	return r.Stdout, nil
}

// TestDevices: the same spec gives the same to containers of CRI, ctr and nerdctl.
func TestDevices(t *testing.T) {
	need(t, nerdctl())
	e := newEngine(t, "2.4.2")
	simulate(t)
	if err := e.start(); err != nil {
		t.Fatal(err)
	}
	t.Run("CRI", func(t *testing.T) { compare(t, e.run) })
	t.Run("ctr", func(t *testing.T) {
		compare(t, func(device string) (string, error) {
			return said(t, "ctr", "run", "--rm", "--device", "hyperaccel.ai/lpu="+device,
				machine.Image, "by-ctr-"+device, "sh", "-c", machine.Inspect)
		})
	})
	t.Run("nerdctl", func(t *testing.T) {
		compare(t, func(device string) (string, error) {
			return said(t, byNerdctl(machine.Inspect, "--rm", "--device", "hyperaccel.ai/lpu="+device)...)
		})
	})
	t.Run("nerdctl started by lpuctl run", func(t *testing.T) {
		compare(t, func(device string) (string, error) {
			number := map[string]string{one: "1", set: "2", all: "4"}[device]
			run := []string{machine.Binary(t), "--quiet", "--root", nodeRoot, "run", "--no-lease", "--memlock", "0", "-n", number, "--"}
			return said(t, append(run, byNerdctl(machine.Inspect, "--rm", "{args}")...)...)
		})
	})
}

func nerdctl() string { return tool("nerdctl-v2.2.1/nerdctl") }

// inNerdctl is a command of nerdctl.
func inNerdctl(command ...string) []string {
	return append([]string{nerdctl(), "--data-root", "/var/lib/containerd/nerdctl", "--cgroup-manager", "cgroupfs"}, command...)
}

// byNerdctl is a command that runs a script in a container.
func byNerdctl(script string, options ...string) []string {
	return inNerdctl(slices.Concat([]string{"run", "--network", "host"}, options, []string{machine.Image, "sh", "-c", script})...)
}

// TestPodman: and to root's containers of podman.
func TestPodman(t *testing.T) {
	need(t, "podman")
	simulate(t)
	podman := machine.NewPodman(t)
	compare(t, func(device string) (string, error) {
		return said(t, podman.Container(machine.Inspect, "--device", "hyperaccel.ai/lpu="+device)...)
	})
}

// TestRenumbered: containerd keeps the numbers that a node had when a container first got it, until the spec is
// written anew.
func TestRenumbered(t *testing.T) {
	for _, release := range []string{"1.7.35", "2.2.9", "2.4.2"} {
		t.Run(release, func(t *testing.T) {
			e := newEngine(t, release)
			simulate(t)
			e.configure(map[string]string{"config.toml": tables.Replace("version = 2\n{2}\nenable_cdi = true\n")})
			if truth := e.fresh(); truth != "yes" {
				t.Fatalf("truth %s", truth)
			}
			numbers := func() string {
				got, err := e.run(one)
				_, after, _ := strings.Cut(got, "node /dev/lpu0 ")
				number, _, _ := strings.Cut(after, "\n")
				if err != nil {
					number = err.Error()
				}
				return number
			}
			renumber(t)
			before := numbers()
			machine.Lpuctl(t, "--quiet", "--root", nodeRoot, "cdi", "refresh")
			was := machine.DeviceNumbers(t, 1)[0]
			if after := numbers(); before != fmt.Sprintf("%x:%x", was.Major, was.Minor) || after != "1:7" {
				t.Errorf("the node is 1:7 now; a container got %s, and after a refresh %s", before, after)
			}
		})
	}
}

// renumber gives LPU 0 other numbers, as when its driver is loaded again after others.
func renumber(t *testing.T) {
	t.Helper()
	machine.Write(t, nodeRoot+"/sys/class/lpu/lpu0/dev", "1:7\n")
	machine.Write(t, nodeRoot+"/sys/class/lpu/lpu0/uevent", "MAJOR=1\nMINOR=7\nDEVNAME=lpu0\n")
	const byNumbers = nodeRoot + "/sys/dev/char/"
	if err := os.Rename(byNumbers+machine.DeviceNumbers(t, 1)[0].String(), byNumbers+"1:7"); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"/dev/lpu0", nodeRoot + "/dev/lpu0"} {
		if err := os.Remove(node); err != nil {
			t.Fatal(err)
		}
		if err := machine.MakeNode(node, 1, 7); err != nil {
			t.Fatal(err)
		}
	}
}
