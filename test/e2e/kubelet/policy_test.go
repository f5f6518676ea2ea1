package kubelet

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/await"
)

const (
	policy   = "../../../packaging/kubernetes/admission-policy.yaml"
	taintDoc = "../../../docs/node-conditions.md"
)

// TestAdmissionPolicy applies the sample policy, and tries containers of each size.
func TestAdmissionPolicy(t *testing.T) {
	newAPIServer(t, plane{})
	if out, err := kubectl("", "apply", "--validate=strict", "-f", policy); err != nil || strings.Contains(out, "Warning") {
		t.Fatalf("%v %s", err, out)
	}
	// The API server takes a policy in force a moment after it has it.
	const denied = "hyperaccel.ai/lpu must be 1, 2, 4 or 8, not 3"
	await.Until(t, "the policy is in force", func() error {
		if _, err := create(sized("containers", 3)); err == nil || !strings.Contains(err.Error(), denied) {
			return fmt.Errorf("a pod of 3: %w", err)
		}
		return nil
	})
	for _, kind := range []string{"containers", "initContainers"} {
		for _, size := range []any{3, 5, "6", 7, "16"} {
			want := fmt.Sprintf("must be 1, 2, 4 or 8, not %v", size)
			if _, err := create(sized(kind, size)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s of %#v: %v, want %q", kind, size, err, want)
			}
		}
		for _, size := range []any{1, "2", 4, "8"} {
			if out, err := create(sized(kind, size)); err != nil || strings.Contains(out, "Warning") {
				t.Errorf("%s of %#v: %v %s", kind, size, err, out)
			}
		}
	}
	// Other pods are none of its business, also without resources and with others.
	for _, resources := range []map[string]any{nil, {"limits": map[string]any{"cpu": "3"}}, {"requests": map[string]any{"memory": "3Mi"}}} {
		if _, err := create(podOf("containers", resources)); err != nil {
			t.Errorf("%v: %v", resources, err)
		}
	}
}

// sized is a pod with a container, of one kind, that asks for so many LPUs.
func sized(kind string, size any) map[string]any {
	return podOf(kind, map[string]any{"limits": map[string]any{resource: size}})
}

// podOf is a pod with resources in a container of one kind: containers or initContainers.
func podOf(kind string, resources map[string]any) map[string]any {
	container := func(name string) map[string]any { return map[string]any{"name": name, "image": "none.invalid/none"} }
	spec := map[string]any{"containers": []any{container("main")}, "initContainers": []any{container("first")}}
	if resources != nil {
		spec[kind].([]any)[0].(map[string]any)["resources"] = resources
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"generateName": "sized-", "namespace": "default"}, "spec": spec,
	}
}

// create asks the API server whether it would take an object.
func create(object map[string]any) (string, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return "", err
	}
	return kubectl(string(data), "create", "--dry-run=server", "-f", "-")
}

// TestTaintRecipe runs the recipe of the documentation: the taint follows the condition of the node.
func TestTaintRecipe(t *testing.T) {
	newCluster(t)
	await.Until(t, "the node is there", func() error {
		_, err := kubectl("", "get", "node", nodeName)
		return err
	})
	page, err := os.ReadFile(taintDoc)
	if err != nil {
		t.Fatal(err)
	}
	_, recipe, _ := strings.Cut(string(page), "    kubectl get nodes -o jsonpath")
	recipe, _, found := strings.Cut("kubectl get nodes -o jsonpath"+recipe, "\n\n")
	if !found || !strings.Contains(recipe, "done") {
		t.Fatalf("the page has no recipe: %s", recipe)
	}
	const want = "hyperaccel.ai/lpu-unhealthy=true:NoSchedule"
	for _, c := range []struct{ status, taints string }{
		{"", ""}, {"False", ""}, {"True", want}, {"True", want}, {"Unknown", want}, {"False", ""}, {"Unknown", ""},
	} {
		if c.status != "" {
			condition := map[string]any{"type": "LPUUnhealthy", "status": c.status, "reason": "Test", "message": "test"}
			patch := toJSON(t, map[string]any{"status": map[string]any{"conditions": []any{condition}}})
			if _, err := kubectl("", "patch", "node", nodeName, "--subresource=status", "--type=strategic", "-p", patch); err != nil {
				t.Fatal(err)
			}
		}
		script := fmt.Sprintf("set -eu\nkubectl() { %s --kubeconfig %s \"$@\"; }\n%s", kubernetes("kubectl"), kubeconfig, recipe)
		if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", c.status, err, out)
		}
		const path = `jsonpath={range .spec.taints[?(@.key=="hyperaccel.ai/lpu-unhealthy")]}{.key}={.value}:{.effect}{end}`
		if got, err := kubectl("", "get", "node", nodeName, "-o", path); err != nil || got != c.taints {
			t.Errorf("condition %q: taint %q (%v), want %q", c.status, got, err, c.taints)
		}
	}
}
