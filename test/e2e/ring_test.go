package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// cabling is a ring table of HyperDex: the LPUs in the order of their cables, each to the next on its right or left.
func cabling(direction string, ring ...int) string {
	var links []string
	for i, lpu := range ring {
		links = append(links, fmt.Sprintf(`{"src_id": %d, "dst_id": %d, "direction": %q}`, lpu, ring[(i+1)%len(ring)], direction))
	}
	return fmt.Sprintf(`{"network": [%s], "num_device": %d}`, strings.Join(links, ", "), len(ring))
}

// plain is a ring of eight LPUs in the order of their addresses.
var plain = cabling("Right", 0, 1, 2, 3, 4, 5, 6, 7)

// orion simulates an Orion server of eight LPUs that are cabled in a way, and writes its spec.
func orion(t *testing.T, cabling string) (root string, server machine.Server) {
	t.Helper()
	root = simulate(t, "--profile", "orion", "--lpus", "8", "--numbers", machine.Numbers(t, 8))
	machine.Write(t, root+machine.RingTable, cabling)
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	return root, machine.ServerOf(t, root)
}

// TestTheTestsOwnReader: with the host's table 27 of 48 arcs are right in a container, as HyperAccel's public reader was seen to take them.
func TestTheTestsOwnReader(t *testing.T) {
	need(t)
	root := simulate(t, "--profile", "orion", "--lpus", "8")
	s := machine.ServerOf(t, root)
	nodes := make([]string, 8)
	for node, lpu := range s.Nodes {
		nodes[lpu] = node
	}
	arcs, right := 0, 0
	for n := 2; n < 8; n++ {
		for start := range 8 {
			var arc []int
			printed := "table " + plain
			for i := range n {
				arc = append(arc, (start+i)%8)
				printed += "\nnode " + nodes[(start+i)%8]
			}
			if arcs++; s.Right(printed, arc...) == nil {
				right++
			}
		}
	}
	if arcs != 48 || right != 27 {
		t.Errorf("%d of %d arcs are right", right, arcs)
	}
}

// TestRingInPodman: in a container of each device HyperDex' program finds the ring table by which it computes over cables that are there.
func TestRingInPodman(t *testing.T) {
	p := newPodman(t)
	root, server := orion(t, plain)
	machine.Install(t, root)
	ringInPodman(t, root, server, p)
}

// TestRingInRootlessPodman: in the containers of an ordinary user too, on a server that is cabled in another order, leftward.
func TestRingInRootlessPodman(t *testing.T) {
	home, user := ordinaryUser(t)
	root, server := orion(t, cabling("Left", 4, 1, 6, 0, 3, 7, 2, 5))
	machine.Install(t, root)
	p := machine.PodmanIn(home, append(user, "podman")...)
	p.Import(t)
	ringInPodman(t, root, server, p)
}

