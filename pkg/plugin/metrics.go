package plugin

import (
	"context"
	"path"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/hyperaccel/lpuctl/internal/node"
)

// metrics are counted from the start.
type metrics struct {
	all                                          node.Metrics
	registrations, calls, preferences, allocated *node.Metric
}

func newMetrics() (m metrics) {
	m.registrations = m.all.Counter("lpuctl_registrations_total", "Registrations with the kubelet, by what it answered.")
	m.calls = m.all.Counter("lpuctl_kubelet_calls_total", "Calls of the kubelet, by gRPC status code.")
	m.preferences = m.all.Counter("lpuctl_preferred_allocations_total",
		"LPUs picked for a container, by how many and whether they are connected.")
	m.allocated = m.all.Counter("lpuctl_allocated_lpus_total",
		"LPUs handed out to containers. When they are given back is not known.")
	m.registrations.Add(0, "result", "success")
	m.registrations.Add(0, "result", "failure")
	m.allocated.Add(0)
	return m
}

// countCalls counts the calls of the kubelet. ListAndWatch is a stream and does not come
// by here.
func (p *Plugin) countCalls(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	answer, err := handler(ctx, request)
	p.metrics.calls.Add(1, "method", path.Base(info.FullMethod), "code", status.Code(err).String())
	return answer, err
}

// Metrics are those of the node and of the plugin; build are labels that identify the
// build.
func (s *Server) Metrics(build ...string) []*node.Metric {
	all := slices.Concat(s.Plugin.Node.Metrics(build...), s.phaseMetrics(), s.Plugin.metrics.all, s.podMetrics())
	if runtime := s.Plugin.state.Load().runtime; runtime.CDI != "" {
		all = append(all, runtime.CDI.Metric())
	}
	return all
}

// phaseMetrics say what the server does now.
func (s *Server) phaseMetrics() node.Metrics {
	var all node.Metrics
	registered := all.Gauge("lpuctl_registered", "Whether the kubelet has the list of LPUs from this instance.")
	standby := all.Gauge("lpuctl_standby", "Whether this instance waits for the end of another one.")
	opened := all.Gauge("lpuctl_stream_opened_timestamp_seconds", "When the kubelet began to follow the list, in Unix time.")
	phase := s.phase.Load()
	registered.SetBool(phase == phaseRegistered)
	standby.SetBool(phase == phaseStandby)
	if phase == phaseRegistered {
		opened.Set(float64(s.openedAt.Load()) / 1000)
	}
	return all
}
