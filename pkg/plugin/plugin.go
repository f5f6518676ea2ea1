package plugin

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// Plugin answers the kubelet. It holds no record of what it handed out: the kubelet
// passes the whole truth with each call, so that two plugins may overlap.
type Plugin struct {
	api.UnsafeDevicePluginServer

	Node *node.Node // whose LPUs it hands out

	log     *slog.Logger
	metrics metrics
	// tableFault is why the latest ring table could not be put in place, as text; "": it
	// could.
	tableFault atomic.Value

	updating sync.Mutex   // held by Update, Reload and resend, and never by what answers the kubelet
	scan     node.Scan    // the one of the latest Update; nil before the first
	runtime  node.Runtime // of the latest Update
	state    atomic.Pointer[state]
}

// state is what calls are answered from: a snapshot of the node, and the options and
// devices that go with it. It does not change.
type state struct {
	*node.Snapshot
	options Options
	runtime node.Runtime
	list    []*api.Device // the devices as the kubelet gets them
	changed chan struct{} // closed when the list of devices changes
}

// New makes a plugin that knows nothing yet.
func New(options Options, log *slog.Logger) *Plugin {
	p := &Plugin{Node: node.New(log), log: log, metrics: newMetrics()}
	p.Node.Early = func(s *node.Snapshot) { p.answerFrom(s, p.state.Load().options) }
	none := &discovery.Inventory{}
	p.state.Store(&state{&node.Snapshot{Inventory: none, Fabric: none.Fabric()}, options, node.Runtime{}, nil, make(chan struct{})})
	return p
}

// Update scans the machine and answers calls by what is there from now on. It may write
// the CDI spec, and so must not be called by what answers the kubelet. It returns false
// if the machine cannot be read.
func (p *Plugin) Update(ctx context.Context, scan node.Scan) bool {
	p.updating.Lock()
	defer p.updating.Unlock()
	p.scan = scan
	return p.update(ctx, p.state.Load().options)
}

// Again is Update with the scan of the latest one. Before the first it does nothing.
func (p *Plugin) Again(ctx context.Context) {
	p.updating.Lock()
	defer p.updating.Unlock()
	if p.scan != nil {
		p.update(ctx, p.state.Load().options)
	}
}

// Reload changes the options. They hold when it returns; a stream that is open stays
// open. Like Update it may write the CDI spec.
func (p *Plugin) Reload(ctx context.Context, options Options) {
	p.updating.Lock()
	defer p.updating.Unlock()
	p.Node.Renew()
	if p.scan == nil || !p.update(ctx, options) {
		s := *p.state.Load()
		s.options = options
		p.state.Store(&s)
	}
}

// Renew makes the next Update correct all of the CDI spec, see [node.Node.Renew].
func (p *Plugin) Renew() {
	p.updating.Lock()
	defer p.updating.Unlock()
	p.Node.Renew()
}

// update answers calls from a new snapshot from now on. It returns false if there is
// none: the machine cannot be read, or ctx ended.
func (p *Plugin) update(ctx context.Context, options Options) bool {
	if options.Strategy == CDI {
		p.runtime = p.Node.AskRuntime(options.OnCDIOff)
	} else {
		p.runtime = p.Node.ForgetRuntime()
	}
	s := p.Node.Update(ctx, options.spec(), p.scan)
	if s == nil {
		next := *p.state.Load()
		next.runtime = p.runtime // whether names resolve does not depend on the machine's LPUs
		p.state.Store(&next)
		return false
	}
	p.answerFrom(s, options)
	return true
}

// answerFrom answers calls from a snapshot from now on, and sends the list if it is
// another one.
func (p *Plugin) answerFrom(s *node.Snapshot, options Options) {
	before := p.state.Load()
	next := &state{s, options, p.runtime, options.devices(s), before.changed}
	if !sameDevices(before.list, next.list) {
		next.changed = make(chan struct{})
		defer close(before.changed)
	}
	p.state.Store(next)
}

// resend sends the list of devices again on each open stream, though it has not changed.
func (p *Plugin) resend() {
	p.updating.Lock()
	defer p.updating.Unlock()
	before := p.state.Load()
	next := *before
	next.changed = make(chan struct{})
	p.state.Store(&next)
	close(before.changed)
}

// devices are those of a snapshot as the kubelet gets them.
func (o *Options) devices(s *node.Snapshot) []*api.Device {
	var devices []*api.Device
	withNUMA := o.publishNUMA(s.Inventory)
	for _, d := range s.Devices {
		device := &api.Device{ID: d.ID, Health: api.Unhealthy}
		if d.Offered() {
			device.Health = api.Healthy
		}
		if withNUMA && d.NUMANode != nil {
			device.Topology = &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: int64(*d.NUMANode)}}}
		}
		devices = append(devices, device)
	}
	return devices
}

// publishNUMA reports whether the kubelet gets NUMA nodes. With auto it does only if a
// ring table says that no ring crosses nodes: else the kubelet would take LPUs of one
// node that are no neighbours, and not ask.
func (o *Options) publishNUMA(inv *discovery.Inventory) bool {
	if o.NUMA != NUMAAuto {
		return o.NUMA == NUMAOn
	}
	if inv.RingTable == nil {
		return false
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

// sameDevices reports whether two lists say the same. For each list that it gets the
// kubelet writes a file, so none is sent because only the order has changed.
func sameDevices(a, b []*api.Device) bool {
	byID := map[string]*api.Device{}
	for _, d := range a {
		byID[d.ID] = d
	}
	return len(a) == len(b) && !slices.ContainsFunc(b, func(d *api.Device) bool { return !proto.Equal(byID[d.ID], d) })
}
