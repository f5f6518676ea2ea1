package kubelet

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/await"
)

// TestGroupUnderOneSwitch: with the gates of docs/node-features.md, a group of four pods with eight LPUs each lands under the only switch
// where four nodes have them free, and a group of five waits as a whole.
func TestGroupUnderOneSwitch(t *testing.T) {
	const gates = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
	newAPIServer(t, plane{server: []string{gates, "--runtime-config=scheduling.k8s.io/v1beta1=true"}, scheduler: []string{gates}})
	create := func(object any) {
		t.Helper()
		if out, err := kubectl(toJSON(t, object), "create", "-f", "-"); err != nil {
			t.Fatal(out, err)
		}
	}
	type object = map[string]any
	room := object{"cpu": "8", "memory": "8Gi", "pods": "10", resource: "8"}
	for _, leaf := range []string{"leaf-1", "leaf-2", "leaf-3"} {
		for i := range 4 {
			name := fmt.Sprintf("%s-%d", leaf, i)
			create(object{
				"apiVersion": "v1", "kind": "Node",
				"metadata": object{"name": name, "labels": object{"topology.hyperaccel.ai/switch": leaf, "kubernetes.io/hostname": name}},
			})
			status := object{"status": object{
				"capacity": room, "allocatable": room, "conditions": []any{object{"type": "Ready", "status": "True"}},
			}}
			if out, err := kubectl("", "patch", "node", name, "--subresource=status", "-p", toJSON(t, status)); err != nil {
				t.Fatal(out, err)
			}
		}
	}
	pod := func(name string, lpus int, spec object) {
		t.Helper()
		spec["containers"] = []any{object{
			"name": "c", "image": "none", "resources": object{"limits": object{resource: fmt.Sprint(lpus)}},
		}}
		create(object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name}, "spec": spec})
	}
	group := func(name string, size int) {
		t.Helper()
		create(object{
			"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": object{"name": name},
			"spec": object{
				"schedulingPolicy":      object{"gang": object{"minCount": size}},
				"schedulingConstraints": object{"topology": []any{object{"key": "topology.hyperaccel.ai/switch"}}},
			},
		})
		for i := range size {
			pod(fmt.Sprintf("%s-%d", name, i), 8, object{"schedulingGroup": object{"podGroupName": name}})
		}
	}
	// nodes are those on which the pods of a group are, sorted.
	nodes := func(name string) []string {
		t.Helper()
		out, err := kubectl("", "get", "pods", "-o", `jsonpath={range .items[*]}{.metadata.name}={.spec.nodeName}{"\n"}{end}`)
		if err != nil {
			t.Fatal(err)
		}
		var placed []string
		for line := range strings.Lines(out) {
			of, node, _ := strings.Cut(strings.TrimSpace(line), "=")
			if strings.HasPrefix(of, name+"-") && node != "" {
				placed = append(placed, node)
			}
		}
		slices.Sort(placed)
		return placed
	}
	pod("first", 1, object{"nodeName": "leaf-1-2"})
	pod("second", 1, object{"nodeName": "leaf-3-0"})
	group("four", 4)
	want := []string{"leaf-2-0", "leaf-2-1", "leaf-2-2", "leaf-2-3"}
	await.Until(t, "the group of four is placed", func() error {
		if got := nodes("four"); !slices.Equal(got, want) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	group("five", 5)
	waitJSON(t, "pod/five-0", `.status.conditions[?(@.type=="PodScheduled")].message`, "minCount (5) cannot be satisfied")
	if got := nodes("five"); got != nil {
		t.Errorf("of the group of five some pods are placed: %v", got)
	}
}
