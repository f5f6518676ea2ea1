package containerd

import (
	"encoding/json"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/broken"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// TestBroken: containerd with the config of a node that is broken gives no LPU to a container over CRI until what doctor prints was carried
// out.
func TestBroken(t *testing.T) {
	e := newEngine(t, "1.7.35")
	t.Cleanup(broken.RemoveTools)
	b := broken.Engine{Numbers: machine.Numbers(t, 4), Proves: func(t *testing.T, root string) (bool, string) {
		t.Helper()
		defer machine.AsNode(t, root)()
		config, err := os.ReadFile(root + "/etc/containerd/config.toml")
		if err != nil {
			t.Fatal(err)
		}
		e.configure(map[string]string{"config.toml": string(config)})
		if err := e.start(); err != nil {
			return false, err.Error()
		}
		defer e.stop()
		return proved(t, root)
	}}
	b.On(t,
		"containerd has CDI off",
		"containerd's key is misspelt",
		"containerd's key is in the wrong table",
		"containerd's config is no TOML",
		"containerd's CRI is disabled, and Kubernetes needs it",
		"containerd reads another directory",
		"no driver, and containerd has CDI off",
		"no spec, and containerd has CDI off",
	)
}

// proved reports whether containers get what they were promised from the containerd that runs, as that of a node, and what was printed.
func proved(t *testing.T, root string) (bool, string) {
	t.Helper()
	socket := root + "/run/containerd"
	if err := os.MkdirAll(socket, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("/run/containerd", socket, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(socket, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		if err := os.Remove(socket); err != nil {
			t.Error(err)
		}
	}()
	r := machine.Run(t, machine.Binary(t), "--root", root, "doctor", "--run", "--engine", "containerd", "-o", "json", "--device", "lpu0,lpu2")
	var document struct{ Engines []proof }
	if err := json.Unmarshal([]byte(r.Stdout), &document); err != nil || len(document.Engines) == 0 {
		return false, r.Stdout + r.Stderr
	}
	return document.Engines[0].State == "proved", r.Stdout + r.Stderr
}
