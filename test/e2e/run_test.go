package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// runOn is a command of run on a simulated node.
func runOn(t *testing.T, root string, options ...string) []string {
	t.Helper()
	return append([]string{machine.Binary(t), "--quiet", "--root", root, "run", "--no-lease", "--memlock", "0"}, options...)
}

// TestRunPodman: a container gets four connected LPUs, the second one the other four, and the third waits for one of them to end.
func TestRunPodman(t *testing.T) {
	p := newPodman(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "8", "--numbers", machine.Numbers(t, 8))
	machine.InstallRing(t, root, "[0, 1, 2, 3, 4, 5, 6, 7]")
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	machine.BindMount(t, "/proc", root+"/proc")
	has := func(visible string, of ...int) string {
		want := lines("env LPU_CONNECTED=true", "env LPU_DRIVER_VERSION=1.0.0", "env LPU_RING_ORDER=0,1,2,3", "env LPU_VISIBLE_DEVICES="+visible,
			"env NUM_LPU_DEVICES=4")
		for _, n := range of {
			want += lines(lpu(t, n))
		}
		return want + lines("lib 1.0.0")
	}
	four := append(runOn(t, root, "-n", "4", "--"), p.Container("exec 3<>/dev/lpu0; trap exit TERM; echo holds; sleep 60 & wait", "{args}")...)
	first := machine.Start(t, four...)
	t.Cleanup(func() { first.Stop(unix.SIGTERM) })
	await.Until(t, "the first container holds lpu0", func() error { return first.Says("holds") })
	second := append(runOn(t, root, "-n", "4", "--"), p.Container(machine.Inspect+"; exit 5", "{args}")...)
	if r := machine.Run(t, second...); r.Code != 5 || r.Stdout != has("4,5,6,7", 4, 5, 6, 7) {
		t.Errorf("second: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	single := append(runOn(t, root, "--must-include", "3", "--"), p.Container(machine.Inspect, "--device", "{}")...)
	want := lines("env LPU_DEVICE_INDEX=3", "env LPU_DRIVER_VERSION=1.0.0", "env LPU_RING_ORDER=0", "env LPU_VISIBLE_DEVICES=3", lpu(t, 3),
		"lib 1.0.0")
	if r := machine.Run(t, single...); r.Code != 0 || r.Stdout != want {
		t.Errorf("one device: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	// The soft limit of locked memory is raised, in the container too; who has no right to raise the hard one keeps that.
	limit := append([]string{"sh", "-c", `ulimit -S -l 64; exec "$@"`, "sh"}, runOn(t, root, "--must-include", "3", "--")...)
	hard := machine.Output(t, "sh", "-c", "ulimit -H -l")
	if r := machine.Run(t, append(limit, p.Container("ulimit -S -l", "{args}")...)...); r.Stdout != hard {
		t.Errorf("locked memory: exit code %d: %s%s, want %s", r.Code, r.Stdout, r.Stderr, hard)
	}
	wait := []string{machine.Binary(t), "--root", root, "run", "--no-lease", "-n", "4", "--must-include", "lpu0", "--wait=1m", "--"}
	third := machine.Start(t, append(wait, p.Container(machine.Inspect, "{args}")...)...)
	await.Until(t, "the third waits", func() error {
		return third.Says("waiting: LPUs that must be included are not free: lpu0")
	})
	first.Stop(unix.SIGTERM)
	await.Until(t, "the third has run", func() error {
		if third.Running() {
			return errors.New("it has not ended")
		}
		return third.Says(has("0,1,2,3", 0, 1, 2, 3))
	})
}

// TestLeasedContainers: a container that was left behind by podman, root's or an ordinary user's, keeps its lease until it ends. Nobody
// else gets its LPUs, a wish for them waits, and is fulfilled then.
func TestLeasedContainers(t *testing.T) {
	t.Run("root", func(t *testing.T) {
		leasedContainers(t, leaseNode(t), nil, newPodman(t), "root(0)")
	})
	t.Run("ordinary user", func(t *testing.T) {
		home, user := ordinaryUser(t)
		root := leaseNode(t) // before podman makes the namespaces in which it goes on
		machine.PodmanIn(home, append(slices.Clone(user), "podman")...).Import(t)
		leasedContainers(t, root, user, machine.PodmanIn(home, "podman"), "lpue2e(4242)")
	})
}

// leaseNode makes this machine a node of eight LPUs with an arbiter, which anybody may ask.
func leaseNode(t *testing.T) (root string) {
	t.Helper()
	root = simulate(t, "--profile", "lpu", "--lpus", "8", "--numbers", machine.Numbers(t, 8))
	machine.InstallRing(t, root, "[0, 1, 2, 3, 4, 5, 6, 7]")
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	machine.BindMount(t, "/proc", root+"/proc")
	machine.BindGroups(t, root)
	machine.ServeLeases(t, root)
	return root
}

// leasedContainers lets a user run containers with a podman on that node; as is what starts a command as that user.
func leasedContainers(t *testing.T, root string, as []string, p machine.Podman, user string) {
	t.Helper()
	run := func(options ...string) []string {
		return slices.Concat(as, []string{machine.Binary(t), "--root", root, "run", "--memlock", "0"}, options)
	}
	leased := func() int { return strings.Count(machine.Lpuctl(t, "--root", root, "list", "-o", "json"), `"leased"`) }
	for _, way := range [][]string{ // by which a container would run again when its lease has ended
		{"run", "--rm", "-d", "--restart=always", "{args}"}, {"create", "--rm", "{args}"}, {"run", "-d", "{args}"},
		{"run", "--rm", "-d", "--pod", "new:around", "{args}"},
	} {
		around := slices.Concat(run("--"), p, way, []string{machine.Image, "sleep", "1000"})
		if r := machine.Run(t, around...); r.Code != 125 || !strings.Contains(r.Stderr, "remedy: ") || leased() != 0 {
			t.Errorf("%v: exit code %d, %d LPUs leased: %s", way, r.Code, leased(), r.Stderr)
		}
	}
	if made := machine.Output(t, slices.Concat(as, p, []string{"ps", "-aq"})...); made != "" {
		t.Errorf("podman has made %s", made)
	}

	machine.Output(t, append(run("-n", "4", "--"), p.Container("exec sleep 1000", "-d", "--name", "left", "{args}")...)...)
	if n := leased(); n != 4 {
		t.Fatalf("%d LPUs are leased to the container that was left behind", n)
	}
	if n := strings.Count(machine.Lpuctl(t, "--root", root, "list"), user); n != 4 {
		t.Errorf("%s holds %d LPUs", user, n)
	}
	second := machine.Run(t, append(run("-n", "4", "--"), p.Container("echo $LPU_VISIBLE_DEVICES", "{args}")...)...)
	if second.Code != 0 || second.Stdout != "4,5,6,7\n" {
		t.Errorf("the second: exit code %d: %s%s", second.Code, second.Stdout, second.Stderr)
	}
	if r := machine.Run(t, append(run("-n", "5", "--"), p.Container("true", "{args}")...)...); r.Code != 125 ||
		!strings.Contains(r.Stderr, "without what you have leased yourself there are too few such LPUs: lpu0 lpu1 lpu2 lpu3") {
		t.Errorf("five: exit code %d: %s", r.Code, r.Stderr)
	}
	const shows = "echo has $LPU_VISIBLE_DEVICES; sleep 1" // a busy podman loses what a container says that ends at once
	third := machine.Start(t, append(run("-n", "8", "--wait", "--"), p.Container(shows, "{args}")...)...)
	await.Until(t, "the third waits", func() error { return third.Says("waiting, place 1 of 1") })
	machine.Output(t, slices.Concat(as, p, []string{"rm", "-f", "-t", "0", "left"})...)
	await.Until(t, "the third has run", func() error { return third.Says("has 0,1,2,3,4,5,6,7") })
	isFree := func() error {
		if n := leased(); n > 0 {
			return fmt.Errorf("%d LPUs are leased", n)
		}
		return nil
	}
	await.Until(t, "nothing is leased any more", isFree)

	if as != nil { // without control groups of its own a container is known by what it has open only
		return
	}
	// The arbiter ends what is left behind when its time is over; where podman takes longer than that to start it, run does.
	const heeds = "trap 'exit 0' TERM; sleep 1000 & wait"
	timed := machine.Run(t, append(run("-n", "4", "--for", "10s", "--"), p.Container(heeds, "-d", "--name", "timed", "{args}")...)...)
	t.Logf("exit code %d: %s", timed.Code, timed.Stderr)
	await.Until(t, "the time of the lease is over", isFree)
	await.Until(t, "its container has ended", func() error {
		if running := machine.Output(t, slices.Concat(as, p, []string{"ps", "-q", "--filter", "name=timed"})...); running != "" {
			return fmt.Errorf("%s runs", running)
		}
		return nil
	})
}

// TestKilledAroundAContainer: podman and conmon may be killed, but the LPU that the container has open is given to nobody until it ends.
func TestKilledAroundAContainer(t *testing.T) {
	p := newPodman(t)
	root := leaseNode(t)
	run := func(options ...string) []string {
		return append([]string{machine.Binary(t), "--root", root, "run", "--memlock", "0"}, options...)
	}
	const holds = "exec 3<>/dev/lpu0; echo holds; exec sleep 1000"
	holding := machine.Start(t, append(run("--"), p.Container(holds, "--name", "held", "{args}")...)...)
	await.Until(t, "the container holds its LPU", func() error { return holding.Says("holds") })
	pid := func(of string) int {
		n, err := strconv.Atoi(strings.TrimSpace(machine.Output(t, slices.Concat(p, []string{"inspect", "-f", of, "held"})...)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	container, conmon := pid("{{.State.Pid}}"), pid("{{.State.ConmonPid}}")
	want := func(state string) {
		t.Helper()
		await.Until(t, "lpu0 is "+state, func() error {
			line, _, _ := strings.Cut(machine.Lpuctl(t, "--root", root, "list", "--no-headers"), "\n")
			if !strings.Contains(line, state) {
				return errors.New(line)
			}
			return nil
		})
		if r := machine.Run(t, append(run("-n", "8", "--"), p.Container("true", "{args}")...)...); r.Code != 125 {
			t.Errorf("while lpu0 is %s all are given away: exit code %d: %s", state, r.Code, r.Stderr)
		}
	}
	want("root(0)")
	for _, step := range []struct {
		pid   int
		state string
	}{{holding.PID(), "root(0)"}, {conmon, "  none  "}} {
		if err := unix.Kill(step.pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		want(step.state)
	}
	if err := unix.Kill(container, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "all can be had", func() error {
		if r := machine.Run(t, append(run("-n", "8", "--"), p.Container("true", "{args}")...)...); r.Code != 0 {
			return errors.New(r.Stderr)
		}
		return nil
	})
}

// TestRunRootlessPodman: an ordinary user's podman gives a container four connected LPUs.
func TestRunRootlessPodman(t *testing.T) {
	home, user := ordinaryUser(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "8", "--numbers", machine.Numbers(t, 8))
	machine.InstallRing(t, root, "[0, 1, 2, 3, 4, 5, 6, 7]")
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	own := machine.PodmanIn(home, append(slices.Clone(user), "podman")...)
	own.Import(t)
	p := machine.PodmanIn(home, "podman")
	run := slices.Concat(user, runOn(t, root, "-n", "4", "--"), p.Container(machine.Inspect+"; exit 6", "{args}"))
	want := lines("env LPU_CONNECTED=true", "env LPU_DRIVER_VERSION=1.0.0", "env LPU_RING_ORDER=0,1,2,3", "env LPU_VISIBLE_DEVICES=0,1,2,3",
		"env NUM_LPU_DEVICES=4", lpu(t, 0), lpu(t, 1), lpu(t, 2), lpu(t, 3), "lib 1.0.0")
	if r := machine.Run(t, run...); r.Code != 6 || r.Stdout != want {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	// Only a group may open the nodes: then the container is to keep the user's groups.
	for _, mode := range []fs.FileMode{0o660, 0o666} {
		if err := os.Chmod(root+"/dev/lpu0", mode); err != nil {
			t.Fatal(err)
		}
		r := machine.Run(t, slices.Concat(user, runOn(t, root, "--dry-run", "--", "podman", "run", "{args}"))...)
		keeps := strings.Contains(r.Stdout, "run --device hyperaccel.ai/lpu=lpu0 --group-add keep-groups\n")
		if r.Code != 0 || keeps != (mode == 0o660) {
			t.Errorf("with mode %v: %s%s", mode, r.Stdout, r.Stderr)
		}
	}
}

// openAll opens every device node below /dev that can be opened and keeps it open; each is printed.
const openAll = `for n in $(find /dev -type c); do (exec 3<>$n && echo "opens $n" && exec sleep 60) 2>/dev/null & done; wait`

// TestTwoPlainPrograms: two programs that open every node they find get disjoint LPUs, of root and of an ordinary user, whether the nodes
// are in a directory of their own or in /dev, and everything else in /dev works.
func TestTwoPlainPrograms(t *testing.T) {
	need(t, "setpriv", machine.FUSE)
	users := map[string][]string{"root": nil, "ordinary": {"setpriv", "--reuid", "4242", "--regid", "4242", "--clear-groups"}}
	for profile, pattern := range map[string]string{"orion": "/dev/dri/renderD", "lpu": "/dev/lpu"} {
		for name, user := range users {
			t.Run(profile+" "+name, func(t *testing.T) {
				root := simulate(t, "--profile", profile, "--lpus", "4", "--numbers", machine.Numbers(t, 4))
				become(t, root)
				run := slices.Concat(user, runOn(t, "/", "-n", "2", "--"))
				sees(t, run, "lpu0", "lpu1")
				first := machine.Start(t, append(slices.Clone(run), "sh", "-c", openAll)...)
				await.Until(t, "the first has two", func() error {
					if opened := openedBy(first.Said(10000), pattern); len(opened) != 2 {
						return errors.New(first.Said(10000))
					}
					return nil
				})
				const each = `for n in /dev/dri/renderD* /dev/lpu*; do [ -c $n ] && (exec 3<>$n) && echo $n; done; true`
				if outside := machine.Output(t, "sh", "-c", each); strings.Count(outside, "\n") != 4 {
					t.Errorf("outside only these open:\n%s", outside)
				}
				second := machine.Run(t, append(run, "sh", "-c", strings.Replace(openAll, " && exec sleep 60", "", 1))...)
				one, two := openedBy(first.Said(10000), pattern), openedBy(second.Stdout, pattern)
				if len(one) != 2 || len(two) != 2 || slices.ContainsFunc(one, func(n string) bool { return slices.Contains(two, n) }) {
					t.Errorf("the first opens %v, the second %v\n%s", one, two, second.Stderr)
				}
				for _, n := range []string{"/dev/null", "/dev/zero", "/dev/ptmx"} {
					if !strings.Contains(second.Stdout, "opens "+n+"\n") {
						t.Errorf("%s does not open:\n%s", n, second.Stdout)
					}
				}
				first.Stop(unix.SIGKILL)
			})
		}
	}
}

// sees checks that a plain program sees these LPUs only, and that lpuctl calls no other one sick or gone, because it is hidden.
func sees(t *testing.T, run []string, want ...string) {
	t.Helper()
	inside := func(args ...string) machine.Result {
		return machine.Run(t, slices.Concat(run, []string{machine.Binary(t)}, args)...)
	}
	list := inside("list", "-o", "name")
	names := strings.Fields(strings.ReplaceAll(list.Stdout, "hyperaccel.ai/lpu=", ""))
	if !slices.Equal(names, want) || !strings.Contains(list.Stderr, "hides from it: lpu2 lpu3 ") {
		t.Errorf("list: %s%s", list.Stdout, list.Stderr)
	}
	all := inside("list", "-o", "json", "lpu0", "lpu1", "lpu2", "lpu3")
	if strings.Count(all.Stdout, `"usable": true`) != 4 || strings.Count(all.Stdout, `"hidden": true`) != 2 {
		t.Errorf("of all: %s%s", all.Stdout, all.Stderr)
	}
	again := inside("run", "--no-lease", "--", "true")
	if again.Code != 125 || !strings.Contains(again.Stderr, "lpuctl run started this shell") {
		t.Errorf("run: %d %s", again.Code, again.Stderr)
	}
	if spec := inside("cdi", "generate"); spec.Code != 1 || !strings.Contains(spec.Stderr, "hides lpu2") {
		t.Errorf("generate: %d %s", spec.Code, spec.Stderr)
	}
}

// TestForbiddenNamespaces: where a user may make no namespace a plain program is not started, and the remedy works.
func TestForbiddenNamespaces(t *testing.T) {
	need(t, "setpriv", machine.FUSE)
	root := simulate(t, "--profile", "lpu", "--lpus", "2", "--numbers", machine.Numbers(t, 2))
	if err := errors.Join(os.Chmod(filepath.Dir(root), 0o755), os.Chmod(filepath.Dir(filepath.Dir(root)), 0o755)); err != nil { // for any user
		t.Fatal(err)
	}
	run := strings.Join(runOn(t, root), " ")
	cmd := exec.Command("sh", "-c", `echo 0 > /proc/sys/user/max_user_namespaces
as="setpriv --reuid 4242 --regid 4242 --clear-groups"
$as `+run+` -- echo started; echo $?
$as `+run+` --no-isolation -- echo started; echo $?
echo 15000 > /proc/sys/user/max_user_namespaces # the file of sysctl -w, of this namespace only
$as `+run+` -- echo started; echo $?`)
	all := []syscall.SysProcIDMap{{Size: 65536}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, UidMappings: all, GidMappings: all, GidMappingsEnableSetgroups: true,
	}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if string(out) != "125\nstarted\n0\nstarted\n0\n" || !strings.Contains(said.String(), "no user namespace may be made: ") ||
		!strings.Contains(said.String(), "remedy: as root: sysctl -w user.max_user_namespaces=15000; or with --no-isolation") {
		t.Errorf("%v: %s%s", err, out, said.String())
	}
}

// openedBy are the nodes of LPUs that openAll says it has opened.
func openedBy(text, pattern string) (nodes []string) {
	for line := range strings.Lines(text) {
		if node, is := strings.CutPrefix(strings.TrimSpace(line), "opens "+pattern); is {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// become makes this machine a simulated node until the test ends: its sysfs, and the nodes in /dev.
func become(t *testing.T, root string) {
	t.Helper()
	machine.BindMount(t, root+"/sys", "/sys")
	err := filepath.WalkDir(root+"/dev", func(path string, entry fs.DirEntry, err error) error {
		here := strings.TrimPrefix(path, root)
		switch {
		case err != nil || here == "/dev":
			return err
		case entry.IsDir():
			t.Cleanup(func() { _ = os.Remove(here) })
			return os.Mkdir(here, 0o755)
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		t.Cleanup(func() { _ = os.Remove(here) })
		return machine.MakeNode(here, unix.Major(st.Rdev), unix.Minor(st.Rdev))
	})
	if err != nil {
		t.Fatal(err)
	}
	machine.Mount(t, "devpts", "/dev/pts", "devpts", 0, "ptmxmode=666")
	// systemd shares all mounts: what is mounted in a new namespace is then seen here too, unless that is prevented.
	if err := unix.Mount("", "/dev", "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Mount("", "/dev", "", unix.MS_PRIVATE, "") })
}
