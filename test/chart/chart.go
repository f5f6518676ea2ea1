// Package chart reads the Helm chart's alerts and dashboard, and what the documentation says of metrics. Its tests hold the chart
// against the manifest, Helm, Prometheus and the program.
package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Top is the top of the source, from this package; Dir is the chart's directory.
const (
	Top = "../.."
	Dir = Top + "/packaging/helm/lpuctl"
)

// Expression is a PromQL expression, and where it stands.
type Expression struct {
	Where string // "alert NAME" or "panel TITLE"
	Text  string
}

// Metrics are the names of lpuctl's metrics in the expression, sorted.
func (e Expression) Metrics() []string {
	names := regexp.MustCompile(`\blpuctl_\w+`).FindAllString(e.Text, -1)
	slices.Sort(names)
	return slices.Compact(names)
}

// Alert is an alerting rule of Prometheus.
type Alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Alerts reads files/rules.yaml.
func Alerts() ([]Alert, error) {
	data, err := os.ReadFile(filepath.Join(Dir, "files/rules.yaml"))
	if err != nil {
		return nil, err
	}
	var file struct {
		Groups []struct {
			Rules []Alert `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	var alerts []Alert
	for _, g := range file.Groups {
		alerts = append(alerts, g.Rules...)
	}
	return alerts, nil
}

// Panel is a panel of a dashboard of Grafana.
type Panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct {
		X int `json:"x"`
		Y int `json:"y"`
		W int `json:"w"`
		H int `json:"h"`
	} `json:"gridPos"`
	Datasource any `json:"datasource"`
	Targets    []struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
		Datasource   any    `json:"datasource"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

// Dashboard is a dashboard of Grafana, as far as tests look at it.
type Dashboard struct {
	SchemaVersion int     `json:"schemaVersion"`
	Panels        []Panel `json:"panels"`
	Templating    struct {
		List []struct {
			Name string `json:"name"`
			Type string `json:"type"`
		} `json:"list"`
	} `json:"templating"`
}

// ReadDashboard reads files/dashboard.json.
func ReadDashboard() (*Dashboard, error) {
	data, err := os.ReadFile(filepath.Join(Dir, "files/dashboard.json"))
	if err != nil {
		return nil, err
	}
	d := &Dashboard{}
	return d, json.Unmarshal(data, d)
}

// Expressions are those of all alerts and panels.
func Expressions() ([]Expression, error) {
	alerts, err := Alerts()
	if err != nil {
		return nil, err
	}
	d, err := ReadDashboard()
	if err != nil {
		return nil, err
	}
	var all []Expression
	for _, a := range alerts {
		all = append(all, Expression{"alert " + a.Alert, a.Expr})
	}
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			all = append(all, Expression{"panel " + p.Title, t.Expr})
		}
	}
	return all, nil
}

// Documented are the metrics in the tables of a page. A name that begins with an underscore there is another ending of the
// name before it: `lpuctl_x_sum`, `_count`.
func Documented(file string) ([]string, error) {
	page, err := os.ReadFile(filepath.Join(Top, file))
	if err != nil {
		return nil, err
	}
	var names []string
	name := regexp.MustCompile("`(lpuctl_\\w+|_\\w+)")
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| `lpuctl_") {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			n := m[1]
			if strings.HasPrefix(n, "_") {
				before := names[len(names)-1]
				n = before[:strings.LastIndex(before, "_")] + n
			}
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: no table of metrics", file)
	}
	return names, nil
}
