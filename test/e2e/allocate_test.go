package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// TestAllocateForPodman carries out the two forms that the help of allocate shows. With nothing free, no container starts.
func TestAllocateForPodman(t *testing.T) {
	p := newPodman(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "4", "--numbers", machine.Numbers(t, 4))
	machine.InstallRing(t, root, "[0, 1, 2, 3]")
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	const version, lib = "env LPU_DRIVER_VERSION=1.0.0", "lib 1.0.0"
	want := func(connected, order, visible string, nodes ...string) string {
		return lines("env LPU_CONNECTED="+connected, version, "env LPU_RING_ORDER="+order, "env LPU_VISIBLE_DEVICES="+visible,
			"env NUM_LPU_DEVICES="+strconv.Itoa(len(nodes))) + lines(nodes...) + lines(lib)
	}
	two := want("true", "0,1", "0,1", lpu(t, 0), lpu(t, 1))
	for name, c := range map[string]struct{ allocate, quotes, want string }{
		"a name":                {"-n 2 -o name", `--device "$d"`, two},
		"arguments":             {"-n 2 -o args", "$d", two},
		"no set device":         {"-n 2 -o args --available 0,2", "$d", want("false", "0,1", "0,2", lpu(t, 0), lpu(t, 2))},
		"too few for a name":    {"-n 5 -o name", `--device "$d"`, ""},
		"too few for arguments": {"-n 5 -o args", "$d", ""},
		"no name for this set":  {"-n 2 -o name --available 0,2", `--device "$d"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			run := p.Container(machine.Inspect+"; echo started", "PLACE")
			for i, word := range run {
				run[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
			}
			script := fmt.Sprintf("d=$('%s' --root '%s' allocate %s) && %s", machine.Binary(t), root, c.allocate,
				strings.Replace(strings.Join(run, " "), "'PLACE'", c.quotes, 1))
			r := machine.Run(t, "sh", "-c", script)
			if c.want == "" && (r.Code != 3 || r.Stdout != "") {
				t.Errorf("exit code %d, the container said %q", r.Code, r.Stdout)
			}
			if c.want != "" && (r.Code != 0 || r.Stdout != c.want+"started\n") {
				t.Errorf("exit code %d: %s\nthe container said\n%s\nwant\n%s", r.Code, r.Stderr, r.Stdout, c.want)
			}
		})
	}
}

// TestOrdinaryUser: what root's process uses looks unknown to an ordinary user, and not free without a word.
func TestOrdinaryUser(t *testing.T) {
	need(t, "setpriv", machine.FUSE)
	root := simulate(t, "--profile", "lpu", "--lpus", "2", "--numbers", machine.Numbers(t, 2))
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	holder, err := os.OpenFile("/dev/lpu0", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	// Only this process, and what tells that the list is complete: here are other processes, and no thread of the kernel.
	self := strconv.Itoa(os.Getpid())
	machine.Write(t, filepath.Join(root, "proc/2/comm"), "kthreadd\n")
	own := filepath.Join(root, "proc", self)
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	machine.Mount(t, "/proc/"+self, own, "", unix.MS_BIND, "")
	user := openToAll(t, root)
	for name, c := range map[string]struct {
		command []string
		out     string
		warns   bool
	}{
		"root lists":       {[]string{machine.Binary(t), "list"}, "(" + self + ")", false},
		"root allocates":   {[]string{machine.Binary(t), "allocate", "-o", "name"}, "hyperaccel.ai/lpu=lpu1", false},
		"a user lists":     {append(user, "list"), " ?", true},
		"a user allocates": {append(user, "allocate", "-o", "name"), "hyperaccel.ai/lpu=lpu0", true},
	} {
		r := machine.Run(t, append(c.command, "--root", root)...)
		if r.Code != 0 || !strings.Contains(r.Stdout, c.out) || strings.Contains(r.Stderr, "[users-hidden]") != c.warns {
			t.Errorf("%s: exit code %d\n%s%s", name, r.Code, r.Stdout, r.Stderr)
		}
	}
}

// openToAll returns the command that runs lpuctl as a user without any rights, who may read the simulated node.
func openToAll(t *testing.T, root string) []string {
	t.Helper()
	program := filepath.Join("/run", "lpuctl-e2e")
	data, err := os.ReadFile(machine.Binary(t))
	if err := errors.Join(err, os.WriteFile(program, data, 0o755)); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(program) })
	for dir := filepath.Dir(root); dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", program}
}
