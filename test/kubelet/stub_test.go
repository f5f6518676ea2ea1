package kubelet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// stub is what tests run until `lpuctl serve` is there. It knows the one simulated server, whose cards are on one ring.
func stub(args []string) {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	root := flags.String("root", "/", "")
	dir := flags.String("plugin-dir", "", "")
	strategy := flags.String("device-list-strategy", "cdi-cri", "")
	flags.String("spec-dir", "", "")
	flags.String("numa", "", "")
	strict := flags.Bool("require-connected", false, "")
	_ = flags.Parse(args)
	if *dir == "" {
		*dir = filepath.Join(*root, api.DevicePluginPath)
	}
	p := &stubPlugin{root: *root, specs: *strategy == "device-specs", strict: *strict}
	for {
		err := p.serve(*dir)
		fmt.Fprintln(os.Stderr, "stub:", err)
		time.Sleep(20 * time.Millisecond)
	}
}

type stubPlugin struct {
	api.UnimplementedDevicePluginServer
	root          string
	specs, strict bool
}

var stubAddresses = []string{"0000-43-00.1", "0000-44-00.1", "0000-45-00.1", "0000-46-00.1", "0000-83-00.1", "0000-84-00.1", "0000-85-00.1", "0000-86-00.1"}

func stubIndex(id string) int { return slices.Index(stubAddresses, strings.TrimPrefix(id, "pci-")) }

// serve registers once and serves until the kubelet is another one.
func (p *stubPlugin) serve(dir string) error {
	socket := filepath.Join(dir, fmt.Sprintf("stub-%d-%d.sock", os.Getpid(), time.Now().UnixNano()))
	kubelet := filepath.Join(dir, "kubelet.sock")
	left, _ := filepath.Glob(filepath.Join(dir, "stub-*.sock"))
	for _, s := range left {
		if c, err := net.Dial("unix", s); err == nil {
			_ = c.Close()
		} else {
			_ = os.Remove(s)
		}
	}
	before, err := os.Stat(kubelet)
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	defer server.Stop()
	api.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{Version: api.Version, Endpoint: filepath.Base(socket), ResourceName: resource})
	for err == nil {
		time.Sleep(20 * time.Millisecond)
		now, err := os.Stat(kubelet)
		if err != nil || !os.SameFile(before, now) {
			return errors.New("the kubelet is another one")
		}
	}
	return err
}

func (*stubPlugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (p *stubPlugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	last := ""
	for stream.Context().Err() == nil {
		var r api.ListAndWatchResponse
		for _, a := range stubAddresses {
			d := &api.Device{ID: "pci-" + a, Health: api.Healthy}
			if _, err := os.Stat(filepath.Join(p.root, "sys/bus/pci/devices", strings.Replace(a, "-", ":", 2))); err != nil {
				d.Health = api.Unhealthy
			}
			r.Devices = append(r.Devices, d)
		}
		if now := r.String(); now != last {
			last = now
			if err := stream.Send(&r); err != nil {
				return err
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

func stubArc(ids []string, n int) []string {
	for start := range 8 {
		var arc []string
		for i := range n {
			if id := "pci-" + stubAddresses[(start+i)%8]; slices.Contains(ids, id) {
				arc = append(arc, id)
			}
		}
		if len(arc) == n {
			return arc
		}
	}
	return nil
}

func (p *stubPlugin) GetPreferredAllocation(_ context.Context, r *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	c := r.ContainerRequests[0]
	arc := stubArc(c.AvailableDeviceIDs, int(c.AllocationSize))
	if arc == nil && p.strict {
		return nil, errors.New("no connected set")
	}
	if arc == nil {
		arc = c.AvailableDeviceIDs[:c.AllocationSize]
	}
	return &api.PreferredAllocationResponse{ContainerResponses: []*api.ContainerPreferredAllocationResponse{{DeviceIDs: arc}}}, nil
}

func (p *stubPlugin) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	ids := r.ContainerRequests[0].DevicesIds
	arc := stubArc(ids, len(ids))
	connected := arc != nil
	if !connected {
		arc = ids
	}
	sorted := slices.SortedFunc(slices.Values(arc), strings.Compare)
	answer := &api.ContainerAllocateResponse{}
	var visible, order []string
	for _, id := range arc {
		visible = append(visible, fmt.Sprint(stubIndex(id)))
		order = append(order, fmt.Sprint(slices.Index(sorted, id)))
		if p.specs {
			// In the simulated server the cards of the second half of the addresses were probed first.
			node := fmt.Sprintf("/dev/dri/renderD%d", 130+(stubIndex(id)+4)%8)
			answer.Devices = append(answer.Devices, &api.DeviceSpec{ContainerPath: node, HostPath: node, Permissions: "rw"})
		} else {
			answer.CdiDevices = append(answer.CdiDevices, &api.CDIDevice{Name: resource + "=" + id})
		}
	}
	answer.Envs = map[string]string{
		"LPU_VISIBLE_DEVICES": strings.Join(visible, ","), "LPU_RING_ORDER": strings.Join(order, ","),
		"LPU_CONNECTED": fmt.Sprint(connected), "NUM_LPU_DEVICES": fmt.Sprint(len(arc)),
	}
	return &api.AllocateResponse{ContainerResponses: []*api.ContainerAllocateResponse{answer}}, nil
}
