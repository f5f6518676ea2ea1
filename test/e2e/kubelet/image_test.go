package kubelet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hyperaccel/lpuctl/test/await"
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
	machine.Output(t, "ctr", "-n", "k8s.io", "images", "import", archive)
	machine.Write(t, filepath.Join(manifests, "lpuctl.json"), toJSON(t, daemonPod(t)))
	b.waitAllocatable(8)
	b.check(t, b.run("four", 4), 4, true)
	await.Until(t, "it says that it is ready", func() error {
		_, err := get("http://" + machine.Address + ":9477/readyz")
		return err
	})
	if out, err := get("http://" + machine.Address + ":9477/healthz"); err != nil || string(out) != "ok\n" {
		t.Errorf("/healthz: %q %v", out, err)
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
	for _, object := range objects(t, string(data)) {
		if object["kind"] == "DaemonSet" {
			spec := podSpec(object)
			onServer(t, spec)
			spec["hostNetwork"] = true // as static pods here have
			return map[string]any{
				"apiVersion": "v1",
				"kind":       "Pod",
				"metadata":   map[string]any{"name": "lpuctl", "namespace": "default"},
				"spec":       spec,
			}
		}
	}
	t.Fatal("the manifest has no DaemonSet")
	return nil
}

// objects parses a manifest.
func objects(t *testing.T, manifest string) (objects []map[string]any) {
	t.Helper()
	for document := range strings.SplitSeq("\n"+manifest, "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if object != nil {
			objects = append(objects, object)
		}
	}
	return objects
}

// podSpec is that of the pods of a DaemonSet.
func podSpec(set map[string]any) map[string]any {
	return set["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
}

// onServer lets a pod have the directories of the simulated server in place of this machine's, but for those in /var.
func onServer(t *testing.T, spec map[string]any) {
	t.Helper()
	var changed []string
	for _, volume := range spec["volumes"].([]any) {
		directory, _ := volume.(map[string]any)["hostPath"].(map[string]any)
		if path, ok := directory["path"].(string); ok && !strings.HasPrefix(path, "/var/") {
			directory["path"] = nodeRoot + path
			changed = append(changed, path)
		}
	}
	for _, path := range []string{"/sys", "/dev", "/opt", "/etc/lpuctl"} {
		if !slices.Contains(changed, path) {
			t.Fatalf("the pod does not mount %s: %v", path, changed)
		}
	}
}
