package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/test/await"
)

// kubelet takes the kubelet's steps with device plugins one by one, by the rules of 1.36 or those of 1.37.
type kubelet struct {
	t     *testing.T
	dir   string
	rules rules

	fickle bool // ends each stream at once
	deaf   bool // refuses to register, and says whom

	mu        sync.Mutex
	server    *grpc.Server
	endpoints []*endpoint // of our resource, the newest last
	inUse     map[string]bool
	registers int      // calls of Register that succeeded
	refused   []string // and the errors of those that failed
	names     map[string]bool
	lists     int // messages of ListAndWatch: each makes the kubelet write its checkpoint
}

// rules are how the kubelet tells plugins apart.
type rules int

const (
	// by resource: the end of any plugin of the resource counts as that of the newest.
	rules136 rules = iota
	// by resource and socket: several plugins may serve one resource, the newest first; LPUs are gone with the last.
	rules137
)

// endpoint is a plugin that has registered.
type endpoint struct {
	socket  string
	conn    *grpc.ClientConn
	client  api.DevicePluginClient
	options *api.DevicePluginOptions
	devices []*api.Device
	stopped bool
}

func newKubelet(t *testing.T, rules rules) *kubelet {
	t.Helper()
	dir, err := os.MkdirTemp("", "kubelet") //nolint:usetesting // t.TempDir may be too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{t: t, dir: dir, rules: rules, inUse: map[string]bool{}, names: map[string]bool{}}
	t.Cleanup(func() {
		k.stop()
		_ = os.RemoveAll(dir)
	})
	return k
}

