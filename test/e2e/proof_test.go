package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// asPodman puts a program named podman first in PATH that is this podman.
func asPodman(t *testing.T, p machine.Podman) (path string) {
	t.Helper()
	podman, err := exec.LookPath("podman")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, above := range []string{dir, filepath.Dir(dir)} { // for other users
		if err := os.Chmod(above, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text := "#!/bin/sh\nset -- " + strings.Join(p[1:], " ") + ` "$@"
for word; do
  shift
  set -- "$@" "$word"
  [ "$word" != run ] || set -- "$@" --ulimit nofile=1024:1024 --ulimit nproc=1024:1024
done
[ -z "$HOLD" ] || exec ` + dir + `/hold "$@"
exec ` + podman + ` "$@"
`
	machine.Write(t, dir+"/podman", text)
	// It makes a container in place of running it, and stays until it is killed.
	machine.Write(t, dir+"/hold", `#!/bin/sh
for word; do
  shift
  case $word in run) set -- "$@" create;; --rm|-i) ;; *) set -- "$@" "$word";; esac
done
`+podman+` "$@" >&2
case " $* " in *" create "*) echo made >&2; exec sleep 1000;; esac
`)
	for _, file := range []string{"/podman", "/hold"} {
		if err := os.Chmod(dir+file, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return "PATH=" + dir + ":" + os.Getenv("PATH")
}

// proofOf is a command that proves, on a simulated node.
func proofOf(t *testing.T, root string, env []string, options ...string) []string {
	t.Helper()
	return slices.Concat([]string{"env"}, env, []string{machine.Binary(t), "--root", root, "doctor", "--run", "--engine", "podman"}, options)
}

// proofs is the document of a proof.
type proofs struct {
	LPUs    []string
	Engines []struct {
		Engine, State, Why, Words string
		Differences, Opened       []string
		Milliseconds              int
	}
}

func readProofs(t *testing.T, r machine.Result) proofs {
	t.Helper()
	var p proofs
	if err := json.Unmarshal([]byte(r.Stdout), &p); err != nil {
		t.Fatalf("exit code %d: %v\n%s%s", r.Code, err, r.Stdout, r.Stderr)
	}
	if len(p.Engines) != 1 {
		t.Fatalf("exit code %d: %+v\n%s", r.Code, p, r.Stderr)
	}
	return p
}

// proofNode is a simulated node of two LPUs that are cabled, as far as podman looks.
func proofNode(t *testing.T) (root, spec string) {
	t.Helper()
	root = simulate(t, "--profile", "lpu", "--lpus", "2", "--numbers", machine.Numbers(t, 2))
	machine.InstallRing(t, root, "[0, 1]")
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	return root, root + "/var/run/cdi/hyperaccel.ai-lpu.json"
}

// nothingLeft wants no container and no directory of a proof.
func nothingLeft(t *testing.T, path string) {
	t.Helper()
	if names := machine.Output(t, "env", path, "podman", "ps", "-a", "--format", "{{.Names}}"); names != "" {
		t.Errorf("containers are left: %s", names)
	}
	if dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "lpuctl-proof-*")); len(dirs) > 0 {
		t.Errorf("directories are left: %s", dirs)
	}
}

// TestProof: a healthy node is proved by podman, and of a broken one the true reason is said.
func TestProof(t *testing.T) {
	p := newPodman(t)
	path := asPodman(t, p)
	root, spec := proofNode(t)
	good, err := os.ReadFile(spec)
	if err != nil {
		t.Fatal(err)
	}
	one := proofOf(t, root, []string{path}, "--device", "lpu0", "-o", "json")
	for device, lpus := range map[string]string{"": "lpu0 lpu1", "lpu0": "lpu0"} {
		command := proofOf(t, root, []string{path}, "-o", "json")
		if device != "" {
			command = one
		}
		r := machine.Run(t, command...)
		got := readProofs(t, r)
		if e := got.Engines[0]; r.Code != 0 || e.State != "proved" || strings.Join(got.LPUs, " ") != lpus || len(e.Opened) != len(got.LPUs) {
			t.Errorf("%q: exit code %d: %+v\n%s", device, r.Code, got, r.Stderr)
		}
		t.Logf("podman: %d ms", got.Engines[0].Milliseconds)
	}
	other := fmt.Sprintf("%d, \"minor\": %d", machine.DeviceNumbers(t, 2)[1].Major, machine.DeviceNumbers(t, 2)[1].Minor)
	const node = `{
            "path": "/dev/lpu0",`
	text := string(good)
	for name, c := range map[string]struct{ from, to, want string }{
		"node of another LPU": {node, node + ` "hostPath": "/dev/lpu1",`, ": that is /dev/lpu1 of lpu1"},
		"one node too many":   {node, `{"path": "/dev/lpu1"}, ` + node, "/dev/lpu1 is there: the node of lpu1, which was not asked for"},
		"a mount is missing": {`"containerPath": "/usr/lib/hyperaccel"`, `"containerPath": "/usr/lib/elsewhere"`,
			"the mount /usr/lib/hyperaccel: no such file"},
		"wrong numbers": {node, node + ` "type": "c", "major": ` + other + `,`, ": that is /dev/lpu1 of lpu1"},
		"a variable is missing": {`"LPU_VISIBLE_DEVICES=0"`, `"LPU_HIDDEN_DEVICES=0"`,
			"the variable LPU_VISIBLE_DEVICES is not set, and was promised as 0"},
		"permissions": {node + `
            "permissions": "rw"`, node + `
            "permissions": "r"`, "/dev/lpu0 cannot be opened for reading and writing: operation not permitted: the device cgroup"},
		"no spec": {text, "", "unresolvable CDI devices hyperaccel.ai/lpu=lpu0"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(text, c.from) {
				t.Fatalf("%s is not in the spec:\n%s", c.from, text)
			}
			if c.to == "" {
				if err := os.Remove(spec); err != nil {
					t.Fatal(err)
				}
			} else {
				machine.Write(t, spec, strings.ReplaceAll(text, c.from, c.to))
			}
			r := machine.Run(t, one...)
			e := readProofs(t, r).Engines[0]
			said := strings.Join(append(e.Differences, e.Words), "\n")
			if r.Code != 3 || e.State != "failed" || !strings.Contains(said, c.want) || c.to != "" && len(e.Differences) != 1 {
				t.Errorf("exit code %d: %s: %s\n%s\nwant: %s\n%s", r.Code, e.State, e.Why, said, c.want, r.Stderr)
			}
		})
	}
	machine.Write(t, spec, text)
	// An engine that starts nothing has proved nothing, and says nothing of the LPUs.
	r := machine.Run(t, proofOf(t, root, []string{path, "CONTAINERS_CONF=/nowhere"}, "-o", "json")...)
	if e := readProofs(t, r).Engines[0]; r.Code != 0 || e.State != "not provable" || e.Words == "" {
		t.Errorf("exit code %d: %+v\n%s", r.Code, e, r.Stderr)
	}
	nothingLeft(t, path)
}

// TestProofOfUsedLPUs: no LPU that is in use gets into a container.
func TestProofOfUsedLPUs(t *testing.T) {
	path := asPodman(t, newPodman(t))
	root, _ := proofNode(t)
	machine.BindMount(t, "/proc", root+"/proc")
	holder := machine.Start(t, "sh", "-c", "exec 3<>/dev/lpu1; echo holds; exec sleep 1000")
	await.Until(t, "lpu1 is in use", func() error { return holder.Says("holds") })
	r := machine.Run(t, proofOf(t, root, []string{path}, "-o", "json")...)
	if p := readProofs(t, r); r.Code != 0 || !slices.Equal(p.LPUs, []string{"lpu0"}) || p.Engines[0].State != "proved" {
		t.Errorf("exit code %d: %+v\n%s", r.Code, p, r.Stderr)
	}
	r = machine.Run(t, proofOf(t, root, []string{path}, "--device", "lpu1")...)
	if r.Code != 1 || !strings.Contains(r.Stderr, "lpu1 is not free, and no container of a proof gets it") {
		t.Errorf("exit code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	machine.ServeLeases(t, root)
	all := []string{
		machine.Binary(t), "--root", root, "run", "--memlock", "0", "--no-isolation", "--", "sh", "-c", "echo leased; exec sleep 1000",
	}
	leased := machine.Start(t, all...)
	await.Until(t, "lpu0 is leased", func() error { return leased.Says("leased\n") })
	r = machine.Run(t, proofOf(t, root, []string{path})...)
	if r.Code != 0 || r.Stdout != "not provable: no LPU is usable and free: see lpuctl list\n" {
		t.Errorf("exit code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := machine.Run(t, proofOf(t, root, []string{path}, "--strict")...); r.Code != 3 {
		t.Errorf("with --strict: exit code %d", r.Code)
	}
}

// TestKilledProof: what a proof leaves that was killed the next one removes, and what belongs to one that runs it does not.
func TestKilledProof(t *testing.T) {
	path := asPodman(t, newPodman(t))
	root, _ := proofNode(t)
	killed := machine.Start(t, proofOf(t, root, []string{path, "HOLD=1"}, "--device", "lpu0", "--timeout", "10m")...)
	names := func() string {
		return machine.Output(t, "env", path, "podman", "ps", "-a", "--filter", "label=lpuctl-proof", "--format", "{{.Names}}")
	}
	await.Until(t, "the container is made", func() error {
		if names() == "" {
			return errors.New(killed.Said(1000))
		}
		return nil
	})
	before := names()
	prove := proofOf(t, root, []string{path}, "--device", "lpu1", "-o", "json")
	if r := machine.Run(t, prove...); r.Code != 0 || names() != before {
		t.Errorf("beside one that runs: exit code %d: %s%s\n%s, want %s", r.Code, r.Stdout, r.Stderr, names(), before)
	}
	if err := unix.Kill(killed.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed.Stop(unix.SIGKILL)
	if names() != before {
		t.Fatalf("the container is gone with the proof: %s", before)
	}
	if r := machine.Run(t, prove...); r.Code != 0 {
		t.Errorf("exit code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	nothingLeft(t, path)
	// ^C removes what was made too.
	interrupted := machine.Start(t, proofOf(t, root, []string{path, "HOLD=1"}, "--timeout", "10m")...)
	await.Until(t, "the container is made", func() error {
		if names() == "" {
			return errors.New(interrupted.Said(1000))
		}
		return nil
	})
	interrupted.Stop(unix.SIGINT)
	nothingLeft(t, path)
	// So does the time, after which it has failed or, as here, has proved nothing.
	r := machine.Run(t, proofOf(t, root, []string{path, "HOLD=1"}, "--timeout", "2s", "-o", "json")...)
	if e := readProofs(t, r).Engines[0]; r.Code != 0 || e.State != "not provable" || !strings.Contains(e.Why, "no answer within 2s") {
		t.Errorf("exit code %d: %+v\n%s", r.Code, e, r.Stderr)
	}
	nothingLeft(t, path)
}

// TestRootlessProof: an ordinary user proves by podman of his own.
func TestRootlessProof(t *testing.T) {
	home, user := ordinaryUser(t)
	root, _ := proofNode(t)
	path := asPodman(t, machine.PodmanIn(home, "podman"))
	for _, above := range []string{root, filepath.Dir(root), filepath.Dir(filepath.Dir(root))} {
		if err := os.Chmod(above, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := machine.Run(t, slices.Concat(user, proofOf(t, root, []string{path, "TMPDIR=" + home}, "-o", "json"))...)
	p := readProofs(t, r)
	if e := p.Engines[0]; r.Code != 0 || e.State != "proved" || len(e.Opened) != 2 || !strings.Contains(r.Stdout, `"rootless": true`) {
		t.Errorf("exit code %d: %+v\n%s", r.Code, p, r.Stderr)
	}
	t.Logf("rootless podman: %d ms", p.Engines[0].Milliseconds)
	if dirs, _ := filepath.Glob(home + "/lpuctl-proof-*"); len(dirs) > 0 {
		t.Errorf("directories are left: %s", dirs)
	}
}
