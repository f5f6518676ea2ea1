package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// stale is how old what is known may be when LPUs are handed out. It is read every second.
const stale = 30 * time.Second

// Plugin answers the kubelet. It holds no record of what it handed out: the kubelet passes the whole truth with each
// call, so that two plugins may overlap.
type Plugin struct {
	api.UnsafeDevicePluginServer

	log *slog.Logger

	mu      sync.Mutex
	options Options
	state   *state        // nil: nothing is known yet
	changed chan struct{} // closed when the list is another one
	checked specCheck
}

// state is what is known at one moment. It does not change.
type state struct {
	at      time.Time
	inv     *discovery.Inventory
	fabric  *ring.Fabric
	byID    map[string]int // position in inv.LPUs
	devices []*api.Device  // in ring order, then those that were there once
}

// New makes a plugin that knows nothing yet.
func New(options Options, log *slog.Logger) *Plugin {
	return &Plugin{options: options, log: log, changed: make(chan struct{})}
}

// ID is what the kubelet calls an LPU: its name by PCI address, which is the same after a reboot. The kubelet documents
// a limit of 63 characters (deviceplugin/v1beta1/api.proto, Device.ID).
func ID(l *discovery.LPU) string { return cdi.AddressName(l.Address) }

// Update takes in what is in the machine now. It may write the CDI spec, and so must not be called by what answers the
// kubelet. An LPU that is not in the inventory any more stays listed as unhealthy, and one whose health is not known
// as it was.
func (p *Plugin) Update(ctx context.Context, inv *discovery.Inventory) {
	unresolved := p.ensureSpec(ctx, inv)
	p.mu.Lock()
	defer p.mu.Unlock()
	next := &state{at: time.Now(), inv: inv, fabric: inv.Fabric(), byID: map[string]int{}}
	for i := range inv.LPUs {
		next.byID[ID(&inv.LPUs[i])] = i
	}
	was := map[string]string{}
	if p.state != nil {
		for _, d := range p.state.devices {
			was[d.ID] = d.Health
		}
	}
	next.devices = p.list(next, was, unresolved)
	if p.state == nil || !slices.EqualFunc(p.state.devices, next.devices, sameDevice) {
		p.logHealth(next, was)
		close(p.changed)
		p.changed = make(chan struct{})
	}
	p.state = next
}

// list is the devices as the kubelet is told of them. The order is that of the ring: where the kubelet has to choose by
// itself it often takes devices that follow each other in the list.
func (p *Plugin) list(s *state, was map[string]string, unresolved map[string]bool) []*api.Device {
	all := make([]int, len(s.inv.LPUs))
	for i := range all {
		all[i] = i
	}
	ordered, _ := s.fabric.Order(all)
	withNUMA := p.options.publishNUMA(s.inv)
	devices := make([]*api.Device, 0, len(all))
	for _, i := range ordered {
		l := &s.inv.LPUs[i]
		d := &api.Device{ID: ID(l), Health: api.Unhealthy}
		switch {
		case unresolved[d.ID]:
		case l.Health == discovery.Healthy:
			d.Health = api.Healthy
		case l.Health == discovery.HealthUnknown && was[d.ID] == api.Healthy:
			d.Health = api.Healthy
		}
		if withNUMA && l.NUMANode != nil {
			d.Topology = &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: int64(*l.NUMANode)}}}
		}
		devices = append(devices, d)
	}
	if p.state == nil {
		return devices
	}
	for _, d := range p.state.devices {
		if _, here := s.byID[d.ID]; !here {
			devices = append(devices, &api.Device{ID: d.ID, Health: api.Unhealthy, Topology: d.Topology})
		}
	}
	return devices
}

// publishNUMA tells whether the kubelet is told NUMA nodes. With auto it is not as soon as a ring crosses nodes: the
// kubelet would take LPUs of one node that are no neighbours, and not ask.
func (o *Options) publishNUMA(inv *discovery.Inventory) bool {
	if o.NUMA != NUMAAuto {
		return o.NUMA == NUMAOn
	}
	node := map[string]int{}
	for _, l := range inv.LPUs {
		if l.Ring == nil || l.NUMANode == nil {
			continue
		}
		if n, ok := node[l.Ring.ID]; ok && n != *l.NUMANode {
			return false
		}
		node[l.Ring.ID] = *l.NUMANode
	}
	return true
}

func sameDevice(a, b *api.Device) bool {
	nodeOf := func(d *api.Device) int64 {
		if nodes := d.GetTopology().GetNodes(); len(nodes) > 0 {
			return nodes[0].ID
		}
		return -1
	}
	return a.ID == b.ID && a.Health == b.Health && nodeOf(a) == nodeOf(b)
}

func (p *Plugin) logHealth(s *state, was map[string]string) {
	for _, d := range s.devices {
		if was[d.ID] == d.Health || was[d.ID] == "" && d.Health == api.Healthy {
			continue
		}
		name, reason := "", "it is not in the machine any more"
		if i, here := s.byID[d.ID]; here {
			l := &s.inv.LPUs[i]
			name, reason = l.Name, ""
			for _, r := range l.Reasons {
				reason = r.Message
				if r.Severity == discovery.SeverityError {
					break
				}
			}
		}
		p.log.Warn("health", "device", d.ID, "lpu", name, "health", d.Health, "reason", reason)
	}
}

// Reload changes the options for the calls to come. A stream that is open stays open.
func (p *Plugin) Reload(options Options) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.options, p.checked = options, specCheck{}
}

// Ready tells whether the plugin knows what to list: nil, or why not.
func (p *Plugin) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == nil {
		return errors.New("the machine has not been read yet")
	}
	if err := p.state.fresh(); err != nil {
		return err
	}
	return p.checked.err
}

// fresh tells whether the state is young enough to act upon.
func (s *state) fresh() error {
	if age := time.Since(s.at); age > stale {
		return fmt.Errorf("the machine was read %v ago for the last time", age.Round(time.Second))
	}
	return nil
}

// now is the state and options of this moment.
func (p *Plugin) now() (*state, Options) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.options
}
