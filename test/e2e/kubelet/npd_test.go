package kubelet

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// TestNodeProblemDetector runs node-problem-detector with the configuration that we ship, but for its times and where lpuctl is: the
// condition of the node is True while an LPU is unhealthy, says which, and follows it. It takes long to build, see LPUCTL_LONG.
func TestNodeProblemDetector(t *testing.T) {
	detector := os.Getenv("NPD")
	machine.Need(t, obstacle, "make e2e-kubelet-tools-long", detector)
	b := newCluster(t)
	plugin := b.serve()
	b.waitAllocatable(8)
	data, err := os.ReadFile("../../../packaging/kubernetes/node-problem-detector.json")
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	config["pluginConfig"].(map[string]any)["invoke_interval"] = "1s"
	rule := config["rules"].([]any)[0].(map[string]any)
	rule["path"] = machine.Binary(t)
	machine.Write(t, "/run/npd.json", toJSON(t, config))
	t.Setenv("LPUCTL_ROOT", nodeRoot)
	machine.Start(t, detector, "--config.custom-plugin-monitor=/run/npd.json", "--hostname-override="+nodeName,
		"--port=0", "--prometheus-port=0", "--apiserver-override=https://"+machine.Address+"?inClusterConfig=false&auth="+kubeconfig)
	// wait waits for the status, the reason and the message of the condition.
	wait := func(want string) {
		t.Helper()
		const path = `jsonpath={range .status.conditions[?(@.type=="LPUUnhealthy")]}{.status} {.reason}: {.message}{end}`
		began := time.Now()
		await.Until(t, "the condition is "+want, func() error {
			got, err := kubectl("", "get", "node", nodeName, "-o", path)
			if err == nil && !strings.HasPrefix(got, want) {
				err = fmt.Errorf("it is %q", got)
			}
			return err
		})
		t.Logf("after %v: %s", time.Since(began).Round(100*time.Millisecond), want)
	}
	worst := func(i int, why string) string {
		return fmt.Sprintf("True LPUIsUnhealthy: lpu%d %s %s", i, b.node.Card(i).Address, why)
	}
	wait("False LPUsAreHealthy: no LPU of this node is unhealthy")
	b.do(b.node.Unplug(3))
	wait(worst(3, ""))
	b.do(b.node.Unplug(1))
	wait(worst(1, "")) // the message follows, though the condition stays
	// A cordon is no fault, and a fault besides is still one.
	machine.Lpuctl(t, "--root", nodeRoot, "cordon", "lpu1", "--reason", "test")
	wait(worst(3, ""))
	b.do(b.node.Replug(3))
	wait("False LPUsAreHealthy: ")
	machine.Lpuctl(t, "--root", nodeRoot, "uncordon", "lpu1")
	wait(worst(1, ""))
	// A configuration that cannot be read says nothing about the LPUs.
	machine.Write(t, nodeRoot+"/etc/lpuctl/config.yaml", "kind: Nonsense\n")
	wait("Unknown LPUsAreHealthy: not known: ")
	machine.Write(t, nodeRoot+"/etc/lpuctl/config.yaml", "apiVersion: lpuctl.hyperaccel.ai/v1alpha1\nkind: Config\n")
	b.do(b.node.Replug(1))
	wait("False LPUsAreHealthy: ")
	// Without serve it is by one reading.
	plugin.Stop(unix.SIGTERM)
	b.do(b.node.Unplug(5))
	wait(worst(5, ""))
}
