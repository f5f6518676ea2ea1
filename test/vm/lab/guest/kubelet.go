package guest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const pluginDir = "/var/lib/kubelet/device-plugins"

// Health of a device, as the kubelet is told.
const (
	Healthy   = api.Healthy
	Unhealthy = api.Unhealthy
	NotListed = "not listed"
)

// told is one thing that the kubelet was told: that a device has become healthy, unhealthy or is not listed any more.
type told struct {
	at         time.Time
	id, health string
}

// kubelet keeps what the plugin tells it.
type kubelet struct {
	api.UnimplementedRegistrationServer

	node   *Node
	client api.DevicePluginClient
	health map[string]string // by device, what was told last
	told   []told
	lists  int // how many lists there were
}

// start makes the kubelet's socket, and returns what stops it.
func (k *kubelet) start() (stop func(), err error) {
	if err := os.MkdirAll(pluginDir, 0o755); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", filepath.Join(pluginDir, "kubelet.sock"))
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	api.RegisterRegistrationServer(server, k)
	go func() { _ = server.Serve(listener) }()
	return server.Stop, nil
}

// Register is called by the plugin.
func (k *kubelet) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	conn, err := grpc.NewClient("unix:"+filepath.Join(pluginDir, r.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	client := api.NewDevicePluginClient(conn)
	stream, err := client.ListAndWatch(context.Background(), &api.Empty{})
	if err != nil {
		return nil, err
	}
	k.node.mu.Lock()
	k.client = client
	k.node.mu.Unlock()
	k.node.running.Go(func() {
		for err == nil {
			var list *api.ListAndWatchResponse
			if list, err = stream.Recv(); err == nil {
				k.take(list.GetDevices())
			}
		}
		k.node.say("kubelet: the stream has ended")
		_ = conn.Close()
	})
	return &api.Empty{}, nil
}

// take compares a list with the one before.
func (k *kubelet) take(list []*api.Device) {
	now := map[string]string{}
	for _, d := range list {
		now[d.GetID()] = d.GetHealth()
	}
	var changes []string
	change := func(id, health string) {
		k.told = append(k.told, told{time.Now(), id, health})
		changes = append(changes, id+" is "+health)
	}
	k.node.mu.Lock()
	for id := range k.health {
		if now[id] == "" {
			change(id, NotListed)
		}
	}
	for id, health := range now {
		if k.health[id] != health {
			change(id, health)
		}
	}
	k.health = now
	k.lists++
	k.node.mu.Unlock()
	if len(changes) == 0 {
		changes = []string{"the same again"}
	}
	k.node.say("kubelet: %s", strings.Join(changes, ", "))
}

// preferred is what the plugin would rather give of all healthy LPUs. It is an error if it then does not give them.
func (n *Node) preferred(count int) ([]string, error) {
	n.mu.Lock()
	client := n.kubelet.client
	var healthy []string
	for id, health := range n.kubelet.health {
		if health == Healthy {
			healthy = append(healthy, id)
		}
	}
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	preferred, err := client.GetPreferredAllocation(ctx, &api.PreferredAllocationRequest{
		ContainerRequests: []*api.ContainerPreferredAllocationRequest{{AvailableDeviceIDs: healthy, AllocationSize: int32(count)}},
	})
	if err != nil {
		return nil, err
	}
	ids := preferred.GetContainerResponses()[0].GetDeviceIDs()
	if _, err = client.Allocate(ctx, &api.AllocateRequest{
		ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: ids}},
	}); err != nil {
		err = fmt.Errorf("it does not give %v: %w", ids, err)
	}
	return ids, err
}
