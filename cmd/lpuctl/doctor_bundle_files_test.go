package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hyperaccel/lpuctl/internal/bundle"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/pods"
	"github.com/hyperaccel/lpuctl/internal/usage"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// bundledSecret is planted in files that cannot be parsed.
const bundledSecret = "s3cr3tQz7"

// momentText is a time of the log, or of the clock of a node, which is rounded.
var momentText = regexp.MustCompile(`\d{4,}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)`)

// sameOfBundle compares what commands say of a node and of its bundle. Nothing in that is the secret.
func sameOfBundle(t *testing.T, root string, finds []string, commands ...string) {
	t.Helper()
	file := bundleOf(t, root)
	for _, command := range commands {
		want, have := said(t, root, strings.Fields(command)...), said(t, file, strings.Fields(command)...)
		want = strings.ReplaceAll(want, bundledSecret, "a1aa1aaa1") // a message of YAML has it
		if momentText.ReplaceAllString(have, "") != momentText.ReplaceAllString(want, "") {
			t.Errorf("%s says\n%s\nof the bundle, and of the node\n%s", command, have, want)
		}
		for _, id := range finds {
			if command == commands[0] && !strings.Contains(want, id) {
				t.Errorf("%s does not find %s:\n%s", command, id, want)
			}
		}
	}
	b, err := bundle.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range b.Entries {
		if bytes.Contains(e.Data, []byte(bundledSecret)) {
			t.Errorf("%s has the secret: %s", name, e.Data)
		}
	}
}

// TestBundleUnusableFiles: what is said of files that cannot be parsed or read is said of the bundle, which has nothing of their words.
func TestBundleUnusableFiles(t *testing.T) {
	root := bundledNode(t)
	for name, text := range map[string]string{
		"etc/cdi/open.yaml":          "kind: hyperaccel.ai/lpu\ndevices: [" + bundledSecret + "\n",
		"etc/cdi/open.json":          "{\n \"kind\": \"hyperaccel.ai/lpu\",\n \"devices\": [" + bundledSecret,
		"etc/cdi/empty.json":         "",
		"etc/cdi/latin.yaml":         "kind: caf\xe9 " + bundledSecret + "\n",
		"etc/cdi/dir.json":           "dir",
		"etc/cdi/link.json":          "-> /nowhere/" + "at-all",
		"etc/cdi/anchor.yaml":        "kind: hyperaccel.ai/lpu\ndevices: *" + bundledSecret + "\n",
		"etc/cdi/second.yaml":        "cdiVersion: 0.6.0\nkind: a.org/b\ndevices: []\n---\nmore: " + bundledSecret + "\n",
		"etc/lpuctl/ring.yaml":       "rings:\n  - [0, 1\nkind: " + bundledSecret + "\n",
		"var/lib/lpuctl/cordon.json": "{\"cordons\": " + bundledSecret,
		"var/lib/lpuctl/health.json": "{\"boot\": \"" + bundledSecret + "\", ]",
		"run/lpuctl/leases.json":     bundledSecret,
		"etc/containerd/config.toml": "[plugins]\nenable_cdi = tru " + bundledSecret + "\n",
		"usr/bin/containerd":         "",
		"etc/docker/daemon.json":     "{\"features\": " + bundledSecret,
		"usr/bin/dockerd":            "",
	} {
		plant.File(t, filepath.Join(root, name), text)
	}
	large := filepath.Join(root, "etc/cdi/large.json")
	plant.File(t, large, "")
	if err := os.Truncate(large, cdi.SpecMax+1); err != nil {
		t.Fatal(err)
	}
	sameOfBundle(t, root, []string{"spec-syntax", "spec-unreadable", "spec-refused", "spec-second", "ring-", "cordons-unreadable"},
		"doctor -o json", "cdi validate -o json", "list -o json", "runtime check -o json")
	for name, text := range map[string]string{
		"no YAML":        "cdi:\n  kind: [" + bundledSecret + "\n",
		"an unknown key": "cdi:\n  kind: hyperaccel.ai/lpu\npassphrase:\n  kind: " + bundledSecret + "\n",
		"a directory":    "dir",
	} {
		t.Run(name, func(t *testing.T) {
			node := bundledNode(t)
			plant.File(t, filepath.Join(node, "etc/lpuctl/config.yaml"), text)
			sameOfBundle(t, node, nil, "doctor -o json", "config check")
		})
	}
}

