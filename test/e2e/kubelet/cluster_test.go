package kubelet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

const (
	kubeconfig   = "/run/kubeconfig"
	certificates = "/run/certs" // of the API server
)

// plane is what a control plane has of its own.
type plane struct {
	server, scheduler []string // flags
	// controllers are those that kube-controller-manager runs. Without any, no admission plugin may wait for their work, so pods have no
	// service accounts, and everybody may do everything.
	controllers string
}

// newCluster starts a node with an API server and a scheduler.
func newCluster(t *testing.T) *bed {
	t.Helper()
	b, _ := newClusterOf(t, plane{})
	return b
}

// newClusterOf starts a node with a control plane, and returns its API server.
func newClusterOf(t *testing.T, p plane) (*bed, *machine.Daemon) {
	t.Helper()
	needControlPlane(t)
	b := prepare(t, os.Getenv("CONTAINERD"), containerd2)
	server := startControlPlane(t, p)
	b.flags = []string{"--kubeconfig", kubeconfig}
	b.startKubelet()
	return b, server
}

func needControlPlane(t *testing.T) {
	t.Helper()
	need(t, kubernetes("etcd"), kubernetes("kube-apiserver"), kubernetes("kube-scheduler"), kubernetes("kubectl"))
}

// newAPIServer starts an API server and a scheduler, without a node.
func newAPIServer(t *testing.T, p plane) {
	t.Helper()
	needControlPlane(t)
	for _, dir := range []string{"/run", "/var/lib"} {
		machine.Mount(t, "tmpfs", dir, "tmpfs", 0, "")
	}
	startControlPlane(t, p)
}

// startControllers starts some of the controllers, and no other.
func startControllers(t *testing.T, controllers string) {
	t.Helper()
	machine.Start(t, kubernetes("kube-controller-manager"), "--kubeconfig", kubeconfig, "--leader-elect=false",
		"--controllers", controllers, "--root-ca-file", certificates+"/apiserver.crt")
}

// startControlPlane starts an API server, which it returns, and what works with it. The API server is at the address of the service that
// pods find it by, so that they need no proxy for services.
func startControlPlane(t *testing.T, p plane) *machine.Daemon {
	t.Helper()
	machine.Start(t, kubernetes("etcd"), "--data-dir", "/var/lib/etcd", "--unsafe-no-fsync")
	writeKey(t, "/run/sa.key")
	machine.Write(t, "/run/tokens.csv", "e2e,e2e,e2e,system:masters\n")
	writeKubeconfig(t, kubeconfig, "e2e")
	authorization, without := "RBAC", "TaintNodesByCondition"
	if p.controllers == "" {
		authorization, without = "AlwaysAllow", without+",ServiceAccount"
	}
	apiServer := machine.Start(t, append([]string{kubernetes("kube-apiserver"),
		"--etcd-servers", "http://127.0.0.1:2379",
		"--bind-address", machine.Address,
		"--secure-port", "443",
		"--cert-dir", certificates,
		"--service-account-issuer", "https://e2e.local",
		"--service-account-key-file", "/run/sa.key",
		"--service-account-signing-key-file", "/run/sa.key",
		"--service-cluster-ip-range", "192.0.2.0/24", // the first address is that of the API server's service
		"--token-auth-file", "/run/tokens.csv",
		"--authorization-mode", authorization,
		"--disable-admission-plugins", without}, p.server...)...)
	await.Until(t, "the API server is ready", func() error {
		_, err := kubectl("", "get", "--raw", "/readyz")
		return err
	})
	machine.Start(t, append([]string{kubernetes("kube-scheduler"), "--kubeconfig", kubeconfig, "--leader-elect=false"}, p.scheduler...)...)
	if p.controllers != "" {
		startControllers(t, p.controllers)
	}
	return apiServer
}

