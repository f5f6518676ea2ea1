package kubelet

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

const manifest = "../../../packaging/kubernetes/lpuctl.yaml"

// TestImage runs the image as the manifest says: with its user, capabilities, read-only root and mounts; only the
// host's sysfs, /dev, /opt and /etc/lpuctl are those of the simulated server.
func TestImage(t *testing.T) {
	b := newBed(t)
	archive := os.Getenv("IMAGE")
	if archive == "" {
		t.Fatal("IMAGE must name the archive to test (make e2e-kubelet does)")
	}
	if out, err := exec.Command("ctr", "-n", "k8s.io", "images", "import", archive).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	machine.Write(t, filepath.Join(manifests, "lpuctl.json"), toJSON(t, daemonPod(t)))
	b.waitAllocatable(8)
	b.check(t, b.run("four", 4), 4, true)
	machine.Eventually(t, 20*time.Second, "it says that it is ready", func() error {
		_, err := get("http://" + machine.Address + ":9477/readyz")
		return err
	})
	for _, path := range []string{"/healthz", "/readyz"} {
		if out, err := get("http://" + machine.Address + ":9477" + path); err != nil || string(out) != "ok\n" {
			t.Errorf("%s: %q %v", path, out, err)
		}
	}
	out, err := get("http://" + machine.Address + ":9477/metrics")
	for _, line := range []string{
		"lpuctl_registered 1\n",
		`lpuctl_preferred_allocations_total{size="4",outcome="connected"} 1`,
		`lpuctl_kubelet_calls_total{method="Allocate",code="OK"} 1`,
	} {
		if err != nil || !strings.Contains(string(out), line) {
			t.Errorf("no %q in the metrics: %s %v", line, out, err)
		}
	}
	if _, err := os.Stat("/var/lib/lpuctl/health.json"); err != nil {
		t.Error(err)
	}
	if p := b.waitPhase("lpuctl", "Running"); p.Status.Reason != "" {
		t.Errorf("%+v", p.Status)
	}
}

// daemonPod is the pod that the DaemonSet makes, on this machine.
func daemonPod(t *testing.T) map[string]any {
	t.Helper()
	data, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var set struct {
			Kind string
			Spec struct{ Template struct{ Spec map[string]any } }
		}
		if err := yaml.Unmarshal([]byte(document), &set); err != nil {
			t.Fatal(err)
		}
		if set.Kind != "DaemonSet" {
			continue
		}
		spec := set.Spec.Template.Spec
		spec["hostNetwork"] = true // there is no network plugin here
		text := toJSON(t, spec)
		for _, path := range []string{"/sys", "/dev", "/opt", "/etc/lpuctl"} {
			from, to := fmt.Sprintf(`"path":%q`, path), fmt.Sprintf(`"path":%q`, nodeRoot+path)
			if strings.Count(text, from) != 1 {
				t.Fatalf("the manifest mounts %s %d times", path, strings.Count(text, from))
			}
			text = strings.Replace(text, from, to, 1)
		}
		var changed map[string]any
		if err := json.Unmarshal([]byte(text), &changed); err != nil {
			t.Fatal(err)
		}
		return map[string]any{
			"apiVersion": "v1",
			"kind":       "Pod",
			"metadata":   map[string]any{"name": "lpuctl", "namespace": "default"},
			"spec":       changed,
		}
	}
	t.Fatal("the manifest has no DaemonSet")
	return nil
}
