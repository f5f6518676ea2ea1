package plugin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/hyperaccel/lpuctl/pkg/allocate"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// MetricsType is the media type of what WriteMetrics writes.
const MetricsType = "text/plain; version=0.0.4; charset=utf-8"

// metrics are what was counted since the start.
type metrics struct {
	mu            sync.Mutex
	registrations counter
	calls         counter
	preferences   counter
	allocated     float64
	scans         float64
	scanTime      time.Duration
	scanFailures  float64
}

// counter counts by labels, as labels makes them.
type counter map[string]float64

func newMetrics() metrics {
	return metrics{
		registrations: counter{labels("result", "success"): 0, labels("result", "failure"): 0},
		calls:         counter{}, preferences: counter{},
	}
}

func (m *metrics) count(c counter, pairs ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c[labels(pairs...)]++
}

func (m *metrics) registered(err error) {
	result := "success"
	if err != nil {
		result = "failure"
	}
	m.count(m.registrations, "result", result)
}

// preferred counts a decision by its size, because one LPU by itself is always connected.
func (m *metrics) preferred(d *allocate.Decision, refused bool) {
	outcome := "unknown"
	switch {
	case refused:
		outcome = "refused"
	case d.Connected != nil && *d.Connected:
		outcome = "connected"
	case d.Connected != nil:
		outcome = "unconnected"
	}
	m.count(m.preferences, "size", strconv.Itoa(d.Explanation.Size), "outcome", outcome)
}

func (m *metrics) handedOut(r *api.AllocateRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range r.ContainerRequests {
		m.allocated += float64(len(c.DevicesIds))
	}
}

// countCalls counts what the kubelet asks. The stream of lists is no call.
func (p *Plugin) countCalls(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	answer, err := handler(ctx, request)
	p.metrics.count(p.metrics.calls, "method", path.Base(info.FullMethod), "code", status.Code(err).String())
	return answer, err
}

// Scanned counts a look at the machine and how long it took; err is why it failed.
func (p *Plugin) Scanned(took time.Duration, err error) {
	p.metrics.mu.Lock()
	defer p.metrics.mu.Unlock()
	p.metrics.scans++
	p.metrics.scanTime += took
	if err != nil {
		p.metrics.scanFailures++
	}
}

// WriteMetrics writes what there is to watch, in Prometheus' text format
// (https://prometheus.io/docs/instrumenting/exposition_formats). build are the names and values of labels that tell which
// build this is.
func (s *Server) WriteMetrics(w io.Writer, build ...string) error {
	e := &exposition{}
	e.family("lpuctl_build_info", "gauge", "Which lpuctl this is; always 1.")
	e.sample("", labels(build...), 1)
	e.family("lpuctl_registered", "gauge", "Whether the kubelet has the list of LPUs from this instance.")
	e.sample("", "", truth(s.doing() == phaseRegistered))
	e.lpus(s.Plugin)
	e.counts(&s.Plugin.metrics)
	_, err := e.WriteTo(w)
	return err
}

// lpus are the gauges of each LPU that is listed.
func (e *exposition) lpus(p *Plugin) {
	s, _ := p.now()
	if s == nil {
		return
	}
	e.family("lpuctl_lpu_healthy", "gauge", "Whether the kubelet is told that the LPU is healthy.")
	for _, d := range s.devices {
		e.sample("", labels("lpu", s.name(d.ID), "device", d.ID), truth(d.Health == api.Healthy))
	}
	e.family("lpuctl_lpu_reason", "gauge", "What is wrong with the LPU, or will be; always 1.")
	for _, d := range s.devices {
		seen := map[finding.ID]bool{}
		for _, r := range s.reasons(d.ID) {
			if !seen[r.ID] { // the same may be said of several things
				e.sample("", labels("lpu", s.name(d.ID), "device", d.ID, "reason", string(r.ID), "severity", string(r.Severity)), 1)
			}
			seen[r.ID] = true
		}
	}
	e.family("lpuctl_last_scan_timestamp_seconds", "gauge", "When the machine was read last, in Unix time.")
	e.sample("", "", float64(s.at.UnixMilli())/1000)
}

// counts are what grows.
func (e *exposition) counts(m *metrics) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.family("lpuctl_scan_duration_seconds", "summary", "How long it took to read the machine.")
	e.sample("_sum", "", m.scanTime.Seconds())
	e.sample("_count", "", m.scans)
	e.family("lpuctl_scan_failures_total", "counter", "How often the machine could not be read.")
	e.sample("", "", m.scanFailures)
	e.family("lpuctl_registrations_total", "counter", "Registrations with the kubelet, by what it answered.")
	e.counter(m.registrations)
	e.family("lpuctl_kubelet_calls_total", "counter", "Calls of the kubelet, by gRPC status code.")
	e.counter(m.calls)
	e.family("lpuctl_preferred_allocations_total", "counter", "LPUs picked for a container, by how many and whether they are connected.")
	e.counter(m.preferences)
	e.family("lpuctl_allocated_lpus_total", "counter", "LPUs handed out to containers. When they are given back is not known.")
	e.sample("", "", m.allocated)
}

// exposition is metrics in Prometheus' text format.
type exposition struct {
	bytes.Buffer
	name string // of the family that is being written
}

func (e *exposition) family(name, kind, help string) {
	e.name = name
	fmt.Fprintf(e, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (e *exposition) sample(suffix, labels string, value float64) {
	fmt.Fprintf(e, "%s%s%s %s\n", e.name, suffix, labels, strconv.FormatFloat(value, 'f', -1, 64))
}

func (e *exposition) counter(c counter) {
	for _, l := range slices.Sorted(maps.Keys(c)) {
		e.sample("", l, c[l])
	}
}

// labels are names and values as the format wants them: {name="value",...}.
func labels(pairs ...string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	var list []string
	for pair := range slices.Chunk(pairs, 2) {
		list = append(list, pair[0]+`="`+escape.Replace(strings.ToValidUTF8(pair[1], "\uFFFD"))+`"`)
	}
	return "{" + strings.Join(list, ",") + "}"
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
