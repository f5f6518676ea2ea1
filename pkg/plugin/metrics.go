package plugin

import (
	"context"
	"io"
	"path"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/hyperaccel/lpuctl/pkg/node"
)

// metrics are counted from the start.
type metrics struct{ registrations, calls, preferences, allocated *node.Metric }

func newMetrics() metrics {
	m := metrics{
		registrations: node.NewMetric("counter", "lpuctl_registrations_total", "Registrations with the kubelet, by what it answered."),
		calls:         node.NewMetric("counter", "lpuctl_kubelet_calls_total", "Calls of the kubelet, by gRPC status code."),
		preferences: node.NewMetric("counter", "lpuctl_preferred_allocations_total",
			"LPUs picked for a container, by how many and whether they are connected."),
		allocated: node.NewMetric("counter", "lpuctl_allocated_lpus_total",
			"LPUs handed out to containers. When they are given back is not known."),
	}
	m.registrations.Add(0, "result", "success")
	m.registrations.Add(0, "result", "failure")
	m.allocated.Add(0)
	return m
}

// countCalls counts the calls of the kubelet. ListAndWatch is a stream and does not come by here.
func (p *Plugin) countCalls(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	answer, err := handler(ctx, request)
	p.metrics.calls.Add(1, "method", path.Base(info.FullMethod), "code", status.Code(err).String())
	return answer, err
}

// Alive is [node.Node.Alive].
func (s *Server) Alive() error { return s.Plugin.Node.Alive() }

// WriteMetrics writes the metrics of the node and of the plugin as [node.WriteMetrics] does; build are labels that identify the
// build.
func (s *Server) WriteMetrics(w io.Writer, build ...string) error {
	registered := node.NewMetric("gauge", "lpuctl_registered", "Whether the kubelet has the list of LPUs from this instance.")
	registered.SetBool(s.phase.Load() == phaseRegistered)
	m := s.Plugin.metrics
	all := append(s.Plugin.Node.Metrics(build...), registered, m.registrations, m.calls, m.preferences, m.allocated)
	return node.WriteMetrics(w, all...)
}
