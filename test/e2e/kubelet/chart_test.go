package kubelet

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hyperaccel/lpuctl/test/await"
)

// chartSamples is for each value of the chart one that is not the default, as YAML, with what it needs besides.
var chartSamples = map[string]string{
	"mode":                              `mode: dra`,
	"image.repository":                  `image: {repository: registry.example:5000/lpuctl}`,
	"image.tag":                         `image: {tag: v9.9.9}`,
	"image.digest":                      `image: {digest: "sha256:` + strings.Repeat("0123456789abcdef", 4) + `"}`,
	"image.draDigest":                   `{mode: dra, image: {draDigest: "sha256:` + strings.Repeat("0123456789abcdef", 4) + `"}}`,
	"image.pullPolicy":                  `image: {pullPolicy: Always}`,
	"imagePullSecrets":                  `imagePullSecrets: [{name: registry-key}]`,
	"createNamespace":                   `createNamespace: true`,
	"overlap":                           `overlap: true`,
	"hostNetwork":                       `hostNetwork: true`,
	"metrics.port":                      `metrics: {port: 9999}`,
	"metrics.hostPort":                  `metrics: {hostPort: 9477}`,
	"metrics.podMonitor.enabled":        `metrics: {podMonitor: {enabled: true}}`,
	"metrics.podMonitor.interval":       `metrics: {podMonitor: {enabled: true, interval: 1m}}`,
	"metrics.podMonitor.labels":         `metrics: {podMonitor: {enabled: true, labels: {release: stack}}}`,
	"metrics.prometheusRule.enabled":    `metrics: {prometheusRule: {enabled: true}}`,
	"metrics.prometheusRule.labels":     `metrics: {prometheusRule: {enabled: true, labels: {release: stack}}}`,
	"metrics.dashboard.enabled":         `metrics: {dashboard: {enabled: true}}`,
	"metrics.dashboard.labels":          `metrics: {dashboard: {enabled: true, labels: {grafana_dashboard: "2"}}}`,
	"config":                            `config: {serve: {requireConnected: true, numa: auto}}`,
	"ringTable":                         `ringTable: "rings: [[0, 1]]"`,
	"hostConfig":                        `hostConfig: none`,
	"onCdiOff":                          `onCdiOff: fail`,
	"nfd.enabled":                       `nfd: {enabled: true}`,
	"nfd.directory":                     `nfd: {enabled: true, directory: /var/lib/features.d}`,
	"kubeletDirectory":                  `kubeletDirectory: /var/lib/k0s/kubelet`,
	"podResources.enabled":              `podResources: {enabled: true}`,
	"validatingAdmissionPolicy.enabled": `validatingAdmissionPolicy: {enabled: true}`,
	"validatingAdmissionPolicy.sizes":   `validatingAdmissionPolicy: {enabled: true, sizes: [1, 8]}`,
	"dra.sizes":                         `{mode: dra, dra: {sizes: [1, 2, 16]}}`,
	"dra.noExecute":                     `{mode: dra, dra: {noExecute: true}}`,
	"dra.draining":                      `{dra: {draining: true}}`,
	"extendedResources":                 `{mode: dra, extendedResources: true}`,
	"nodeSelector":                      `nodeSelector: {example.com/lpu: "true"}`,
	"affinity": `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {
  nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}`,
	"tolerations":       `tolerations: [{operator: Exists, effect: NoExecute}]`,
	"priorityClassName": `priorityClassName: system-cluster-critical`,
	"resources":         `resources: {limits: {memory: 128Mi}}`,
	"podAnnotations":    `podAnnotations: {example.com/a: b}`,
	"podLabels":         `podLabels: {example.com/a: b}`,
	"seLinuxOptions":    `seLinuxOptions: {type: container_device_plugin_t}`,
	"extraArgs":         `extraArgs: [--log-level, debug]`,
}

