package discovery

import (
	"cmp"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/nearest"
	"github.com/hyperaccel/lpuctl/internal/strictyaml"
)

// Model is one row of the device-model table: which PCI functions are which LPU, what
// makes them usable, where their device node is, and what a container needs besides the
// node.
type Model struct {
	Name    string `json:"name"`
	Enabled *bool  `json:"enabled,omitempty"` // absent: true
	// Match says which functions are this LPU: a function for which at least one entry
	// holds. Without entries there is none.
	Match []Match `json:"match,omitempty"`
	// Drivers under which the LPU is usable; empty: any.
	Drivers []string `json:"drivers,omitempty"`
	// Nodes are rules; the first that yields exactly one node wins. See [Model.Validate].
	Nodes      []string         `json:"nodes,omitempty"`
	Management *ManagementMatch `json:"management,omitempty"`
	Mounts     []Mount          `json:"mounts,omitempty"`
	Env        []string         `json:"env,omitempty"`
	// RingTable is where a program in a container reads the ring table: each container
	// gets one of its own there, in HyperDex's format. "off" or "": none.
	RingTable string `json:"ringTable,omitempty"`
	// Health is the profile by which the LPU is judged: generic, xocl or ha.
	Health string `json:"health,omitempty"`
	// MemoryGiB is the memory of one LPU in GiB; 0: not known. The DRA driver publishes it
	// to Kubernetes, so that claims can ask for it.
	MemoryGiB int `json:"memoryGiB,omitempty"`
	// UsableSizes is how many LPUs a program can use together. Other numbers are said,
	// and not refused.
	UsableSizes Sizes `json:"usableSizes,omitempty"`

	place TablePlace // RingTable, as far as this machine lets it be mounted
	// The row is from the config file, and wins over a built-in row that matches too.
	operator bool
}

// Sizes is numbers of LPUs. None: no number is known to be impossible.
type Sizes []int

// Allow reports whether n is one of the sizes, or there are none.
func (s Sizes) Allow(n int) bool { return len(s) == 0 || slices.Contains(s, n) }

// Match is a set of conditions; all must hold. Ids are hexadecimal as in pci.ids, or with
// 0x in front as in sysfs.
type Match struct {
	Vendor    string `json:"vendor,omitempty"`
	Device    string `json:"device,omitempty"`
	Subvendor string `json:"subvendor,omitempty"`
	Subdevice string `json:"subdevice,omitempty"`
	// Class is base and sub class ("1200"), or with programming interface ("120000").
	Class string `json:"class,omitempty"`
	// Subsystem: the function has a class device in sys/class/SUBSYSTEM; excludes the other
	// fields.
	Subsystem string `json:"subsystem,omitempty"`
}

// ids returns the ids of the entry in the order of idAttributes, in the form of idSet.
func (m *Match) ids() idSet {
	ids := idSet{m.Vendor, m.Device, m.Subvendor, m.Subdevice, m.Class}
	for attribute, id := range ids {
		ids[attribute] = plainID(id)
	}
	return ids
}

// plainID returns an id without 0x, in lower case.
func plainID(id string) string { return strings.TrimPrefix(strings.ToLower(id), "0x") }

// ManagementMatch finds the function that administers the card of an LPU. It has the same
// card and vendor as the LPU.
type ManagementMatch struct {
	Device   string   `json:"device"`
	Function uint8    `json:"function"`
	Nodes    []string `json:"nodes,omitempty"`
}

// The health profiles. A profile says which attributes of its driver an LPU is judged by.
const (
	healthGeneric = "generic"
	healthXocl    = "xocl"
	healthHA      = "ha"
)

// BuiltinModels returns the model table that is built into lpuctl. Sources of the ids and
// names: the id tables of XRT's xocl and xclmgmt drivers (orion-u55c), HyperAccel's
// published articles and libraries (lpu, bertha). Bertha's PCI ids are not public, so
// that row matches nothing until the operator gives them. What of the rows was read and
// not seen is in docs/hardware.md: HW-1 to HW-7, HW-29, HW-33, HW-34 and HW-52 to HW-61.
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
			RingTable:  HyperdexRingTable,
			Health:     healthXocl,
			MemoryGiB:  16, // HBM of an Alveo U55C
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

// MergeModels merges the operator's models into a table, by name. If the table has a row
// of that name, the fields that the operator sets replace the fields of the row; else the
// model is a new row. The operator's rows come first, so that they win where two rows
// match one function.
func MergeModels(table, operator []Model) []Model {
	var merged []Model
	for _, over := range operator {
		m := Model{Health: healthGeneric}
		if i := slices.IndexFunc(table, over.sameName); i >= 0 {
			m = table[i]
		}
		merged = append(merged, overlay(m, over))
	}
	for _, m := range table {
		if !slices.ContainsFunc(operator, m.sameName) {
			merged = append(merged, m)
		}
	}
	return merged
}

func (m *Model) sameName(other Model) bool { return m.Name == other.Name }

