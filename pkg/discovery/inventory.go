package discovery

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/internal/uevent"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// Inventory is the result of one scan. Its LPUs are in ascending order of PCI address.
type Inventory struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "Inventory"
	LPUs       []LPU  `json:"lpus"`
	Rings      []Ring `json:"rings"`
	// RingTable is absent if it is not known which LPUs are neighbours.
	RingTable *TableRef `json:"ringTable,omitempty"`
	// Problems are findings about the machine; those about one LPU are in LPU.Reasons.
	Problems finding.List `json:"problems"`

	// Records are what a watcher remembers of the LPUs' health, by PCI address.
	Records map[string]health.Record `json:"-"`
	// Ports are what a watcher reads of the PCI ports above the LPUs.
	Ports map[pci.Address]health.Reading `json:"-"`
	// Uevents are the events of the kernel that a watcher has got; nil where none are to be
	// had.
	Uevents *uevent.Counts `json:"-"`
}

// Undecided returns an error if some LPUs may not be in the inventory, because it cannot
// be read whether a PCI function is an LPU, or which class devices there are; or if
// lpuctl run hides some from this process, perhaps with their cabling. Then indices may be
// wrong and LPUs missing: nothing that lasts should be made of it.
func (inv *Inventory) Undecided() error {
	if i := slices.IndexFunc(inv.LPUs, func(l LPU) bool { return l.IsHidden() }); i >= 0 {
		return fmt.Errorf("lpuctl run started this shell or program, and hides %s from it", inv.LPUs[i].Name)
	}
	for _, p := range inv.Problems {
		if p.ID == finding.UnreadableFunction || p.ID == finding.UnreadableClass {
			return fmt.Errorf("%s: %s", p.Subject, p.Message)
		}
	}
	return nil
}

// Judge replaces the health that was read for each LPU by what a judge makes of it, who
// remembers earlier readings. now is the time since boot.
func (inv *Inventory) Judge(judge *health.Judge, now time.Duration) {
	for i := range inv.LPUs {
		l := &inv.LPUs[i]
		l.Reading.Reasons, l.Reading.Nodes = l.Reasons, nil
		for _, n := range l.Nodes {
			l.Reading.Nodes = append(l.Reading.Nodes, n.Path)
		}
		verdict := judge.See(l.Address.String(), l.Name, l.Reading, now)
		l.Reasons, l.Health, l.Usable = verdict.Reasons, verdict.State, !verdict.Reasons.HasErrors()
		l.addressRemedies()
	}
	inv.markDeadLinks()
}

// Ring is a ring or a chain of LPUs, each cabled to the next, as the ring table says.
type Ring struct {
	ID string `json:"id"` // "ring" and a number, in the order of the rings' first LPUs
	// Members are names of LPUs in the order of the cables. A closed ring starts with its
	// lowest LPU, and the lower neighbour of that LPU is the second. A chain starts with
	// the lower of its two ends.
	Members []string `json:"members"`
	Closed  bool     `json:"closed"` // a cable leads from the last member to the first
	// DeadLinks are the cables with an LPU at one end that is absent or unhealthy. An LPU
	// of which that is not known passes data on.
	DeadLinks [][2]string `json:"deadLinks"`

	// Leftward: each member has the next one on its left; else on its right, or that is not
	// known.
	Leftward bool `json:"-"`
	OneCable bool `json:"-"` // it has two members and one cable
}

// Dead reports whether the cable between two neighbours is one of DeadLinks. Their order
// does not matter.
func (r *Ring) Dead(a, b string) bool {
	return slices.Contains(r.DeadLinks, [2]string{a, b}) || slices.Contains(r.DeadLinks, [2]string{b, a})
}

// Cables returns the cables of the ring in its order, each with the LPUs at its ends. Two
// LPUs count as connected by one.
func (r *Ring) Cables() (cables [][2]string) {
	for i, from := range r.Members {
		switch next := i + 1; {
		case next < len(r.Members):
			cables = append(cables, [2]string{from, r.Members[next]})
		case r.Closed && len(r.Members) > 2:
			cables = append(cables, [2]string{from, r.Members[0]})
		}
	}
	return cables
}

