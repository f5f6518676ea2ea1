package discovery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// APIVersion stands in every document lpuctl prints or reads.
const APIVersion = "lpuctl.hyperaccel.ai/v1alpha1"

// Inventory is all that one scan found, in order of PCI addresses.
type Inventory struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"` // "Inventory"
	LPUs       []LPU        `json:"lpus"`
	Rings      []Ring       `json:"rings"`
	RingTable  *TableRef    `json:"ringTable,omitempty"` // absent: neighbours are not known
	Problems   finding.List `json:"problems"`            // of the machine; those of one LPU are its Reasons
}

// Ring is LPUs that are cabled one to the next, as the ring table says.
type Ring struct {
	ID string `json:"id"` // "ring" and a number, in the order of the rings' first LPUs
	// Members by name. A closed ring starts at its lowest LPU and goes on to the lower of that one's
	// neighbours; a chain starts at the lower of its ends.
	Members []string `json:"members"`
	Closed  bool     `json:"closed"` // a cable leads from the last member to the first
	// DeadLinks are the cables between neighbours of which one is not usable (LPU.Usable).
	DeadLinks [][2]string `json:"deadLinks"`
}

// Dead tells whether the cable between two neighbours cannot be used.
func (r *Ring) Dead(a, b string) bool {
	return slices.Contains(r.DeadLinks, [2]string{a, b}) || slices.Contains(r.DeadLinks, [2]string{b, a})
}

// TableRef says which ring table is in force.
type TableRef struct {
	Path   string `json:"path"`
	Format string `json:"format"` // hyperdex or lpuctl
}

// RingPlace is where an LPU sits on its ring.
type RingPlace struct {
	ID       string `json:"id"`
	Position int    `json:"position"` // in Ring.Members, from 0
	Previous string `json:"previous,omitempty"`
	Next     string `json:"next,omitempty"`
}

// Health is the state of an LPU.
type Health string

// The states: unknown is an LPU whose state could not be read in time.
const (
	Healthy       Health = "healthy"
	Unhealthy     Health = "unhealthy"
	HealthUnknown Health = "unknown"
)

// LPU is one accelerator: on a card of two functions its user function. Paths in the comments are
// relative to sys/bus/pci/devices/ADDRESS unless they start with sys/.
// An optional field is absent when the kernel does not say, never zero in its stead.
type LPU struct {
	Name    string  `json:"name"`  // "lpu" and the index
	Index   int     `json:"index"` // position in ascending PCI address order, usable or not, from 0
	Model   string  `json:"model"` // row of the model table
	Address Address `json:"address"`

	Vendor    string `json:"vendor"`    // vendor, four hexadecimal digits
	Device    string `json:"device"`    // device, likewise
	Subvendor string `json:"subvendor"` // subsystem_vendor
	Subdevice string `json:"subdevice"` // subsystem_device

	Driver        string `json:"driver"`        // driver, last element of the link; "" when unbound
	DriverVersion string `json:"driverVersion"` // sys/bus/pci/drivers/DRIVER/module/version; "" when the module has none

	Nodes  []Node `json:"nodes"`
	Serial string `json:"serial,omitempty"` // xmc.u.N/serial_num (xocl) or CLASS/NAME/serial (ha)
	Shell  string `json:"shell,omitempty"`  // rom.u.N/VBNV (xocl): the name of the flashed shell

	NUMANode   *int        `json:"numaNode,omitempty"`   // numa_node; absent for -1
	PCIeRoot   string      `json:"pcieRoot"`             // host bridge in the device path: "pci0000:40"
	Switch     *Address    `json:"switch,omitempty"`     // upstream port of the nearest switch in the device path
	Link       *Link       `json:"link,omitempty"`       // current_link_*, max_link_*
	IOMMUGroup *int        `json:"iommuGroup,omitempty"` // iommu_group, last element of the link
	Management *Management `json:"management,omitempty"` // the card's other function

	Ring *RingPlace `json:"ring,omitempty"`

	Usable  bool         `json:"usable"` // a container that gets the node can work with it
	Health  Health       `json:"health"`
	Reasons finding.List `json:"reasons"` // why it is not usable, and warnings
	// Absent: the ring table names the card, but it is not on the PCI bus. It keeps its index.
	Absent bool `json:"absent,omitempty"`
	// Users are the processes that hold a node open; nil where nobody looked (FindUsers).
	Users []User `json:"users,omitzero"`

	// What a container needs besides the node: the model's, with what is true on this machine.
	Mounts []Mount  `json:"-"`
	Env    []string `json:"-"`
}

// State is how the LPU is, in words for people: its health or, if it is not usable, the ID of the first error without its
// dashes, such as "no driver" or "absent".
func (l *LPU) State() string {
	first := l.Reasons.FirstError()
	if l.Usable || first == nil {
		return string(l.Health)
	}
	return strings.ReplaceAll(string(first.ID), "-", " ")
}

// Node is a character device in /dev.
type Node struct {
	Path     string `json:"path"`     // /dev/ and DEVNAME of the class device's uevent
	Major    uint32 `json:"major"`    // class device's dev
	Minor    uint32 `json:"minor"`    // likewise
	Verified bool   `json:"verified"` // seen under the root with these numbers; false where /dev cannot be seen
}

// Link is the PCI Express link of a function. A field is 0 when the kernel does not know it.
type Link struct {
	SpeedGTs    float64 `json:"speedGTs"`    // current_link_speed, GT/s
	Width       int     `json:"width"`       // current_link_width, lanes
	MaxSpeedGTs float64 `json:"maxSpeedGTs"` // max_link_speed, GT/s
	MaxWidth    int     `json:"maxWidth"`    // max_link_width, lanes
}

// String is the link as lspci says it: "8.0GT/s x16".
func (l Link) String() string { return linkText(l.SpeedGTs, l.Width) }

// Most is the link at its best, likewise.
func (l Link) Most() string { return linkText(l.MaxSpeedGTs, l.MaxWidth) }

func linkText(speed float64, width int) string {
	if speed == 0 || width == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.1fGT/s x%d", speed, width)
}

// Management is the function of a card that administers it. A container does not get it unless asked.
type Management struct {
	Address Address `json:"address"`
	Nodes   []Node  `json:"nodes,omitempty"` // where Options.Management asked for them
}

// Mount is a directory or file of the host that a container with the LPU needs.
type Mount struct {
	HostPath      string `json:"hostPath"`
	ContainerPath string `json:"containerPath,omitempty"` // empty: the same
	// Present says that the path exists on the scanned machine.
	Present bool `json:"-"`
}
