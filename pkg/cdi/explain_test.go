package cdi

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

// fourLPUs is the inventory of a simulated node.
func fourLPUs(t *testing.T, o Options) *discovery.Inventory {
	t.Helper()
	root := filepath.Join(t.TempDir(), "node")
	if _, err := (simulate.Node{Profile: "orion", LPUs: 4}).Write(root); err != nil {
		t.Fatal(err)
	}
	inv, err := discovery.Scan(t.Context(), root, discovery.Options{Management: o.Management})
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

// variant is a node on which explain is held against the CDI library.
type variant struct {
	options Options
	alter   func(*discovery.Inventory)
	stuck   bool // some collisions have no remedy
}

func variants() map[string]variant {
	same := func(*discovery.Inventory) {}
	return map[string]variant{
		"plain":      {Options{}, same, false},
		"management": {Options{Management: true}, same, false},
		"no table":   {Options{}, func(inv *discovery.Inventory) { inv.RingTable, inv.Rings = nil, nil }, false},
		"left out":   {Options{}, func(inv *discovery.Inventory) { inv.LPUs[2].Nodes = nil }, false},
		"unchecked mounts": {Options{UncheckedMounts: true}, func(inv *discovery.Inventory) {
			for i := range inv.LPUs {
				for j := range inv.LPUs[i].Mounts {
					inv.LPUs[i].Mounts[j].Present = false
				}
			}
		}, false},
		"two driver versions": {Options{}, func(inv *discovery.Inventory) {
			inv.LPUs[1].DriverVersion, inv.LPUs[2].DriverVersion = "2.0.0", "2.0.0"
		}, false},
		"two models": {Options{}, func(inv *discovery.Inventory) {
			l := &inv.LPUs[3]
			l.Model, l.Driver = "other", "other"
			l.Mounts = []discovery.Mount{{HostPath: "/opt/other", ContainerPath: inv.LPUs[0].Mounts[0].HostPath, Present: true}}
		}, false},
		"two models at odds": {Options{}, func(inv *discovery.Inventory) {
			inv.LPUs[3].Model, inv.LPUs[3].Env = "other", []string{"XILINX_XRT=/opt/other"}
		}, true},
	}
}

// got is what a container has, in the words of Edits.
func got(c *oci.Spec) (e Edits) {
	for _, d := range c.Linux.Devices {
		e.Nodes = append(e.Nodes, Node{Path: d.Path})
	}
	for _, m := range c.Mounts {
		e.Mounts = append(e.Mounts, Mount{HostPath: m.Source, ContainerPath: m.Destination})
	}
	for _, text := range c.Process.Env {
		name, value, _ := strings.Cut(text, "=")
		e.Env = append(e.Env, Variable{Name: name, Value: value})
	}
	return bare(e)
}

// bare is edits without their sources, mounts in an order of their own: the library sorts them.
func bare(e Edits) (b Edits) {
	for _, n := range e.Nodes {
		b.Nodes = append(b.Nodes, Node{Path: n.Path})
	}
	for _, m := range e.Mounts {
		b.Mounts = append(b.Mounts, Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath})
	}
	slices.SortFunc(b.Mounts, func(x, y Mount) int { return strings.Compare(x.ContainerPath, y.ContainerPath) })
	for _, v := range e.Env {
		b.Env = append(b.Env, Variable{Name: v.Name, Value: v.Value})
	}
	return b
}

// TestExplainIsWhatTheLibraryInjects for each device, each pair of devices in each order, and all of one family.
func TestExplainIsWhatTheLibraryInjects(t *testing.T) {
	for name, v := range variants() {
		t.Run(name, func(t *testing.T) {
			inv := fourLPUs(t, v.options)
			v.alter(inv)
			spec := mustSpec(t, inv, v.options)
			data, err := Marshal(spec)
			if err != nil {
				t.Fatal(err)
			}
			cache := cacheOf(t, data)
			inject := func(qualified []string) Edits { return got(inject(t, cache, qualified...)) }
			var one, blocks [][]string
			for _, d := range spec.Devices {
				one = append(one, []string{d.Name})
				if strings.HasPrefix(d.Name, "pci-") {
					blocks = append(blocks, []string{d.Name})
				}
			}
			asked := append(slices.Clone(one), slices.Concat(blocks...), slices.Concat(one...))
			for _, a := range one {
				for _, b := range one {
					asked = append(asked, slices.Concat(a, b))
				}
			}
			advised := 0
			for _, words := range asked {
				e, err := Explain(inv, v.options, words)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(inject(e.Devices), bare(e.Edits)); diff != "" {
					t.Fatalf("%v: %s", words, diff)
				}
				if wrong := whatIsWrong(inv, e, inject); wrong != "" && (!v.stuck || !slices.Equal(e.Use, e.Devices)) {
					t.Errorf("%v: use %v %v: %s", words, e.Use, e.UseEnv, wrong)
				}
				if !slices.Equal(e.Use, e.Devices) {
					advised++
				}
			}
			if advised == 0 {
				t.Error("nothing was advised")
			}
		})
	}
}

