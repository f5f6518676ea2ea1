package top_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/top"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/test/machines"
)

// TestMetrics: what the metrics of serve say of the sensors is what a scan reads, with the limits that the scan has read.
func TestMetrics(t *testing.T) {
	_, root := machines.Start(t, simulate.Node{Profile: "orion", LPUs: 2, Faults: []simulate.Fault{{Name: "firewall", Index: 1}}})
	inv, err := discovery.Scan(t.Context(), root, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := node.New(slog.New(slog.DiscardHandler))
	scan := func(context.Context) (*discovery.Inventory, error) { return inv, nil }
	if n.Update(t.Context(), node.Spec{ReadOnly: true}, scan) == nil {
		t.Fatal("no snapshot")
	}
	var text bytes.Buffer
	if err := node.WriteMetrics(&text, n.Metrics()...); err != nil {
		t.Fatal(err)
	}
	for more, source := range map[string]string{"": "serve", "lpuctl_leases_known 1\n": "exporter", "lpuctl_dra_registered 1\n": "dra"} {
		said, err := top.ReadMetrics(strings.NewReader(text.String() + more))
		if err != nil || said == nil || said.Source != source || time.Since(said.At).Abs() > time.Minute {
			t.Fatalf("%+v %v", said, err)
		}
		own := top.OwnReadings(&inv.LPUs[0], time.Now())
		r := said.Readings(&inv.LPUs[0], own)
		if r.Hottest().Celsius != 44 || r.Hottest().Limit() != 97 || *r.Watts != 38.5 || r.Source != source || !r.At.Equal(said.At) {
			t.Errorf("%+v", r)
		}
		if r := said.Readings(&inv.LPUs[0], nil); r.Hottest().Limit() != 0 {
			t.Errorf("limits of nothing: %+v", r)
		}
		if r := said.Readings(&discovery.LPU{}, own); r != nil {
			t.Errorf("readings of an LPU that is not there: %+v", r)
		}
		fresh, err := discovery.Scan(t.Context(), root, discovery.Options{Unsensed: true})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"healthy", "firewall"} {
			l := &fresh.LPUs[i]
			if l.Reading.Sensors != nil || l.State() != "healthy" {
				t.Fatalf("%s was sensed: %s", l.Name, l.State())
			}
			if said.Judge(l); l.State() != want {
				t.Errorf("%s is %s, want %s", l.Name, l.State(), want)
			}
		}
	}
}

// TestOtherMetrics: those of another program say nothing, and neither do those of one that has not looked yet.
func TestOtherMetrics(t *testing.T) {
	for _, text := range []string{"", "up 1\n", "# TYPE lpuctl_last_scan_timestamp_seconds gauge\n"} {
		if said, err := top.ReadMetrics(strings.NewReader(text)); said != nil || err != nil {
			t.Errorf("%q: %+v %v", text, said, err)
		}
	}
	for _, r := range []io.Reader{strings.NewReader("<html>"), strings.NewReader("lpuctl_last_scan_timestamp_seconds x\n")} {
		if said, err := top.ReadMetrics(r); said != nil || err == nil {
			t.Errorf("%+v %v", said, err)
		}
	}
	odd := "lpuctl_last_scan_timestamp_seconds 1e9\nlpuctl_lpu_power_watts{device=\"x\"} 1\nlpuctl_lpu_power_watts 2\n"
	if said, err := top.ReadMetrics(strings.NewReader(odd)); err != nil || said.Readings(&discovery.LPU{}, nil) != nil {
		t.Errorf("%+v %v", said, err)
	}
}
