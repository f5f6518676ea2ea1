package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/dra/plan"
	"github.com/hyperaccel/lpuctl/internal/simulate"
)

// TestFaults gives the bad input of testdata/faults.txtar: each mistake has its line, and a remedy.
func TestFaults(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/faults.txtar")
	if err != nil {
		t.Fatal(err)
	}
	specs := dra.Slices(orion(t), dra.Options{Node: "node1"})
	for cases := range slices.Chunk(archive.Files, 2) {
		name, _ := strings.CutSuffix(cases[0].Name, ".yaml")
		t.Run(name, func(t *testing.T) {
			if cases[1].Name != name+".want" {
				t.Fatalf("%s stands behind %s", cases[1].Name, cases[0].Name)
			}
			got := ""
			for _, f := range faultsOf(t, specs, cases[0].Data) {
				got += strings.ReplaceAll(f.Error(), deviceOf(specs, 1), "DEVICE") + "\n"
				if f.Remedy == "" {
					t.Errorf("%s: no remedy", f)
				}
			}
			if diff := cmp.Diff(string(cases[1].Data), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// faultsOf are the faults of wishes, as they are read or planned.
func faultsOf(t *testing.T, specs []resourceapi.ResourceSliceSpec, wishes []byte) plan.Faults {
	t.Helper()
	in := &plan.Input{}
	in.AddSlices("node1", specs)
	if faults := in.ReadWishes("f.yaml", wishes); len(faults) > 0 {
		return faults
	}
	p, err := in.Plan(t.Context())
	faults, ok := errors.AsType[plan.Faults](err)
	if !ok {
		t.Fatalf("%+v, %v", p, err)
	}
	return faults
}

// TestDumpFaults gives what is no dump.
func TestDumpFaults(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing": {"apiVersion: v1\nkind: List\nitems: []\n", "d.yaml: has no ResourceSlice"},
		"pods too": {
			`{"apiVersion": "v1", "kind": "List",
			"items": [
			{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}]}`,
			`d.yaml:3: Pod "x": a dump has ResourceSlice, ResourceClaim, DeviceClass and DeviceTaintRule`,
		},
		"cut off": {"{\"kind\": \"List\",\n \"items\": [\n  {\"apiVersion\": \"v1\",", "d.yaml:3: not YAML: did not find expected node content"},
		"type": {
			"apiVersion: v1\nkind: List\nitems:\n- apiVersion: resource.k8s.io/v1\n  kind: ResourceSlice\n  spec:\n    driver: 7\n",
			"d.yaml:7: spec.driver: got number, expected text",
		},
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
	// Two LPUs, because the fuzzer takes a minute to shorten each input that is as long as the slices of eight.
	specs := dra.Slices(server(f, simulate.Node{Profile: "edge"}), dra.Options{Node: "node1"})
	archive, err := txtar.ParseFile("testdata/faults.txtar")
	if err != nil {
		f.Fatal(err)
	}
	dump := dumped(f, func(string) []resourceapi.ResourceSliceSpec { return specs }, []string{"node1"}, "node1/"+deviceOf(specs, 2))
	f.Add([]byte(claim("a", "lpu-4")), dump)
	for _, file := range archive.Files {
		f.Add(file.Data, []byte(`apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: b-0}
spec:
  driver: lpu.hyperaccel.ai
  nodeName: b
  pool: {name: b, generation: 1, resourceSliceCount: 1}
  devices: [{name: d, consumesCounters: [{counterSet: s, counters: {pci-0000-41-00-1: {value: 1}}}]}]
`))
	}
	f.Fuzz(func(t *testing.T, wishes, dump []byte) {
		in := &plan.Input{}
		in.AddSlices("node2", specs)
		faults := slices.Concat(in.ReadWishes("wishes", wishes), in.ReadCluster("dump", dump))
		if len(faults) == 0 {
			_, err := in.Plan(t.Context())
			found, ok := errors.AsType[plan.Faults](err)
			if err != nil && !ok {
				t.Error(err)
			}
			faults = found
		}
		for _, f := range faults {
			lines := strings.Count(string(wishes), "\n")
			if f.File == "dump" {
				lines = strings.Count(string(dump), "\n")
			}
			if f.Remedy == "" || f.Line < 0 || f.Line > lines+2 {
				t.Errorf("%s (remedy %q)", f, f.Remedy)
			}
		}
	})
}