// TestBundleHolders: who had an LPU is said of a bundle, with stand-ins for names: processes, leases, reservations, pods.
func TestBundleHolders(t *testing.T) {
	n := newObservedNode(t)
	id := strings.Repeat("0a", 32)
	n.holds(12, 1000, "0::/system.slice/docker-"+id+".scope\n", 0)
	n.plant("proc/12/comm", "vllm\n")
	n.record("run/lpuctl/leases.json", "Leases",
		`"leases":[{"id":"l7","uid":1000,"user":"anna","pid":12,`+n.lpu(1)+`,"since":1,"wish":{"count":1},"grant":{`+n.lpu(1)+`,"reason":""}}]`)
	n.record("var/lib/lpuctl/leases.json", "Reservations",
		`"reservations":[{"id":"r8","uid":1001,"user":"berta","pid":1,`+n.lpu(2)+`,"reason":"left out","since":1,"until":9000000000000000000}]`)
	n.kubelet(podWithLPU(cdi.AddressName(n.machine.Card(3).Address)))
	file := bundleOf(t, n.root)
	for _, command := range []string{"list -o json", "describe lpu0", "allocate -n 4 -o json"} {
		want, have := said(t, n.root, strings.Fields(command)...), said(t, file, strings.Fields(command)...)
		want = strings.NewReplacer("anna", "user-1", "berta", "user-2").Replace(want)
		if momentText.ReplaceAllString(have, "") != momentText.ReplaceAllString(want, "") {
			t.Errorf("%s says\n%s\nof the bundle, and of the node\n%s", command, have, want)
		}
	}
	out := said(t, file, "list", "-o", "wide")
	if !strings.Contains(out, "vllm(12) container 0a0a0a0a0a0a") || !strings.Contains(out, "user-2(1001)") {
		t.Error(out)
	}
	b, err := bundle.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	var holders pods.Recorded
	const want = "pod namespace-1/pod-1, container container-1"
	if ok, err := b.Answer(bundle.Pods, &holders); !ok || err != nil || holders.Holders[n.machine.Card(3).Address] != want {
		t.Errorf("%v %v %v", ok, err, holders)
	}
	r := replay{bundle: b}
	if err := r.replayHolders(n.root); err != nil {
		t.Fatal(err)
	}
	defer r.end()
	of := pods.Node{Root: host.Root(n.root)}
	if have, err := of.Holders(t.Context()); err != nil || have[n.machine.Card(3).Address] != want {
		t.Errorf("%v %v", have, err)
	}
}

// TestBundleUsage: usage of a bundle is what the arbiter said when it was made, of one user too, and not of another time.
func TestBundleUsage(t *testing.T) {
	file := bundleOf(t, bundledNode(t))
	if out := said(t, file, "usage"); !strings.Contains(out, "no arbiter ran") {
		t.Error(out)
	}
	b, err := bundle.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	b.Entries["answers/"+bundle.Usage] = &bundle.Entry{
		Data: []byte(`{"users": [{"uid": 1000, "user": "user-1", "leases": 3}, {"uid": 1001, "user": "user-2", "leases": 5}]}`),
	}
	packed, err := b.Pack()
	if err != nil {
		t.Fatal(err)
	}
	plant.File(t, file, string(packed))
	if out := said(t, file, "usage"); !strings.Contains(out, "user-1(1000)") || !strings.Contains(out, "user-2(1001)") {
		t.Error(out)
	}
	if out := said(t, file, "usage", "--user", "1001"); strings.Contains(out, "user-1") || !strings.Contains(out, "user-2(1001)") {
		t.Error(out)
	}
	if out := said(t, file, "usage", "--since", "7d"); !strings.Contains(out, "leave out --since") {
		t.Error(out)
	}
	var report usage.Report
	if ok, err := b.Answer(bundle.Usage, &report); !ok || err != nil || len(report.Users) != 2 {
		t.Error(ok, err, report)
	}
}
