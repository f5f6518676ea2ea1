package top

import (
	"io"
	"math"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Said is what the metrics of a program that watches the node say of its LPUs.
type Said struct {
	Source string    // "serve", "exporter" or "dra"
	At     time.Time // when it looked last; it read the sensors up to ten seconds before

	cards map[pci.Address]*saidOf
}

// saidOf is what they say of one LPU.
type saidOf struct {
	readings Readings
	reasons  finding.List // that are made of what sensors say
}

// ReadMetrics reads metrics of lpuctl serve, of lpuctl exporter or of lpuctl-dra serve in
// Prometheus' text format. It returns nil if these are the metrics of something else, or
// if the machine has not been read yet.
func ReadMetrics(r io.Reader) (*Said, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, err
	}
	last := families["lpuctl_last_scan_timestamp_seconds"].GetMetric()
	if len(last) == 0 {
		return nil, nil
	}
	said := &Said{Source: "serve", At: unixTime(last[0].GetGauge().GetValue()), cards: map[pci.Address]*saidOf{}}
	for name := range families {
		switch {
		case name == "lpuctl_leases_known":
			said.Source = "exporter"
		case strings.HasPrefix(name, "lpuctl_dra_"):
			said.Source = "dra"
		}
	}
	for _, m := range families["lpuctl_lpu_temperature_celsius"].GetMetric() {
		if of := said.of(m); of != nil {
			of.readings.Temperatures = append(of.readings.Temperatures, health.Temperature{
				Label: label(m, "sensor"), Celsius: m.GetGauge().GetValue(),
			})
		}
	}
	for _, m := range families["lpuctl_lpu_power_watts"].GetMetric() {
		if of := said.of(m); of != nil {
			watts := m.GetGauge().GetValue()
			of.readings.Watts = &watts
		}
	}
	for _, m := range families["lpuctl_lpu_reason"].GetMetric() {
		id := finding.ID(label(m, "reason"))
		if of := said.of(m); of != nil && sensed(id) {
			of.reasons.Add(id, label(m, "lpu"), said.Source+" says so", "").Severity = finding.Severity(label(m, "severity"))
		}
	}
	return said, nil
}

// of returns what is said of the LPU of a sample; nil if it is of no LPU.
func (s *Said) of(m *dto.Metric) *saidOf {
	a, err := cdi.ParseAddressName(label(m, "device"))
	if err != nil {
		return nil
	}
	if s.cards[a] == nil {
		s.cards[a] = &saidOf{readings: Readings{Source: s.Source, At: s.At}}
	}
	return s.cards[a]
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func unixTime(seconds float64) time.Time {
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)).UTC().Truncate(time.Second)
}

// Readings returns what is said of the sensors of an LPU, with the limits that its own
// sensors had; nil if nothing is said.
func (s *Said) Readings(l *discovery.LPU, limits *Readings) *Readings {
	of := s.cards[l.Address]
	if of == nil || of.readings.Temperatures == nil && of.readings.Watts == nil {
		return nil
	}
	r := of.readings
	r.Temperatures = slices.Clone(r.Temperatures)
	if limits != nil {
		r.LimitWatts = limits.LimitWatts
		for i := range r.Temperatures {
			t := &r.Temperatures[i]
			for _, known := range limits.Temperatures {
				if known.Label == t.Label {
					t.Critical, t.Max = known.Critical, known.Max
				}
			}
		}
	}
	return &r
}

// Judge adds to an LPU, whose sensors were left to the program with the metrics, what that
// has found by them.
func (s *Said) Judge(l *discovery.LPU) {
	of := s.cards[l.Address]
	if of == nil {
		return
	}
	l.Reasons = append(slices.Clone(of.reasons), l.Reasons...)
	if of.reasons.HasErrors() {
		l.Usable, l.Health = false, discovery.Unhealthy
	}
}