// start removes all sockets from the directory and makes its own.
func (k *kubelet) start() {
	k.t.Helper()
	sockets, _ := filepath.Glob(filepath.Join(k.dir, "*.sock"))
	for _, s := range sockets {
		_ = os.Remove(s)
	}
	listener, err := net.Listen("unix", filepath.Join(k.dir, "kubelet.sock"))
	if err != nil {
		k.t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	server := grpc.NewServer()
	api.RegisterRegistrationServer(server, registration{k: k})
	k.mu.Lock()
	k.server = server
	k.mu.Unlock()
	go func() { _ = server.Serve(listener) }()
}

// stop ends as a process does: all connections break, the socket stays.
func (k *kubelet) stop() {
	k.mu.Lock()
	server, endpoints := k.server, k.endpoints
	k.server, k.endpoints = nil, nil
	k.mu.Unlock()
	if server != nil {
		server.Stop()
	}
	for _, e := range endpoints {
		_ = e.conn.Close()
	}
}

func (k *kubelet) restart() {
	k.t.Helper()
	k.stop()
	k.start()
}

type registration struct {
	api.UnsafeRegistrationServer
	k *kubelet
}

// Register dials the plugin and asks for its options before it answers. It does not look at those in the request.
func (r registration) Register(ctx context.Context, request *api.RegisterRequest) (*api.Empty, error) {
	err := r.k.register(ctx, request)
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	if err != nil {
		r.k.refused = append(r.k.refused, err.Error())
		return nil, err
	}
	r.k.registers++
	return &api.Empty{}, nil
}

func (k *kubelet) register(ctx context.Context, r *api.RegisterRequest) error {
	if r.Version != api.Version || r.ResourceName != DefaultResource {
		return status.Errorf(codes.InvalidArgument, "version %q, resource %q", r.Version, r.ResourceName)
	}
	socket := filepath.Join(k.dir, r.Endpoint)
	if k.deaf {
		return fmt.Errorf("failed to dial device plugin with socketPath %s", socket)
	}
	k.mu.Lock()
	again := k.names[socket]
	k.names[socket] = true
	k.mu.Unlock()
	if again && k.rules == rules137 {
		return errors.New("device plugin already connected")
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	e := &endpoint{socket: socket, conn: conn, client: api.NewDevicePluginClient(conn)}
	ctx, cancel := context.WithTimeout(ctx, await.Limit)
	defer cancel()
	if e.options, err = e.client.GetDevicePluginOptions(ctx, &api.Empty{}); err != nil {
		_ = conn.Close()
		return err
	}
	k.mu.Lock()
	k.endpoints = append(k.endpoints, e)
	k.mu.Unlock()
	go k.follow(e)
	return nil
}

// follow takes in the lists of a plugin until its stream ends.
func (k *kubelet) follow(e *endpoint) {
	stream, err := e.client.ListAndWatch(context.Background(), &api.Empty{})
	for err == nil {
		var list *api.ListAndWatchResponse
		if list, err = stream.Recv(); err == nil {
			k.mu.Lock()
			e.devices = list.Devices
			k.lists++
			k.mu.Unlock()
		}
		if k.fickle {
			break
		}
	}
	_ = e.conn.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	e.stopped, e.devices = true, nil
	if k.rules == rules136 && len(k.endpoints) > 0 {
		newest := k.endpoints[len(k.endpoints)-1]
		newest.stopped, newest.devices = true, nil
		_ = newest.conn.Close() // the client is found by the resource, so it is the newest one's
	}
	k.endpoints = slices.DeleteFunc(k.endpoints, func(other *endpoint) bool { return other == e })
}

// primary is the plugin that the kubelet would ask.
func (k *kubelet) primary() *endpoint {
	e, _ := k.current()
	return e
}

func (k *kubelet) current() (*endpoint, []*api.Device) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range slices.Backward(k.endpoints) {
		if !e.stopped && len(e.devices) > 0 {
			return e, e.devices
		}
	}
	return nil, nil
}

// health is what the kubelet knows of each device.
func (k *kubelet) health() map[string]string {
	health := map[string]string{}
	_, devices := k.current()
	for _, d := range devices {
		health[d.ID] = d.Health
	}
	return health
}

func (k *kubelet) allocatable() int {
	n := 0
	for _, h := range k.health() {
		if h == api.Healthy {
			n++
		}
	}
	return n
}

// wait waits for a number of allocatable devices.
func (k *kubelet) wait(want int) {
	k.t.Helper()
	deadline := time.Now().Add(await.Limit)
	for k.allocatable() != want {
		if time.Now().After(deadline) {
			got := k.allocatable()
			k.mu.Lock()
			text := fmt.Sprintf("%d devices are allocatable and not %d (registered %d times, refused: %v)", got, want, k.registers, k.refused)
			k.mu.Unlock() // what ends the kubelet needs it
			k.t.Fatal(text)
		}
		time.Sleep(time.Millisecond)
	}
}

// admit allocates devices to a container: first those that are left from its pod's init containers, then those that the
// plugin prefers, then any. An error is what a pod fails admission with.
func (k *kubelet) admit(size int, left ...string) (*api.ContainerAllocateResponse, []string, error) {
	e, devices := k.current()
	if e == nil {
		return nil, nil, errors.New("no plugin")
	}
	var available []string
	for _, d := range devices {
		if d.Health == api.Healthy && (!k.inUse[d.ID] || slices.Contains(left, d.ID)) {
			available = append(available, d.ID)
		}
	}
	if len(available) < size {
		return nil, nil, fmt.Errorf("requested number of devices unavailable: %d of %d", len(available), size)
	}
	ctx := context.Background()
	chosen := slices.Clone(left)
	if e.options.GetPreferredAllocationAvailable {
		r, err := e.client.GetPreferredAllocation(ctx, preference(int32(size), left, available...))
		if err != nil {
			return nil, nil, err
		}
		for _, id := range append(r.ContainerResponses[0].DeviceIDs, available...) {
			if len(chosen) < size && slices.Contains(available, id) && !slices.Contains(chosen, id) {
				chosen = append(chosen, id)
			}
		}
	}
	r, err := e.client.Allocate(ctx, request(chosen...))
	if err != nil {
		return nil, nil, err
	}
	for _, id := range chosen {
		k.inUse[id] = true
	}
	return r.ContainerResponses[0], chosen, nil
}

func (k *kubelet) release(ids []string) {
	for _, id := range ids {
		delete(k.inUse, id)
	}
}
