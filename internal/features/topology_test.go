package features_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/internal/features"
)

func entry(i int) string { return fmt.Sprint("entry ", i) }

func TestTopologyLabels(t *testing.T) {
	topology := features.Topology{
		{Nodes: []string{"node-a*", "node-x"}, Labels: map[string]string{"switch": "leaf-1", "example.com/row": "7"}},
		{Nodes: []string{"node-b?"}, Labels: map[string]string{"switch": "leaf-2", "rack": "r2", "spine": "s1"}},
		{Nodes: []string{"node-*z"}, Labels: map[string]string{"topology.hyperaccel.ai/switch": "leaf-3"}},
	}
	leaf1 := map[string]string{"topology.hyperaccel.ai/switch": "leaf-1", "example.com/row": "7"}
	for node, want := range map[string]map[string]string{
		"node-a":  leaf1,
		"node-a1": leaf1,
		"node-x":  leaf1,
		"node-b1": {"topology.hyperaccel.ai/switch": "leaf-2", "topology.hyperaccel.ai/rack": "r2", "topology.hyperaccel.ai/spine": "s1"},
		"node-cz": {"topology.hyperaccel.ai/switch": "leaf-3"},
		"node-b":  nil,
		"other":   nil,
	} {
		got, entry, err := topology.Labels(node)
		if diff := cmp.Diff(want, got); diff != "" || err != nil || (entry >= 0) != (want != nil) {
			t.Errorf("%s: entry %d, %v %s", node, entry, err, diff)
		}
	}
	_, _, err := topology.Labels("node-az")
	if both, ok := errors.AsType[*features.AmbiguousError](err); !ok || both.First != 0 || both.Second != 2 {
		t.Errorf("node-az: %v", err)
	}
}

