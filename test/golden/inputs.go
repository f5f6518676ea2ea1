package main

import (
	"maps"
	"strings"
)

// inputs are the files that commands are given; they lie beside the node.
func inputs() map[string]string {
	files := map[string]string{
		"four.json": `{"network": [
  {"src_id": 0, "dst_id": 1, "direction": "Right"},
  {"src_id": 1, "dst_id": 2, "direction": "Right"},
  {"src_id": 2, "dst_id": 3, "direction": "Right"},
  {"src_id": 3, "dst_id": 0, "direction": "Right"}],
 "num_device": 4}
`,
		"broken.json": `{"network": [
  {"src_id": 1, "dst_id": 2, "direction": "Right"},
  {"src_id": 2, "dst_id": 2, "direction": "Right"},
  {"src_id": 4, "dst_id": 1, "direction": "Up"}],
 "num_device": 4}
`,
		"chain.yaml": `apiVersion: lpuctl.hyperaccel.ai/v1alpha1
kind: RingTable
links: [{a: lpu0, b: lpu1}, {a: lpu1, b: lpu2}, {a: lpu2, b: lpu3}]
`,
		"config.yaml": `apiVersion: lpuctl.hyperaccel.ai/v1alpha1
kind: Config
cdi: {kind: example.com/card, annotations: true}
ring: {table: /etc/lpuctl/other.yaml}
`,
		"bad-config.yaml": "apiVersion: lpuctl.hyperaccel.ai/v1alpha1\nkind: Config\ncdi: {knid: example.com/card}\n",
		"bad-spec.json": `{
  "cdiVersion": "0.7.0",
  "kind": "hyperaccel.ai/lpu",
  "devices": [{"name": "lpu0", "containerEdits": {
    "additionalGIDs": [1]
  }}]
}
`,
		"specs/a.json": smallSpec,
		"specs/b.json": smallSpec,
		"containerd.toml": `[plugins.cri]
  enable_cdi = true
`,
		"addresses.yaml": strings.ReplaceAll(addressTable, `.1"`, `"`), // whatever the LPU's function is
		"leases.yaml":    "leases: {pool: [\"0000:45:00.1\"], maxLPUs: 2, maxHours: 8}\n",
		"claims.yaml": claim("four", "{deviceClassName: lpu-4}") + "---\n" + claim("eight", "{deviceClassName: lpu-8}") + "---\n" +
			claim("more", "{deviceClassName: lpu, count: 3}"),
		"bad-claims.yaml": claim("big", "{deviceClassName: lpu-44, size: 4}") + "---\napiVersion: apps/v1\nkind: Deployment\n",
		"pods.yaml": `apiVersion: v1
kind: Pod
metadata: {name: server}
spec: {containers: [{name: main, image: server, resources: {limits: {hyperaccel.ai/lpu: 2}}}]}
`,
		"slices.yaml": `apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: a-0}
spec:
  driver: lpu.hyperaccel.ai
  nodeName: a
  pool: {name: a, generation: 1, resourceSliceCount: 1}
  devices:
  - name: lpu1-0000-41-00-1
    attributes: {size: {int: 1}, ring: {string: ring0}, start: {int: 0}, lpus: {string: "0"}}
`,
	}
	maps.Copy(files, badConfigs())
	return files
}

// claim is a ResourceClaim with one request.
func claim(name, exactly string) string {
	return "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: " + name +
		"}\nspec: {devices: {requests: [{name: lpus, exactly: " + exactly + "}]}}\n"
}

// badConfigs are config files with all faults of a kind, section by section.
func badConfigs() map[string]string {
	return map[string]string{
		"bad-keys.yaml": `modles: []
cdi: {specdir: /etc/cdi}
models: [{name: lpu, mach: []}]
ring: {tabel: /x}
health: {graze: 1s, x: 1}
serve: {num: auto, resurce: a/b}
leases: {maxlpu: 4}
topology: [{node: [a], labels: {}}]
`,
		"bad-types.yaml": `cdi: {kind: 5, annotations: maybe}
models: {name: lpu}
ring: [a]
health: {badReadings: many, goodFor: 3, correctableErrors: -1}
serve: {requireConnected: 1, interval: 1, listen: [a]}
leases: {pool: "0000:45:00.1", maxLPUs: 1.5}
topology: [{nodes: a, labels: {rack: 12}}]
`,
		"bad-values.yaml": `apiVersion: lpuctl.hyperaccel.ai/v9
kind: Configuration
cdi: {kind: lpu, specDir: etc/cdi}
ring: {table: ring.yaml}
health: {badReadings: 0, goodReadings: 101, goodFor: -1s, resetGrace: 1h, grace: x, counterQuiet: "0", degradedLink: no way, maxCelsius: 20}
serve: {resource: lpu, pluginDir: x, deviceListStrategy: x, onCdiOff: x, numa: x, interval: 1h,
  listen: x, podResources: x, nfd: x, nfdExpiry: 1s}
leases: {maxHours: -1, maxLPUs: 9999, pool: [lpu0, "0000:45:00.1", "0000:45:00.1"]}
topology: [{nodes: [Node, "[a"], labels: {Rack: r, switch: leaf 7, example.com/x-: value}}, {nodes: [], labels: {}}]
`,
		"bad-models.yaml": `models:
- {name: "", match: [{vendor: "10ee"}], nodes: [klass:x], usableSizes: [0, 65, 1, 1]}
- {name: lpu, mounts: [{hostPath: opt}], env: [A]}
- {name: lpu, match: [{vendor: x, device: "505d"}]}
- {name: Bertha, match: [{vendor: 20fb, device: "0010"}]}
`,
		"bad-twice.yaml":   "cdi: {kind: a.b/c}\ncdi: {kind: a.b/c, kind: a.b/d}\n---\nkind: Config\n",
		"bad-aliases.yaml": "models:\n- &a {name: x}\n- *a\n- {<<: *a}\n-\n",
		"bad-yaml.yaml":    "cdi:\n  kind: [\n",
		"bad-list.yaml":    "- cdi\n",
		"bad-bytes.yaml":   "cdi: {kind: \"a\xff\x00/b\"}\n",
		"bad-nothing.yaml": "",
	}
}

const smallSpec = `{"cdiVersion": "0.3.0", "kind": "hyperaccel.ai/lpu", "devices": [{"name": "x", "containerEdits": {"env": ["A=B"]}}]}
`

// addressTable names the cards of an Orion server, one after the other.
const addressTable = `apiVersion: lpuctl.hyperaccel.ai/v1alpha1
kind: RingTable
rings:
- ["0000:43:00.1", "0000:44:00.1", "0000:45:00.1", "0000:46:00.1", "0000:83:00.1", "0000:84:00.1", "0000:85:00.1", "0000:86:00.1"]
`

// containerdFiles are those of a containerd that has CDI off.
func containerdFiles() map[string]string {
	return map[string]string{
		"usr/bin/containerd":         "",
		"var/lib/dpkg/status":        "Package: containerd\nStatus: install ok installed\nVersion: 1.7.35\n\n",
		"etc/containerd/config.toml": "version = 2\n",
	}
}
