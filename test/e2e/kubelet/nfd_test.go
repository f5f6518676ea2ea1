package kubelet

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// featureDir is where node-feature-discovery's worker looks; it cannot be told otherwise.
const featureDir = "/etc/kubernetes/node-feature-discovery/features.d"

// TestNodeFeatureDiscovery: labels appear on the node, follow a lost card and the config file, stay during an upgrade of serve, and end
// after its removal. It waits long, and its programs take long to build, see LPUCTL_LONG.
func TestNodeFeatureDiscovery(t *testing.T) {
	programs := os.Getenv("NFD")
	machine.Need(t, obstacle, "make e2e-kubelet-tools-long", programs+"/nfd-worker", programs+"/nfd-master")
	b := newCluster(t)
	machine.Output(t, "cp", "-a", "/etc", "/run/etc") // this machine's own stays as it is
	machine.BindMount(t, "/run/etc", "/etc")
	machine.BindMount(t, nodeRoot+featureDir, featureDir)
	if out, err := kubectl("", "create", "-f", programs+"/crds.yaml"); err != nil {
		t.Fatal(out, err)
	}
	if out, err := kubectl("", "annotate", "node", nodeName, "e2e=1"); err != nil { // the master cannot add the first annotation
		t.Fatal(out, err)
	}
	t.Setenv("NODE_NAME", nodeName)
	t.Setenv("KUBERNETES_NAMESPACE", "default")
	machine.Write(t, "/run/nfd-worker.conf", "core: {sleepInterval: 1s, featureSources: [local], labelSources: [local]}\n")
	machine.Write(t, "/run/nfd-master.conf", "{}\n")
	await.Until(t, "the API server knows the resource", func() error {
		_, err := kubectl("", "get", "nodefeatures")
		return err
	})
	machine.Start(t, programs+"/nfd-master", "-kubeconfig", kubeconfig, "-config", "/run/nfd-master.conf", "-port", "18080")
	machine.Start(t, programs+"/nfd-worker", "-kubeconfig", kubeconfig, "-config", "/run/nfd-worker.conf", "-port", "18081")

	// label is the value of a label of the node; "" if it has none.
	label := func(key string) string {
		t.Helper()
		out, err := kubectl("", "get", "node", nodeName, "-o", `jsonpath={.metadata.labels.`+strings.ReplaceAll(key, ".", `\.`)+`}`)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	wait := func(key, want string) {
		t.Helper()
		began := time.Now()
		await.Until(t, key+"="+want, func() error {
			if got := label(key); got != want {
				return fmt.Errorf("it is %q", got)
			}
			return nil
		})
		t.Logf("%s=%s after %v", key, want, time.Since(began).Round(100*time.Millisecond))
	}
	const count, networkSwitch, rack = "hyperaccel.ai/lpu.count", "topology.hyperaccel.ai/switch", "example.com/rack"
	configure := func(labels string) {
		machine.Write(t, nodeRoot+"/etc/lpuctl/config.yaml", "topology: [{nodes: [\"no*\"], labels: {"+labels+"}}]\n")
	}
	configure("switch: leaf-1, " + rack + ": r1")
	serve := func() *machine.Daemon {
		return b.serve("--node-name", nodeName, "--nfd", featureDir+"/lpuctl", "--nfd-expiry", "1m")
	}
	plugin := serve()
	wait(count, "8")
	for key, want := range map[string]string{
		networkSwitch: "leaf-1", rack: "r1", "hyperaccel.ai/lpu.model": "orion-u55c", "hyperaccel.ai/lpu.ring.sizes": "8",
		"hyperaccel.ai/lpu.driver.version": "2.15.225",
	} {
		if got := label(key); got != want {
			t.Errorf("%s=%s, want %s", key, got, want)
		}
	}
	b.do(b.node.Unplug(3))
	wait(count, "7")
	b.do(b.node.Replug(3))
	wait(count, "8")
	configure("switch: leaf-2")
	if err := unix.Kill(plugin.PID(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	wait(networkSwitch, "leaf-2")
	wait(rack, "")

	plugin.Stop(unix.SIGTERM)
	for range 10 { // the worker looks each second
		if got := label(count); got != "8" {
			t.Fatalf("serve ended for an upgrade, and %s=%s", count, got)
		}
		time.Sleep(300 * time.Millisecond)
	}
	plugin = serve()
	waitSaid(t, plugin, "the feature file is in place")
	if got := label(count); got != "8" {
		t.Errorf("after an upgrade %s=%s", count, got)
	}
	plugin.Stop(unix.SIGKILL)
	wait(count, "")
	wait(networkSwitch, "")
}
