package plugin

import (
	"context"
	"path"
	"slices"

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

// Metrics are those of the node and of the plugin; build are labels that identify the build.
func (s *Server) Metrics(build ...string) []*node.Metric {
	m := s.Plugin.metrics
	all := slices.Concat(s.Plugin.Node.Metrics(build...), s.phaseMetrics(),
		[]*node.Metric{m.registrations, m.calls, m.preferences, m.allocated}, s.podMetrics())
	if runtime := s.Plugin.state.Load().runtime; runtime.CDI != "" {
		all = append(all, runtime.CDI.Metric())
	}
	return all
}

// phaseMetrics say what the server does now.
func (s *Server) phaseMetrics() []*node.Metric {
	registered := node.NewMetric("gauge", "lpuctl_registered", "Whether the kubelet has the list of LPUs from this instance.")
	standby := node.NewMetric("gauge", "lpuctl_standby", "Whether this instance waits for the end of another one.")
	opened := node.NewMetric("gauge", "lpuctl_stream_opened_timestamp_seconds", "When the kubelet began to follow the list, in Unix time.")
	phase := s.phase.Load()
	registered.SetBool(phase == phaseRegistered)
	standby.SetBool(phase == phaseStandby)
	if phase == phaseRegistered {
		opened.Set(float64(s.openedAt.Load()) / 1000)
	}
	return []*node.Metric{registered, standby, opened}
}
