package discovery

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/test/plant"
)

func TestBuiltinModelsAreValid(t *testing.T) {
	for _, m := range BuiltinModels() {
		if faults := m.Validate(); faults != nil {
			t.Errorf("%s: %v", m.Name, faults)
		}
	}
}

// TestIDsWithPrefix: ids are accepted as sysfs and lspci -x show them, because the remedy for 0x20fb without quotes is quotes.
func TestIDsWithPrefix(t *testing.T) {
	m := Model{
		Name: "x", Match: []Match{{Vendor: "0x10EE", Device: "0x505d", Class: "0x1200"}}, Management: &ManagementMatch{Device: "0x505c"},
		Nodes: []string{"class:uio"},
	}
	if faults := m.Validate(); len(faults) > 0 {
		t.Error(faults)
	}
	inv := scanOf(t, plant.Capture(t, u55c), []Model{m})
	if len(inv.LPUs) != 8 || inv.LPUs[0].Management == nil {
		t.Errorf("%+v", inv.LPUs)
	}
}

func TestModelFaults(t *testing.T) {
	for name, c := range map[string]struct {
		model Model
		want  string // field: part of the message
	}{
		"no name":           {Model{}, "name: needs a name"},
		"vendor alone":      {Model{Name: "x", Match: []Match{{Vendor: "10ee"}}}, "match.0.vendor: vendor alone"},
		"empty entry":       {Model{Name: "x", Match: []Match{{}}}, "match.0: would match every"},
		"id of 3 digits":    {Model{Name: "x", Match: []Match{{Vendor: "0x10e", Device: "505d"}}}, "match.0.vendor: four hexadecimal digits"},
		"vendor alone, 0x":  {Model{Name: "x", Match: []Match{{Vendor: "0x10ee"}}}, "match.0.vendor: vendor alone"},
		"name in capitals":  {Model{Name: "Bertha", Match: []Match{{Vendor: "20fb", Device: "0010"}}}, "name: no model of this name"},
		"class of 3":        {Model{Name: "x", Match: []Match{{Class: "120"}}}, "match.0.class: four or six"},
		"subsystem and id":  {Model{Name: "x", Match: []Match{{Subsystem: "lpu", Device: "0010"}}}, "match.0.subsystem: stands alone"},
		"subsystem climbs":  {Model{Name: "x", Match: []Match{{Subsystem: "../x"}}}, "match.0.subsystem: not a subsystem"},
		"node rule":         {Model{Name: "x", Nodes: []string{"klass:lpu"}}, "nodes.0: not a node rule"},
		"path outside dev":  {Model{Name: "x", Nodes: []string{"path:/etc/passwd"}}, "nodes.0: not a node rule"},
		"class climbs":      {Model{Name: "x", Nodes: []string{"class:../../x"}}, "nodes.0: not a node rule"},
		"management device": {Model{Name: "x", Management: &ManagementMatch{Device: "5"}}, "management.device: four hexadecimal"},
		"function":          {Model{Name: "x", Management: &ManagementMatch{Device: "505c", Function: 8}}, "management.function: 0 to 7"},
		"relative mount":    {Model{Name: "x", Mounts: []Mount{{HostPath: "opt", ContainerPath: "/opt"}}}, "mounts.0.hostPath: absolute"},
		"relative inside":   {Model{Name: "x", Mounts: []Mount{{HostPath: "/opt", ContainerPath: "opt"}}}, "mounts.0.containerPath: absolute"},
		"env":               {Model{Name: "x", Env: []string{"FOO"}}, "env.0: NAME=VALUE"},
		"no LPU":            {Model{Name: "x", UsableSizes: Sizes{0}}, "usableSizes.0: no number of LPUs (1 to 64)"},
		"more than a ring":  {Model{Name: "x", UsableSizes: Sizes{1, 65}}, "usableSizes.1: no number of LPUs"},
		"size twice":        {Model{Name: "x", UsableSizes: Sizes{2, 4, 2}}, "usableSizes.2: twice"},
		"health":            {Model{Name: "x", Health: "fine"}, "health: not a health profile"},
	} {
		t.Run(name, func(t *testing.T) {
			faults := c.model.Validate()
			field, message, _ := strings.Cut(c.want, ": ")
			if len(faults) != 1 || faults[0].Path != field || !strings.Contains(faults[0].Message, message) {
				t.Errorf("got %v, want %s", faults, c.want)
			}
		})
	}
}

func TestMergeModels(t *testing.T) {
	off := false
	mounts := []Mount{{HostPath: "/m"}}
	table := []Model{{Name: "a", Drivers: []string{"da"}, Health: "xocl"}, {Name: "b", Drivers: []string{"db"}, Mounts: mounts, Health: "ha"}}
	merged := MergeModels(table, []Model{{Name: "b", Enabled: &off, Drivers: []string{}, Nodes: []string{"class:b"}}, {Name: "c"}})
	want := []Model{
		{Name: "b", Enabled: &off, Drivers: []string{}, Nodes: []string{"class:b"}, Mounts: mounts, Health: "ha", operator: true},
		{Name: "c", Health: "generic", operator: true},
		{Name: "a", Drivers: []string{"da"}, Health: "xocl"},
	}
	if diff := cmp.Diff(want, merged, cmp.AllowUnexported(Model{})); diff != "" {
		t.Error(diff)
	}
}
