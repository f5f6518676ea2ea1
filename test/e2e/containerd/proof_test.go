package containerd

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// proof is what doctor --run says of one engine.
type proof struct {
	Engine, State, Why, Words, Remedy string
	Differences, Opened               []string
	Milliseconds                      int
}

// prove proves by an engine, which is in PATH or behind the usual socket.
func prove(t *testing.T, code int, engine string, options ...string) proof {
	t.Helper()
	command := []string{machine.Binary(t), "--root", nodeRoot, "doctor", "--run", "--engine", engine, "-o", "json"}
	r := machine.Run(t, append(command, options...)...)
	var document struct{ Engines []proof }
	if err := json.Unmarshal([]byte(r.Stdout), &document); err != nil || len(document.Engines) != 1 || r.Code != code {
		t.Fatalf("exit code %d, want %d: %v\n%s%s", r.Code, code, err, r.Stdout, r.Stderr)
	}
	t.Logf("%s: %d ms", engine, document.Engines[0].Milliseconds)
	return document.Engines[0]
}

// asNerdctl puts a nerdctl first in PATH that has its data where these tests have it.
func asNerdctl(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	machine.Write(t, dir+"/nerdctl", "#!/bin/sh\nexec "+strings.Join(inNerdctl(), " ")+` "$@"`+"\n")
	if err := os.Chmod(dir+"/nerdctl", 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestProof: nerdctl and CRI are proved, and nothing of it stays. Over CRI with CDI off the proof fails and names CDI; without the image
// of sandboxes nothing is proved and nothing pulled.
func TestProof(t *testing.T) {
	need(t, nerdctl())
	for _, release := range []string{"1.7.35", "2.2.9", "2.4.2"} {
		t.Run(release, func(t *testing.T) {
			e := newEngine(t, release)
			simulate(t)
			// CRI of the node is that of the machine.
			machine.BindMount(t, "/run/containerd", nodeRoot+"/run/containerd")
			e.configure(map[string]string{"config.toml": tables.Replace("version = 2\n{2}\nenable_cdi = true\n")})
			if err := e.start(); err != nil {
				t.Fatal(err)
			}
			if p := prove(t, 0, "containerd"); p.State != "proved" || len(p.Opened) != 4 {
				t.Errorf("%+v", p)
			}
			spec := nodeRoot + "/var/run/cdi/hyperaccel.ai-lpu.json"
			good, err := os.ReadFile(spec)
			if err != nil {
				t.Fatal(err)
			}
			broken := strings.NewReplacer(`"path": "/dev/lpu0",`, `"path": "/dev/lpu0", "hostPath": "/dev/lpu1",`, `"0.3.0"`, `"0.5.0"`)
			machine.Write(t, spec, broken.Replace(string(good)))
			failed := prove(t, 3, "containerd", "--device", "lpu0")
			if failed.State != "failed" || !strings.Contains(fmt.Sprint(failed.Differences), ": that is /dev/lpu1 of lpu1") {
				t.Errorf("a node of another LPU: %+v", failed)
			}
			machine.Write(t, spec, string(good))
			if release == "2.4.2" {
				proveNerdctl(t)
			}
			pods := machine.Output(t, "ctr", "-n", "k8s.io", "containers", "ls", "-q")
			dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "lpuctl-proof-*"))
			if pods != "" || len(dirs) > 0 {
				t.Errorf("what is left: containers %s, directories %s", pods, dirs)
			}
			if release != "2.4.2" { // which knows no way to turn it off
				e.stop()
				e.configure(map[string]string{"config.toml": tables.Replace("version = 2\n{2}\nenable_cdi = false\n")})
				if err := e.start(); err != nil {
					t.Fatal(err)
				}
				p := prove(t, 3, "containerd")
				if p.State != "failed" || !strings.Contains(p.Why, "CDI is off") || p.Remedy != "see lpuctl runtime check" {
					t.Errorf("with CDI off: %+v", p)
				}
			}
			for image := range strings.FieldsSeq(machine.Output(t, "ctr", "-n", "k8s.io", "images", "ls", "-q")) {
				machine.Output(t, "ctr", "-n", "k8s.io", "images", "rm", "--sync", image)
			}
			if p := prove(t, 0, "containerd"); p.State != "not provable" || !strings.HasPrefix(p.Why, "no sandbox image") {
				t.Errorf("without the image of sandboxes: %+v", p)
			}
		})
	}
}

// proveNerdctl proves by nerdctl, whose containers and images are as before then.
func proveNerdctl(t *testing.T) {
	t.Helper()
	asNerdctl(t)
	list := func() string {
		return machine.Output(t, inNerdctl("ps", "-aq")...) + machine.Output(t, inNerdctl("images", "-q")...)
	}
	before := list()
	if p := prove(t, 0, "nerdctl"); p.State != "proved" || len(p.Opened) != 4 {
		t.Errorf("%+v", p)
	}
	if after := list(); after != before {
		t.Errorf("containers and images are\n%s, were\n%s", after, before)
	}
}