// Links counts the cables of the ring: those that work, and those of DeadLinks.
func (r *Ring) Links() (up, down int) {
	return len(r.Cables()) - len(r.DeadLinks), len(r.DeadLinks)
}

// RingTableValid reports whether the ring table in place can be used. It is not known if
// there is none.
func (inv *Inventory) RingTableValid() (valid, known bool) {
	faulty := slices.ContainsFunc(inv.Problems, func(f finding.Finding) bool {
		return f.Severity == finding.Error && strings.HasPrefix(string(f.ID), "ring-")
	})
	table := inv.RingTable
	return table != nil && !table.Kept && !faulty, table != nil || faulty
}

// TableRef names the ring table that is used.
type TableRef struct {
	Path   string `json:"path"`
	Format string `json:"format"` // hyperdex or lpuctl
	// Kept says that the ring table in place cannot be used, and that this is the last
	// cabling that could be.
	Kept bool `json:"kept,omitempty"`
}

// RingPlace is the position of an LPU on its ring.
type RingPlace struct {
	ID       string `json:"id"`
	Position int    `json:"position"` // in Ring.Members, from 0
	Previous string `json:"previous,omitempty"`
	Next     string `json:"next,omitempty"`
}

// Health is the state of an LPU.
type Health = health.State

// The states of an LPU.
const (
	Healthy       = health.Healthy
	Unhealthy     = health.Unhealthy
	HealthUnknown = health.Unknown
)

// LPU is one accelerator: on a card of two functions its user function. Paths in the
// comments are relative to sys/bus/pci/devices/ADDRESS unless they start with sys/. An
// optional field that the kernel does not report is absent; it is never zero instead. The
// groups of fields are embedded, so that JSON has their fields as those of the LPU.
type LPU struct {
	Name string `json:"name"` // "lpu" and the index
	// Index is the position in ascending PCI address order, usable or not, from 0.
	Index   int         `json:"index"`
	Model   string      `json:"model"` // row of the model table
	Address pci.Address `json:"address"`

	IDs

	Driver string `json:"driver"` // driver, last element of the link; "" when unbound
	// DriverVersion is sys/bus/pci/drivers/DRIVER/module/version; "" when the module has
	// none.
	DriverVersion string `json:"driverVersion"`

	Nodes  []Node `json:"nodes"`
	Serial string `json:"serial,omitempty"` // xmc.u.N/serial_num (xocl) or CLASS/NAME/serial (ha)
	Shell  string `json:"shell,omitempty"`  // rom.u.N/VBNV (xocl): the name of the flashed shell

	Place

	Ring *RingPlace `json:"ring,omitempty"`

	Usable  bool         `json:"usable"` // a container that gets the node can work with it
	Health  Health       `json:"health"`
	Reasons finding.List `json:"reasons"` // why it is not usable, warnings, and that it is cordoned

	Marks
	Measured

	// Absent: the ring table names the card, but it is not on the PCI bus. It keeps its
	// index.
	Absent bool `json:"absent,omitempty"`
	Use
	Equipment

	// Reading is what Health was made of.
	Reading health.Reading `json:"-"`
}

// IDs identify the LPU's function.
type IDs struct {
	Vendor    string `json:"vendor"`    // vendor, four hexadecimal digits
	Device    string `json:"device"`    // device, four hexadecimal digits
	Subvendor string `json:"subvendor"` // subsystem_vendor
	Subdevice string `json:"subdevice"` // subsystem_device
}

// Place is where the LPU is in the machine, and what connects it.
type Place struct {
	NUMANode *int `json:"numaNode,omitempty"` // numa_node; absent for -1
	// PCIeRoot is the host bridge in the device path: "pci0000:40".
	PCIeRoot string `json:"pcieRoot"`
	// Switch is the upstream port of the nearest switch in the device path.
	Switch     *pci.Address `json:"switch,omitempty"`
	Link       *Link        `json:"link,omitempty"`       // current_link_*, max_link_*
	IOMMUGroup *int         `json:"iommuGroup,omitempty"` // iommu_group, last element of the link
	Management *Management  `json:"management,omitempty"` // the card's other function

	// Physical is physfn, last element of the link: of a virtual function (SR-IOV), the
	// function that it is one of.
	Physical *pci.Address `json:"-"`
}

