package driver

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/dra"
	"github.com/hyperaccel/lpuctl/pkg/node"
)

// healthInterval is how often the kubelet is told what it knows already. It takes a device for unknown after 30 seconds without a word
// (k8s.io/dynamic-resource-allocation kubeletplugin).
const healthInterval = 10 * time.Second

// health is which LPUs are not healthy.
type health struct {
	mu      sync.Mutex
	reasons map[discovery.Address]string // of LPUs that are not healthy: "lpu3 (0000:43:00.1): why"
	changed chan struct{}                // closed when they change; nil: nobody waits
}

// see takes what a snapshot says.
func (h *health) see(s *node.Snapshot) {
	reasons := map[discovery.Address]string{}
	for i := range s.Devices {
		d := &s.Devices[i]
		address, err := cdi.ParseAddressName(d.ID)
		if d.Healthy || err != nil {
			continue
		}
		name := address.String()
		if d.Name != "" {
			name = d.Name + " (" + name + ")"
		}
		reasons[address] = name + ": " + d.Reason()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reasons == nil || !maps.Equal(h.reasons, reasons) {
		h.reasons = reasons
		h.tell()
	}
}

// tell wakes who waits. The lock is held.
func (h *health) tell() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// devices wakes who waits, because there are others.
func (h *health) devices() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tell()
}

// sick says why an LPU is not healthy, "" if it is.
func (h *health) sick(a discovery.Address) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reasons[a]
}

// now is what is known, and a channel that is closed when that changes.
func (h *health) now() (reasons map[discovery.Address]string, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.reasons, h.changed
}

// WatchHealthStatus tells the kubelet how healthy each published device is, when that changes and again and again. While the machine cannot
// be read it says nothing, and the kubelet takes the devices for unknown.
func (p plugin) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	for {
		reasons, changed := p.health.now()
		latest := p.Node.Latest()
		if latest.Inventory != nil && latest.Fresh(time.Now(), node.MaxAge) == nil {
			report := p.healthReport(reasons, latest.ReadAt)
			select {
			case reports <- report:
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(healthInterval):
		}
	}
}

// healthReport is what the kubelet is told of the devices.
func (d *Driver) healthReport(reasons map[discovery.Address]string, at time.Time) (report kubeletplugin.DeviceHealthReport) {
	for _, spec := range d.Publisher.Slices() {
		for i := range spec.Devices {
			device := &spec.Devices[i]
			h := kubeletplugin.DeviceHealth{
				PoolName: d.Name, DeviceName: device.Name, Health: kubeletplugin.HealthStatusHealthy, LastUpdated: at,
			}
			if h.Message = why(dra.MembersOf(device), reasons); h.Message != "" {
				h.Health = kubeletplugin.HealthStatusUnhealthy
			}
			report.Devices = append(report.Devices, h)
		}
	}
	return report
}

// why are the reasons of the LPUs that are not healthy.
func why(members []discovery.Address, reasons map[discovery.Address]string) string {
	var all []string
	for _, m := range slices.SortedFunc(slices.Values(members), discovery.Address.Compare) {
		if reason := reasons[m]; reason != "" {
			all = append(all, reason)
		}
	}
	return strings.Join(all, "; ")
}
