package plugin

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// families are the metrics as Prometheus reads them.
func (s *Server) families() (map[string]*dto.MetricFamily, error) {
	var text bytes.Buffer
	if err := node.WriteMetrics(&text, s.Metrics("version", "1.0")...); err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(&text)
}

// value is the one sample of a family that has these labels; -1 if there is none.
func (i *instance) value(family string, pairs ...string) float64 {
	all, err := i.server.families()
	if err != nil {
		i.t.Error(err)
	}
	for _, m := range all[family].GetMetric() {
		have := []string{}
		for _, l := range m.Label {
			have = append(have, l.GetName(), l.GetValue())
		}
		if strings.Join(have, " ") == strings.Join(pairs, " ") {
			return m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetSummary().GetSampleSum()
		}
	}
	return -1
}

func TestMetrics(t *testing.T) {
	r, k, i := served(t, rules137)
	await.For(t, "it is registered", func() bool { return i.value("lpuctl_registered") == 1 })
	broken := func(context.Context) (*discovery.Inventory, error) { return nil, io.ErrUnexpectedEOF }
	if r.plugin.Update(t.Context(), broken) {
		t.Error("updated though the machine could not be read")
	}
	if _, _, err := k.admit(4); err != nil {
		t.Fatal(err)
	}
	if _, err := r.prefer(2, nil, ids(4, 6)...); err != nil {
		t.Fatal(err)
	}
	if _, _, err := k.admit(1); err != nil {
		t.Fatal(err)
	}
	_, _ = k.primary().client.Allocate(t.Context(), request("pci-0000-99-00.1"))
	if err := os.Remove(filepath.Join(r.root, "sys/bus/pci/devices/0000:45:00.1/driver")); err != nil {
		t.Fatal(err)
	}
	plant.File(t, filepath.Join(r.root, "sys/bus/pci/devices/0000:44:00.1/aer_dev_correctable"), "RxErr 3\nTOTAL_ERR_COR 3\n")
	r.scan()
	lpu1 := []string{"lpu", "lpu1", "device", orionIDs[1]}
	lpu2 := []string{"lpu", "lpu2", "device", orionIDs[2]}
	for _, c := range []struct {
		want   float64
		family string
		labels []string
	}{
		{1, "lpuctl_build_info", []string{"version", "1.0"}},
		{1, "lpuctl_registered", nil},
		{1, "lpuctl_registrations_total", []string{"result", "success"}},
		{0, "lpuctl_registrations_total", []string{"result", "failure"}},
		{0, "lpuctl_standby", nil},
		{1, "lpuctl_ring_table_valid", nil},
		{6, "lpuctl_ring_links", []string{"state", "up"}},
		{2, "lpuctl_ring_links", []string{"state", "down"}},
		{1, "lpuctl_ring_link_up", []string{"a", "lpu0", "b", "lpu1"}},
		{0, "lpuctl_ring_link_up", []string{"a", "lpu1", "b", "lpu2"}},
		{1, "lpuctl_ring_link_up", []string{"a", "lpu7", "b", "lpu0"}},
		{3, "lpuctl_lpu_aer_errors_total", append(slices.Clone(lpu1), "severity", "correctable")},
		{1, "lpuctl_lpu_healthy", lpu1},
		{0, "lpuctl_lpu_healthy", lpu2},
		{1, "lpuctl_lpu_reason", append(lpu2, "reason", "no-driver", "severity", "error")},
		{1, "lpuctl_preferred_allocations_total", []string{"size", "4", "outcome", "connected"}},
		{1, "lpuctl_preferred_allocations_total", []string{"size", "2", "outcome", "unconnected"}},
		{1, "lpuctl_preferred_allocations_total", []string{"size", "1", "outcome", "connected"}},
		{1, "lpuctl_kubelet_calls_total", []string{"method", "GetDevicePluginOptions", "code", "OK"}},
		{2, "lpuctl_kubelet_calls_total", []string{"method", "Allocate", "code", "OK"}},
		{1, "lpuctl_kubelet_calls_total", []string{"method", "Allocate", "code", "NotFound"}},
		{5, "lpuctl_allocated_lpus_total", nil},
		{1, "lpuctl_scan_failures_total", nil},
	} {
		if got := i.value(c.family, c.labels...); got != c.want {
			t.Errorf("%s%v is %v, not %v", c.family, c.labels, got, c.want)
		}
	}
	if got := i.value("lpuctl_scan_duration_seconds"); got <= 0 {
		t.Errorf("all scans together took %v seconds", got)
	}
	if age := float64(time.Now().Unix()) - i.value("lpuctl_last_scan_timestamp_seconds"); age < -1 || age > 60 {
		t.Errorf("the last scan was %v seconds ago", age)
	}
	if age := float64(time.Now().Unix()) - i.value("lpuctl_stream_opened_timestamp_seconds"); age < -1 || age > 60 {
		t.Errorf("the stream was opened %v seconds ago", age)
	}
	plant.File(t, filepath.Join(r.root, "opt/hyperdex/hrt/xclbin/table.json"), "{")
	r.scan()
	if got := i.value("lpuctl_ring_table_valid"); got != 0 {
		t.Errorf("a broken ring table counts as valid: %v", got)
	}
	k.stop()
	await.For(t, "it is not registered", func() bool { return i.value("lpuctl_registered") == 0 })
	if got := i.value("lpuctl_stream_opened_timestamp_seconds"); got != -1 {
		t.Errorf("there is no stream, but one was opened at %v", got)
	}
}

// TestStandbyMetric: an instance that waits for another one says so, until that ends.
func TestStandbyMetric(t *testing.T) {
	r, k, i := served(t, rules137)
	next := r.serve(k, false)
	await.For(t, "it stands by", func() bool { return next.value("lpuctl_standby") == 1 && next.value("lpuctl_registered") == 0 })
	i.end()
	await.For(t, "it serves", func() bool { return next.value("lpuctl_standby") == 0 && next.value("lpuctl_registered") == 1 })
}

// TestMetricsBeforeTheFirstLook: nothing is known, and the format holds whatever stands in a label.
func TestMetricsBeforeTheFirstLook(t *testing.T) {
	s := &Server{Plugin: New(Options{}, slog.New(slog.DiscardHandler))}
	var text bytes.Buffer
	if err := node.WriteMetrics(&text, s.Metrics("version", "a\"b\\c\nd\xff")...); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		t.Fatal(err)
	}
	if got := all["lpuctl_build_info"].Metric[0].Label[0].GetValue(); got != "a\"b\\c\nd\uFFFD" {
		t.Errorf("the label reads %q", got)
	}
	if all["lpuctl_lpu_healthy"] != nil || all["lpuctl_last_scan_timestamp_seconds"] != nil {
		t.Error("metrics of what nobody has looked at")
	}
}
