package node

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// MetricsType is the media type of an [Exposition].
const MetricsType = "text/plain; version=0.0.4; charset=utf-8"

// Scanned counts a scan of the machine and how long it took; err is why it failed, and is logged once. Only the goroutine
// that scans may call it.
func (n *Node) Scanned(took time.Duration, err error) {
	n.scans.Add(1)
	n.scanSeconds.Add(took.Seconds())
	if err == nil {
		n.scanError = ""
		return
	}
	n.scanFailures.Add(1)
	if err.Error() != n.scanError {
		n.log.Error("the machine cannot be read", "error", err)
	}
	n.scanError = err.Error()
}

// WriteMetrics writes the metrics of the node and of the program; build are label names and values that identify the build.
func (n *Node) WriteMetrics(e *Exposition, build ...string) {
	e.Gauge("lpuctl_build_info", "Which lpuctl this is; always 1.")
	e.Bool(true, build...)
	s := n.latest.Load()
	if s.Inventory != nil {
		e.devices(s.Devices)
		e.Gauge("lpuctl_last_scan_timestamp_seconds", "When the machine was read last, in Unix time.")
		e.sample("", "", float64(s.ReadAt.UnixMilli())/1000)
	}
	e.family("lpuctl_scan_duration_seconds", "summary", "How long it took to read the machine.")
	e.samples("_sum", &n.scanSeconds)
	e.samples("_count", &n.scans)
	e.Counter("lpuctl_scan_failures_total", "How often the machine could not be read.", &n.scanFailures)
}

func (e *Exposition) devices(devices []Device) {
	e.Gauge("lpuctl_lpu_healthy", "Whether the kubelet is told that the LPU is healthy.")
	for _, d := range devices {
		e.Bool(d.Healthy, "lpu", d.Name, "device", d.ID)
	}
	e.Gauge("lpuctl_lpu_reason", "What is wrong with the LPU, or will be; always 1.")
	for _, d := range devices {
		seen := map[finding.ID]bool{}
		for _, r := range d.Reasons {
			if !seen[r.ID] { // one id may stand for several nodes or mounts, and a label set may occur once only
				e.Bool(true, "lpu", d.Name, "device", d.ID, "reason", string(r.ID), "severity", string(r.Severity))
			}
			seen[r.ID] = true
		}
	}
}

// Exposition is a text of metrics in Prometheus' format (https://prometheus.io/docs/instrumenting/exposition_formats). The
// samples that are written belong to the metric that was begun last.
type Exposition struct {
	bytes.Buffer
	name string // of that metric
}

// Gauge begins a metric that can go up and down.
func (e *Exposition) Gauge(name, help string) { e.family(name, "gauge", help) }

// Counter writes a metric that only goes up.
func (e *Exposition) Counter(name, help string, c *Counter) {
	e.family(name, "counter", help)
	e.samples("", c)
}

// Bool writes a sample that is 1 or 0. Labels are names and values in turn.
func (e *Exposition) Bool(value bool, labels ...string) {
	number := 0.0
	if value {
		number = 1
	}
	e.sample("", labelText(labels), number)
}

func (e *Exposition) family(name, kind, help string) {
	e.name = name
	fmt.Fprintf(e, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (e *Exposition) samples(suffix string, c *Counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, labels := range slices.Sorted(maps.Keys(c.values)) {
		e.sample(suffix, labels, c.values[labels])
	}
}

func (e *Exposition) sample(suffix, labels string, value float64) {
	fmt.Fprintf(e, "%s%s%s %s\n", e.name, suffix, labels, strconv.FormatFloat(value, 'f', -1, 64))
}

// Counter counts, for each set of labels by itself. The zero value has no samples.
type Counter struct {
	mu     sync.Mutex
	values map[string]float64 // by labelText
}

// Add counts up by n, which may be 0 so that there is a sample. Labels are names and values in turn.
func (c *Counter) Add(n float64, labels ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values = map[string]float64{}
	}
	c.values[labelText(labels)] += n
}

// labelText writes names and values as {name="value",...}; none as "".
func labelText(labels []string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	var list []string
	for pair := range slices.Chunk(labels, 2) {
		list = append(list, pair[0]+`="`+escape.Replace(strings.ToValidUTF8(pair[1], "\uFFFD"))+`"`)
	}
	if list == nil {
		return ""
	}
	return "{" + strings.Join(list, ",") + "}"
}
