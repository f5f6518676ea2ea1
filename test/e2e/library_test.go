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

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// TestLibraries holds cdi validate --target against the CDI library itself, in the releases that runtimes are built with: an error
// is found just where the library refuses a file, crashes on it, or finds other devices in it than its newest release.
func TestLibraries(t *testing.T) {
	programs := os.Getenv("LIBRARIES")
	if programs == "" {
		t.Fatal("LIBRARIES must name the directory of the programs that make e2e builds")
	}
	dir := t.TempDir()
	files, err := filepath.Glob("../../pkg/cdi/testdata/library/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	dirs := []string{filepath.Join(dir, "link")}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		specs := filepath.Join(dir, strings.TrimSuffix(filepath.Base(file), ".yaml"))
		dirs = append(dirs, specs)
		machine.Write(t, filepath.Join(specs, "spec.yaml"), string(data))
	}
	if err := os.Symlink("good", dirs[0]); err != nil {
		t.Fatal(err)
	}
	newest := found(t, filepath.Join(programs, "v1.1.1"), dirs)
	for library, target := range map[string]string{
		"v0.5.4": "podman=4.3.1",
		"v0.6.2": "containerd=1.7.12",
		"v0.7.2": "containerd=1.7.16",
		"v0.8.1": "containerd=1.7.27",
		"v1.0.1": "containerd=2.1.0",
		"v1.1.0": "containerd=2.2.1",
		"v1.1.1": "containerd=2.4.0",
	} {
		have, differ := found(t, filepath.Join(programs, library), dirs), 0
		for _, dir := range dirs {
			devices := have[dir]
			wrong := slices.Contains([]string{"refused", "crash"}, strings.Join(devices, ""))
			if got := strings.Join(newest[dir], ""); got != "refused" && got != "crash" && !slices.Equal(devices, newest[dir]) {
				wrong = true
			}
			if wrong != slices.Equal(devices, newest[dir]) {
				differ++
			}
			judged := filepath.Join(dir, "spec.yaml")
			if dir == dirs[0] {
				judged = dir // of the link it is the directory that matters
			}
			r := machine.Run(t, machine.Binary(t), "cdi", "validate", "--target", target, judged)
			if says := r.Code == 3; r.Code != 0 && !says || says != wrong {
				t.Errorf("%s in %s finds %q; validate for %s ends with %d:\n%s", library, dir, devices, target, r.Code, r.Stderr)
			}
		}
		if differ == 0 {
			t.Errorf("%s: no file tells what is right from what is wrong", library)
		}
	}
}

// TestStates runs 2,000 states of spec directories of pkg/cdi with older releases of the
// library too: what each of them injects is what validate judges.
func TestStates(t *testing.T) {
	t.Parallel()
	withLibraries(t, "./pkg/cdi", "TestStatesOfSpecs", "all is well", 5)
}

// TestWorld runs some steps of the world that changes with them: no release injects a node of another
// LPU while validate ends with 0, or serve offers the LPU.
func TestWorld(t *testing.T) {
	t.Parallel()
	withLibraries(t, "./cmd/lpuctl", "TestAWorldThatChanges", "lost by 0.5.4", 4)
}

// withLibraries runs a test of the repository that asks these programs, and wants it to pass and to
// print some text. It is so many times longer than by default.
func withLibraries(t *testing.T, pkg, name, prints string, times int) {
	t.Helper()
	programs, err := filepath.Abs(os.Getenv("LIBRARIES"))
	if err != nil {
		t.Fatal(err)
	}
	test := exec.CommandContext(t.Context(), "go", "test", "-C", "../..", "-count=1", "-v", "-run", "^"+name+"$", pkg)
	test.Env = append(os.Environ(), "LIBRARIES="+programs, fmt.Sprint("LPUCTL_LONG=", times), "LPUCTL_SEED=1")
	out, err := test.CombinedOutput()
	if err != nil || !strings.Contains(string(out), prints) {
		t.Fatalf("%v\n%s", err, out)
	}
}

// found are the devices that a program of test/e2e/library finds in directories.
func found(t *testing.T, program string, dirs []string) (devices map[string][]string) {
	t.Helper()
	out, err := exec.Command(program, dirs...).Output()
	if err == nil {
		err = json.Unmarshal(out, &devices)
	}
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	return devices
}

// TestPodmanFollowsNoLink: podman finds nothing in a spec directory that is a symbolic link, and validate says so.
func TestPodmanFollowsNoLink(t *testing.T) {
	p := newPodman(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "2", "--numbers", machine.Numbers(t, 2))
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	dir := filepath.Join(root, "var/run/cdi")
	t.Cleanup(func() {
		if err := errors.Join(os.Remove("/run/cdi"), os.Mkdir("/run/cdi", 0o755), os.Remove("/opt/cdi")); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(
		os.Rename(dir, filepath.Join(root, "moved")), os.Symlink("../../moved", dir), // on the simulated node
		os.Mkdir("/opt/cdi", 0o755), os.Remove("/run/cdi"), os.Symlink("/opt/cdi", "/run/cdi"), // and where podman looks
	); err != nil {
		t.Fatal(err)
	}
	machine.Install(t, root)
	version := strings.TrimPrefix(strings.TrimSpace(machine.Run(t, p[0], "--version").Stdout), "podman version ")
	validate := []string{machine.Binary(t), "--root", root, "cdi", "validate", "--target", "podman=" + version}
	if r := p.Run(t, machine.Inspect, device("lpu0")...); r.Code != 126 || !strings.Contains(r.Stderr, "unresolvable CDI devices") {
		t.Errorf("podman: exit code %d: %s", r.Code, r.Stderr)
	}
	r := machine.Run(t, validate...)
	if r.Code != 3 || !strings.Contains(r.Stderr, "it is a symbolic link [target]") {
		t.Fatalf("validate: exit code %d:\n%s", r.Code, r.Stderr)
	}
	_, remedy, _ := strings.Cut(r.Stderr, "the place of the link: ")
	machine.Output(t, "sh", "-c", remedy)
	if r := machine.Run(t, validate...); r.Code != 0 || r.Stderr != "" {
		t.Errorf("after the remedy: exit code %d:\n%s", r.Code, r.Stderr)
	}
}
