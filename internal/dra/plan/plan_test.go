package plan_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"sigs.k8s.io/yaml"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/dra/plan"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// server is the inventory of a simulated node.
func server(t testing.TB, n simulate.Node) *discovery.Inventory {
	t.Helper()
	root := filepath.Join(t.TempDir(), "node")
	if _, err := n.Write(root); err != nil {
		t.Fatal(err)
	}
	inv, err := discovery.Scan(t.Context(), root, discovery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

func orion(t testing.TB) *discovery.Inventory { return server(t, simulate.Node{Profile: "orion"}) }

// planned is the plan of wishes, which must be good ones.
func planned(t testing.TB, in *plan.Input, wishes string) *plan.Plan {
	t.Helper()
	if faults := in.ReadWishes("wishes.yaml", []byte(wishes)); len(faults) > 0 {
		t.Fatal(faults)
	}
	p, err := in.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// claim is a claim for a device of a class.
func claim(name, class string) string {
	return fmt.Sprintf(`---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s}
spec:
  devices:
    requests:
      - name: lpus
        exactly: {deviceClassName: %s}
`, name, class)
}

// TestRefusesWhereFabricHasNoArc takes LPUs away at random, and wants a refusal exactly where the fabric of the node has no arc of the
// wanted size, with the reason that the fabric shows.
func TestRefusesWhereFabricHasNoArc(t *testing.T) {
	for name, n := range map[string]simulate.Node{
		"ring of 8":             {Profile: "orion"},
		"two servers' worth":    {Profile: "orion", LPUs: 16},
		"ring with a dead card": {Profile: "orion", Faults: []simulate.Fault{{Name: "unbound", Index: 3}}},
		"two LPUs":              {Profile: "edge"},
	} {
		t.Run(name, func(t *testing.T) {
			inv := server(t, n)
			specs := dra.Slices(inv, dra.Options{Node: "node1"})
			random, refused := rand.New(rand.NewPCG(16, 10)), 0
			for range 100 {
				d := draw(inv, random)
				d.size = []int{1, 2, 4, 8}[random.IntN(4)]
				if !d.check(t, specs) {
					refused++
				}
			}
			if refused < 10 || refused > 90 {
				t.Errorf("%d of 100 refused: the test tries too little", refused)
			}
		})
	}
}

// drawn is a state of a node, and a wish.
type drawn struct {
	*discovery.Inventory

	free []int // healthy LPUs that no claim has
	held []int
	size int
}

func draw(inv *discovery.Inventory, random *rand.Rand) *drawn {
	d := &drawn{Inventory: inv}
	for i := range inv.LPUs {
		switch {
		case random.IntN(2) == 0:
			d.held = append(d.held, i)
		case inv.LPUs[i].Usable:
			d.free = append(d.free, i)
		}
	}
	return d
}

// check plans, and tells whether the wish fits.
func (d *drawn) check(t *testing.T, specs []resourceapi.ResourceSliceSpec) bool {
	t.Helper()
	in := &plan.Input{}
	in.AddSlices("node1", specs)
	for _, i := range d.held {
		in.AddUse("team/job-"+d.LPUs[i].Name, "node1", single(specs, d.LPUs[i].Address))
	}
	class := strings.TrimSuffix(fmt.Sprint("lpu-", d.size), "-1")
	w := planned(t, in, claim("job", class)).Wishes[0]
	fits := len(d.Fabric().Arcs(d.free, d.size)) > 0
	if w.Fits != fits {
		t.Fatalf("%d of %v: the plan says %t, the fabric %t", d.size, d.free, w.Fits, fits)
	}
	if !fits {
		lpus := fmt.Sprint(len(d.free), " LPU")
		if len(d.free) != 1 {
			lpus += "s"
		}
		want := lpus + " free, not connected"
		if len(d.free) < d.size {
			want = fmt.Sprintf("%s free, %d wanted", lpus, d.size)
		}
		if n := len(d.LPUs); d.size > n {
			want = "none of "
		}
		if got := w.Refused[0].Reason; !strings.HasPrefix(got, want) {
			t.Fatalf("%d of %v: %q, expected %q", d.size, d.free, got, want)
		}
		return false
	}
	got := d.given(&w)
	if _, pieces := d.Fabric().Order(got); pieces != 1 || len(got) != d.size {
		t.Fatalf("%d of %v: got %v, in %d pieces", d.size, d.free, got, pieces)
	}
	left := slices.DeleteFunc(slices.Clone(d.free), func(i int) bool { return slices.Contains(got, i) })
	if longest := d.longest(left); w.Left.Longest != longest || w.Left.LPUs != len(left) {
		t.Fatalf("%v left %+v, expected %d LPUs and an arc of %d", d.free, w.Left, len(left), longest)
	}
	return true
}

// given are the indices of the LPUs that a wish got.
func (d *drawn) given(w *plan.Wish) (got []int) {
	for _, device := range w.Devices {
		for _, a := range device.LPUs {
			got = append(got, slices.IndexFunc(d.LPUs, func(l discovery.LPU) bool { return l.Address.String() == a }))
		}
	}
	return got
}

// longest is the largest published size of an arc of LPUs.
func (d *drawn) longest(of []int) int {
	for _, size := range []int{16, 8, 4, 2, 1} {
		if len(d.Fabric().Arcs(of, size)) > 0 {
			return size
		}
	}
	return 0
}

// single is the device of one LPU.
func single(specs []resourceapi.ResourceSliceSpec, a pci.Address) string {
	for _, s := range specs {
		for i := range s.Devices {
			if d := &s.Devices[i]; slices.Equal(dra.MembersOf(d), []pci.Address{a}) {
				return d.Name
			}
		}
	}
	return ""
}

// dumped are slices of nodes with these names as kubectl prints them, and claims that have devices of them: node/device.
func dumped(t testing.TB, specs func(node string) []resourceapi.ResourceSliceSpec, nodes []string, held ...string) []byte {
	t.Helper()
	list := map[string]any{"apiVersion": "v1", "kind": "List"}
	var items []any
	for _, node := range nodes {
		for i, spec := range specs(node) {
			items = append(items, &resourceapi.ResourceSlice{
				TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"},
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", node, i)}, Spec: spec,
			})
		}
	}
	for i, h := range held {
		node, device, _ := strings.Cut(h, "/")
		c := &resourceapi.ResourceClaim{
			TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("held-", i), Namespace: "team"},
		}
		c.Status.Allocation = &resourceapi.AllocationResult{}
		c.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{
			{Request: "lpus", Driver: dra.DriverName, Pool: node, Device: device},
		}
		items = append(items, c)
	}
	list["items"] = items
	data, err := json.MarshalIndent(list, "", "    ")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// deviceOf is the first device of a size.
func deviceOf(specs []resourceapi.ResourceSliceSpec, size int) string {
	for _, s := range specs {
		for i := range s.Devices {
			if dra.Size(&s.Devices[i]) == size {
				return s.Devices[i].Name
			}
		}
	}
	return ""
}

func cluster(t testing.TB, file string, data []byte) *plan.Input {
	t.Helper()
	in := &plan.Input{}
	if faults := in.ReadCluster(file, data); len(faults) > 0 {
		t.Fatal(faults)
	}
	return in
}

// TestDump plans against dumps of a cluster, as JSON and as YAML.
func TestDump(t *testing.T) {
	inv := orion(t)
	specs := func(node string) []resourceapi.ResourceSliceSpec { return dra.Slices(inv, dra.Options{Node: node}) }
	whole := "a/" + deviceOf(specs("a"), 8)
	data := dumped(t, specs, []string{"a", "b", "c"}, whole)
	yamls, err := yaml.JSONToYAML(data)
	if err != nil {
		t.Fatal(err)
	}
	for file, data := range map[string][]byte{"dump.json": data, "dump.yaml": yamls} {
		p := planned(t, cluster(t, file, data), claim("one", "lpu-8")+claim("two", "lpu-8")+claim("three", "lpu-8"))
		var nodes []string
		for _, w := range p.Wishes {
			nodes = append(nodes, w.Node)
		}
		if !slices.Equal(nodes, []string{"b", "c", ""}) || p.Nodes != 3 || !slices.Equal(p.Wishes[0].Others, []string{"c"}) {
			t.Errorf("%s: %v of %d nodes, others %v", file, nodes, p.Nodes, p.Wishes[0].Others)
		}
		refused := p.Wishes[2].Refused
		if len(refused) != 3 || refused[0].Requests[0].Holders[0].Claim != "team/held-0" ||
			refused[1].Requests[0].Holders[0].Claim != "default/one" {
			t.Errorf("%s: %+v", file, refused)
		}
	}
}

// TestIncompletePool leaves a slice out: the scheduler passes over such a pool, and the plan says so, with the line.
func TestIncompletePool(t *testing.T) {
	inv := orion(t)
	data := dumped(t, func(node string) []resourceapi.ResourceSliceSpec {
		return dra.Slices(inv, dra.Options{Node: node})[1:]
	}, []string{"a"}, "a/gone")
	p := planned(t, cluster(t, "dump.json", data), claim("one", "lpu"))
	if p.Fits() || !strings.Contains(p.Wishes[0].Refused[0].Reason, "is incomplete: 1 of 2 slices") {
		t.Errorf("%+v", p.Wishes[0])
	}
	if len(p.Warnings) != 2 || p.Warnings[0].Line < 2 ||
		!strings.Contains(p.Warnings[0].Message, "the pool lpu.hyperaccel.ai/a is incomplete") ||
		!strings.Contains(p.Warnings[1].Message, "team/held-0 has the device gone, which a does not publish") {
		t.Errorf("%v", p.Warnings)
	}
}

// TestTaintRule applies a rule of an administrator, which is in no slice.
func TestTaintRule(t *testing.T) {
	inv := orion(t)
	in := &plan.Input{}
	in.AddSlices("a", dra.Slices(inv, dra.Options{Node: "a"}))
	rule := `{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "drain"}, "spec": {
		"deviceSelector": {"driver": "lpu.hyperaccel.ai", "pool": "a"}, "taint": {"key": "example.com/drain", "effect": "NoSchedule"}}}`
	if faults := in.ReadClaims("rule.json", []byte(rule)); len(faults) > 0 {
		t.Fatal(faults)
	}
	w := planned(t, in, claim("one", "lpu-2")).Wishes[0]
	if w.Fits || w.Refused[0].Requests[0].Tainted != 8 || w.Refused[0].Requests[0].Taints[0].Key != "example.com/drain" {
		t.Errorf("%+v", w)
	}
}

// TestFirstAvailable takes the second alternative where the first does not fit, and prefers a node where it does.
func TestFirstAvailable(t *testing.T) {
	wish := `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: four-else-two}
spec:
  spec:
    devices:
      requests:
        - name: lpus
          firstAvailable:
            - {name: four, deviceClassName: lpu-4}
            - {name: two, deviceClassName: lpu-2}
`
	inv := orion(t)
	specs := func(node string) []resourceapi.ResourceSliceSpec { return dra.Slices(inv, dra.Options{Node: node}) }
	scattered := []string{}
	for _, i := range []int{1, 4, 7} {
		scattered = append(scattered, "a/"+single(specs("a"), inv.LPUs[i].Address))
	}
	w := planned(t, cluster(t, "dump.json", dumped(t, specs, []string{"a"}, scattered...)), wish).Wishes[0]
	if !w.Fits || w.Devices[0].Request != "lpus/two" {
		t.Errorf("%+v", w)
	}
	w = planned(t, cluster(t, "dump.json", dumped(t, specs, []string{"a", "b"}, scattered...)), wish).Wishes[0]
	if w.Node != "b" || w.Devices[0].Request != "lpus/four" || !slices.Equal(w.Others, []string{"a"}) {
		t.Errorf("%+v", w)
	}
}

// TestPod plans a pod with a claim of a template, a claim that the cluster has given already, and extended resources.
func TestPod(t *testing.T) {
	inv := orion(t)
	specs := func(node string) []resourceapi.ResourceSliceSpec { return dra.Slices(inv, dra.Options{Node: node}) }
	two := "b/" + deviceOf(specs("b"), 2)
	in := cluster(t, "dump.json", dumped(t, specs, []string{"a", "b"}, two))
	wish := `
apiVersion: v1
kind: Pod
metadata: {name: server, namespace: team}
spec:
  nodeName: b
  resourceClaims:
    - {name: had, resourceClaimName: held-0}
    - {name: new, resourceClaimTemplateName: two}
  initContainers:
    - name: first
      image: x
      resources: {limits: {hyperaccel.ai/lpu: 1}}
  containers:
    - name: main
      image: x
      resources:
        limits: {hyperaccel.ai/lpu: "1"}
        claims: [{name: had}, {name: new}]
    - name: pair
      image: x
      resources: {requests: {hyperaccel.ai/lpu: 2}, limits: {hyperaccel.ai/lpu: 2}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two, namespace: team}
spec:
  spec: {devices: {requests: [{name: lpus, exactly: {deviceClassName: lpu-2}}]}}
`
	p := planned(t, in, wish)
	w := p.Wishes[0]
	if len(p.Wishes) != 1 || !w.Fits || w.Node != "b" || len(w.Notes) != 1 {
		t.Fatalf("%+v", p)
	}
	var got []string
	for _, d := range w.Devices {
		got = append(got, fmt.Sprint(d.Claim, " ", d.Request, " ", len(d.LPUs)))
	}
	// The init container uses the LPU of main, so it has no request of its own.
	want := []string{
		"team/held-0 lpus 2", "team/server-new lpus 2",
		"team/server-extended-resources container-1-request-0 1", "team/server-extended-resources container-2-request-0 2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestReasons holds what is said of refusals that the fabric does not show.
func TestReasons(t *testing.T) {
	inv := orion(t)
	specs := dra.Slices(inv, dra.Options{Node: "node1"})
	request := func(exactly string) string {
		return strings.Replace(claim("job", "lpu"), "{deviceClassName: lpu}", exactly, 1)
	}
	among := func(lpus string) string {
		return `selectors: [{cel: {expression: "device.attributes['lpu.hyperaccel.ai'].lpus in [` + lpus + `]"}}]}`
	}
	for name, c := range map[string]struct {
		held []int
		wish string
		want string
	}{
		"nothing matches": {
			nil, request(`{deviceClassName: lpu, selectors: [{cel: {expression: "device.driver == ''"}}]}`),
			"none of 25 devices is what lpu asks for",
		},
		"more than there are": {nil, request("{deviceClassName: lpu-4, count: 3}"), "8 LPUs free, 12 wanted"},
		"devices that overlap": {
			[]int{1, 5}, request("{deviceClassName: lpu-2, count: 3}"),
			"4 of 8 devices free, but not 3 that share no LPU and meet the constraints",
		},
		"one of two that are asked for": {[]int{0, 4}, request("{deviceClassName: lpu-2, " + among("'0-1'")), "1 LPU free, 2 wanted"},
		"others are connected": {
			[]int{1}, request("{deviceClassName: lpu-2, " + among("'0-1', '1-2'")),
			"2 LPUs free and connected, but not those that the selectors ask for",
		},
		"several requests": {
			[]int{3}, claim("job", "lpu-4") + "      - {name: more, exactly: {deviceClassName: lpu-4}}\n",
			"7 LPUs free, 8 wanted by all requests together",
		},
		"all": {[]int{3}, request("{deviceClassName: lpu, allocationMode: All}"), "it asks for all 8 devices: 1 not free"},
	} {
		t.Run(name, func(t *testing.T) {
			in := &plan.Input{}
			in.AddSlices("node1", specs)
			for _, i := range c.held {
				in.AddUse("team/job", "node1", single(specs, inv.LPUs[i].Address))
			}
			w := planned(t, in, c.wish).Wishes[0]
			if w.Fits || w.Refused[0].Reason != c.want {
				t.Errorf("%+v, expected %s", w, c.want)
			}
		})
	}
}

// TestSamples plans the pods and templates that are shipped, and compares the built-in classes with those of the manifest.
func TestSamples(t *testing.T) {
	inv := orion(t)
	in := &plan.Input{}
	for node := range 5 {
		name := fmt.Sprint("node", node)
		sockets := func(*discovery.Inventory) map[int]int { return map[int]int{0: 0, 1: 1} }
		in.AddSlices(name, dra.Slices(inv, dra.Options{Node: name, Sockets: sockets}))
	}
	p := planned(t, in, read(t, "../../../examples/kubernetes/dra-pods.yaml"))
	for _, w := range p.Wishes {
		if !w.Fits {
			t.Errorf("%s does not fit: %+v", w.Name, w.Refused)
		}
	}
	if len(p.Wishes) < 5 {
		t.Errorf("only %d wishes", len(p.Wishes))
	}
	var classes []*resourceapi.DeviceClass
	for text := range strings.SplitSeq(read(t, "../../../packaging/kubernetes/lpuctl-dra.yaml"), "\n---\n") {
		class := &resourceapi.DeviceClass{}
		if err := yaml.Unmarshal([]byte(text), class); err == nil && class.Kind == "DeviceClass" {
			class.TypeMeta, class.Labels = metav1.TypeMeta{}, nil
			classes = append(classes, class)
		}
	}
	built := plan.Classes()
	for _, class := range built {
		class.Spec.ExtendedResourceName = nil // an option of the chart
	}
	if diff := cmp.Diff(classes, built); diff != "" {
		t.Error(diff)
	}
}

// TestClassesPassOverOtherDrivers: an error in a selector would keep pods from every node that has somebody else's devices too.
func TestClassesPassOverOtherDrivers(t *testing.T) {
	size := int64(1)
	for _, class := range plan.Classes() {
		selector := cel.GetCompiler(cel.Features{}).CompileCELExpression(class.Spec.Selectors[0].CEL.Expression, cel.Options{})
		if selector.Error != nil {
			t.Fatal(selector.Error)
		}
		for _, other := range []cel.Device{
			{Driver: "gpu.example.com"},
			{Driver: "gpu.example.com", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"size": {IntValue: &size}}},
		} {
			if matches, _, err := selector.DeviceMatches(t.Context(), other); matches || err != nil {
				t.Errorf("%s: %v, %v", class.Name, matches, err)
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
