//go:build chart

package chart

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const resource = "hyperaccel.ai/lpu"

// kubelet does for one node what a kubelet does: it follows the list of a plugin that registers, and says which pods have which LPUs.
type kubelet struct {
	api.UnsafeRegistrationServer
	podresources.UnimplementedPodResourcesListerServer
	plugins    string // directory of the sockets
	registered chan api.DevicePluginClient
	pods       map[string][]string // ids of LPUs, by the name of a pod of the namespace ml
	ids        []string            // that are allocatable
}

// startKubelet serves both sockets of the kubelet of a node.
func startKubelet(t *testing.T, node string, ids []string, pods map[string][]string) *kubelet {
	t.Helper()
	k := &kubelet{
		plugins: filepath.Join(node, "var/lib/kubelet/device-plugins"), registered: make(chan api.DevicePluginClient, 10),
		pods: pods, ids: ids,
	}
	server := grpc.NewServer()
	api.RegisterRegistrationServer(server, k)
	podresources.RegisterPodResourcesListerServer(server, k)
	for _, dir := range []string{filepath.Join(node, "var/lib/kubelet/pod-resources"), k.plugins} {
		socket := filepath.Join(dir, "kubelet.sock")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = server.Serve(listener) }()
	}
	t.Cleanup(server.Stop)
	return k
}

// Register follows the list of a plugin from then on, for as long as the plugin serves it.
func (k *kubelet) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	conn, err := grpc.NewClient("unix:"+filepath.Join(k.plugins, r.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	plugin := api.NewDevicePluginClient(conn)
	go func() {
		defer func() { _ = conn.Close() }()
		stream, err := plugin.ListAndWatch(context.Background(), &api.Empty{})
		for err == nil {
			_, err = stream.Recv()
		}
	}()
	k.registered <- plugin
	return &api.Empty{}, nil
}

// List says which pods have which LPUs. The first LPU of the pod "twice" is that of a claim too.
func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	answer := &podresources.ListPodResourcesResponse{}
	for name, ids := range k.pods {
		main := &podresources.ContainerResources{
			Name: "main", Devices: []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: ids}},
		}
		if name == "twice" {
			main.DynamicResources = []*podresources.DynamicResource{claimOf(ids[0])}
		}
		answer.PodResources = append(answer.PodResources, &podresources.PodResources{
			Namespace: "ml", Name: name, Containers: []*podresources.ContainerResources{main},
		})
	}
	return answer, nil
}

// claimOf is what the kubelet says of a claim that has an LPU.
func claimOf(id string) *podresources.DynamicResource {
	return &podresources.DynamicResource{
		ClaimNamespace: "ml", ClaimName: "job", ClaimResources: []*podresources.ClaimResource{{
			DriverName: "lpu.hyperaccel.ai", DeviceName: "lpu1", CdiDevices: []*podresources.CDIDevice{
				{Name: resource + "=" + id}, {Name: resource + "-claim=claim-0d8ef4a5-1f0c-4f62-9f6d-0b1a3a6a8b01-lpus"},
			},
		}},
	}
}

// GetAllocatableResources says which LPUs pods can have at all.
func (k *kubelet) GetAllocatableResources(
	context.Context, *podresources.AllocatableResourcesRequest,
) (*podresources.AllocatableResourcesResponse, error) {
	devices := []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: k.ids}}
	return &podresources.AllocatableResourcesResponse{Devices: devices}, nil
}

// start asks the plugin which of the LPUs it prefers, and has it hand out one, as the kubelet does when a pod comes. The last call is one
// that fails, for an LPU that there is not.
func (k *kubelet) start(t *testing.T, free []string) {
	t.Helper()
	plugin := <-k.registered
	_, preferred := plugin.GetPreferredAllocation(t.Context(), &api.PreferredAllocationRequest{
		ContainerRequests: []*api.ContainerPreferredAllocationRequest{{AvailableDeviceIDs: free, AllocationSize: 2}},
	})
	allocate := func(id string) error {
		requests := []*api.ContainerAllocateRequest{{DevicesIds: []string{id}}}
		_, err := plugin.Allocate(t.Context(), &api.AllocateRequest{ContainerRequests: requests})
		return err
	}
	if err := errors.Join(preferred, allocate(free[0])); err != nil {
		t.Fatal(err)
	}
	if allocate("pci-0000-ff-00.0") == nil {
		t.Fatal("an LPU that there is not was handed out")
	}
}
