package main

import "strings"

// inputs are the files that commands are given; they lie beside the node.
func inputs() map[string]string {
	return map[string]string{
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