func ringInPodman(t *testing.T, root string, server machine.Server, p machine.Podman) {
	t.Helper()
	devices := machine.DevicesByIndex(t, root)
	if len(devices) != 8+48+1+1 {
		t.Errorf("there are %d devices", len(devices))
	}
	for name, lpus := range devices {
		r := p.Run(t, machine.PrintRing, device(name)...)
		if r.Code != 0 {
			t.Errorf("%s: exit code %d: %s", name, r.Code, r.Stderr)
			continue
		}
		if err := server.Right(r.Stdout, lpus...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRingOfRun: run gives containers the table of their LPUs, also of several pieces, for which there is no device, and a plain program
// too, which sees no other LPUs.
func TestRingOfRun(t *testing.T) {
	p := newPodman(t)
	root, server := orion(t, plain)
	machine.Install(t, root)
	machine.BindMount(t, "/proc", root+"/proc")
	run := func(lpus ...string) string {
		options := []string{"-n", strconv.Itoa(len(lpus)), "--must-include", strings.Join(lpus, ",")}
		return machine.Output(t, append(append(runOn(t, root, options...), "--"), p.Container(machine.PrintRing, "{args}")...)...)
	}
	if err := server.Right(run("7", "0", "1"), 7, 0, 1); err != nil {
		t.Errorf("an arc: %v", err)
	}
	if err := server.Right(run("5"), 5); err != nil {
		t.Errorf("one: %v", err)
	}
	if err := server.Apart(run("0", "2", "3", "6"), []int{0}, []int{2, 3}, []int{6}); err != nil {
		t.Errorf("three pieces: %v", err)
	}
	if err := server.Apart(run("7", "0", "3", "4"), []int{7, 0}, []int{3, 4}); err != nil {
		t.Errorf("two pairs: %v", err)
	}
}

// TestRingOfRunAfterABoot: a boot empties /run. The refresh makes the table again of a container that is kept, and that has LPUs for which
// there is no device.
func TestRingOfRunAfterABoot(t *testing.T) {
	p := newPodman(t)
	root, server := orion(t, plain)
	machine.Install(t, root)
	machine.BindMount(t, "/proc", root+"/proc")
	kept := p.Container(machine.PrintRing, "{args}", "--rm=false", "--name", "kept")
	machine.Output(t, append(append(runOn(t, root, "-n", "4", "--must-include", "0,2,3,6"), "--"), kept...)...)
	if err := os.RemoveAll(root + "/run/lpuctl/ring"); err != nil {
		t.Fatal(err)
	}
	start := append(slices.Clone(p), "start", "--attach", "kept")
	if r := machine.Run(t, start...); r.Code == 0 {
		t.Errorf("it starts without its table: %s", r.Stdout)
	}
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	if err := server.Apart(machine.Output(t, start...), []int{0}, []int{2, 3}, []int{6}); err != nil {
		t.Error(err)
	}
}

// TestRingOfAPlainProgram: run lets a plain program, which opens no node of others, read the table of its LPUs.
func TestRingOfAPlainProgram(t *testing.T) {
	_, ordinary := ordinaryUser(t)
	root, server := orion(t, plain)
	become(t, root)
	machine.BindMount(t, root+"/opt", "/opt")
	for _, user := range [][]string{ordinary, nil} { // root leaves tables that others can use
		run := func(lpus string) string {
			options := []string{"-n", strconv.Itoa(1 + strings.Count(lpus, ",")), "--must-include", lpus, "--", "sh", "-c", machine.PrintRing}
			return machine.Output(t, slices.Concat(user, runOn(t, "/", options...))...)
		}
		if err := server.Right(run("7,0,1"), 7, 0, 1); err != nil {
			t.Errorf("%v, an arc: %v", user, err)
		}
		if err := server.Apart(run("0,2,3"), []int{0}, []int{2, 3}); err != nil {
			t.Errorf("%v, two pieces: %v", user, err)
		}
	}
}

// TestHostsThatAreNotFit: where the host has no HyperDex a container has the table all the same; where the host's own table is no file it
// has none of its own, lpuctl says so, and the container starts.
func TestHostsThatAreNotFit(t *testing.T) {
	p := newPodman(t)
	const hyperdex = "/opt/hyperdex"
	arc := []int{6, 7, 0, 1}
	for name, c := range map[string]struct {
		change func(root, table string) error
		says   string
		own    bool // the container has a table of its own
	}{
		"no HyperDex": {func(root, _ string) error { return os.RemoveAll(root + hyperdex) }, "", true},
		"no table":    {func(_, table string) error { return os.Remove(table) }, "there is no " + machine.RingTable, false},
		"a link": {func(_, table string) error {
			return errors.Join(os.Rename(table, table+".1"), os.Symlink("table.json.1", table))
		}, "is a link", false},
		"a directory": {func(_, table string) error { return errors.Join(os.Remove(table), os.Mkdir(table, 0o755)) }, "is no file", false},
		"a link above": {func(root, _ string) error {
			return errors.Join(os.Rename(root+hyperdex+"/hrt", root+hyperdex+"/hrt1"), os.Symlink("hrt1", root+hyperdex+"/hrt"))
		}, "is a link", false},
		"as it should be": {func(string, string) error { return nil }, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			root := simulate(t, "--profile", "orion", "--lpus", "8", "--numbers", machine.Numbers(t, 8))
			server := machine.ServerOf(t, root)
			machine.InstallRing(t, root, "[0, 1, 2, 3, 4, 5, 6, 7]")
			if err := c.change(root, root+machine.RingTable); err != nil {
				t.Fatal(err)
			}
			refresh := machine.Run(t, machine.Binary(t), "--root", root, "cdi", "refresh")
			if said := refresh.Stdout + refresh.Stderr; refresh.Code != 0 || !strings.Contains(said, c.says) ||
				strings.Contains(said, "ring-table-left-out") != (c.says != "") {
				t.Errorf("exit code %d: %s, want %q", refresh.Code, said, c.says)
			}
			machine.Install(t, root)
			r := p.Run(t, machine.PrintRing, device("lpu6-7-0-1")...)
			if err := server.Right(r.Stdout, arc...); r.Code != 0 || (err == nil) != c.own {
				t.Errorf("exit code %d: %s: %v\n%s", r.Code, r.Stderr, err, r.Stdout)
			}
		})
	}
}

// TestRingTableThatIsReplaced: what is renamed over the host's ring table detaches that of a container that runs; what is written into it
// does not.
func TestRingTableThatIsReplaced(t *testing.T) {
	p := newPodman(t)
	root, server := orion(t, plain)
	machine.Install(t, root)
	start := func(name string) (judge func() error) {
		machine.Output(t, p.Container("exec sleep 1000", append(device("lpu6-7-0-1"), "-d", "--name", name)...)...)
		t.Cleanup(func() { machine.Output(t, slices.Concat(p, []string{"rm", "-f", "-t", "0", name})...) })
		return func() error {
			return server.Right(machine.Output(t, slices.Concat(p, []string{"exec", name, "sh", "-c", machine.PrintRing})...), 6, 7, 0, 1)
		}
	}
	machine.ReplaceRingTable(t, root, start("first"))
	if err := start("second")(); err != nil {
		t.Errorf("a container that is started afterwards: %v", err)
	}
}
