package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// sockets are those that doctor asks on a node.
var sockets = []string{
	"/run/lpuctl/lease.sock", "/run/containerd/containerd.sock", "/var/run/crio/crio.sock", "/run/docker.sock",
	"/var/lib/kubelet/pod-resources/kubelet.sock", "/var/lib/kubelet/device-plugins/kubelet.sock",
	"/var/lib/kubelet/device-plugins/lpuctl-1.sock", "/var/lib/kubelet/plugins_registry/lpu.hyperaccel.ai-reg.sock",
}

// mute makes a simulated node of eight LPUs whose sockets take connections and never answer.
func mute(t testing.TB, lpuctl string) (root string) {
	t.Helper()
	root = doctored(t, lpuctl)
	for _, socket := range sockets {
		if err := os.MkdirAll(filepath.Dir(root+socket), 0o755); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", root+socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	machine.Write(t, root+"/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n")
	listening := "Num       RefCount Protocol Flags    Type St Inode Path\n"
	for i, socket := range sockets {
		listening += fmt.Sprintf("0000000000000000: 00000002 00000000 00010000 0001 01 %d %s\n", i+1, socket)
	}
	machine.Write(t, root+"/proc/1/net/unix", listening)
	return root
}

// doctored makes a simulated node of eight LPUs with a spec.
func doctored(t testing.TB, lpuctl string) (root string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "") //nolint:usetesting // paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, command := range [][]string{{"simulate", dir + "/node"}, {"--root", dir + "/node", "cdi", "refresh"}} {
		if out, err := exec.Command(lpuctl, append([]string{"--quiet"}, command...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return dir + "/node"
}

// TestDoctorOfMuteSockets: doctor says of runtime and kubelet that they do not answer, and of the rest what it always says.
func TestDoctorOfMuteSockets(t *testing.T) {
	need(t)
	r := machine.Run(t, "env", "LPUCTL_WITHIN=20s", machine.Binary(t), "--root", mute(t, machine.Binary(t)), "doctor", "-o", "json")
	var said struct {
		Links []struct {
			Link, State string
			Findings    []struct{ Message string }
		}
	}
	if err := json.Unmarshal([]byte(r.Stdout), &said); err != nil {
		t.Fatalf("exit code %d: %v: %s%s", r.Code, err, r.Stdout, r.Stderr)
	}
	var silent []string
	for _, l := range said.Links {
		if text := fmt.Sprint(l.Findings); strings.Contains(text, "does not answer") {
			silent = append(silent, l.Link)
		} else if l.State != "well" && l.State != "absent" {
			t.Errorf("%+v", l)
		}
	}
	if got := strings.Join(silent, " "); got != "runtime kubelet" {
		t.Errorf("%q do not answer: %s", got, r.Stdout)
	}
}

// BenchmarkDoctor is how long a diagnosis takes: of a healthy node (it may take 200 ms), and where no socket answers (3 s, its limit).
func BenchmarkDoctor(b *testing.B) {
	lpuctl := os.Getenv("LPUCTL")
	for name, root := range map[string]string{"healthy": doctored(b, lpuctl), "mute": mute(b, lpuctl)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if out, err := exec.Command(lpuctl, "--root", root, "doctor").Output(); len(out) == 0 {
					b.Fatal(err)
				}
			}
		})
	}
}