// chartTogether are values that change one another, or the same objects.
var chartTogether = map[string]string{
	"all": `{createNamespace: true, overlap: true, podResources: {enabled: true}, ringTable: "rings: [[0, 1]]",
		config: {topology: [{nodes: ["*"], labels: {switch: leaf-1}}]}, nfd: {enabled: true}, validatingAdmissionPolicy: {enabled: true},
		metrics: {podMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}}`,
	"all of mode dra": `{mode: dra, createNamespace: true, extendedResources: true, dra: {sizes: [4, 2, 1], noExecute: true},
		ringTable: "rings: [[0, 1]]", config: {leases: {pool: [lpu7]}, serve: {resource: example.com/lpu}},
		metrics: {podMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}}`,
	"mode dra on the node's network": `{mode: dra, hostNetwork: true, metrics: {port: 9999, hostPort: 9999}}`,
	"mode dra of another kubelet":    `{mode: dra, kubeletDirectory: /var/lib/k0s/kubelet, metrics: {port: 9999}}`,
	"mode dra and many things":       `{mode: dra, hostConfig: none, seLinuxOptions: {type: container_device_plugin_t}, nodeSelector: {a: b}}`,
	"plugin, and the driver drains":  `{overlap: true, nfd: {enabled: true}, dra: {draining: true}, metrics: {podMonitor: {enabled: true}}}`,
	"one size of mode dra":           `{mode: dra, extendedResources: true, dra: {sizes: [8]}}`,
	"hostNetwork and hostPort":       `{hostNetwork: true, metrics: {hostPort: 9477}}`,
	"hostNetwork and another port":   `{hostNetwork: true, metrics: {port: 9999, hostPort: 9999}}`,
	"overlap and another port":       `{overlap: true, metrics: {port: 9999}}`,
	"podMonitor and annotations":     `{podAnnotations: {example.com/a: b}, metrics: {podMonitor: {enabled: true}}}`,
	"podMonitor and another port":    `{metrics: {port: 9999, podMonitor: {enabled: true}}}`,
	"config without that of hosts":   `{hostConfig: none, config: {serve: {requireConnected: true}}, ringTable: "rings: [[0, 1]]"}`,
	"policy of another resource":     `{validatingAdmissionPolicy: {enabled: true}, config: {serve: {resource: example.com/lpu}}}`,
	"topology and nfd":               `{nfd: {enabled: true}, config: {topology: [{nodes: ["*"], labels: {switch: leaf-1}}]}}`,
	"podResources and nfd":           `{podResources: {enabled: true}, nfd: {enabled: true}}`,
	"digest and tag":                 `{image: {tag: v9.9.9, digest: "sha256:` + strings.Repeat("0123456789abcdef", 4) + `"}}`,
	"nodeSelector and tolerations":   `{nodeSelector: {a: b}, tolerations: [{operator: Exists}]}`,
	"seLinuxOptions and everything":  `{seLinuxOptions: {type: container_device_plugin_t}, overlap: true, podResources: {enabled: true}}`,
}

// chartRefused are values that exclude each other, and what Helm says then.
var chartRefused = map[string][2]string{
	"overlap and hostNetwork":           {`{overlap: true, hostNetwork: true}`, "exclude each other"},
	"overlap and hostPort":              {`{overlap: true, metrics: {hostPort: 9477}}`, "exclude each other"},
	"overlap, hostNetwork and hostPort": {`{overlap: true, hostNetwork: true, metrics: {hostPort: 9477}}`, "exclude each other"},
	"overlap in config only":            {`config: {serve: {overlap: true}}`, "set overlap to true"},
	"hostNetwork and another hostPort":  {`{hostNetwork: true, metrics: {hostPort: 9999}}`, "must be metrics.port"},
	"topology without nfd":              {`config: {topology: [{nodes: ["*"], labels: {switch: leaf-1}}]}`, "needs nfd.enabled"},
	"two ring tables":                   {`{ringTable: "rings: [[0, 1]]", config: {ring: {table: /x}}}`, "exclude each other"},
	"latest":                            {`image: {tag: latest}`, "tag"},
	"an unknown key of dra":             {`dra: {size: [1]}`, "size"},
	"a mode that there is not":          {`mode: driver`, "mode"},
	"overlap in mode dra":               {`{mode: dra, overlap: true}`, "overlap is of mode plugin"},
	"nfd in mode dra":                   {`{mode: dra, nfd: {enabled: true}}`, "nfd.enabled is of mode plugin"},
	"extended resources of the plugin":  {`extendedResources: true`, "extendedResources is of mode dra"},
	"an unknown key":                    {`overlapping: true`, "overlapping"},
}

