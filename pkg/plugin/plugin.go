package plugin

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
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
	state    atomic.Pointer[state]
}

// state is what calls are answered from: a snapshot of the node, and the options and devices that go with it. It does not
// change.
type state struct {
	node    *node.Snapshot
	options Options
	devices []*api.Device
	changed chan struct{} // closed when the list of devices changes
}

// New makes a plugin that knows nothing yet.
func New(options Options, log *slog.Logger) *Plugin {
	p := &Plugin{Node: node.New(log), log: log, metrics: newMetrics()}
	none := &discovery.Inventory{}
	p.state.Store(&state{&node.Snapshot{Inventory: none, Fabric: none.Fabric()}, options, nil, make(chan struct{})})
	return p
}

// Update takes in what is in the machine now. It may write the CDI spec, and so must not be called by what answers the
// kubelet.
func (p *Plugin) Update(ctx context.Context, inv *discovery.Inventory) {
	p.updating.Lock()
	defer p.updating.Unlock()
	p.update(ctx, p.state.Load().options, inv, time.Now())
}

// Reload changes the options. They hold when it returns; a stream that is open stays open. Like Update it may write the
// CDI spec.
func (p *Plugin) Reload(ctx context.Context, options Options) {
	p.updating.Lock()
	defer p.updating.Unlock()
	s := *p.state.Load()
	s.options = options
	if p.listed() {
		p.update(ctx, options, s.node.Inventory, s.node.ReadAt)
	} else {
		p.state.Store(&s)
	}
}

// update answers calls from a new snapshot from now on, unless ctx ends before it is made.
func (p *Plugin) update(ctx context.Context, options Options, inv *discovery.Inventory, readAt time.Time) {
	s := p.Node.Update(ctx, options.spec(), inv, readAt)
	if s == nil {
		return
	}
	before := p.state.Load()
	next := &state{s, options, options.devices(s), before.changed}
	if !slices.EqualFunc(before.devices, next.devices, sameDevice) {
		next.changed = make(chan struct{})
		defer close(before.changed)
	}
	p.state.Store(next)
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
