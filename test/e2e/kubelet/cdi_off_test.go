package kubelet

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// selfCheck lets the node check its runtime, as the timer does, and returns what it left for serve.
func (b *bed) selfCheck(period string) string {
	b.t.Helper()
	r := machine.Run(b.t, machine.Binary(b.t), "--quiet", "runtime", "check", "--write-result", "--period", period)
	result, err := os.ReadFile("/var/lib/lpuctl/runtime.json")
	if err != nil || r.Code != 0 && r.Code != 3 {
		b.t.Fatalf("exit code %d, %v: %s", r.Code, err, r.Stderr)
	}
	return string(result)
}

// TestCDIOff: a containerd that ignores names of CDI devices is found out by the node itself. serve, which has no socket of it, then offers
// nothing, or gives nodes; and goes on as ever when the containerd was mended, or when nobody checks it any more.
func TestCDIOff(t *testing.T) {
	b := newBedOn(t, os.Getenv("OLD_CONTAINERD"), fmt.Sprintf(containerd1, false))
	machine.BindMount(t, "/var/lib/lpuctl", nodeRoot+"/var/lib/lpuctl") // as the pod of the DaemonSet has it
	if result := b.selfCheck("10m"); !strings.Contains(result, `"cdi": "off"`) || !strings.Contains(result, `"version": "1.7.`) {
		t.Fatalf("the check left %s", result)
	}

	plugin := b.serve("--on-cdi-off", "fail")
	waitRegistered(t, plugin)
	if n, err := b.allocatable(); n != 0 || err != nil {
		t.Errorf("%d LPUs are allocatable, %v", n, err)
	}
	if b.metric("http://127.0.0.1:9477/metrics", `lpuctl_runtime_cdi{answer="off"}`) != 1 {
		t.Error("the metrics do not say that CDI is off")
	}
	if _, err := get("http://127.0.0.1:9477/readyz"); err != nil {
		t.Errorf("it is not ready: %v", err)
	}
	b.put("blind", 1) // nobody holds a static pod back, as the scheduler does
	if p := b.waitPhase("blind", "Failed"); len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting.Reason == "" {
		t.Errorf("the pod is %+v", p.Status)
	}
	plugin.Stop(unix.SIGTERM)

	plugin = b.serve("--on-cdi-off", "device-specs")
	b.waitAllocatable(8)
	b.check(t, b.run("nodes", 2), 2, true)
	plugin.Stop(unix.SIGTERM)

	plugin = b.serve("--on-cdi-off", "fail")
	waitRegistered(t, plugin)
	b.containerd.Stop(unix.SIGTERM)
	b.startContainerd(os.Getenv("OLD_CONTAINERD"), fmt.Sprintf(containerd1, true))
	if result := b.selfCheck("10s"); !strings.Contains(result, `"cdi": "on"`) {
		t.Fatalf("the check left %s", result)
	}
	t.Logf("from the check to 8 allocatable LPUs: %v", b.waitAllocatable(8).Round(time.Millisecond))
	if b.metric("http://127.0.0.1:9477/metrics", `lpuctl_runtime_cdi{answer="on"}`) != 1 {
		t.Error("the metrics do not say that CDI is on")
	}
	b.check(t, b.run("names", 2), 2, true)
	await.Until(t, "the result is too old", func() error {
		if b.metric("http://127.0.0.1:9477/metrics", `lpuctl_runtime_cdi{answer="unknown"}`) != 1 {
			return errors.New("it still counts")
		}
		return nil
	})
	b.waitAllocatable(8)
	b.check(t, b.run("unknown", 1), 1, true)
}
