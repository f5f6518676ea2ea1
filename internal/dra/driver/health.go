package driver

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// healthInterval is how often the driver sends the kubelet what the kubelet knows
// already. The kubelet takes a device for unknown after 30 seconds without a word
// (k8s.io/dynamic-resource-allocation kubeletplugin).
const healthInterval = 10 * time.Second

// health is which LPUs are not healthy.
type health struct {
	mu      sync.Mutex
	reasons map[pci.Address]string // of LPUs that are not healthy: "lpu3 (0000:43:00.1): why"
	changed chan struct{}          // closed when they change; nil: no caller waits
}

// see takes what a snapshot says.
func (h *health) see(s *node.Snapshot) {
	reasons := map[pci.Address]string{}
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
func (h *health) sick(a pci.Address) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reasons[a]
}

// now is what is known, and a channel that is closed when that changes.
func (h *health) now() (reasons map[pci.Address]string, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.reasons, h.changed
}

// WatchHealthStatus reports to the kubelet how healthy each published device is, when
// that changes and again and again. While the machine cannot be read it says nothing, and
// the kubelet takes the devices for unknown.
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

// healthReport is what the driver reports to the kubelet of the devices.
func (d *Driver) healthReport(reasons map[pci.Address]string, at time.Time) (report kubeletplugin.DeviceHealthReport) {
	for device := range dra.Devices(d.Publisher.Slices()) {
		h := kubeletplugin.DeviceHealth{
			PoolName: d.Name, DeviceName: device.Name, Health: kubeletplugin.HealthStatusHealthy, LastUpdated: at,
		}
		if h.Message = why(dra.MembersOf(device), reasons); h.Message != "" {
			h.Health = kubeletplugin.HealthStatusUnhealthy
		}
		report.Devices = append(report.Devices, h)
	}
	return report
}

// why are the reasons of the LPUs that are not healthy, in the order of members.
func why(members []pci.Address, reasons map[pci.Address]string) string {
	var all []string
	for _, m := range members {
		if reason := reasons[m]; reason != "" {
			all = append(all, reason)
		}
	}
	return strings.Join(all, "; ")
}
