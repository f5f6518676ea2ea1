package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/pkg/plugin"
	"github.com/hyperaccel/lpuctl/test/await"
)

// owner runs lpuctl owner on the node, and returns what it prints.
func (n *observedNode) owner(args ...string) string {
	n.Helper()
	out, err := n.lpuctl(append([]string{"owner"}, args...)...).CombinedOutput()
	if err != nil {
		n.Fatalf("owner %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestServeFollowsTheOwner while it runs, at a start, and when the file breaks.
func TestServeFollowsTheOwner(t *testing.T) {
	t.Parallel()
	const lpu1 = `lpuctl_lpu_healthy{lpu="lpu1",device="pci-0000-44-00.1"} `
	const healthy, withheld = lpu1 + "1", lpu1 + "0"
	const elsewhere = "registered: the LPUs of this node are handed out by the DRA driver (lpuctl-dra)\n"
	n := newObservedNode(t)
	newKubelet(t, filepath.Join(n.root, "kubelet"))
	file := filepath.Join(n.root, node.StateDir, "owner.json")
	s := n.servesMetrics("--plugin-dir", "/kubelet")
	s.eventually("/readyz", 200, "registered\n")
	s.eventually("/metrics", 200, healthy)
	if _, err := os.Stat(file); err == nil {
		t.Error("serve has written the owner, and nobody told it to")
	}
	if got := n.owner("show"); !strings.Contains(got, "plugin  -      -   yes          no") {
		t.Errorf("show: %s", got)
	}
	n.owner("set", "dra")
	s.eventually("/readyz", 200, elsewhere)
	s.eventually("/metrics", 200, withheld)
	n.owner("set", "plugin")
	s.eventually("/metrics", 200, healthy)
	n.plant(strings.TrimPrefix(file, n.root), "{")
	s.eventually("/readyz", 503, "it is not known who hands out the LPUs of this node: ")
	s.eventually("/metrics", 200, withheld)
	n.owner("set", "dra")
	kill(s.command)

	s = n.servesMetrics("--plugin-dir", "/kubelet")
	s.eventually("/readyz", 200, elsewhere)
	kill(s.command)
	s = n.servesMetrics("--plugin-dir", "/kubelet", "--owner", "plugin")
	s.eventually("/readyz", 200, "registered\n")
	s.eventually("/metrics", 200, `lpuctl_owner{owner="plugin"} 1`)
	if got := n.owner("show", "-o", "json"); !strings.Contains(got, `"by": "lpuctl serve --owner"`) {
		t.Errorf("show: %s", got)
	}

	n.plant(filepath.Join(node.StateDir, claim.DirName, "1234.json"), "{") // nobody knows which LPUs it has
	s.eventually("/readyz", 503, "1234.json")
	s.eventually("/metrics", 200, withheld)
	if err := os.Remove(filepath.Join(n.root, node.StateDir, claim.DirName, "1234.json")); err != nil {
		t.Fatal(err)
	}
	s.eventually("/metrics", 200, healthy)
	n.plant(filepath.Join(node.StateDir, claim.DirName, "0d8ef4a5-1f0c-4f62-9f6d-0b1a3a6a8b01.json"), `{
		"apiVersion": "lpuctl.hyperaccel.ai/v1alpha1", "kind": "DRAClaim", "version": 1, "boot": "", "state": "completed",
		"since": "2026-11-23T05:00:00Z", "namespace": "team", "name": "job", "uid": "0d8ef4a5-1f0c-4f62-9f6d-0b1a3a6a8b01",
		"requests": [{"name": "lpus", "devices": [{"name": "lpu1-0000-44-00-1-681c5c16", "members": ["0000:44:00.1"]}]}]}`)
	const lpu0 = `lpuctl_lpu_healthy{lpu="lpu0",device="pci-0000-43-00.1"} 1`
	s.eventually("/metrics", 200, withheld)
	s.eventually("/metrics", 200, lpu0)
	s.eventually("/readyz", 200, "registered\n")

	// One record is cut, and only the LPUs of its claim are withheld: the CDI file tells. So it does without the record.
	const uid = "0d8ef4a5-1f0c-4f62-9f6d-0b1a3a6a8b01"
	n.plant("var/run/cdi/hyperaccel.ai-lpu-claim-"+uid+".json", `{"cdiVersion": "0.3.0", "kind": "hyperaccel.ai/lpu-claim",
		"devices": [{"name": "claim-`+uid+`-lpus", "containerEdits": {"env": ["LPU_VISIBLE_DEVICES=1",
		"LPU_CLAIM_0D8EF4A5_ADDRESSES=0000:44:00.1", "LPU_CLAIM_0D8EF4A5_DEVICES=lpu1-0000-44-00-1-681c5c16",
		"LPU_CLAIM_0D8EF4A5_NAME=team/job"]}}]}`)
	record := filepath.Join(n.root, node.StateDir, claim.DirName, uid+".json")
	n.plant(strings.TrimPrefix(record, n.root), "{")
	// On a busy machine the kubelet may not answer in time.
	holds := func(want bool) {
		t.Helper()
		await.Until(t, "what is offered", func() error {
			v := n.gate().Renew(t.Context())
			if got := v.Why(pci.Address{Bus: 0x44, Function: 1}); v.All() != nil || want != strings.HasPrefix(got, "claim team/job") {
				return fmt.Errorf("lpu1 is offered unless %q; %v", got, v.All())
			}
			if why := v.Why(pci.Address{Bus: 0x43, Function: 1}); why != "" {
				return fmt.Errorf("lpu0 is not offered: %s", why)
			}
			return nil
		})
	}
	holds(true)
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	holds(true)
	s.eventually("/metrics", 200, lpu0)
	s.eventually("/metrics", 200, withheld)

	// Both are lost, and the kubelet names the claim.
	n.kubelet(podWithClaim(uid))
	if err := os.Remove(filepath.Join(n.root, "var/run/cdi/hyperaccel.ai-lpu-claim-"+uid+".json")); err != nil {
		t.Fatal(err)
	}
	holds(true)
	await.Until(t, "owner show names the claim", func() error {
		if got := n.owner("show"); !strings.Contains(got, "lpu1  0000:44:00.1  dra   claim team/job") {
			return errors.New(got)
		}
		return nil
	})
	if err := os.Remove(filepath.Join(n.root, plugin.DefaultPodResources)); err != nil {
		t.Fatal(err)
	}
	holds(false)
	s.eventually("/readyz", 200, "registered\n")
}

// TestServeNamesPodsWithoutTheirTable: another file takes the place of the host's ring table while a pod has an LPU. A serve that starts
// after that knows it too.
func TestServeNamesPodsWithoutTheirTable(t *testing.T) {
	t.Parallel()
	n := newObservedNode(t)
	newKubelet(t, filepath.Join(n.root, "kubelet"))
	n.kubelet(podWithClaim("0d8ef4a5-1f0c-4f62-9f6d-0b1a3a6a8b01"))
	s := n.servesMetrics("--plugin-dir", "/kubelet")
	mark := filepath.Join(n.root, cdi.RingTableDir, "over/0000:44:00.1")
	await.For(t, "the LPU is marked", func() bool { return host.State(mark) != "" })
	table := filepath.Join(n.root, discovery.HyperdexRingTable)
	text := readText(t, table)
	if err := errors.Join(os.WriteFile(table+".new", []byte(text), 0o644), os.Rename(table+".new", table)); err != nil {
		t.Fatal(err)
	}
	const problem = `lpuctl_problem{problem="ring-table-detached",severity="warning"} 1`
	s.eventually("/metrics", 200, problem)
	kill(s.command)
	s = n.servesMetrics("--plugin-dir", "/kubelet")
	s.eventually("/metrics", 200, problem)
}

// gate is what serve asks.
func (n *observedNode) gate() *owner.Gate {
	n.Helper()
	a := &app{App: cli.App{Root: host.Root(n.root), Log: slog.New(slog.DiscardHandler), Env: noEnvironment}}
	if err := a.LoadConfig(); err != nil {
		n.Fatal(err)
	}
	memory, err := node.RememberIn(a.Root)
	if err != nil {
		n.Fatal(err)
	}
	of, err := a.Pods(memory)
	if err != nil {
		n.Fatal(err)
	}
	g, err := of.PluginGate("", func(*plugin.Said) {})
	if err != nil {
		n.Fatal(err)
	}
	return g
}

// ofPods is what a kubelet says of its pods.
type ofPods struct {
	podresources.UnimplementedPodResourcesListerServer
	pods []*podresources.PodResources
}

func (*ofPods) GetAllocatableResources(
	context.Context, *podresources.AllocatableResourcesRequest,
) (*podresources.AllocatableResourcesResponse, error) {
	return &podresources.AllocatableResourcesResponse{}, nil
}

func (k *ofPods) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: k.pods}, nil
}

// podWith is a pod with one container.
func podWith(c *podresources.ContainerResources) *podresources.PodResources {
	c.Name = "main"
	return &podresources.PodResources{Name: "pod", Namespace: "team", Containers: []*podresources.ContainerResources{c}}
}

// podWithLPU is a pod that has an LPU from the device plugin.
func podWithLPU(id string) *podresources.PodResources {
	devices := []*podresources.ContainerDevices{{ResourceName: plugin.DefaultResource, DeviceIds: []string{id}}}
	return podWith(&podresources.ContainerResources{Devices: devices})
}

// podWithClaim is a pod that has lpu1 by a claim.
func podWithClaim(uid string) *podresources.PodResources {
	return podWith(&podresources.ContainerResources{DynamicResources: []*podresources.DynamicResource{{
		ClaimName: "job", ClaimNamespace: "team", ClaimResources: []*podresources.ClaimResource{{
			DriverName: "lpu.hyperaccel.ai", DeviceName: "lpu1-0000-44-00-1-681c5c16", CdiDevices: []*podresources.CDIDevice{
				{Name: "hyperaccel.ai/lpu=pci-0000-44-00.1"}, {Name: "hyperaccel.ai/lpu-claim=claim-" + uid + "-lpus"},
			},
		}},
	}}})
}

// kubelet runs a kubelet with pods.
func (n *observedNode) kubelet(pods ...*podresources.PodResources) {
	n.Helper()
	socket := filepath.Join(n.root, plugin.DefaultPodResources)
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		n.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		n.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, &ofPods{pods: pods})
	go func() { _ = server.Serve(listener) }()
	n.Cleanup(server.Stop)
}
