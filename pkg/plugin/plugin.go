package plugin

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/node"
)

// Plugin answers the kubelet. It holds no record of what it handed out: the kubelet passes the whole truth with each
// call, so that two plugins may overlap.
type Plugin struct {
	api.UnsafeDevicePluginServer

	Node *node.Node // whose LPUs it hands out

	log     *slog.Logger
	metrics metrics

	updating sync.Mutex // held by Update and Reload, and never by what answers the kubelet

	mu      sync.Mutex
	options Options
	state   *state        // nil: nothing is known yet
	changed chan struct{} // closed when the list of devices changes
}

// state is what calls are answered from: a snapshot of the node, and the options and devices that go with it. It does not
// change.
type state struct {
	node    *node.Snapshot
	options Options
	devices []*api.Device
}

// New makes a plugin that knows nothing yet.
func New(options Options, log *slog.Logger) *Plugin {
	return &Plugin{Node: node.New(log), options: options, log: log, metrics: newMetrics(), changed: make(chan struct{})}
}

// Update takes in what is in the machine now. It may write the CDI spec, and so must not be called by what answers the
// kubelet.
func (p *Plugin) Update(ctx context.Context, inv *discovery.Inventory) {
	p.updating.Lock()
	defer p.updating.Unlock()
	p.update(ctx, inv, time.Now())
}

// Reload changes the options. They hold when it returns; a stream that is open stays open. Like Update it may write the
// CDI spec.
func (p *Plugin) Reload(ctx context.Context, options Options) {
	p.updating.Lock()
	defer p.updating.Unlock()
	p.mu.Lock()
	p.options = options
	s := p.state
	p.mu.Unlock()
	if s != nil {
		p.update(ctx, s.node.Inventory, s.node.ReadAt)
	}
}

// update answers calls from a new snapshot from now on, unless ctx ends before it is made.
func (p *Plugin) update(ctx context.Context, inv *discovery.Inventory, readAt time.Time) {
	before, options := p.now()
	s := p.Node.Update(ctx, options.spec(), inv, readAt)
	if s == nil {
		return
	}
	next := &state{node: s, options: options, devices: options.devices(s)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = next
	if before == nil || !slices.EqualFunc(before.devices, next.devices, sameDevice) {
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// devices are those of a snapshot as the kubelet gets them.
func (o *Options) devices(s *node.Snapshot) []*api.Device {
	var devices []*api.Device
	withNUMA := o.publishNUMA(s.Inventory)
	for _, d := range s.Devices {
		device := &api.Device{ID: d.ID, Health: api.Unhealthy}
		if d.Healthy {
			device.Health = api.Healthy
		}
		if withNUMA && d.NUMANode != nil {
			device.Topology = &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: int64(*d.NUMANode)}}}
		}
		devices = append(devices, device)
	}
	return devices
}

// publishNUMA tells whether the kubelet gets NUMA nodes. With auto it does not as soon as a ring crosses nodes: the
// kubelet would take LPUs of one node that are no neighbours, and not ask.
func (o *Options) publishNUMA(inv *discovery.Inventory) bool {
	if o.NUMA != NUMAAuto {
		return o.NUMA == NUMAOn
	}
	numaNode := map[string]int{} // by ring
	for _, l := range inv.LPUs {
		if l.Ring == nil || l.NUMANode == nil {
			continue
		}
		if n, ok := numaNode[l.Ring.ID]; ok && n != *l.NUMANode {
			return false
		}
		numaNode[l.Ring.ID] = *l.NUMANode
	}
	return true
}

func sameDevice(a, b *api.Device) bool { return proto.Equal(a, b) }

// now is the state of this moment, and the options of the next one.
func (p *Plugin) now() (*state, Options) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.options
}
