package node

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hyperaccel/lpuctl/pkg/owner"
)

// MetricsType is the media type of what [WriteMetrics] writes.
const MetricsType = "text/plain; version=0.0.4; charset=utf-8"

// Metric is a metric of Prometheus: a name and a sample for each set of labels. Labels are names and values in turn.
type Metric struct {
	name, kind, help string

	mu      sync.Mutex
	samples map[string]float64 // by what follows the name: a suffix, labels
}

// NewMetric makes a metric of a kind: a counter only goes up, a gauge goes up and down.
func NewMetric(kind, name, help string) *Metric {
	return &Metric{name: name, kind: kind, help: help, samples: map[string]float64{}}
}

// Add adds n to a sample of a counter. Adding 0 makes a sample that starts there.
func (m *Metric) Add(n float64, labels ...string) { m.add(n, labelText(labels)) }

// Set sets a sample of a gauge.
func (m *Metric) Set(value float64, labels ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples[labelText(labels)] = value
}

// SetBool sets a sample of a gauge to 1 or 0.
func (m *Metric) SetBool(value bool, labels ...string) {
	if value {
		m.Set(1, labels...)
	} else {
		m.Set(0, labels...)
	}
}

func (m *Metric) add(n float64, key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples[key] += n
}

// WriteMetrics writes metrics in Prometheus' text format
// (https://prometheus.io/docs/instrumenting/exposition_formats).
func WriteMetrics(w io.Writer, metrics ...*Metric) error {
	var text bytes.Buffer // so that a reader who is slow holds no lock
	for _, m := range metrics {
		m.write(&text)
	}
	_, err := text.WriteTo(w)
	return err
}

func (m *Metric) write(w io.Writer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
	for _, key := range slices.Sorted(maps.Keys(m.samples)) {
		fmt.Fprintf(w, "%s%s %s\n", m.name, key, strconv.FormatFloat(m.samples[key], 'f', -1, 64))
	}
}

// labelText writes labels as {name="value",...}, and none as nothing.
func labelText(labels []string) string {
	var list []string
	for pair := range slices.Chunk(labels, 2) {
		list = append(list, pair[0]+`="`+escape(strings.ToValidUTF8(pair[1], "\uFFFD"))+`"`)
	}
	if list == nil {
		return ""
	}
	return "{" + strings.Join(list, ",") + "}"
}

// escape writes what a label's value must not have as it is. Nearly no value has it, and a replacer takes 6 kB.
func escape(value string) string {
	if !strings.ContainsAny(value, "\\\"\n") {
		return value
	}
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value)
}

// Metrics are those of the node and of the program; build are labels that identify the build.
func (n *Node) Metrics(build ...string) []*Metric {
	buildInfo := NewMetric("gauge", "lpuctl_build_info", "Which lpuctl this is; always 1.")
	buildInfo.SetBool(true, build...)
	s := n.latest.Load()
	return slices.Concat([]*Metric{buildInfo}, s.healthMetrics(), s.cardMetrics(), s.machineMetrics(), s.specMetrics(), n.ownerMetrics(),
		[]*Metric{n.scans, n.scanFailures, n.specWrites})
}

// ownerMetrics say which program hands out the LPUs of the node.
func (n *Node) ownerMetrics() []*Metric {
	if n.Gate == nil {
		return nil
	}
	m := NewMetric("gauge", "lpuctl_owner", "Which program hands out the LPUs of this node to pods: 1 for the answer that holds.")
	v := n.Gate.Look()
	for _, o := range []owner.Owner{owner.Plugin, owner.DRA} {
		m.SetBool(v.Err == nil && v.Record.Owner == o, "owner", string(o))
	}
	m.SetBool(v.Err != nil, "owner", "unknown")
	twice := NewMetric("gauge", "lpuctl_lpus_given_twice", "LPUs that two pods have, by what the kubelet says.")
	twice.Set(float64(len(v.Twice())))
	return []*Metric{m, twice}
}

// healthMetrics are about the devices as they are offered.
func (s *Snapshot) healthMetrics() []*Metric {
	healthy := NewMetric("gauge", "lpuctl_lpu_healthy",
		"Whether somebody new may get the LPU: it is healthy, not cordoned, not another program's, and not held back with the whole node.")
	cordoned := NewMetric("gauge", "lpuctl_lpu_cordoned", "Whether an administrator has taken the LPU out of use.")
	reason := NewMetric("gauge", "lpuctl_lpu_reason", "What is wrong with the LPU, or will be, or that it is cordoned; always 1.")
	for _, d := range s.Devices {
		healthy.SetBool(d.Offered(), "lpu", d.Name, "device", d.ID)
		cordoned.SetBool(d.Cordoned != nil, "lpu", d.Name, "device", d.ID)
		for _, r := range d.Reasons {
			reason.SetBool(true, "lpu", d.Name, "device", d.ID, "reason", string(r.ID), "severity", string(r.Severity))
		}
	}
	return []*Metric{healthy, cordoned, reason}
}

