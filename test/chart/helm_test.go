//go:build chart

package chart

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// tool is what an environment variable names, which `make test-chart` sets.
func tool(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Fatalf("%s is not set: run make test-chart", variable)
	}
	return path
}

// output runs a program that has to end well.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, failed.Stderr)
		}
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return string(out)
}

// eachHelm runs a test with every release of Helm that HELM names, on its own.
func eachHelm(t *testing.T, test func(t *testing.T, helm string)) {
	t.Helper()
	for helm := range strings.FieldsSeq(tool(t, "HELM")) {
		t.Run(filepath.Base(filepath.Dir(helm)), func(t *testing.T) { test(t, helm) })
	}
}

// template renders a chart as the release lpuctl in lpuctl-system, with the arguments besides.
func template(chart string, more ...string) []string {
	return append([]string{"template", "lpuctl", chart, "--namespace", "lpuctl-system"}, more...)
}

// documents parses the objects of a manifest.
func documents(t *testing.T, manifest string) (objects []map[string]any) {
	t.Helper()
	for text := range strings.SplitSeq("\n"+manifest, "\n---\n") {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if object != nil {
			objects = append(objects, object)
		}
	}
	return objects
}

// sameObjects compares two manifests after parsing.
func sameObjects(t *testing.T, got, want string) {
	t.Helper()
	g, w := documents(t, got), documents(t, want)
	if len(w) == 0 || !reflect.DeepEqual(g, w) {
		t.Errorf("not the same objects:\n%s\nwant:\n%s", got, want)
	}
}

// TestLint: neither the chart nor the packaged chart gives a warning.
func TestLint(t *testing.T) {
	eachHelm(t, func(t *testing.T, helm string) {
		for _, chart := range []string{Dir, tool(t, "PACKAGED")} {
			output(t, helm, "lint", "--strict", chart)
		}
	})
}

// TestManifest: without values the chart is the manifest of the source, and so is the packaged chart, but for a digest.
func TestManifest(t *testing.T) {
	manifest, err := os.ReadFile(Top + "/packaging/kubernetes/lpuctl.yaml")
	if err != nil {
		t.Fatal(err)
	}
	eachHelm(t, func(t *testing.T, helm string) {
		for _, chart := range []string{Dir, tool(t, "PACKAGED")} {
			sameObjects(t, output(t, helm, template(chart, "--set", "createNamespace=true,image.digest=")...), string(manifest))
		}
		if objects := documents(t, output(t, helm, template(Dir)...)); len(objects) != 1 {
			t.Errorf("without createNamespace there are %d objects", len(objects))
		}
		sameObjects(t, output(t, helm, "template", "of-another-name", Dir, "--namespace", "lpuctl-system"), output(t, helm, template(Dir)...))
	})
}

// TestManifestOfDRA: in mode dra and without other values the chart is the manifest of the source, and so is the packaged chart, but for a
// digest.
func TestManifestOfDRA(t *testing.T) {
	manifest, err := os.ReadFile(Top + "/packaging/kubernetes/lpuctl-dra.yaml")
	if err != nil {
		t.Fatal(err)
	}
	eachHelm(t, func(t *testing.T, helm string) {
		for _, chart := range []string{Dir, tool(t, "PACKAGED")} {
			sameObjects(t, output(t, helm, template(chart, "--set", "mode=dra,createNamespace=true,image.draDigest=")...), string(manifest))
		}
	})
}

// TestPolicy: the policy is the sample of the source.
func TestPolicy(t *testing.T) {
	sample, err := os.ReadFile(Top + "/packaging/kubernetes/admission-policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	eachHelm(t, func(t *testing.T, helm string) {
		sameObjects(t, output(t, helm, template(Dir, "--set", "validatingAdmissionPolicy.enabled=true",
			"--show-only", "templates/validatingadmissionpolicy.yaml")...), string(sample))
	})
}

// TestPackaged: the packaged chart has neither its tests nor anything that is not its own, and takes the image by the digest that it was
// packed with.
func TestPackaged(t *testing.T) {
	for name := range strings.FieldsSeq(output(t, "tar", "tzf", tool(t, "PACKAGED"))) {
		if !strings.HasPrefix(name, "lpuctl/") || strings.HasPrefix(name, "lpuctl/tests") {
			t.Errorf("%s is in the package", name)
		}
	}
	eachHelm(t, func(t *testing.T, helm string) {
		for mode, image := range map[string]string{
			"plugin": "hyperaccel/lpuctl@" + tool(t, "DIGEST"), "dra": "hyperaccel/lpuctl-dra@" + tool(t, "DRA_DIGEST"),
		} {
			rendered := output(t, helm, template(tool(t, "PACKAGED"), "--set", "mode="+mode)...)
			if want := "image: " + image + "\n"; !strings.Contains(rendered, want) {
				t.Errorf("no %q in\n%s", want, rendered)
			}
		}
	})
}