// Marks are put on an LPU by those who know them. A scan sets none.
type Marks struct {
	// Cordoned: an administrator has taken it out of use (Inventory.WithCordons). It may
	// be usable and healthy.
	Cordoned *health.Cordon `json:"cordoned,omitempty"`
	// Leased and Reserved say who has the LPU and for whom it is kept, as the arbiter has
	// written it down (internal/lease); nil: no user.
	Leased   *Holder `json:"leased,omitempty"`
	Reserved *Holder `json:"reserved,omitempty"`
	// KeptBack says why no user gets the LPU, or none but the one who had it, though its
	// lease has ended, as the arbiter has written it down; "": it is not kept back.
	KeptBack string `json:"keptBack,omitempty"`
	// Judged is what lpuctl serve says of the LPU, which knows more than one reading. It
	// is nil if serve has said nothing for a while.
	Judged *Judged `json:"judged,omitempty"`
}

// Measured is the power state of the card, and what its sensors measure.
type Measured struct {
	PowerState   string               `json:"powerState,omitempty"`   // power_state: "D0"
	Temperatures []health.Temperature `json:"temperatures,omitempty"` // hwmon/hwmonN/temp*_input
	Watts        *float64             `json:"watts,omitempty"`        // hwmon/hwmonN/power1_input
	// LimitWatts is hwmon/hwmonN/power1_crit or, where there is none, power1_max.
	LimitWatts *float64 `json:"limitWatts,omitempty"`
}

// Use is which processes have the LPU. FindUsers sets it.
type Use struct {
	// Users are the processes that have a node open. It is nil if no process is known to use
	// the LPU and that is not certain: FindUsers has not looked, or UsersHidden is true.
	Users []User `json:"users,omitzero"`
	// UsersHidden: there are processes that the caller may not inspect, and they may use
	// the LPU.
	UsersHidden bool `json:"usersHidden,omitempty"`
}

// Equipment is what the LPU's model says of each LPU of its kind.
type Equipment struct {
	// Mounts and Env are what a container needs besides the node. They are from the
	// model.
	Mounts []Mount  `json:"-"`
	Env    []string `json:"-"`
	// RingTable is where a container gets a ring table of its own.
	RingTable TablePlace `json:"-"`

	MemoryGiB int `json:"-"` // memory in GiB, from the model; 0: not known

	UsableSizes Sizes `json:"-"` // from the model
}

// Holder is a user who has leased or reserved an LPU.
type Holder struct {
	ID   string `json:"id"` // of the lease, "l7", or of the reservation, "r3"
	UID  int    `json:"uid"`
	User string `json:"user,omitempty"` // the name of that user
	// Via is the uid of the process that asked, where that is a subordinate one of the
	// user (subuid(5)), as in a container; 0: it is the user's own.
	Via int `json:"via,omitempty"`
	// Since is when the lease or the reservation began, and Until when its time is over; the
	// zero time: never. Both are by the clock as it was set when they were read.
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until,omitzero"`
	Command string    `json:"command,omitempty"`
	Reason  string    `json:"reason,omitempty"`
}

// String names the user: "bob(1000)", or "bob (container)" where a subordinate uid asked.
func (h *Holder) String() string {
	switch {
	case h.User == "" && h.Via == 0:
		return fmt.Sprintf("uid(%d)", h.UID)
	case h.User == "":
		return fmt.Sprintf("uid(%d) (container)", h.UID)
	case h.Via != 0:
		return h.User + " (container)"
	}
	return fmt.Sprintf("%s(%d)", h.User, h.UID)
}

// Judged is the state of an LPU over time.
type Judged struct {
	Health  Health        `json:"health"`
	Since   time.Duration `json:"since"` // when the state began, in nanoseconds since boot
	Reasons finding.List  `json:"reasons"`
	Source  string        `json:"source"` // the file that says so
}