// overlay replaces the fields that an entry of the config file sets. A key that is null
// or missing sets nothing; an empty list does.
func overlay(m, over Model) Model {
	m.operator = true
	to, from := reflect.ValueOf(&m).Elem(), reflect.ValueOf(over)
	for i := range to.NumField() {
		if to.Field(i).CanSet() && !from.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
	return m
}

// enabled copies the rows that a scan uses. A row that Validate refuses is left out.
func enabled(models []Model) []*Model {
	var rows []*Model
	for _, m := range models {
		if m.IsEnabled() && len(m.Validate()) == 0 {
			rows = append(rows, &m)
		}
	}
	return rows
}

// IsEnabled reports whether a scan uses the row.
func (m *Model) IsEnabled() bool { return m.Enabled == nil || *m.Enabled }

// Validate checks one row and returns all its faults. The path of each is relative to the
// row.
//
// A node rule is class:NAME (a class device of that subsystem below the function),
// drm:render (a DRM render node) or path:TEMPLATE (a path in which {index} and {address}
// are filled in).
func (m *Model) Validate() strictyaml.Faults {
	var c checker
	c.require(m.Name != "", "name", "a model needs a name")
	c.name(m)
	for i, match := range m.Match {
		c.match(fmt.Sprintf("match.%d", i), match)
	}
	c.nodeRules("nodes", m.Nodes)
	if a := m.Management; a != nil {
		c.id("management.device", a.Device)
		c.require(a.Function <= 7, "management.function", "a PCI function is 0 to 7")
		c.nodeRules("management.nodes", a.Nodes)
	}
	for i, mount := range m.Mounts {
		c.absolute(fmt.Sprintf("mounts.%d.hostPath", i), mount.HostPath)
		c.absolute(fmt.Sprintf("mounts.%d.containerPath", i), cmp.Or(mount.ContainerPath, "/"))
	}
	c.require(strings.HasPrefix(cmp.Or(m.RingTable, "/"), "/") || m.RingTable == noRingTable,
		"ringTable", "%q is not an absolute path, and not %s", m.RingTable, noRingTable)
	for i, entry := range m.Env {
		c.require(strings.Index(entry, "=") > 0, fmt.Sprintf("env.%d", i), "%q is not NAME=VALUE", entry)
	}
	c.require(m.MemoryGiB >= 0 && m.MemoryGiB <= memoryMax, "memoryGiB", "%d GiB is no memory of an LPU (0 to %d)", m.MemoryGiB, memoryMax)
	c.sizes("usableSizes", m.UsableSizes)
	c.require(slices.Contains([]string{"", healthGeneric, healthXocl, healthHA}, m.Health),
		"health", "%q is not a health profile (generic, xocl or ha)", m.Health)
	return c.Faults
}

// memoryMax is more GiB than an LPU will have: what is above it is meant in bytes.
const memoryMax = 1 << 20

// checker collects the faults of a model.
type checker struct{ strictyaml.Faults }

// require adds a fault unless ok.
func (c *checker) require(ok bool, field, format string, args ...any) {
	if !ok {
		c.Add(field, fmt.Sprintf(format, args...), "correct it; lpuctl config show prints the table that is built in")
	}
}

// name reports a model that lacks nodes, because its name is nearly that of a built-in
// row, from which it would get them.
func (c *checker) name(m *Model) {
	var builtin []string
	for _, row := range BuiltinModels() {
		builtin = append(builtin, row.Name)
	}
	meant := nearest.Word(strings.ToLower(m.Name), builtin)
	if len(m.Nodes) == 0 && meant != "" && meant != m.Name {
		c.Add("name", fmt.Sprintf("model %q has no nodes, and no model of this name is built in", m.Name), "did you mean "+meant+"?")
	}
}

func (c *checker) match(field string, m Match) {
	ids := m.ids()
	for attribute, key := range [...]string{"vendor", "device", "subvendor", "subdevice"} {
		if id := ids[attribute]; id != "" {
			c.id(field+"."+key, id)
		}
	}
	c.require(m.Class == "" || isHex(ids[idClass], 4) || isHex(ids[idClass], 6),
		field+".class", "%q is not a PCI class (four or six hexadecimal digits in quotes, such as \"1200\")", m.Class)
	if m.Subsystem != "" {
		c.require(ids == idSet{}, field+".subsystem", "subsystem stands alone; make the ids an entry of their own")
		c.require(host.IsPlainName(m.Subsystem), field+".subsystem", "%q is not a subsystem name", m.Subsystem)
		return
	}
	c.require(ids != idSet{}, field, "an empty entry would match every PCI function")
	c.require(m.Vendor == "" || ids != idSet{ids[idVendor]}, field+".vendor",
		"a vendor alone would match everything it makes; add the device id")
}

func (c *checker) id(field, text string) {
	c.require(isHex(plainID(text), 4), field, "%q is not a PCI id (four hexadecimal digits in quotes, such as \"10ee\")", text)
}

func isHex(text string, digits int) bool {
	_, err := strconv.ParseUint(text, 16, 32)
	return err == nil && len(text) == digits
}

func (c *checker) nodeRules(field string, rules []string) {
	for i, rule := range rules {
		subsystem, _ := classOf(rule)
		template, isPath := strings.CutPrefix(rule, "path:")
		c.require(host.IsPlainName(subsystem) || isPath && strings.HasPrefix(path.Clean(template), "/dev/"),
			fmt.Sprintf("%s.%d", field, i), "%q is not a node rule (class:NAME, drm:render or path:/dev/TEMPLATE)", rule)
	}
}

// sizeMax is more LPUs than a ring will have.
const sizeMax = 64

func (c *checker) sizes(field string, sizes Sizes) {
	for i, size := range sizes {
		at := fmt.Sprintf("%s.%d", field, i)
		c.require(size >= 1 && size <= sizeMax, at, "%d is no number of LPUs (1 to %d)", size, sizeMax)
		c.require(!slices.Contains(sizes[:i], size), at, "%d is there twice", size)
	}
}

func (c *checker) absolute(field, path string) {
	c.require(strings.HasPrefix(path, "/"), field, "%q is not an absolute path", path)
}

// classOf returns the class in which a node rule searches, and the prefix of the class
// devices that it accepts: DRM has a card node and a render node for each device. Both
// are "" for a rule that searches no class.
func classOf(rule string) (subsystem, prefix string) {
	if rule == "drm:render" {
		return "drm", "renderD"
	}
	if name, ok := strings.CutPrefix(rule, "class:"); ok {
		return name, ""
	}
	return "", ""
}