// TestUnit runs the suites of helm-unittest in the chart: each value alone.
func TestUnit(t *testing.T) { output(t, tool(t, "HELM_UNITTEST"), "--strict", Dir) }

// TestRefused: what cannot work does not render, and the message says why.
func TestRefused(t *testing.T) {
	cases := []struct{ name, values, says string }{
		{"unknown key", "overlapp: true", "additional properties 'overlapp' not allowed"},
		{"unknown key of metrics", "metrics: {hostport: 1}", "'hostport' not allowed"},
		{"unknown key of a toleration", "tolerations: [{operater: Exists}]", "'operater' not allowed"},
		{"unknown key of seLinuxOptions", "seLinuxOptions: {typ: x}", "'typ' not allowed"},
		{"latest", "image: {tag: latest}", "/image/tag"},
		{"tag in the repository", "image: {repository: 'x:5000/lpuctl:0.1.0'}", "/image/repository"},
		{"digest in the repository", "image: {repository: 'x/lpuctl@sha256:12'}", "/image/repository"},
		{"port in the repository", "image: {repository: 'x:5000/lpuctl'}", ""},
		{"policy", "onCdiOff: ignore", "/onCdiOff"},
		{"kubelet's directory", "kubeletDirectory: k0s", "/kubeletDirectory"},
		{"digest", "image: {digest: sha256:12}", "/image/digest"},
		{"port", "metrics: {port: 0}", "/metrics/port"},
		{"directory", "hostConfig: etc", "/hostConfig"},
		{"feature directory", "nfd: {directory: features.d}", "/nfd/directory"},
		{"number", "podAnnotations: {a: 1}", "/podAnnotations/a"},
		{"no size", "validatingAdmissionPolicy: {sizes: []}", "/validatingAdmissionPolicy/sizes"},
		{"overlap and hostNetwork", "{overlap: true, hostNetwork: true}", "overlap and hostNetwork exclude each other"},
		{"overlap and hostPort", "{overlap: true, metrics: {hostPort: 9477}}", "overlap and metrics.hostPort exclude each other"},
		{"two ports", "{hostNetwork: true, metrics: {hostPort: 9478}}", "metrics.hostPort must be metrics.port"},
		{"overlap in config", "config: {serve: {overlap: true}}", "half of an upgrade without a gap"},
		{"listen in config", "config: {serve: {listen: ':1'}}", "set metrics.port"},
		{"nfd in config", "config: {serve: {nfd: /x}}", "set nfd.enabled and nfd.directory"},
		{"pods in config", "config: {serve: {podResources: /x}}", "set podResources.enabled"},
		{"policy in config", "config: {serve: {onCdiOff: fail}}", "set onCdiOff"},
		{"sockets in config", "config: {serve: {pluginDir: /x}}", "set kubeletDirectory"},
		{"spec in config", "config: {cdi: {specDir: /etc/cdi}}", "config.cdi.specDir names a directory that is not mounted"},
		{"two ring tables", "{ringTable: x, config: {ring: {table: /x}}}", "ringTable and config.ring.table exclude each other"},
		{"topology without a file", "config: {topology: {}}", ""}, // empty, which is none
		{"labels without a file", "config: {topology: {a: b}}", "config.topology needs nfd.enabled"},
		{"label of the selector", "podLabels: {app.kubernetes.io/name: x}", "podLabels cannot set app.kubernetes.io/name"},
		{"root", "extraArgs: [--root, /]", "extraArgs cannot have --root"},
		{"overlap in extraArgs", "extraArgs: [--overlap=true]", "extraArgs cannot have --overlap: set the value overlap"},
		{"listen in extraArgs", "extraArgs: ['--listen=:1']", "set the value metrics.port"},
		{"nfd in extraArgs", "extraArgs: [--nfd, /x]", "set the value nfd"},
		{"pods in extraArgs", "extraArgs: [--pod-resources]", "set the value podResources.enabled"},
		{"resource in extraArgs", "extraArgs: [--resource=example.com/lpu]", "set the value config.serve.resource"},
		{"policy in extraArgs", "extraArgs: [--on-cdi-off, fail]", "set the value onCdiOff"},
		{"sockets in extraArgs", "extraArgs: [--plugin-dir, /x]", "set the value kubeletDirectory"},
		{"mode", "mode: driver", "/mode"},
		{"unknown key of dra", "dra: {size: [1]}", "'size' not allowed"},
		{"no size of dra", "{mode: dra, dra: {sizes: []}}", "/dra/sizes"},
		{"size 0 of dra", "{mode: dra, dra: {sizes: [0]}}", "/dra/sizes/0"},
		{"digest of dra", "image: {draDigest: latest}", "/image/draDigest"},
		{"overlap in mode dra", "{mode: dra, overlap: true}", "overlap is of mode plugin"},
		{"CDI off in mode dra", "{mode: dra, onCdiOff: device-specs}", "onCdiOff device-specs is of mode plugin"},
		{"nfd in mode dra", "{mode: dra, nfd: {enabled: true}}", "nfd.enabled is of mode plugin"},
		{"labels in mode dra", "{mode: dra, config: {topology: [{nodes: ['*']}]}}", "config.topology is of mode plugin"},
		{"pods in mode dra", "{mode: dra, podResources: {enabled: true}}", "podResources.enabled is of mode plugin"},
		{"sizes in mode dra", "{mode: dra, validatingAdmissionPolicy: {enabled: true}}", "validatingAdmissionPolicy is of mode plugin"},
		{"extended resources of the plugin", "extendedResources: true", "extendedResources is of mode dra"},
		{"eviction of the plugin", "dra: {noExecute: true}", "dra.noExecute is of mode dra"},
		{"sizes of the plugin", "dra: {sizes: [1, 2]}", "dra.sizes is of mode dra"},
		{"draining in mode dra", "{mode: dra, dra: {draining: true}}", "dra.draining is of mode plugin"},
		{"draining on the node's network", "{dra: {draining: true}, hostNetwork: true}", "dra.draining and hostNetwork exclude each other"},
		{"sizes while it drains", "dra: {draining: true, sizes: [1, 2]}", ""},
		{"default sizes of the plugin", "dra: {sizes: [1, 2, 4, 8]}", ""},
		{"owner in extraArgs", "extraArgs: [--owner, dra]", "set the value mode"},
		{"owner in extraArgs of dra", "{mode: dra, extraArgs: [--owner=plugin]}", "set the value mode"},
		{"sizes in extraArgs", "{mode: dra, extraArgs: [--sizes, '1']}", "set the value dra.sizes"},
		{"eviction in extraArgs", "{mode: dra, extraArgs: [--no-execute]}", "set the value dra.noExecute"},
		{"kubelet in extraArgs", "{mode: dra, extraArgs: [--kubelet-dir=/x]}", "set the value kubeletDirectory"},
		{"node in extraArgs of dra", "{mode: dra, extraArgs: [--node-name, x]}", "mode dra gives it itself"},
		{"pod in extraArgs of dra", "{mode: dra, extraArgs: [--pod-uid, x]}", "mode dra gives it itself"},
		{"spec in extraArgs of dra", "{mode: dra, extraArgs: [--spec-dir, /etc/cdi]}", "extraArgs cannot have --spec-dir"},
		{"root in extraArgs of dra", "{mode: dra, extraArgs: [--root, /]}", "extraArgs cannot have --root"},
		{"spec in extraArgs", "extraArgs: [--spec-dir, /etc/cdi]", "extraArgs cannot have --spec-dir"},
	}
	eachHelm(t, func(t *testing.T, helm string) {
		for _, c := range cases {
			file := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(file, []byte(c.values), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(helm, template(Dir, "--values", file)...).CombinedOutput()
			if (err == nil) != (c.says == "") || !strings.Contains(string(out), c.says) {
				t.Errorf("%s: %s: %v, want %q in %s", c.name, c.values, err, c.says, out)
			}
		}
	})
}

// everything switches on what can be on together.
const everything = `
createNamespace: true
overlap: true
metrics: {podMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}
config: {serve: {numa: auto}}
nfd: {enabled: true}
podResources: {enabled: true}
validatingAdmissionPolicy: {enabled: true}
seLinuxOptions: {type: container_device_plugin_t}
tolerations: [{operator: Exists}]
`

// render renders the chart with values, and the ring table of a file if one is given.
func render(t *testing.T, helm, values, ringTable string) []map[string]any {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	more := []string{"--values", file}
	if ringTable != "" {
		more = append(more, "--set-file", "ringTable="+ringTable)
	}
	return documents(t, output(t, helm, template(Dir, more...)...))
}

// everythingOfDRA does so in mode dra.
const everythingOfDRA = `
mode: dra
createNamespace: true
extendedResources: true
dra: {noExecute: true}
metrics: {podMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}
config: {leases: {pool: [lpu7]}}
seLinuxOptions: {type: container_device_plugin_t}
tolerations: [{operator: Exists}]
`

// ofAllModes are the objects of both.
var ofAllModes = []string{
	"v1 Namespace/lpuctl-system", "v1 ConfigMap/lpuctl", "v1 ConfigMap/lpuctl-dashboard", "apps/v1 DaemonSet/lpuctl",
	"monitoring.coreos.com/v1 PodMonitor/lpuctl", "monitoring.coreos.com/v1 PrometheusRule/lpuctl",
}

// TestEverything: with all of it on each object has its kind and the namespace, and no two are the same.
func TestEverything(t *testing.T) {
	wantObjects(t, everything, append([]string{
		"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy/lpu-sizes.hyperaccel.ai",
		"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding/lpu-sizes.hyperaccel.ai",
	}, ofAllModes...))
}

// TestEverythingOfDRA: likewise.
func TestEverythingOfDRA(t *testing.T) {
	wantObjects(t, everythingOfDRA, append([]string{
		"v1 ServiceAccount/lpuctl-dra", "rbac.authorization.k8s.io/v1 ClusterRole/lpuctl-dra",
		"rbac.authorization.k8s.io/v1 ClusterRoleBinding/lpuctl-dra",
		"resource.k8s.io/v1 DeviceClass/lpu", "resource.k8s.io/v1 DeviceClass/lpu-2", "resource.k8s.io/v1 DeviceClass/lpu-4",
		"resource.k8s.io/v1 DeviceClass/lpu-8",
		"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy/lpu-slices.hyperaccel.ai",
		"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding/lpu-slices.hyperaccel.ai",
		"admissionregistration.k8s.io/v1 MutatingAdmissionPolicy/lpu-extended-resources.hyperaccel.ai",
		"admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding/lpu-extended-resources.hyperaccel.ai",
		"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy/lpu-extended-resources.hyperaccel.ai",
		"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding/lpu-extended-resources.hyperaccel.ai",
	}, ofAllModes...))
}

// clusterWide are the kinds that have no namespace.
var clusterWide = regexp.MustCompile(` (Namespace|ClusterRole(Binding)?|DeviceClass|(Validating|Mutating)AdmissionPolicy(Binding)?)/`)

// wantObjects renders the chart with values and wants these objects, and no others.
func wantObjects(t *testing.T, values string, want []string) {
	t.Helper()
	eachHelm(t, func(t *testing.T, helm string) {
		seen := map[string]bool{}
		for _, o := range render(t, helm, values, "") {
			metadata, _ := o["metadata"].(map[string]any)
			key := fmt.Sprint(o["apiVersion"], " ", o["kind"], "/", metadata["name"])
			if seen[key] {
				t.Errorf("%s is there twice", key)
			}
			seen[key] = true
			labels, _ := metadata["labels"].(map[string]any)
			if labels["app.kubernetes.io/name"] != "lpuctl" && metadata["namespace"] != nil {
				t.Errorf("%s has the labels %v", key, labels)
			}
			if in := metadata["namespace"]; clusterWide.MatchString(key) != (in == nil) || in != nil && in != "lpuctl-system" {
				t.Errorf("%s is in namespace %v", key, in)
			}
		}
		for _, key := range want {
			if !seen[key] {
				t.Errorf("there is no %s", key)
			}
			delete(seen, key)
		}
		if len(seen) > 0 {
			t.Errorf("%v besides", seen)
		}
	})
}

// TestConfiguration: lpuctl takes what is in the ConfigMap, laid out as the kubelet does it, by links that it swaps; and so does every
// command that somebody runs in the pod, because the files are in its environment.
func TestConfiguration(t *testing.T) {
	lpuctl, node := tool(t, "LPUCTL"), filepath.Join(t.TempDir(), "node")
	output(t, lpuctl, "simulate", node)
	table := filepath.Join(t.TempDir(), "table.json") // the node has none of its own
	if err := os.Rename(filepath.Join(node, "opt/hyperdex/hrt/xclbin/table.json"), table); err != nil {
		t.Fatal(err)
	}
	eachHelm(t, func(t *testing.T, helm string) {
		dir := t.TempDir()
		for _, o := range render(t, helm, "config: {serve: {requireConnected: true}}", table) {
			switch o["kind"] {
			case "ConfigMap":
				mountConfigMap(t, o, dir)
			case "DaemonSet":
				for name, value := range environment(t, o) {
					t.Setenv(name, strings.Replace(value, "/config/", dir+"/", 1))
				}
			}
		}
		for command, has := range map[string]string{
			"config show":  "requireConnected: true",
			"config check": filepath.Join(dir, "config.yaml"),
			"ring check":   filepath.Join(dir, "ring.yaml"),
			"list -o json": filepath.Join(dir, "ring.yaml"),
			"health":       "healthy",
		} {
			said, err := exec.Command(lpuctl, append([]string{"--root", node}, strings.Fields(command)...)...).CombinedOutput()
			if text := string(said); err != nil || !strings.Contains(text, has) || strings.Contains(text, "error: ") {
				t.Errorf("%s: %v, want %q in\n%s", command, err, has, text)
			}
		}
	})
}

// mountConfigMap lays out a ConfigMap in a directory as the kubelet does.
func mountConfigMap(t *testing.T, object map[string]any, dir string) {
	t.Helper()
	const data = "..2026"
	if err := errors.Join(os.Mkdir(filepath.Join(dir, data), 0o755), os.Symlink(data, filepath.Join(dir, "..data"))); err != nil {
		t.Fatal(err)
	}
	files, _ := object["data"].(map[string]any)
	for name, text := range files {
		err := errors.Join(os.WriteFile(filepath.Join(dir, data, name), []byte(fmt.Sprint(text)), 0o600),
			os.Symlink("..data/"+name, filepath.Join(dir, name)))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// environment is that of the DaemonSet's container, without what the kubelet fills in.
func environment(t *testing.T, object map[string]any) map[string]string {
	t.Helper()
	data, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var daemonSet struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Env []struct {
							Name  string `json:"name"`
							Value string `json:"value"`
						} `json:"env"`
					} `json:"containers"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &daemonSet); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for _, e := range daemonSet.Spec.Template.Spec.Containers[0].Env {
		if e.Value != "" {
			env[e.Name] = e.Value
		}
	}
	return env
}

// inPod is a command of lpuctl or of the driver that is run in a pod.
var inPod = regexp.MustCompile(`-- (lpuctl|lpuctl-dra) --root /host (.*)`)

// TestCommands: every command of lpuctl and of the driver in an alert is one.
func TestCommands(t *testing.T) {
	alerts, err := Alerts()
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{"lpuctl": tool(t, "LPUCTL"), "lpuctl-dra": tool(t, "LPUCTL_DRA")}
	run := map[string]bool{}
	for _, a := range alerts {
		for i, text := range strings.Split(a.Annotations["description"], "`") {
			if i%2 == 0 || strings.HasPrefix(text, "--") {
				continue
			}
			_, command, found := strings.Cut(text, "lpuctl ")
			program := "lpuctl"
			if strings.HasPrefix(text, "kubectl") {
				m := inPod.FindStringSubmatch(text)
				if found = m != nil; found {
					program, command = m[1], m[2]
				}
			}
			if !found {
				if !strings.HasPrefix(text, "kubectl ") && !strings.HasPrefix(text, "systemctl ") {
					t.Errorf("%s: %q is no command", a.Alert, text)
				}
				continue
			}
			var words []string
			for word := range strings.FieldsSeq(command) {
				if strings.ContainsAny(word[:1], "-{L") { // a flag, a label, or a name that people put in
					break
				}
				words = append(words, word)
			}
			run[program] = true
			// An unknown command gets the help of the one above it.
			usage := "\n  " + strings.Join(append([]string{program}, words...), " ") + " "
			if help := output(t, programs[program], append(words, "--help")...); !strings.Contains(help, usage) {
				t.Errorf("%s: %q is no command", a.Alert, text)
			}
		}
	}
	if len(run) < len(programs) {
		t.Errorf("only commands of %v were tried", run)
	}
}
