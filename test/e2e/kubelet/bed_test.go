package kubelet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

const (
	resource   = "hyperaccel.ai/lpu"
	nodeName   = "node"
	nodeRoot   = "/run/node" // short, as the path of a socket must be
	manifests  = "/run/manifests"
	containerd = "/run/containerd/containerd.sock"
)

// bed is a node: a simulated server that containerd and the kubelet take for the machine they run on.
type bed struct {
	t          *testing.T
	containerd *machine.Daemon
	kubelet    *machine.Daemon
	flags      []string // of the kubelet, beyond those in start
	api        podresources.PodResourcesListerClient
	node       *simulate.Machine
	cabled     machine.Server      // the server as it was at first
	logs       map[string]*os.File // of the DaemonSet's pods, by path
}

// containerd2 and containerd1 are a configuration for each of the two releases of containerd. Some machines forbid to lower the OOM score;
// without a network configuration the node is not ready, though most pods have the host's network.
const (
	containerd2 = `version = 3
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  cni.conf_dir = "/run/cni"
  cni.bin_dirs = ["/run/cni"]
  cni.use_internal_loopback = true
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "` + machine.Image + `"
`
	containerd1 = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + machine.Image + `"
  enable_cdi = %v
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "/run/cni"
`
	networkConfig = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "pair"}]}`
)

// networkPlugin gives a pod a network: a pair of devices, by which it and the node reach each other. It needs iproute2. An address is
// used once; the devices go with the pod's namespace.
const networkPlugin = `#!/bin/sh
set -eu
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "0.4.0", "supportedVersions": ["0.4.0"]}' ;;
ADD)
	n=1
	until mkdir /run/cni/pod$n 2>/dev/null; do n=$((n + 1)); done
	namespace=${CNI_NETNS##*/} address=203.0.113.$n
	ip link add pod$n type veth peer name "$CNI_IFNAME" netns "$namespace"
	ip link set pod$n up
	ip route add $address dev pod$n src ` + machine.Address + `
	ip -n "$namespace" link set "$CNI_IFNAME" up
	ip -n "$namespace" address add $address dev "$CNI_IFNAME"
	ip -n "$namespace" route add ` + machine.Address + ` dev "$CNI_IFNAME"
	echo '{"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "'$address'/32"}]}' ;;
esac
`

// newBed starts a node on the current release of containerd.
func newBed(t *testing.T) *bed { return newBedOn(t, os.Getenv("CONTAINERD"), containerd2) }

func newBedOn(t *testing.T, binaries, config string) *bed {
	t.Helper()
	b := prepare(t, binaries, config)
	b.startKubelet()
	return b
}

// prepare makes a node whose kubelet is not yet started.
func prepare(t *testing.T, binaries, config string) *bed {
	t.Helper()
	need(t, kubernetes("kubelet"), binaries+"/containerd")
	b := &bed{t: t}
	for _, dir := range []string{"/run", "/var/lib", "/var/log", "/opt"} {
		machine.Mount(t, "tmpfs", dir, "tmpfs", 0, "")
	}
	var err error
	if b.node, err = (simulate.Node{Profile: "orion", Numbers: machine.DeviceNumbers(t, 8)}).Start(nodeRoot); err != nil {
		t.Fatal(err)
	}
	// The kubelet's directory is the same inside and outside of the simulated root; the rest is seen where runtimes look.
	for from, to := range map[string]string{
		nodeRoot + "/opt":             "/opt",
		nodeRoot + "/dev/dri":         "/dev/dri",
		nodeRoot + "/var/run/cdi":     "/run/cdi",
		nodeRoot + "/run/lpuctl/ring": "/run/lpuctl/ring",
		"/var/lib/kubelet":            nodeRoot + "/var/lib/kubelet",
	} {
		machine.BindMount(t, from, to)
	}
	b.cabled = machine.ServerOf(t, nodeRoot)
	b.startContainerd(binaries, config)
	return b
}

func (b *bed) startContainerd(binaries, config string) {
	b.t.Helper()
	machine.Write(b.t, "/run/cni/pair", networkPlugin)
	b.do(os.Chmod("/run/cni/pair", 0o755))
	machine.Write(b.t, "/run/cni/10-pods.conflist", networkConfig)
	machine.Write(b.t, "/run/containerd.toml", config)
	machine.WriteImage(b.t, "/run/image.tar", machine.Image)
	b.t.Setenv("PATH", binaries+":"+os.Getenv("PATH")) // a shim must be of its daemon's release
	b.containerd = machine.Start(b.t, "containerd", "-c", "/run/containerd.toml", "-l", "warn")
	await.Until(b.t, "containerd takes the image", func() error {
		out, err := exec.Command("ctr", "-n", "k8s.io", "images", "import", "/run/image.tar").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	b.t.Cleanup(func() {
		if b.kubelet != nil { // it would start pods again; it still runs if this was a second start
			b.kubelet.Stop(unix.SIGTERM)
		}
		if b.containerd.Running() { // after a second start those of the first are gone by now, and so is the daemon
			removePods(b.t)
		}
	})
}

// removePods removes all pods: containers are no children of ours.
func removePods(t *testing.T) {
	client := cri.NewRuntimeServiceClient(machine.Dial(t, containerd))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pods, err := client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		t.Errorf("listing what is left: %v", err)
	}
	for _, p := range pods.GetItems() {
		var err error
		for range 5 { // a container whose start had begun may still run after the first time
			_, _ = client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.Id})
			if _, err = client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.Id}); err == nil {
				break
			}
			time.Sleep(200 * time.Millisecond)
		}
		if err != nil {
			t.Errorf("removing a pod: %v", err)
		}
	}
}

// kubeletConfig: no cgroups of its own, which nobody would remove; no garbage collection; and everything often.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
readOnlyPort: 10255
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
staticPodPath: ` + manifests + `
containerRuntimeEndpoint: unix://` + containerd + `
volumePluginDir: /var/lib/kubelet/volume-plugins
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
evictionHard: {imagefs.available: 0%, memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.inodesFree: 0%}
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
fileCheckFrequency: 1s
syncFrequency: 1s
nodeStatusUpdateFrequency: 1s
`

// startKubelet starts the kubelet and waits until it serves.
func (b *bed) startKubelet() {
	b.t.Helper()
	machine.Write(b.t, "/run/kubelet.yaml", kubeletConfig)
	if err := os.MkdirAll(manifests, 0o755); err != nil {
		b.t.Fatal(err)
	}
	command := []string{
		kubernetes("kubelet"), "--config", "/run/kubelet.yaml", "--hostname-override", nodeName,
		"--node-ip", machine.Address, "--cert-dir", "/run/pki",
	}
	b.kubelet = machine.Start(b.t, append(command, b.flags...)...)
	await.Until(b.t, "the kubelet is healthy", func() error {
		if !b.kubelet.Running() {
			b.t.Fatal("the kubelet ended")
		}
		_, err := get("http://127.0.0.1:10248/healthz")
		return err
	})
	if b.api == nil {
		b.api = podresources.NewPodResourcesListerClient(machine.Dial(b.t, "/var/lib/kubelet/pod-resources/kubelet.sock"))
	}
}

func get(url string) ([]byte, error) {
	client := http.Client{Timeout: 5 * time.Second}
	r, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Body.Close() }()
	data, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", r.Status, data)
	}
	return data, err
}