// TestChartValues: whatever the chart renders of a value, alone and with others, the API server takes as it is, with every field known and
// no warning. What does not go together is not rendered.
func TestChartValues(t *testing.T) {
	crds := os.Getenv("MONITORING") + "/crds.yaml"
	need(t, os.Getenv("HELM"))
	newAPIServer(t, plane{})
	if out, err := kubectl("", "create", "-f", crds); err != nil {
		t.Fatal(out, err)
	}
	read := func(text string) (v values) {
		if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return v
	}
	// The objects of a dry run need their namespace.
	for _, object := range render(t, values{"createNamespace": true}) {
		if object["kind"] == "Namespace" {
			if out, err := kubectl(toJSON(t, object), "apply", "-f", "-"); err != nil {
				t.Fatal(out, err)
			}
		}
	}
	await.Until(t, "the API server knows the resources", func() error {
		_, err := kubectl("", "get", "podmonitors,prometheusrules", "--namespace", namespace)
		return err
	})
	defaults, err := template(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	accepted := func(name, text string) {
		t.Helper()
		manifest, err := template(t, read(text))
		if err != nil || manifest == defaults {
			t.Errorf("%s is as without it, or does not render: %v", name, err)
			return
		}
		out, err := kubectl(manifest, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
		if err != nil || strings.Contains(out, "Warning") || strings.Count(out, "server dry run") != len(objects(t, manifest)) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	data, err := os.ReadFile(chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range leaves("", read(string(data))) {
		if chartSamples[path] == "" {
			t.Errorf("chartSamples has no %s", path)
			continue
		}
		accepted(path, chartSamples[path])
	}
	for name, text := range chartTogether {
		accepted(name, text)
	}
	for name, c := range chartRefused {
		if out, err := template(t, read(c[0])); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: %v, want %q\n%s", name, err, c[1], out)
		}
	}
	for _, name := range []string{
		"packaging/kubernetes/lpuctl.yaml", "packaging/kubernetes/lpuctl-dra.yaml", "examples/kubernetes/dra-pods.yaml",
		"examples/kubernetes/pod.yaml",
	} {
		sample, err := os.ReadFile("../../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		out, err := kubectl(string(sample), "apply", "--dry-run=server", "--validate=strict", "-f", "-")
		if err != nil || strings.Contains(out, "Warning") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	// The custom resources are looked at too.
	manifest, err := template(t, read(chartTogether["all"]))
	if err != nil {
		t.Fatal(err)
	}
	for field, wrong := range map[string]string{"  interval:": "  intervall:", "rules:": "rulez:", "maxSurge:": "maxSurges:"} {
		out, err := kubectl(strings.Replace(manifest, field, wrong, 1), "apply", "--dry-run=server", "--validate=strict", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), strings.Trim(wrong, " :")) {
			t.Errorf("%s is accepted: %v %s", wrong, err, out)
		}
	}
}

// leaves are the paths of the values that have no others in them, or for which there is a sample, sorted.
func leaves(above string, v values) (paths []string) {
	for _, key := range slices.Sorted(maps.Keys(v)) {
		inner, ok := v[key].(map[string]any)
		if path := above + key; !ok || len(inner) == 0 || chartSamples[path] != "" {
			paths = append(paths, path)
		} else {
			paths = append(paths, leaves(path+".", inner)...)
		}
	}
	return paths
}