// Fit reports whether the LPU can be handed out as far as its health goes: a container
// can work with it, and it does not count as unhealthy, as it still does for a moment
// after a fault has passed.
func (l *LPU) Fit() bool { return l.Usable && l.Health != Unhealthy }

// State returns the state of the LPU in words for people: that of [LPU.Condition] or, if
// it is not usable, the id of the first error with spaces for dashes, such as "no driver"
// or "absent".
func (l *LPU) State() string {
	if first := l.Reasons.FirstError(); first != nil && !l.Usable {
		return l.orCordoned(strings.ReplaceAll(string(first.ID), "-", " "))
	}
	return l.Condition()
}

// Condition returns the health in words for people: "absent" if there is nothing that
// could have any, "-" of a card that was not read because it is asleep, and in which
// nothing else is wrong; and whether the LPU is cordoned: "healthy,cordoned".
func (l *LPU) Condition() string {
	switch {
	case l.Absent:
		return l.orCordoned("absent")
	case l.Health == Healthy && l.Reasons.Has(finding.Asleep):
		return l.orCordoned("-")
	}
	return l.orCordoned(string(l.Health))
}

func (l *LPU) orCordoned(state string) string {
	if l.Cordoned != nil {
		state += ",cordoned"
	}
	return state
}

// Node is a character device in /dev.
type Node struct {
	// Path is "/dev/" and DEVNAME from uevent of the class device, or the path of a rule.
	Path string `json:"path"`
	// Major is dev of the class device, before the colon; of a path rule that of the node in
	// /dev, or 0.
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"` // dev of the class device, after the colon
	// Verified: /dev has this node with these numbers, and the kernel's link
	// sys/dev/char/MAJOR:MINOR leads to the LPU's own PCI function (of a node in
	// Management.Nodes: to that function). It is false where /dev cannot be seen, or
	// where the tree has no such links, and of a hidden node. A node that /dev or the
	// kernel contradicts is not in the inventory.
	Verified bool `json:"verified"`
	// Hidden: lpuctl run keeps this process from the node, which is there.
	Hidden bool `json:"hidden,omitempty"`

	Directory bool `json:"-"` // a directory is in its place, as its mode says (stat(2))
}

// Link is the PCI Express link of a function. A field is 0 when the kernel does not know
// it.
type Link struct {
	SpeedGTs    float64 `json:"speedGTs"`    // current_link_speed, GT/s
	Width       int     `json:"width"`       // current_link_width, lanes
	MaxSpeedGTs float64 `json:"maxSpeedGTs"` // max_link_speed, GT/s
	MaxWidth    int     `json:"maxWidth"`    // max_link_width, lanes
}

// String returns the current speed and width as lspci prints them: "8.0GT/s x16".
func (l Link) String() string { return linkText(l.SpeedGTs, l.Width) }

// Most returns the highest speed and width, in the form of String.
func (l Link) Most() string { return linkText(l.MaxSpeedGTs, l.MaxWidth) }

func linkText(speed float64, width int) string {
	if speed == 0 || width == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.1fGT/s x%d", speed, width)
}

// Management is the function of a card that administers it. A container gets it only on
// request.
type Management struct {
	Address pci.Address `json:"address"`
	Nodes   []Node      `json:"nodes,omitempty"` // only if Options.Management is set
}

// Mount is a directory or file of the host that a container with the LPU needs.
type Mount struct {
	HostPath      string `json:"hostPath"`
	ContainerPath string `json:"containerPath,omitempty"` // empty: the same
	// Present says that the path exists on the scanned machine.
	Present bool `json:"-"`
}

// TablePlace is where a container gets a ring table of its own, which is a mount of one
// file.
type TablePlace struct {
	Path string // in the container; "": there is none
	// HostPath is the file of the host that a container without a table of its own sees
	// there, if it exists; "": none.
	HostPath string
	// Unfit says why it cannot be mounted there; "": it can. Where a container gets the
	// directory from the host, the file to mount on must be there. Anywhere else the
	// runtime makes it.
	Unfit string
}