// healthy are the ids of the healthy LPUs that the kubelet knows of, sorted.
func (b *bed) healthy() (ids []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	r, err := b.api.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{}, grpc.WaitForReady(true))
	for _, d := range r.GetDevices() {
		if d.ResourceName == resource {
			ids = append(ids, d.DeviceIds...)
		}
	}
	slices.Sort(ids)
	return ids, err
}

// allocatable is the number of healthy LPUs that the kubelet knows of.
func (b *bed) allocatable() (int, error) {
	ids, err := b.healthy()
	return len(ids), err
}

// registrations is how many plugins have registered with this kubelet.
func (b *bed) registrations() int {
	return b.metric("http://127.0.0.1:10255/metrics", `kubelet_device_plugin_registration_total{resource_name="`+resource+`"}`)
}

// metric is the value of a metric; 0 if there is none of that name and those labels.
func (b *bed) metric(url, name string) (n int) {
	b.t.Helper()
	metrics, err := get(url)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, value, found := strings.Cut(string(metrics), "\n"+name+" "); found {
		_, _ = fmt.Sscan(value, &n)
	}
	return n
}

// waitScans waits until the plugin has read the whole machine anew.
func (b *bed) waitScans() {
	b.t.Helper()
	b.waitScansOf("http://127.0.0.1:9477/metrics")
}

func (b *bed) waitScansOf(url string) {
	b.t.Helper()
	scans := func() int { return b.metric(url, "lpuctl_scan_duration_seconds_count") }
	before := scans()
	await.Until(b.t, "the machine is read", func() error {
		if n := scans() - before; n < 2 { // the first of these may have begun before
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
}

// waitAllocatable waits for that number, and returns how long that took.
func (b *bed) waitAllocatable(want int) time.Duration {
	b.t.Helper()
	start := time.Now()
	await.Until(b.t, fmt.Sprintf("%d LPUs are allocatable", want), func() error {
		got, err := b.allocatable()
		if err == nil && got != want {
			err = fmt.Errorf("%d are", got)
		}
		return err
	})
	return time.Since(start)
}

// watchAllocatable looks at the number of allocatable LPUs all the time, until the function that it returns is called. That tells the
// least, and for how long at a time there were fewer than want.
func (b *bed) watchAllocatable() func(want int) (least int, longest time.Duration) {
	type look struct {
		at time.Time
		n  int
	}
	end, result := make(chan struct{}), make(chan []look)
	go func() {
		var seen []look
		for {
			select {
			case <-end:
				result <- seen
				return
			case <-time.After(15 * time.Millisecond): // the kubelet answers no more than 100 a second
				if n, err := b.allocatable(); err == nil {
					seen = append(seen, look{time.Now(), n})
				}
			}
		}
	}()
	return func(want int) (least int, longest time.Duration) {
		b.t.Helper()
		close(end)
		seen := <-result
		if len(seen) < 50 {
			b.t.Fatalf("the kubelet told %d times only how many LPUs are allocatable", len(seen))
		}
		least, enough := seen[0].n, seen[0].at
		for _, s := range seen {
			least = min(least, s.n)
			if s.n < want {
				longest = max(longest, s.at.Sub(enough))
			} else {
				enough = s.at
			}
		}
		return least, longest
	}
}
