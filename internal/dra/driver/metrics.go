package driver

import (
	"slices"
	"strconv"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Metrics are those of the node and of the driver; build are labels that identify the
// build.
func (d *Driver) Metrics(build ...string) []*node.Metric {
	return slices.Concat(d.Node.Metrics(build...), d.stateMetrics(), d.deviceMetrics(),
		[]*node.Metric{d.publishes, d.prepares, d.unprepares})
}

// stateMetrics are about kubelet and API server.
func (d *Driver) stateMetrics() []*node.Metric {
	s := d.state.Load()
	var all node.Metrics
	all.Gauge("lpuctl_dra_registered", "Whether the kubelet has registered the driver.").SetBool(d.registered.Load())
	all.Gauge("lpuctl_dra_published", "Whether the API server has the ResourceSlices of this node as they should be.").SetBool(s.published)
	counters := all.Gauge("lpuctl_dra_counters",
		"Whether the API server keeps counters of devices; 0: it drops them, and only single LPUs are published. Absent until that is known.")
	if s.mode != unknown {
		counters.SetBool(s.mode == arcs)
	}
	if runtime := d.runtime.Load(); runtime.CDI != "" {
		all = append(all, runtime.CDI.Metric())
	}
	return all
}

// deviceMetrics are about the published devices.
func (d *Driver) deviceMetrics() []*node.Metric {
	var all node.Metrics
	devices := all.Gauge("lpuctl_dra_devices", "Published devices, by how many LPUs they have.")
	tainted := all.Gauge("lpuctl_dra_tainted_devices", "Published devices that have a taint.")
	placeable := all.Gauge("lpuctl_dra_placeable", "Published devices that a claim could be given now: no taint, all LPUs free.")
	free := all.Gauge("lpuctl_dra_free_lpus", "LPUs that a claim could be given now, each by itself.")
	claims := all.Gauge("lpuctl_dra_claims", "Claims that are prepared.")
	records, err := d.Claims.Claims()
	if err == nil {
		claims.Set(float64(len(records)))
	}
	specs := d.Publisher.Slices()
	if specs == nil {
		return all
	}
	for device := range dra.Devices(specs) {
		size := strconv.Itoa(dra.Size(device))
		devices.Add(1, "size", size)
		tainted.Add(0, "size", size)
		if len(device.Taints) > 0 {
			tainted.Add(1, "size", size)
		}
	}
	used := map[pci.Address]bool{}
	for _, r := range records {
		for _, m := range r.Members() {
			used[m] = true
		}
	}
	byOwn := dra.Placeable(specs, func(a pci.Address) bool { return used[a] })
	for size, n := range byOwn {
		placeable.Set(float64(n), "size", strconv.Itoa(size))
	}
	free.Set(float64(byOwn[1]))
	return all
}