func TestTopologyValidate(t *testing.T) {
	long := strings.Repeat("x", 64)
	labels := map[string]string{"switch": "a"}
	one := func(nodes []string, labels map[string]string) features.Topology {
		return features.Topology{{Nodes: nodes, Labels: labels}}
	}
	label := func(key, value string) features.Topology { return one([]string{"n"}, map[string]string{key: value}) }
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprintf("example.com/%d", i)] = "x"
	}
	for name, c := range map[string]struct {
		topology features.Topology
		want     []string // "path: message | remedy", parts of each
	}{
		"good": {features.Topology{
			{Nodes: []string{"a", "b-*", "c.example.com", "[d-f]?"}, Labels: map[string]string{"rack": "R_1.2-3", "example.com/x": "y"}},
			{Nodes: []string{"b"}, Labels: map[string]string{"feature.node.kubernetes.io/x": "y", "network.topology.nvidia.com/leaf": "l"}},
		}, nil},
		"patterns that may overlap":   {features.Topology{{Nodes: []string{"a*"}, Labels: labels}, {Nodes: []string{"*a"}, Labels: labels}}, nil},
		"twice in one entry":          {one([]string{"n1", "n*"}, labels), nil},
		"no nodes":                    {one(nil, labels), []string{"0.nodes: it names no node"}},
		"no labels":                   {one([]string{"n"}, nil), []string{"0.labels: it has no label"}},
		"many labels":                 {one([]string{"n"}, many), []string{"0.labels: it has 65 labels"}},
		"capital":                     {one([]string{"Node"}, labels), []string{`0.nodes.0: "Node" cannot be the name of a node`}},
		"empty name":                  {one([]string{""}, labels), []string{`0.nodes.0: "" cannot be the name of a node`}},
		"open bracket":                {one([]string{"n", "n[1"}, labels), []string{`0.nodes.1: "n[1" is not a pattern`}},
		"pattern of no name":          {one([]string{"n_*"}, labels), []string{`0.nodes.0: "n_*" matches no node, because no name`}},
		"unknown short key":           {label("row", "1"), []string{`0.labels.row: "row" is neither switch, rack or spine | example.com/row`}},
		"kubernetes.io":               {label("topology.kubernetes.io/rack", "1"), []string{"drops such a label | write rack"}},
		"kubernetes.io itself":        {label("kubernetes.io/x", "1"), []string{"node-feature-discovery drops such a label | example.com/x"}},
		"k8s.io":                      {label("topology.k8s.io/x", "1"), []string{"Kubernetes' own"}},
		"like kubernetes.io":          {label("notkubernetes.io/x", "1"), nil},
		"ours":                        {label("hyperaccel.ai/lpu.count", "1"), []string{"labels of its own"}},
		"bad prefix":                  {label("Example.com/x", "1"), []string{"before the slash"}},
		"long prefix":                 {label(strings.Repeat("a", 254)+"/x", "1"), []string{"before the slash"}},
		"bad name":                    {label("example.com/x-", "1"), []string{"after the slash"}},
		"long name":                   {label("example.com/"+long, "1"), []string{"after the slash"}},
		"two slashes":                 {label("example.com/a/b", "1"), []string{"after the slash"}},
		"empty value":                 {label("rack", ""), []string{"0.labels.rack: the value of rack: it is empty"}},
		"bad value":                   {label("rack", "row 1/2"), []string{`"row 1/2" is not the value of a label | write row_1_2`}},
		"value that would be dynamic": {label("rack", "@cpu.model.id"), []string{"is not the value of a label"}},
		"line break":                  {label("rack", "a\nb=c"), []string{"is not the value of a label"}},
		"long value":                  {label("rack", long), []string{"is not the value of a label"}},
		"short and whole": {
			one([]string{"n"}, map[string]string{"rack": "1", "topology.hyperaccel.ai/rack": "2"}),
			[]string{"0.labels.rack: rack stands for topology.hyperaccel.ai/rack, which is there too"},
		},
		"equal names": {
			features.Topology{{Nodes: []string{"a", "n"}, Labels: labels}, {Nodes: []string{"n"}, Labels: labels}},
			[]string{`1.nodes.0: node n is matched by "n" of another entry too, that of entry 0`},
		},
		"name and pattern": {
			features.Topology{{Nodes: []string{"a"}, Labels: labels}, {Nodes: []string{"b", "?"}, Labels: labels}},
			[]string{`0.nodes.0: node a is matched by "?" of another entry too, that of entry 1`},
		},
		"two at once": {one([]string{"N"}, map[string]string{"row": "1"}), []string{"0.nodes.0", "0.labels.row"}},
	} {
		t.Run(name, func(t *testing.T) {
			faults := c.topology.Validate(entry)
			if len(faults) != len(c.want) {
				t.Fatalf("%+v", faults)
			}
			for i, f := range faults {
				message, remedy, _ := strings.Cut(c.want[i], " | ")
				if text := f.Path + ": " + f.Message; !strings.Contains(text, message) || !strings.Contains(f.Remedy, remedy) || f.Remedy == "" {
					t.Errorf("got %s | %s, want %s", text, f.Remedy, c.want[i])
				}
			}
		})
	}
}

// TestLargestFile: what the configuration allows is a file that node-feature-discovery reads.
func TestLargestFile(t *testing.T) {
	labels := map[string]string{}
	for i := range 64 {
		labels[strings.Repeat("a", 253)+fmt.Sprintf("/%s%02d", strings.Repeat("x", 61), i)] = strings.Repeat("v", 63)
	}
	topology := features.Topology{{Nodes: []string{"n"}, Labels: labels}}
	if faults := topology.Validate(entry); len(faults) > 0 {
		t.Fatal(faults)
	}
	own := map[string]string{}
	for i := range 20 {
		own[fmt.Sprint("hyperaccel.ai/lpu.", i)] = strings.Repeat("v", 63)
	}
	set, _, _ := topology.Labels("n")
	if size := len(features.Text(time.Now(), features.Body(own, set))); size > features.MaxSize/2 {
		t.Errorf("%d bytes", size)
	}
}

func TestCheckNodeName(t *testing.T) {
	for name, good := range map[string]bool{
		"a": true, "a.b-c": true, "": false, "A": false, "a_b": false, "-a": false, strings.Repeat("a", 254): false,
	} {
		if err := features.CheckNodeName(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}