// cardMetrics are what the cards show.
func (s *Snapshot) cardMetrics() []*Metric {
	celsius := NewMetric("gauge", "lpuctl_lpu_temperature_celsius",
		"What a temperature sensor of the LPU shows; of several with one label, the hottest.")
	watts := NewMetric("gauge", "lpuctl_lpu_power_watts", "The power that the LPU takes.")
	width := NewMetric("gauge", "lpuctl_lpu_link_width_lanes", "Lanes of the LPU's PCI Express link.")
	speed := NewMetric("gauge", "lpuctl_lpu_link_speed_gigatransfers", "Gigatransfers per second of each lane of the LPU's PCI Express link.")
	errors := NewMetric("counter", "lpuctl_lpu_aer_errors_total", "PCI Express errors of the LPU that the kernel has counted, by severity.")
	for id, card := range s.Cards {
		l := &s.Inventory.LPUs[card]
		labels := []string{"lpu", l.Name, "device", id}
		hottest := map[string]float64{} // two chips of a card may have sensors of one label
		for _, t := range l.Temperatures {
			if other, there := hottest[t.Label]; !there || t.Celsius > other {
				hottest[t.Label] = t.Celsius
			}
		}
		for label, degrees := range hottest {
			celsius.Set(degrees, append(slices.Clip(labels), "sensor", label)...)
		}
		if l.Watts != nil {
			watts.Set(*l.Watts, labels...)
		}
		if l.Link != nil {
			width.Set(float64(l.Link.Width), labels...)
			speed.Set(l.Link.SpeedGTs, labels...)
		}
		for severity, count := range map[string]*uint64{
			"correctable": l.Reading.AERCorrectable, "nonfatal": l.Reading.AERNonFatal, "fatal": l.Reading.AERFatal,
		} {
			if count != nil {
				errors.Add(float64(*count), append(slices.Clip(labels), "severity", severity)...)
			}
		}
	}
	return []*Metric{celsius, watts, width, speed, errors}
}

// machineMetrics are about the machine as a whole: the ring table, what is wrong. They have no samples before the first scan.
func (s *Snapshot) machineMetrics() []*Metric {
	lastScan := NewMetric("gauge", "lpuctl_last_scan_timestamp_seconds", "When the machine was read last, in Unix time.")
	problem := NewMetric("gauge", "lpuctl_problem", "A problem of the machine, such as a ring table that cannot be used; always 1.")
	uevents := NewMetric("counter", "lpuctl_uevents_total",
		"Events of the kernel, by what became of them: received, forged (and dropped), lost. Without one received, changes are polled.")
	table := NewMetric("gauge", "lpuctl_ring_table_valid", "Whether the ring table in place can be used; absent if there is none.")
	links := NewMetric("gauge", "lpuctl_ring_links", "Cables between LPUs, by whether the LPUs at both ends pass data on.")
	all := []*Metric{lastScan, problem, uevents, table, links}
	if s.Inventory == nil {
		return all
	}
	lastScan.Set(float64(s.ReadAt.UnixMilli()) / 1000)
	for _, f := range s.Inventory.Problems {
		problem.SetBool(true, "problem", string(f.ID), "severity", string(f.Severity))
	}
	if counts := s.Inventory.Uevents; counts != nil {
		uevents.Add(float64(counts.Received), "what", "received")
		uevents.Add(float64(counts.Forged), "what", "forged")
		uevents.Add(float64(counts.Overflows), "what", "lost")
	}
	if valid, known := s.Inventory.RingTableValid(); known {
		table.SetBool(valid)
	}
	up, down := 0, 0
	for _, r := range s.Inventory.Rings {
		u, d := r.Links()
		up, down = up+u, down+d
	}
	if len(s.Inventory.Rings) > 0 {
		links.Set(float64(up), "state", "up")
		links.Set(float64(down), "state", "down")
	}
	return all
}

// specMetrics are about the CDI spec in place. There are no samples while it has not been compared with anything.
func (s *Snapshot) specMetrics() []*Metric {
	drift := NewMetric("gauge", "lpuctl_spec_drift",
		"Devices of the CDI spec in place that are not as a spec made now has them, by what differs.")
	if s.spec.inv != nil {
		drift.Set(float64(len(s.spec.drift.Wrong)), "differs", "nodes")
		drift.Set(float64(len(s.spec.drift.Dangling)), "differs", "gone")
		drift.Set(float64(len(s.spec.drift.Missing)), "differs", "missing")
		drift.Set(float64(len(s.spec.drift.Other)), "differs", "other")
	}
	return []*Metric{drift}
}