// writeKubeconfig writes how somebody who has a token reaches the API server.
func writeKubeconfig(t *testing.T, path, token string) {
	t.Helper()
	server := values{"server": "https://" + machine.Address, "insecure-skip-tls-verify": true}
	machine.Write(t, path, toJSON(t, values{
		"apiVersion": "v1", "kind": "Config", "current-context": "e2e",
		"clusters": []any{values{"name": "e2e", "cluster": server}},
		"users":    []any{values{"name": "e2e", "user": values{"token": token}}},
		"contexts": []any{values{"name": "e2e", "context": values{"cluster": "e2e", "user": "e2e"}}},
	}))
}

// writeKey writes a key for service accounts, as the API server wants one.
func writeKey(t *testing.T, path string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	machine.Write(t, path, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
}

func kubectl(input string, args ...string) (string, error) {
	cmd := exec.Command(kubernetes("kubectl"), append([]string{"--kubeconfig", kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %v: %w: %s", args, err, out)
	}
	return string(out), err
}

// waitJSON waits until a field of an object has a value.
func waitJSON(t *testing.T, object, path, want string) {
	t.Helper()
	await.Until(t, object+" has "+path, func() error {
		got, err := kubectl("", "get", object, "-o", "jsonpath={"+path+"}")
		if err == nil && !strings.Contains(got, want) {
			err = fmt.Errorf("it is %q, want %q", got, want)
		}
		return err
	})
}

func TestCluster(t *testing.T) {
	b := newCluster(t)
	plugin := b.serve()
	const allocatable, capacity = `.status.allocatable.hyperaccel\.ai/lpu`, `.status.capacity.hyperaccel\.ai/lpu`
	waitJSON(t, "node/"+nodeName, allocatable, "8")
	create := func(name string, n int) {
		t.Helper()
		if _, err := kubectl(toJSON(t, podManifest(name, n)), "create", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	create("four", 4)
	got := b.check(t, b.inspect("four"), 4, true)
	create("five", 5)
	waitJSON(t, "pod/five", `.status.conditions[?(@.type=="PodScheduled")].message`, "Insufficient "+resource)
	waitJSON(t, "pod/four", ".status.phase", "Running")
	out, err := kubectl("", "get", "pod", "four", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var p pod
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, i := range got {
		want[b.id(i)] = "Healthy"
	}
	if toJSON(t, p.health()) != toJSON(t, want) {
		t.Errorf("the pod's LPUs are %v, want %v", p.health(), want)
	}
	// The pod that waits gets its LPUs as soon as they are free.
	if _, err := kubectl("", "delete", "pod", "four"); err != nil {
		t.Fatal(err)
	}
	b.check(t, b.inspect("five"), 5, true)
	plugin.Stop(unix.SIGKILL)
	waitJSON(t, "node/"+nodeName, allocatable, "0")
	waitJSON(t, "node/"+nodeName, capacity, "8")
	b.serve()
	waitJSON(t, "node/"+nodeName, allocatable, "8")
}

// TestManifest: the API server knows every field of what we ship, and applying it once more changes nothing.
func TestManifest(t *testing.T) {
	newAPIServer(t, plane{})
	for _, file := range []string{manifest, "../../../packaging/kubernetes/lpuctl-dra.yaml"} {
		// A dry run alone would not do: it makes no namespace for the objects that follow.
		if out, err := kubectl("", "apply", "--validate=strict", "-f", file); err != nil || strings.Contains(out, "Warning") {
			t.Errorf("%v %s", err, out)
		}
		out, err := kubectl("", "apply", "--dry-run=server", "--validate=strict", "-f", file)
		if err != nil {
			t.Fatal(err)
		}
		objects := strings.Split(strings.TrimSpace(out), "\n")
		if slices.ContainsFunc(objects, func(line string) bool { return !strings.Contains(line, " unchanged ") }) {
			t.Errorf("applying it again changes something:\n%s", out)
		}
	}
	data, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	wrong := strings.Replace(string(data), "containers:", "containerz: []\n      containers:", 1)
	if out, err := kubectl(wrong, "apply", "--dry-run=server", "--validate=strict", "-f", "-"); err == nil {
		t.Errorf("an unknown field is accepted: %s", out)
	}
}
