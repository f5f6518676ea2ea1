// Package kubelet proves `lpuctl serve` and `lpuctl-dra serve` on the real kubelet, containerd and scheduler, on a machine of their own.
// KUBERNETES, CONTAINERD, OLD_CONTAINERD, MONITORING (custom resources) and PREVIOUS (lpuctl as it was before) name the directories that
// `make e2e-kubelet-tools` fills, HELM a program that it builds, DRA the lpuctl-dra under test, and IMAGE and
// DRA_IMAGE archives of the images that are shipped.
package kubelet

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// obstacle is why this machine cannot run the tests.
var obstacle error

func TestMain(m *testing.M) {
	obstacle = machine.Enter(nil)
	os.Exit(m.Run())
}

// need skips a test that lacks the programs, or what every test needs.
func need(t *testing.T, programs ...string) {
	t.Helper()
	machine.Need(t, obstacle, "make e2e-kubelet-tools", append(programs, "runc", "busybox", machine.FUSE)...)
}

func kubernetes(program string) string { return os.Getenv("KUBERNETES") + "/" + program }

func toJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
