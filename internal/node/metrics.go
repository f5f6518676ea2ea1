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
	"time"

	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// MetricsType is the media type of what [WriteMetrics] writes.
const MetricsType = "text/plain; version=0.0.4; charset=utf-8"

// Metric is a metric of Prometheus: a name and a sample for each set of labels. Labels
// are names and values in turn.
type Metric struct {
	name, kind, help string

	mu      sync.Mutex
	samples map[string]float64 // by what follows the name: a suffix, labels
}

// NewMetric makes a metric of a kind: a counter only goes up, a gauge goes up and down.
func NewMetric(kind, name, help string) *Metric {
	return &Metric{name: name, kind: kind, help: help, samples: map[string]float64{}}
}

// Metrics are several, as they are written.
type Metrics []*Metric

func (all *Metrics) add(kind, name, help string) *Metric {
	m := NewMetric(kind, name, help)
	*all = append(*all, m)
	return m
}

// Gauge adds a metric that goes up and down.
func (all *Metrics) Gauge(name, help string) *Metric { return all.add("gauge", name, help) }

// Counter adds a metric that only goes up.
func (all *Metrics) Counter(name, help string) *Metric { return all.add("counter", name, help) }

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

// escape writes what a label's value must not have as it is. Nearly no value has it, and
// a replacer takes 6 kB.
func escape(value string) string {
	if !strings.ContainsAny(value, "\\\"\n") {
		return value
	}
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value)
}

// Metrics are those of the node and of the program; build are labels that identify the
// build.
func (n *Node) Metrics(build ...string) []*Metric {
	var all Metrics
	buildInfo := all.Gauge("lpuctl_build_info", "Which lpuctl this is; always 1.")
	buildInfo.SetBool(true, build...)
	s := n.latest.Load()
	return slices.Concat(all, s.healthMetrics(), s.cardMetrics(), s.machineMetrics(), n.cableMetrics(s.Inventory),
		s.specMetrics(), n.ownerMetrics(), n.counted)
}

// ownerMetrics say which program hands out the LPUs of the node.
func (n *Node) ownerMetrics() Metrics {
	if n.Gate == nil {
		return nil
	}
	var all Metrics
	m := all.Gauge("lpuctl_owner", "Which program hands out the LPUs of this node to pods: 1 for the answer that holds.")
	v := n.Gate.Look()
	for _, o := range []owner.Owner{owner.Plugin, owner.DRA} {
		m.SetBool(v.Err == nil && v.Record.Owner == o, "owner", string(o))
	}
	m.SetBool(v.Err != nil, "owner", "unknown")
	twice := all.Gauge("lpuctl_lpus_given_twice", "LPUs that two pods have, by what the kubelet says.")
	twice.Set(float64(len(v.Twice())))
	return all
}

// healthMetrics are about the devices as they are offered.
func (s *Snapshot) healthMetrics() Metrics {
	var all Metrics
	healthy := all.Gauge("lpuctl_lpu_healthy",
		"Whether somebody new may get the LPU: it is healthy, not cordoned, not another program's, and not held back with the whole node.")
	cordoned := all.Gauge("lpuctl_lpu_cordoned", "Whether an administrator has taken the LPU out of use.")
	reason := all.Gauge("lpuctl_lpu_reason", "What is wrong with the LPU, or will be, or that it is cordoned; always 1.")
	for _, d := range s.Devices {
		healthy.SetBool(d.Offered(), "lpu", d.Name, "device", d.ID)
		cordoned.SetBool(d.Cordoned != nil, "lpu", d.Name, "device", d.ID)
		for _, r := range d.Reasons {
			reason.SetBool(true, "lpu", d.Name, "device", d.ID, "reason", string(r.ID), "severity", string(r.Severity))
		}
	}
	return all
}

// cardMetrics are what the cards show.
func (s *Snapshot) cardMetrics() Metrics {
	var all Metrics
	celsius := all.Gauge("lpuctl_lpu_temperature_celsius",
		"What a temperature sensor of the LPU shows; of several with one label, the hottest.")
	watts := all.Gauge("lpuctl_lpu_power_watts", "The power that the LPU takes.")
	width := all.Gauge("lpuctl_lpu_link_width_lanes", "Lanes of the LPU's PCI Express link.")
	speed := all.Gauge("lpuctl_lpu_link_speed_gigatransfers", "Gigatransfers per second of each lane of the LPU's PCI Express link.")
	errors := all.Counter("lpuctl_lpu_aer_errors_total", "PCI Express errors of the LPU that the kernel has counted, by severity.")
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
	return all
}

// machineMetrics are about the machine as a whole: the ring table, what is wrong. They
// have no samples before the first scan.
func (s *Snapshot) machineMetrics() Metrics {
	var all Metrics
	lastScan := all.Gauge("lpuctl_last_scan_timestamp_seconds", "When the machine was read last, in Unix time.")
	problem := all.Gauge("lpuctl_problem", "A problem of the machine, such as a ring table that cannot be used; always 1.")
	uevents := all.Counter("lpuctl_uevents_total",
		"Events of the kernel, by what became of them: received, forged (and dropped), lost. Without one received, changes are polled.")
	table := all.Gauge("lpuctl_ring_table_valid", "Whether the ring table in place can be used; absent if there is none.")
	links := all.Gauge("lpuctl_ring_links", "Cables between LPUs, by whether the LPUs at both ends pass data on.")
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

// cablesMax is how many cables have series of their own: more than a machine has by far.
const cablesMax = 512

// cableMetrics are about each cable of the ring.
func (n *Node) cableMetrics(inv *discovery.Inventory) Metrics {
	var all Metrics
	up := all.Gauge("lpuctl_ring_link_up", "Whether the LPUs at both ends of a cable, a and b, pass data on.")
	down := all.Gauge("lpuctl_ring_link_down_timestamp_seconds",
		"Since when an LPU at one end of a cable that is down passes nothing on, in Unix time.")
	if inv == nil {
		return all
	}
	boot := n.Now().Add(-n.SinceBoot())
	cables := 0
	for _, r := range inv.Rings {
		for _, cable := range r.Cables() {
			if cables++; cables > cablesMax {
				return all
			}
			labels := []string{"a", cable[0], "b", cable[1]}
			dead := r.Dead(cable[0], cable[1])
			up.SetBool(!dead, labels...)
			if since, known := inv.DownSince(cable); dead && known {
				down.Set(float64(boot.Add(since).Round(time.Second).Unix()), labels...)
			}
		}
	}
	return all
}

// specMetrics are about the CDI spec in place. There are no samples while it has not been
// compared with anything.
func (s *Snapshot) specMetrics() Metrics {
	var all Metrics
	drift := all.Gauge("lpuctl_spec_drift",
		"Devices of the CDI spec in place that are not as a spec made now has them, by what differs.")
	if s.spec.inv != nil {
		d := s.spec.drift
		for differs, names := range map[string][]string{
			"nodes": d.Wrong, "gone": d.Dangling, "missing": d.Missing, "other": slices.Concat(d.Tables, d.Other),
		} {
			drift.Set(float64(len(names)), "differs", differs)
		}
	}
	return all
}
