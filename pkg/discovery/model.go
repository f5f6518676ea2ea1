package discovery

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/strictyaml"
)

// Model is one row of the device-model table: which PCI functions are which LPU, what makes them usable,
// where their node is and what a container needs besides it.
type Model struct {
	Name    string `json:"name"`
	Enabled *bool  `json:"enabled,omitempty"` // absent: true
	// Match says which functions are this LPU: those that any entry matches. No entry, no LPU.
	Match []Match `json:"match,omitempty"`
	// Drivers under which the LPU is usable; empty: any.
	Drivers []string `json:"drivers,omitempty"`
	// Nodes are rules; the first that yields exactly one node wins. See [Model.Validate].
	Nodes      []string         `json:"nodes,omitempty"`
	Management *ManagementMatch `json:"management,omitempty"`
	Mounts     []Mount          `json:"mounts,omitempty"`
	Env        []string         `json:"env,omitempty"`
	// Health is the profile by which the LPU is judged: generic, xocl or ha.
	Health string `json:"health,omitempty"`

	operator bool // from the config file: wins over a built-in row that matches too
}

// Match is one set of conditions that hold together. Ids are hexadecimal without 0x, as in pci.ids.
type Match struct {
	Vendor    string `json:"vendor,omitempty"`
	Device    string `json:"device,omitempty"`
	Subvendor string `json:"subvendor,omitempty"`
	Subdevice string `json:"subdevice,omitempty"`
	Class     string `json:"class,omitempty"`     // base and sub class ("1200"), or with programming interface ("120000")
	Subsystem string `json:"subsystem,omitempty"` // a class device in sys/class/SUBSYSTEM below the function; stands alone
}

// ManagementMatch finds the function that administers the card of an LPU: same card, same vendor.
type ManagementMatch struct {
	Device   string   `json:"device"`
	Function uint8    `json:"function"`
	Nodes    []string `json:"nodes,omitempty"`
}

// The health profiles: what is read to judge an LPU.
const (
	healthGeneric = "generic"
	healthXocl    = "xocl"
	healthHA      = "ha"
)

// BuiltinModels is the table lpuctl is built with. Sources of the ids and names: the id tables of XRT's
// xocl and xclmgmt drivers (orion-u55c), HyperAccel's published articles and libraries (lpu, bertha).
// Bertha's PCI ids are not public, so that row matches nothing until the operator gives them.
func BuiltinModels() []Model {
	return []Model{
		{
			Name:       "orion-u55c",
			Match:      []Match{{Vendor: "10ee", Device: "505d"}},
			Drivers:    []string{"xocl"},
			Nodes:      []string{"drm:render"},
			Management: &ManagementMatch{Device: "505c", Function: 0, Nodes: []string{"class:xrt_mgmt"}},
			Mounts:     []Mount{{HostPath: "/opt/xilinx/xrt"}, {HostPath: "/opt/hyperdex"}},
			Env:        []string{"XILINX_XRT=/opt/xilinx/xrt"},
			Health:     healthXocl,
		},
		{
			Name:   "lpu",
			Match:  []Match{{Subsystem: "lpu"}},
			Nodes:  []string{"class:lpu"},
			Mounts: []Mount{{HostPath: "/opt/hyperaccel/lib", ContainerPath: "/usr/lib/hyperaccel"}},
			Health: healthGeneric,
		},
		{
			Name:    "bertha",
			Drivers: []string{"ha"},
			Nodes:   []string{"class:ha"},
			Mounts: []Mount{
				{HostPath: "/usr/local/lib/libha_driver.so"},
				{HostPath: "/usr/local/include/ha_driver.h"},
				{HostPath: "/usr/local/lib/pkgconfig/libha_driver.pc"},
			},
			Health: healthHA,
		},
	}
}

// MergeModels lays the operator's models over a table, by name: what an entry states replaces what the
// table's row of that name says; an entry of a new name is a new row. The operator's rows come first, so
// that they win where two rows match one function.
func MergeModels(table, operator []Model) []Model {
	var merged []Model
	for _, over := range operator {
		m := over
		if i := slices.IndexFunc(table, func(t Model) bool { return t.Name == over.Name }); i >= 0 {
			m = overlay(table[i], over)
		}
		if m.Health == "" {
			m.Health = healthGeneric
		}
		m.operator = true
		merged = append(merged, m)
	}
	for _, m := range table {
		if !slices.ContainsFunc(operator, func(o Model) bool { return o.Name == m.Name }) {
			merged = append(merged, m)
		}
	}
	return merged
}

