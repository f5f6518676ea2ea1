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
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/ring"
)

// stale is how old what is known may be when LPUs are handed out. It is read every second.
const stale = 30 * time.Second

// Plugin answers the kubelet. It holds no record of what it handed out: the kubelet passes the whole truth with each
// call, so that two plugins may overlap.
type Plugin struct {
	api.UnsafeDevicePluginServer

	log     *slog.Logger
	metrics metrics

	updating sync.Mutex // held by Update and Reload, and not by what answers the kubelet

	mu      sync.Mutex
	options Options
	state   *state        // nil: nothing is known yet
	changed chan struct{} // closed when the list is another one
	checked specCheck
}

// state is what is known at one moment, and the options that the spec has been seen to for. It does not change.
type state struct {
	at         time.Time
	inv        *discovery.Inventory
	options    Options
	fabric     *ring.Fabric
	byID       map[string]int  // position in inv.LPUs
	unresolved map[string]bool // ids that the CDI spec does not resolve
	devices    []*api.Device   // in ring order, then those that were there once
}

// New makes a plugin that knows nothing yet.
func New(options Options, log *slog.Logger) *Plugin {
	return &Plugin{options: options, log: log, metrics: newMetrics(), changed: make(chan struct{})}
}

// ID is what the kubelet calls an LPU: its name by PCI address, which is the same after a reboot. The kubelet documents
// a limit of 63 characters (deviceplugin/v1beta1/api.proto, Device.ID).
func ID(l *discovery.LPU) string { return cdi.AddressName(l.Address) }

// Update takes in what is in the machine now. It may write the CDI spec, and so must not be called by what answers the
// kubelet. An LPU that is not in the inventory any more stays listed as unhealthy, and one whose health is not known
// as it was.
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
		p.update(ctx, s.inv, s.at)
	}
}

// update takes in what was read at some time.
func (p *Plugin) update(ctx context.Context, inv *discovery.Inventory, at time.Time) {
	before, options := p.now()
	next := &state{at: at, inv: inv, options: options, fabric: inv.Fabric(), byID: map[string]int{}}
	for i := range inv.LPUs {
		next.byID[ID(&inv.LPUs[i])] = i
	}
	next.unresolved = p.ensureSpec(ctx, options, inv)
	if ctx.Err() != nil { // the spec was given up half-way, which says nothing of it
		return
	}
	was := map[string]string{}
	if before != nil {
		for _, d := range before.devices {
			was[d.ID] = d.Health
		}
	}
	next.list(before, was)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = next
	if before == nil || !slices.EqualFunc(before.devices, next.devices, sameDevice) {
		p.logHealth(next, was)
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// list makes the devices as the kubelet is told of them, after those of before and their health. The order is that of the
// ring: where the kubelet has to choose by itself it often takes devices that follow each other in the list.
func (s *state) list(before *state, was map[string]string) {
	all := make([]int, len(s.inv.LPUs))
	for i := range all {
		all[i] = i
	}
	ordered, _ := s.fabric.Order(all)
	withNUMA := s.options.publishNUMA(s.inv)
	for _, i := range ordered {
		l := &s.inv.LPUs[i]
		d := &api.Device{ID: ID(l), Health: api.Unhealthy}
		known := l.Health == discovery.Healthy || l.Health == discovery.HealthUnknown && was[d.ID] == api.Healthy
		if known && !s.unresolved[d.ID] {
			d.Health = api.Healthy
		}
		if withNUMA && l.NUMANode != nil {
			d.Topology = &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: int64(*l.NUMANode)}}}
		}
		s.devices = append(s.devices, d)
	}
	if before == nil {
		return
	}
	for _, d := range before.devices {
		if _, here := s.byID[d.ID]; !here {
			s.devices = append(s.devices, &api.Device{ID: d.ID, Health: api.Unhealthy, Topology: d.Topology})
		}
	}
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
		reason := ""
		if all := s.reasons(d.ID); len(all) > 0 {
			reason = all[0].Message
		}
		p.log.Warn("health", "device", d.ID, "lpu", s.name(d.ID), "health", d.Health, "reason", reason)
	}
}

// name is what an LPU is called on this node; "" of one that is gone.
func (s *state) name(id string) string {
	if i, here := s.byID[id]; here {
		return s.inv.LPUs[i].Name
	}
	return ""
}

// reasons are why an LPU is not well, and warnings, the worst first.
func (s *state) reasons(id string) finding.List {
	i, here := s.byID[id]
	if !here {
		return finding.List{finding.New(finding.Gone, "", "it is not in the machine any more", "")}
	}
	all := slices.Clone(s.inv.LPUs[i].Reasons)
	if s.unresolved[id] {
		all.Add(finding.NotInSpec, "", "the CDI spec does not define it", "")
	}
	slices.SortStableFunc(all, func(a, b finding.Finding) int { return errorFirst(a) - errorFirst(b) })
	return all
}

func errorFirst(f finding.Finding) int {
	if f.Severity == finding.Error {
		return 0
	}
	return 1
}

// Ready tells whether the plugin knows what to list: nil, or why not.
func (p *Plugin) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == nil {
		return errors.New("the machine has not been read yet")
	}
	if err := p.state.fresh(stale); err != nil {
		return err
	}
	return p.checked.err
}

// Alive tells whether the machine is being read: nil, or since when it is not. That it has never been read may take any
// time.
func (p *Plugin) Alive() error {
	if s, _ := p.now(); s != nil {
		return s.fresh(2 * stale)
	}
	return nil
}

// fresh tells whether the state is young enough.
func (s *state) fresh(limit time.Duration) error {
	if age := time.Since(s.at); age > limit {
		return fmt.Errorf("the machine was read %v ago for the last time", age.Round(time.Second))
	}
	return nil
}

// now is the state of this moment, and the options of the next one.
func (p *Plugin) now() (*state, Options) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.options
}
