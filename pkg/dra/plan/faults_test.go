package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/pkg/dra"
	"github.com/hyperaccel/lpuctl/pkg/dra/plan"
)

// request is a claim with one request, whose lines begin at line 7.
func request(lines ...string) string {
	return "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: job}\nspec:\n  devices:\n    requests:\n" + strings.Join(lines, "\n") + "\n"
}

// TestFaults gives bad input: each mistake has its line, and a remedy.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing":     {"# a comment\n", []string{"f.yaml: asks for nothing: it has no Pod, ResourceClaim or ResourceClaimTemplate"}},
		"not YAML":    {"a: [\n", []string{"f.yaml:1: not YAML: did not find expected node content"}},
		"tab":         {"kind: Pod\n\tapiVersion: v1\n", []string{"f.yaml:2: not YAML: found a tab character that violates indentation"}},
		"broken JSON": {"{\"kind\": \"Pod\",\n \"apiVersion\": }", []string{"f.yaml:1: has no apiVersion and kind: not an object of Kubernetes"}},
		"text":        {"hello\n", []string{"f.yaml:1: got string, expected an object"}},
		"no kind":     {"metadata: {name: x}\n", []string{"f.yaml:1: has no apiVersion and kind: not an object of Kubernetes"}},
		"unknown kinds": {"\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n", []string{
			`f.yaml:4: Deployment "x": only Pod, ResourceClaim, ResourceClaimTemplate and DeviceClass can be planned`,
			`f.yaml:8: Service "web": only Pod, ResourceClaim, ResourceClaimTemplate and DeviceClass can be planned`}},
		"old version": {"apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: x}\n", []string{
			"f.yaml:1: ResourceClaim of resource.k8s.io/v1beta1: only resource.k8s.io/v1 is known"}},
		"unknown key": {request("      - name: lpus", "        exactly:", "          deviceClassName: lpu", "          size: 4"), []string{
			`f.yaml:10: unknown field "spec.devices.requests[0].exactly.size"`}},
		"double key": {request("      - name: lpus", "        name: lpus", "        exactly: {deviceClassName: lpu}"), []string{
			`f.yaml:8: not YAML: key "name" already set in map`}},
		"type": {request("      - name: lpus", "        exactly:", "          deviceClassName: lpu", "          count: four"), []string{
			"f.yaml:10: spec.devices.requests.exactly.count: got string, expected a whole number"}},
		"no requests": {"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: job}\nspec: {}\n", []string{"f.yaml:4: default/job asks for no device"}},
		"unknown class": {request("      - name: lpus", "        exactly:", "          deviceClassName: lpu-3"), []string{
			`f.yaml:9: default/job request "lpus": there is no DeviceClass "lpu-3"`}},
		"names and forms": {request("      - name: Lpus", "        exactly: {deviceClassName: lpu}", "      - name: b", "      - name: b", "        exactly: {}"), []string{
			`f.yaml:7: default/job has a request with the name "Lpus"`,
			`f.yaml:9: default/job request "b": expected one of exactly and firstAvailable`,
			`f.yaml:10: default/job has two requests with the name "b"`,
			`f.yaml:11: default/job request "b": has no deviceClassName`}},
		"counts": {request("      - name: a", "        exactly: {deviceClassName: lpu, count: -1}", "      - name: b", "        exactly:",
			"          deviceClassName: lpu", "          allocationMode: Most"), []string{
			`f.yaml:8: default/job request "a": count -1`,
			`f.yaml:12: default/job request "b": allocationMode "Most"`}},
		"selector that does not compile": {request("      - name: lpus", "        exactly:", "          deviceClassName: lpu", "          selectors:",
			"            - cel:", "                expression: device.size == 4"), []string{
			`f.yaml:11: default/job request "lpus": the selector does not compile: ERROR: <input>:1:7: undefined field 'size'`}},
		"selector that fails": {request("      - name: lpus", "        exactly:", "          deviceClassName: lpu", "          selectors:",
			"            - cel:", "                expression: device.attributes['lpu.hyperaccel.ai'].colour == 'red'"), []string{
			`f.yaml:8: default/job request "lpus": the selector device.attributes['lpu.hyperaccel.ai'].colour == 'red' fails on the device DEVICE: no such key: colour`}},
		"another driver": {request("      - name: gpus", "        exactly:", "          deviceClassName: gpu") +
			"---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu}\nspec:\n  selectors: [{cel: {expression: device.driver == 'gpu.example.com'}}]\n", []string{
			`f.yaml:8: default/job request "gpus": asks for a device of the driver gpu.example.com; the slices here are of lpu.hyperaccel.ai`}},
		"references": {request("      - name: lpus", "        exactly: {deviceClassName: lpu}") + "    constraints:\n      - requests: [cards]\n        matchAttribute: resource.kubernetes.io/numaNode\n", []string{
			`f.yaml:10: default/job names the request "cards", which it does not have`}},
		"twice": {request("      - name: lpus", "        exactly: {deviceClassName: lpu}") + "---\n" + request("      - name: lpus", "        exactly: {deviceClassName: lpu}"), []string{
			"f.yaml:12: there are two of ResourceClaim default/job"}},
		"pod without": {"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: a, image: x}]\n", []string{`f.yaml:4: Pod "web" asks for no device`}},
		"pod with what is not here": {"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  resourceClaims:\n    - {name: a, resourceClaimName: mine}\n  containers:\n" +
			"    - name: a\n      image: x\n      resources:\n        claims: [{name: b}]\n        limits: {hyperaccel.ai/lpu: 3}\n", []string{
			`f.yaml:6: Pod "web" refers to ResourceClaim default/mine, which is not here`,
			`f.yaml:11: Pod "web", container "a" uses the claim "b", which the pod does not have`,
			`f.yaml:10: Pod "web", container "a": no DeviceClass offers hyperaccel.ai/lpu-3, and 3 single LPUs would not be connected`}},
		"dump among wishes": {"apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: x}\n", []string{
			"f.yaml:2: ResourceSlice: it describes a cluster, and asks for nothing"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := &plan.Input{}
			specs := dra.Slices(orion(t), dra.Options{Node: "node1"})
			in.AddSlices("node1", specs)
			faults := in.ReadWishes("f.yaml", []byte(c.text))
			if len(faults) == 0 {
				p, err := in.Plan(t.Context())
				found, ok := err.(plan.Faults) //nolint:errorlint // the error itself
				if !ok {
					t.Fatalf("%+v, %v", p, err)
				}
				faults = found
			}
			var got []string
			for _, f := range faults {
				got = append(got, strings.ReplaceAll(f.Error(), deviceOf(specs, 1), "DEVICE"))
				if f.Remedy == "" {
					t.Errorf("%s: no remedy", f)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDumpFaults gives what is no dump.
func TestDumpFaults(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":  {"apiVersion: v1\nkind: List\nitems: []\n", "d.yaml: has no ResourceSlice"},
		"pods too": {"{\"apiVersion\": \"v1\", \"kind\": \"List\",\n \"items\": [\n  {\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"x\"}}]}", `d.yaml:3: Pod "x": a dump has ResourceSlice, ResourceClaim, DeviceClass and DeviceTaintRule`},
		"cut off":  {"{\"apiVersion\": \"v1\", \"kind\": \"List\",\n \"items\": [\n  {\"apiVersion\": \"v1\",", "d.yaml:3: not YAML: did not find expected node content"},
		"type":     {"apiVersion: v1\nkind: List\nitems:\n- apiVersion: resource.k8s.io/v1\n  kind: ResourceSlice\n  spec:\n    driver: 7\n", "d.yaml:7: spec.driver: got number, expected text"},
	} {
		t.Run(name, func(t *testing.T) {
			in := &plan.Input{}
			faults := in.ReadCluster("d.yaml", []byte(c.text))
			if len(faults) != 1 || faults[0].Error() != c.want || faults[0].Remedy == "" {
				t.Errorf("got %v, expected %s", faults, c.want)
			}
		})
	}
}

// FuzzPlan reads wishes and dumps that may be anything. Whatever they say, there is a plan or there are faults, each with a line of
// its file.
func FuzzPlan(f *testing.F) {
	inv := orion(f)
	for _, wish := range []string{claim("a", "lpu-4"), request("      - name: lpus", "        firstAvailable: [{name: a, deviceClassName: lpu-2, count: 2}]"),
		"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: a, resources: {limits: {hyperaccel.ai/lpu: 2}}}]\n",
		"{\"kind\": \"DeviceClass\", \"apiVersion\": \"resource.k8s.io/v1\"}", "--- {a: b}\n...\n"} {
		f.Add([]byte(wish), []byte("apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: s}\nspec:\n  driver: lpu.hyperaccel.ai\n  nodeName: b\n"+
			"  pool: {name: b, generation: 1, resourceSliceCount: 1}\n  devices: [{name: d, consumesCounters: [{counterSet: s, counters: {pci-0000-41-00-1: {value: 1}}}]}]\n"))
	}
	f.Fuzz(func(t *testing.T, wishes, dump []byte) {
		in := &plan.Input{}
		in.AddSlices("node1", dra.Slices(inv, dra.Options{Node: "node1"}))
		faults := slices.Concat(in.ReadWishes("wishes", wishes), in.ReadCluster("dump", dump))
		if len(faults) == 0 {
			_, err := in.Plan(t.Context())
			found, isFaults := err.(plan.Faults) //nolint:errorlint // the error itself
			if err != nil && !isFaults {
				t.Error(err)
			}
			faults = found
		}
		for _, f := range faults {
			data := map[string][]byte{"wishes": wishes, "dump": dump}[f.File]
			if f.Remedy == "" || f.Line < 0 || f.Line > strings.Count(string(data), "\n")+2 {
				t.Errorf("%s (remedy %q)", f, f.Remedy)
			}
		}
	})
}
