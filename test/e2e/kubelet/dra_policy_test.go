package kubelet

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/test/await"
)

// TestDRAGateOff: an API server that drops counters would make each arc a device by itself, so that one LPU could be given twice. The
// driver finds that out before, and publishes single LPUs.
func TestDRAGateOff(t *testing.T) {
	b := newDRA(t, "--feature-gates=DRAPartitionableDevices=false")
	watched := b.watchSizes()
	b.start()
	b.waitDevices("the LPUs are published", func(devices []device) error {
		if got := sizes(devices); !maps.Equal(got, map[int]int{1: 8}) {
			return fmt.Errorf("there are devices of sizes %v", got)
		}
		return b.checkTaints(devices, nil)
	})
	if seen := watched(); len(seen) > 1 {
		t.Errorf("devices of sizes %v were published", seen)
	}
	b.waitReady(listen)
	b.claimed("one", 1)
	b.submitClaimed("two", 2)
	b.waitUnscheduled("two")
}

// watchSizes looks at the published devices all the time, until the function that it returns is called. That tells which sizes there were.
func (b *bed) watchSizes() func() []int {
	end, result := make(chan struct{}), make(chan []int)
	go func() {
		seen := map[int]bool{}
		for {
			select {
			case <-end:
				result <- slices.Sorted(maps.Keys(seen))
				return
			case <-time.After(10 * time.Millisecond):
				found, _ := b.slices() // there may be none yet
				for _, s := range found {
					for size := range sizes(s.Spec.Devices) {
						seen[size] = true
					}
				}
			}
		}
	}()
	return func() []int { close(end); return <-result }
}

// TestDRAPolicies: a driver may write the slices of its own node only, and a pod that asks for several LPUs as it would ask a device
// plugin gets a device of so many, or is refused.
func TestDRAPolicies(t *testing.T) {
	newAPIServer(t, plane{})
	out, err := kubectl(listOf(t, render(t, modeDRA())), "apply", "--validate=strict", "-f", "-")
	if err != nil || strings.Contains(out, "Warning") {
		t.Fatalf("%v %s", err, out)
	}
	t.Run("slices", slicePolicy)
	t.Run("sizes", sizePolicy)
}

// asDriver are the flags of kubectl by which it is the driver on a node, or one whose token names no node.
func asDriver(node string) []string {
	flags := []string{"--as", "system:serviceaccount:" + namespace + ":" + driverAccount}
	if node != "" {
		flags = append(flags, "--as-user-extra", "authentication.kubernetes.io/node-name="+node)
	}
	return flags
}

func slicePolicy(t *testing.T) {
	of := func(name, driver, node string) string {
		spec := values{"driver": driver, "pool": values{"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": []any{}}
		if spec["nodeName"] = node; node == "" {
			delete(spec, "nodeName")
			spec["allNodes"], spec["pool"].(values)["name"] = true, "all"
		}
		return toJSON(t, values{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": values{"name": name}, "spec": spec})
	}
	try := func(node, object, verb string, args ...string) error {
		_, err := kubectl(object, slices.Concat([]string{verb}, args, asDriver(node))...)
		return err
	}
	const dryRun, stdin = "--dry-run=server", "-f-"
	denied := func(err error) bool { return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") }
	await.Until(t, "the policy is in force", func() error {
		if err := try("a", of("of-b", driverName, "b"), "create", stdin, dryRun); !denied(err) {
			return fmt.Errorf("the driver of node a writes a slice of node b: %w", err)
		}
		return nil
	})
	if err := try("a", of("of-a", driverName, "a"), "create", stdin); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"a slice of all nodes":         try("a", of("of-all", driverName, ""), "create", stdin, dryRun),
		"another driver's":             try("a", of("of-gpus", "gpu.example.com", "a"), "create", stdin, dryRun),
		"by a token that has no node":  try("", of("new", driverName, "a"), "create", stdin, dryRun),
		"another node's that is there": try("b", of("of-a", driverName, "a"), "replace", stdin, dryRun),
		"another node's, deleted":      try("b", "", "delete", "resourceslice/of-a", dryRun),
	} {
		if !denied(err) {
			t.Errorf("%s is not denied by the policy: %v", what, err)
		}
	}
	if err := try("a", "", "delete", "resourceslice/of-a"); err != nil {
		t.Error(err)
	}
}

// limits are what the containers of a pod have been given to ask for, by the API server.
func limits(object values) (map[string]string, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	out, err := kubectl(string(data), "create", "--dry-run=server", "-o", "json", "-f", "-")
	if err != nil {
		return nil, err
	}
	var pod struct {
		Spec struct {
			Containers, InitContainers []struct {
				Resources struct{ Limits, Requests map[string]string }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &pod); err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		maps.Copy(all, c.Resources.Limits)
		if !maps.Equal(c.Resources.Limits, c.Resources.Requests) {
			return nil, fmt.Errorf("limits and requests differ: %+v", c.Resources)
		}
	}
	return all, nil
}

func sizePolicy(t *testing.T) {
	refused := func(object values, why string) error {
		if got, err := limits(object); err == nil || !strings.Contains(err.Error(), why) {
			return fmt.Errorf("%v is not refused for %q: %v %w", object["spec"], why, got, err)
		}
		return nil
	}
	await.Until(t, "the policies are in force", func() error {
		got, err := limits(sized("containers", 4))
		if err == nil && got["hyperaccel.ai/lpu-4"] != "1" {
			err = fmt.Errorf("%v", got)
		}
		if err == nil {
			err = refused(sized("containers", 3), "not 3")
		}
		return err
	})
	for _, kind := range []string{"containers", "initContainers"} {
		for size, want := range map[any]string{1: resource, "1": resource, 2: resource + "-2", "4": resource + "-4", 8: resource + "-8"} {
			if got, err := limits(sized(kind, size)); err != nil || !maps.Equal(got, map[string]string{want: "1"}) {
				t.Errorf("%s of %#v become %v, %v", kind, size, got, err)
			}
		}
		for _, size := range []any{3, "5", 16} {
			if err := refused(sized(kind, size), fmt.Sprintf("must be 1, 2, 4 or 8, not %v", size)); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
	}
	for _, other := range []values{nil, {"limits": values{"cpu": "3"}}} {
		if _, err := limits(podOf("containers", other)); err != nil {
			t.Errorf("a pod with resources %v: %v", other, err)
		}
	}
	// Nobody changes pods any more.
	if _, err := kubectl("", "delete", "mutatingadmissionpolicybindings", "--all"); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "several LPUs are refused", func() error {
		return refused(sized("containers", 4), "lpu: 4 was not turned")
	})
	if got, err := limits(sized("containers", 1)); err != nil || got[resource] != "1" {
		t.Errorf("one LPU: %v %v", got, err)
	}
	if got, err := limits(sized("initContainers", 8)); err == nil {
		t.Errorf("eight LPUs of a container that runs first: %v", got)
	}
}
