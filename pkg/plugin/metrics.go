package plugin

import (
	"context"
	"io"
	"path"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/node"
)

// metrics are counted from the start.
type metrics struct {
	registrations, calls, preferences, allocated node.Counter
}

// init makes the counters of which all labels are known start at 0.
func (m *metrics) init() {
	m.registrations.Add(0, "result", "success")
	m.registrations.Add(0, "result", "failure")
	m.allocated.Add(0)
}

func (m *metrics) registered(err error) {
	result := "success"
	if err != nil {
		result = "failure"
	}
	m.registrations.Add(1, "result", result)
}

// preferred counts a decision by its size, because one LPU by itself is always connected.
func (m *metrics) preferred(d *discovery.Decision, refused bool) {
	outcome := "unknown"
	switch {
	case refused:
		outcome = "refused"
	case d.Connected != nil && *d.Connected:
		outcome = "connected"
	case d.Connected != nil:
		outcome = "unconnected"
	}
	m.preferences.Add(1, "size", strconv.Itoa(d.Explanation.Size), "outcome", outcome)
}

func (m *metrics) handedOut(r *api.AllocateRequest) {
	for _, c := range r.ContainerRequests {
		m.allocated.Add(float64(len(c.DevicesIds)))
	}
}

// countCalls counts the calls of the kubelet. ListAndWatch is a stream and does not come by here.
func (p *Plugin) countCalls(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	answer, err := handler(ctx, request)
	p.metrics.calls.Add(1, "method", path.Base(info.FullMethod), "code", status.Code(err).String())
	return answer, err
}

// WriteMetrics writes the metrics of the node and of the plugin as a [node.Exposition]; build are label names and values
// that identify the build.
func (s *Server) WriteMetrics(w io.Writer, build ...string) error {
	e, m := &node.Exposition{}, &s.Plugin.metrics
	s.Plugin.Node.WriteMetrics(e, build...)
	e.Gauge("lpuctl_registered", "Whether the kubelet has the list of LPUs from this instance.")
	e.Bool(s.doing() == phaseRegistered)
	e.Counter("lpuctl_registrations_total", "Registrations with the kubelet, by what it answered.", &m.registrations)
	e.Counter("lpuctl_kubelet_calls_total", "Calls of the kubelet, by gRPC status code.", &m.calls)
	e.Counter("lpuctl_preferred_allocations_total", "LPUs picked for a container, by how many and whether they are connected.", &m.preferences)
	e.Counter("lpuctl_allocated_lpus_total", "LPUs handed out to containers. When they are given back is not known.", &m.allocated)
	_, err := e.WriteTo(w)
	return err
}
