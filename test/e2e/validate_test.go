package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// TestWhyPodmanCannotResolve: podman says one sentence for five different faults; validate names each.
func TestWhyPodmanCannotResolve(t *testing.T) {
	p := newPodman(t)
	root := simulate(t, "--profile", "lpu", "--lpus", "2", "--numbers", machine.Numbers(t, 2))
	machine.Lpuctl(t, "--root", root, "cdi", "refresh")
	machine.Install(t, root)
	spec := filepath.Join(root, "var/run/cdi/hyperaccel.ai-lpu.json")
	good, err := os.ReadFile(spec)
	if err != nil {
		t.Fatal(err)
	}
	version := strings.TrimPrefix(strings.TrimSpace(machine.Run(t, p[0], "--version").Stdout), "podman version ")
	changed := func(from, to string) func() error {
		return func() error {
			text := strings.Replace(string(good), from, to, 1)
			if text == string(good) {
				t.Fatalf("the spec has no %q", from)
			}
			return os.WriteFile(spec, []byte(text), 0o644)
		}
	}
	copied := filepath.Join(filepath.Dir(spec), "copy.json")
	for name, c := range map[string]struct {
		device string
		spoil  func() error
		want   string // finding
	}{
		"unknown name":  {"lpu9", func() error { return nil }, "device-unknown"},
		"no spec":       {"lpu0", func() error { return os.Remove(spec) }, "no-spec"},
		"too new":       {"lpu0", changed(`"0.3.0"`, `"1.1.0"`), "target"},
		"unknown field": {"lpu0", changed(`"containerEdits": {`, `"containerEdits": { "colour": "red",`), "spec-unknown-key"},
		"two files":     {"lpu0", func() error { return os.WriteFile(copied, good, 0o644) }, "conflict"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.spoil(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = os.Remove(copied)
				if err := os.WriteFile(spec, good, 0o644); err != nil {
					t.Fatal(err)
				}
			}()
			if r := p.Run(t, machine.Inspect, device(c.device)...); r.Code != 126 || !strings.Contains(r.Stderr, "unresolvable CDI devices") {
				t.Errorf("podman: exit code %d: %s", r.Code, r.Stderr)
			}
			r := machine.Run(t, machine.Binary(t), "--root", root, "cdi", "validate",
				"--target", "podman="+version, "--device", "hyperaccel.ai/lpu="+c.device)
			if r.Code != 3 || !strings.Contains(r.Stderr, "["+c.want+"]") {
				t.Errorf("validate: exit code %d, want the finding %s:\n%s", r.Code, c.want, r.Stderr)
			}
		})
	}
	r := machine.Run(t, machine.Binary(t), "--root", root, "--quiet", "cdi", "validate",
		"--target", "podman="+version, "--device", "hyperaccel.ai/lpu=lpu0")
	if r.Code != 0 || r.Stderr != "" {
		t.Errorf("the good spec: exit code %d: %s", r.Code, r.Stderr)
	}
}
