package plugin

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/internal/uevent"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// everything is a server that has something to say in each of its metrics: all is switched on, each LPU is cordoned, held back, in a
// container and not well, and the kubelet has had each answer to each call. So many pods run; the rest of them has no LPU.
func everything(t testing.TB, lpus, pods int) (server *Server, lister *podLister, root string) {
	t.Helper()
	r := newRig(t, simulate.Node{Profile: "orion", LPUs: lpus}, func(o *Options) { o.OnCDIOff = node.FailOnCDIOff })
	inv, err := discovery.Scan(t.Context(), r.root, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lister, cordons, errors := &podLister{}, health.Cordons{}, uint64(1)
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		lister.ids = append(lister.ids, cdi.AddressName(l.Address))
		if i%4 < 2 {
			lister.run("namespace", fmt.Sprint("pod", i), cdi.AddressName(l.Address), cdi.AddressName(inv.LPUs[i+2].Address))
		}
		cordons[l.Address] = health.Cordon{Reason: "test"}
		l.Reading.AERCorrectable, l.Reading.AERNonFatal, l.Reading.AERFatal = &errors, &errors, &errors
		for _, id := range []finding.ID{finding.LinkDegraded, finding.AERCorrectable, finding.Hot} {
			l.Reasons.Add(id, l.Name, "a test", "")
		}
		if i%2 == 0 { // so each cable is down
			l.Reasons.Add(finding.NoDriver, l.Name, "a test", "")
		}
	}
	judge := health.NewJudge(health.DefaultPolicy(), nil)
	inv.Judge(judge, host.SinceBoot())
	inv.Records = judge.Records()
	for len(lister.pods) < pods {
		lister.run("namespace", fmt.Sprint("other", len(lister.pods)))
	}
	inv.Uevents = &uevent.Counts{Received: 1}
	r.plugin.Node.Beside = func(*discovery.Inventory) (all finding.List) {
		for _, id := range []finding.ID{finding.OtherPlugin, finding.RingSeveral, finding.RingKept, finding.CordonsUnreadable} {
			all.Add(id, "a test", "a test", "")
		}
		return all
	}
	off := finding.New(finding.CDIOff, "", "a test", "")
	r.plugin.Node.Runtime = func() node.Runtime { return node.Runtime{CDI: node.CDIOff, Reason: &off} }
	_, own := r.gated()
	own(owner.DRA)
	r.plugin.Node.Gate.Renew(t.Context())
	r.plugin.Update(t.Context(), found(inv.WithCordons(cordons, nil)))

	m := r.plugin.metrics
	for size := range lpus {
		for _, outcome := range []string{"connected", "unconnected", "unknown", "refused"} {
			m.preferences.Add(1, "size", fmt.Sprint(size+1), "outcome", outcome)
		}
	}
	for _, method := range []string{"GetDevicePluginOptions", "GetPreferredAllocation", "Allocate", "PreStartContainer"} {
		for _, code := range []codes.Code{
			codes.OK, codes.Canceled, codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.ResourceExhausted, codes.Unavailable,
		} {
			m.calls.Add(1, "method", method, "code", code.String())
		}
	}
	server = &Server{Plugin: r.plugin, Resource: DefaultResource, Log: r.plugin.log}
	server.phase.Store(phaseRegistered)
	server.readPods(t.Context(), lister.serve(t, t.TempDir()))
	return server, lister, r.root
}

// scrape is what Prometheus gets.
func scrape(t testing.TB, s *Server) string {
	t.Helper()
	var text bytes.Buffer
	if err := node.WriteMetrics(&text, s.Metrics("version", "1", "goversion", "1")...); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// samples are the lines of a scrape that are samples.
func samples(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// The metrics of serve that are not the plugin's: those of its config file and of the feature file.
var others = []string{"lpuctl_config_valid", "lpuctl_nfd_file_written_timestamp_seconds"}

// TestSeriesAreFew: a server makes no more than so many samples with everything on.
func TestSeriesAreFew(t *testing.T) {
	for lpus, limit := range map[int]int{8: 300, 16: 500} {
		server, _, _ := everything(t, lpus, 100)
		text := scrape(t, server)
		n := len(samples(text)) + len(others)
		t.Logf("%d LPUs: %d samples", lpus, n)
		if n > limit || n < 20*lpus {
			t.Errorf("%d samples of %d LPUs, more than %d or too few:\n%s", n, lpus, limit, text)
		}
	}
}

// TestMetricsAreDocumented: docs/kubernetes.md names each metric that serve writes, and no other.
func TestMetricsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	documented, written := map[string]bool{}, map[string]bool{}
	for _, name := range regexp.MustCompile(`\blpuctl_[a-z_]+`).FindAllString(string(page), -1) {
		documented[strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count")] = true
	}
	server, _, _ := everything(t, 8, 10)
	text := scrape(t, server)
	for _, line := range samples(text) {
		name := regexp.MustCompile(`^[a-z_]+`).FindString(line)
		written[strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count")] = true
	}
	for _, family := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(text, -1) {
		if !written[family[1]] {
			t.Errorf("%s has no sample, though everything is on", family[1])
		}
	}
	for _, name := range others {
		if written[name] {
			t.Errorf("%s is said not to be the plugin's, and the plugin writes it", name)
		}
		written[name] = true
	}
	for name := range written {
		if !documented[name] {
			t.Errorf("docs/kubernetes.md does not name %s", name)
		}
	}
	for name := range documented {
		if !written[name] {
			t.Errorf("docs/kubernetes.md names %s, which is never written", name)
		}
	}
}

// TestScrapeTouchesNothing: what is scraped comes out of memory, with the machine gone and the kubelet away.
func TestScrapeTouchesNothing(t *testing.T) {
	server, lister, root := everything(t, 16, 100)
	before, asked := scrape(t, server), lister.asked.Load()
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	if after := scrape(t, server); after != before || lister.asked.Load() != asked {
		t.Errorf("without the machine:\n%s\nwith it:\n%s\nand the kubelet was asked %d times, not %d", after, before, lister.asked.Load(), asked)
	}
	lister.server.Stop()
	if after := scrape(t, server); after != before {
		t.Errorf("without a kubelet:\n%s\nwith it:\n%s", after, before)
	}
}

// BenchmarkScrape is one scrape of a server of 16 LPUs and 100 pods with everything on.
func BenchmarkScrape(b *testing.B) {
	server, _, _ := everything(b, 16, 100)
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		if err := node.WriteMetrics(io.Discard, server.Metrics("version", "1", "goversion", "1")...); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}
