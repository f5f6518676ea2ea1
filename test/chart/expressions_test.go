package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestExpressions: alerts and dashboard use metrics that there are.
func TestExpressions(t *testing.T) {
	var documented []string
	for _, page := range []string{"docs/kubernetes.md", "docs/dra.md"} {
		names, err := Documented(page)
		if err != nil {
			t.Fatal(err)
		}
		documented = append(documented, names...)
	}
	expressions, err := Expressions()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range expressions {
		metrics := e.Metrics()
		if len(metrics) == 0 {
			t.Errorf("%s: no metric of lpuctl in %s", e.Where, e.Text)
		}
		for _, m := range metrics {
			if !slices.Contains(documented, m) {
				t.Errorf("%s: neither docs/kubernetes.md nor docs/dra.md has %s", e.Where, m)
			}
		}
	}
}

// TestAlerts: each says how bad it is and what to do, and has series in the tests of promtool that let it fire, and such that do not.
func TestAlerts(t *testing.T) {
	alerts, err := Alerts()
	if err != nil {
		t.Fatal(err)
	}
	fires, quiet := samples(t)
	for _, a := range alerts {
		if a.For == "" || !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s: for %q, severity %q", a.Alert, a.For, a.Labels["severity"])
		}
		if a.Annotations["summary"] == "" || !strings.Contains(a.Annotations["description"], "`") {
			t.Errorf("%s: no summary, or no command in the description: %q", a.Alert, a.Annotations)
		}
		if !fires[a.Alert] || !quiet[a.Alert] {
			t.Errorf("%s: testdata/alerts.yaml has firing %t and not firing %t", a.Alert, fires[a.Alert], quiet[a.Alert])
		}
	}
}

// samples are the alerts of which testdata/alerts.yaml wants at some time that they fire, and that they do not.
func samples(t *testing.T) (fires, quiet map[string]bool) {
	t.Helper()
	data, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tests []struct {
			PromQLExprTest []struct {
				Expr       string `json:"expr"`
				ExpSamples []any  `json:"exp_samples"`
			} `json:"promql_expr_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	fires, quiet = map[string]bool{}, map[string]bool{}
	name := regexp.MustCompile(`ALERTS\{alertname="(\w+)",alertstate="firing"\}`)
	for _, test := range file.Tests {
		for _, e := range test.PromQLExprTest {
			m := name.FindStringSubmatch(e.Expr)
			if m == nil {
				t.Fatalf("%s is not about an alert that fires", e.Expr)
			}
			if len(e.ExpSamples) > 0 {
				fires[m[1]] = true
			} else {
				quiet[m[1]] = true
			}
		}
	}
	return fires, quiet
}

// TestDashboard: it belongs to no particular Prometheus, all panels are of the nodes that are chosen, and none lies on another.
func TestDashboard(t *testing.T) {
	d, err := ReadDashboard()
	if err != nil {
		t.Fatal(err)
	}
	if d.SchemaVersion != 39 || len(d.Templating.List) == 0 || d.Templating.List[0].Type != "datasource" {
		t.Errorf("schema %d, variables %v", d.SchemaVersion, d.Templating.List)
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: id %d is taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies on %q or outside, at %d,%d", p.Title, other, x, y)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" {
			checkPanel(t, p)
		}
	}
}

func checkPanel(t *testing.T, p Panel) {
	t.Helper()
	sources := []any{p.Datasource}
	for _, target := range p.Targets {
		sources = append(sources, target.Datasource)
		if !strings.Contains(target.Expr, `{instance=~"$instance"`) {
			t.Errorf("%s: not of the chosen nodes: %s", p.Title, target.Expr)
		}
	}
	for _, s := range sources {
		if source, _ := s.(map[string]any); source["uid"] != "${datasource}" {
			t.Errorf("%s: data source %v", p.Title, s)
		}
	}
	if len(p.Targets) == 0 || p.Description == "" {
		t.Errorf("%s: no query, or no description", p.Title)
	}
	if p.Type == "timeseries" && (p.FieldConfig.Defaults.Unit == "" || p.Targets[0].LegendFormat == "") {
		t.Errorf("%s: no unit, or no legend", p.Title)
	}
}

// TestVersion: chart, manifest and the image that `make image` makes are of one version.
func TestVersion(t *testing.T) {
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(Top, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	var chart struct {
		Version    string `json:"version"`
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal([]byte(read("packaging/helm/lpuctl/Chart.yaml")), &chart); err != nil {
		t.Fatal(err)
	}
	if chart.Version == "" || chart.AppVersion != chart.Version {
		t.Errorf("version %q, appVersion %q", chart.Version, chart.AppVersion)
	}
	image := regexp.MustCompile(`hyperaccel/lpuctl(?:-dra)?:(latest|[0-9][\w.]*)`)
	for _, name := range []string{
		"packaging/kubernetes/lpuctl.yaml", "packaging/kubernetes/lpuctl-dra.yaml", "packaging/image/main.go",
		"docs/kubernetes.md",
	} {
		found := image.FindAllString(read(name), -1)
		if len(found) == 0 {
			t.Errorf("%s: names no image", name)
		}
		for _, f := range found {
			if !strings.HasSuffix(f, ":"+chart.Version) {
				t.Errorf("%s: %s, and the chart is of %s", name, f, chart.Version)
			}
		}
	}
}