// overlay replaces what an entry of the config file states: null and a key that is left out state nothing, an empty list does.
func overlay(m, over Model) Model {
	to, from := reflect.ValueOf(&m).Elem(), reflect.ValueOf(over)
	for i := range to.NumField() {
		if to.Field(i).CanSet() && !from.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
	return m
}

// IsEnabled tells whether the row takes part in a scan.
func (m *Model) IsEnabled() bool { return m.Enabled == nil || *m.Enabled }

// Validate checks one row. The path of each fault is relative to the row.
//
// A node rule is class:NAME (a class device of that subsystem below the function), drm:render (a DRM
// render node) or path:TEMPLATE (a path in which {index} and {address} are filled in).
func (m *Model) Validate() []strictyaml.Fault {
	var c checker
	if m.Name == "" {
		c.fault("name", errors.New("a model needs a name"))
	}
	for i, match := range m.Match {
		c.match(fmt.Sprintf("match.%d", i), match)
	}
	c.nodeRules("nodes", m.Nodes)
	if m.Management != nil {
		c.management(m.Management)
	}
	for i, mount := range m.Mounts {
		c.absolute(fmt.Sprintf("mounts.%d.hostPath", i), mount.HostPath)
		if mount.ContainerPath != "" {
			c.absolute(fmt.Sprintf("mounts.%d.containerPath", i), mount.ContainerPath)
		}
	}
	for i, entry := range m.Env {
		if key, _, ok := strings.Cut(entry, "="); !ok || key == "" {
			c.fault(fmt.Sprintf("env.%d", i), fmt.Errorf("%q is not NAME=VALUE", entry))
		}
	}
	if m.Health != "" && !slices.Contains([]string{healthGeneric, healthXocl, healthHA}, m.Health) {
		c.fault("health", fmt.Errorf("%q is not a health profile (generic, xocl or ha)", m.Health))
	}
	return c
}

// checker collects the faults of a model.
type checker []strictyaml.Fault

// fault adds one, unless err is nil.
func (c *checker) fault(field string, err error) {
	if err != nil {
		*c = append(*c, strictyaml.Fault{Path: field, Message: err.Error(), Remedy: "correct it; lpuctl config show prints the table that is built in"})
	}
}

// match checks an entry and returns the ids it demands.
func (c *checker) match(field string, m Match) entry {
	var e entry
	for attribute, id := range [...]struct{ key, text string }{
		{"vendor", m.Vendor}, {"device", m.Device}, {"subvendor", m.Subvendor}, {"subdevice", m.Subdevice}, {"class", m.Class},
	} {
		if id.text != "" {
			wanted, err := parseWanted(attribute, id.text)
			c.fault(field+"."+id.key, err)
			e = append(e, wanted)
		}
	}
	switch {
	case m.Subsystem != "" && len(e) > 0:
		c.fault(field+".subsystem", errors.New("subsystem stands alone; make the ids an entry of their own"))
	case m.Subsystem != "" && !host.IsPlainName(m.Subsystem):
		c.fault(field+".subsystem", fmt.Errorf("%q is not a subsystem name", m.Subsystem))
	case m.Subsystem == "" && len(e) == 0:
		c.fault(field, errors.New("an empty entry would match every PCI function"))
	case m.Vendor != "" && len(e) == 1:
		c.fault(field+".vendor", errors.New("a vendor alone would match everything it makes; add the device id"))
	}
	return e
}

func (c *checker) nodeRules(field string, rules []string) []nodeRule {
	var parsed []nodeRule
	for i, text := range rules {
		rule, err := parseNodeRule(text)
		c.fault(fmt.Sprintf("%s.%d", field, i), err)
		if err == nil {
			parsed = append(parsed, rule)
		}
	}
	return parsed
}

func (c *checker) management(m *ManagementMatch) {
	_, err := parseWanted(idDevice, m.Device)
	c.fault("management.device", err)
	if m.Function > 7 {
		c.fault("management.function", errors.New("a PCI function is 0 to 7"))
	}
	c.nodeRules("management.nodes", m.Nodes)
}

func (c *checker) absolute(field, path string) {
	if !strings.HasPrefix(path, "/") {
		c.fault(field, fmt.Errorf("%q is not an absolute path", path))
	}
}

// nodeRule is a parsed entry of Model.Nodes.
type nodeRule struct{ kind, argument string }

func parseNodeRule(text string) (nodeRule, error) {
	kind, argument, _ := strings.Cut(text, ":")
	switch {
	case kind == "class" && host.IsPlainName(argument),
		kind == "drm" && argument == "render",
		kind == "path" && strings.HasPrefix(argument, "/dev/"):
		return nodeRule{kind, argument}, nil
	}
	return nodeRule{}, fmt.Errorf("%q is not a node rule (class:NAME, drm:render or path:/dev/TEMPLATE)", text)
}

// compiledModel is a model with its ids and rules parsed, once a scan.
type compiledModel struct {
	Model
	entries         []entry
	managers        []entry // of the management function, besides its number
	subsystems      []string
	nodes           []nodeRule
	managementNodes []nodeRule
	present         []Mount // the model's mounts, with Present as it is on this machine
}

// compile parses the enabled models. What Validate would refuse matches nothing.
func compile(models []Model) []*compiledModel {
	var compiled []*compiledModel
	for _, m := range models {
		if m.IsEnabled() {
			compiled = append(compiled, m.compile())
		}
	}
	return compiled
}

func (m *Model) compile() *compiledModel {
	var refused checker
	c := &compiledModel{Model: *m, nodes: refused.nodeRules("", m.Nodes)}
	for _, match := range m.Match {
		var faults checker
		switch e := faults.match("", match); {
		case len(faults) > 0:
		case match.Subsystem != "":
			c.subsystems = append(c.subsystems, match.Subsystem)
		default:
			c.entries = append(c.entries, e)
		}
	}
	if m.Management == nil {
		return c
	}
	c.managementNodes = refused.nodeRules("", m.Management.Nodes)
	device, err := parseWanted(idDevice, m.Management.Device)
	for _, e := range c.entries {
		if err == nil && e[0].attribute == idVendor {
			c.managers = append(c.managers, entry{e[0], device})
		}
	}
	return c
}