// whatIsWrong holds the devices to use against what people want: the same LPUs, no variable that two of the devices set
// differently, and lists that name each LPU.
func whatIsWrong(inv *discovery.Inventory, e *Explanation, inject func([]string) Edits) string {
	together := inject(e.Use)
	paths := func(nodes []Node) string {
		var all []string
		for _, n := range nodes {
			all = append(all, n.Path)
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	if paths(together.Nodes) != paths(e.Nodes) {
		return "other nodes: " + paths(together.Nodes)
	}
	values := map[string]string{}
	for _, v := range together.Env {
		values[v.Name] = v.Value
	}
	for _, device := range e.Use {
		for _, v := range inject([]string{device}).Env {
			if values[v.Name] != v.Value {
				return device + " collides: " + v.String()
			}
		}
	}
	for _, v := range e.UseEnv {
		if _, again := values[v.Name]; again {
			return "the devices set it too: " + v.String()
		}
		values[v.Name] = v.Value
	}
	version := inv.LPUs[slices.IndexFunc(inv.LPUs, func(l discovery.LPU) bool { return l.Name == e.LPUs[0] })].DriverVersion
	for _, l := range inv.LPUs {
		if slices.Contains(e.LPUs, l.Name) && l.DriverVersion != version {
			version = ""
		}
	}
	visible := strings.FieldsFunc(values["LPU_VISIBLE_DEVICES"], func(r rune) bool { return r == ',' })
	order := strings.FieldsFunc(values["LPU_RING_ORDER"], func(r rune) bool { return r == ',' })
	switch {
	case len(order) > 0 && len(order) != len(visible):
		return "LPU_RING_ORDER lists " + values["LPU_RING_ORDER"]
	case values["LPU_DRIVER_VERSION"] != version && values["LPU_DRIVER_VERSION"]+values["LPU_VISIBLE_DEVICES"] != "":
		return "LPU_DRIVER_VERSION is " + values["LPU_DRIVER_VERSION"] + ", want " + version
	case len(visible) > 0 && len(visible) != len(e.LPUs): // building blocks by themselves list nothing
		return "LPU_VISIBLE_DEVICES lists " + values["LPU_VISIBLE_DEVICES"]
	}
	return ""
}

func TestExplainNames(t *testing.T) {
	inv := fourLPUs(t, Options{})
	inv.LPUs[3].Nodes, inv.LPUs[3].Reasons = nil, nil
	for words, want := range map[string]string{
		"lpu0,lpu0":           "lpu0",
		"0":                   "lpu0",
		"43:00.1":             "pci-0000-43-00.1",
		"lpu1-0":              "lpu0-1", // as people type it, and in ring order
		"hyperaccel.ai/lpu=1": "lpu1",
		"lpu0-1-2":            "lpu0-1-2",
		"all":                 "all",
		"lpu3":                "lpu3 is left out of the spec: it has no device node",
		"lpu0-2":              "no single CDI device covers lpu0-2: they are no neighbours on a ring, or one has no device node",
		"lpu7":                `no LPU "lpu7"`,
	} {
		e, err := Explain(inv, Options{}, []string{words})
		var got string
		if err != nil {
			got = err.Error()
		} else {
			got = strings.TrimPrefix(strings.Join(e.Devices, " "), DefaultKind+"=")
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, want %s", words, got, want)
		}
	}
	if name := NameOf(inv, nil); name != "" {
		t.Errorf("%s is the name of no LPU", name)
	}
	inv = node(1) // JSON has [] where there is nothing
	inv.LPUs[0].DriverVersion, inv.LPUs[0].Mounts = "", nil
	if e, err := Explain(inv, Options{}, []string{"43:00.1"}); err != nil || e.Env == nil || e.Mounts == nil || e.UseEnv == nil {
		t.Errorf("%+v, %v", e, err)
	}
	inv.LPUs[0].Nodes = nil
	if e, err := Explain(inv, Options{}, []string{"all"}); !errors.Is(err, ErrNoDevices) {
		t.Errorf("got %v, %v: there is no such device", e, err)
	}
}

// TestExplainListsThatMissLPUs: nothing is set twice, and yet the container is told of one LPU and gets two.
func TestExplainListsThatMissLPUs(t *testing.T) {
	e, err := Explain(fourLPUs(t, Options{}), Options{}, []string{"lpu0", "44:00.1"})
	if err != nil {
		t.Fatal(err)
	}
	want := []Collision{{"LPU_VISIBLE_DEVICES", []SetByValue{{"lpu0", "0"}}}, {"LPU_RING_ORDER", []SetByValue{{"lpu0", "0"}}}}
	if diff := cmp.Diff(want, e.Collisions); diff != "" || !slices.Equal(e.Use, []string{"hyperaccel.ai/lpu=lpu0-1"}) {
		t.Errorf("use %v: %s", e.Use, diff)
	}
}
