package certify

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// busChecks are HW-1 to HW-12: the card on the PCI bus.
func busChecks() []Check {
	return []Check{
		{"HW-1", "The LPU of an Orion is function 1 of an Alveo U55C, 10ee:505d, and a card has one.", needsCard, userFunction},
		{"HW-2", "Function 0 of the card is 10ee:505c under xclmgmt, and has one class device in xrt_mgmt.", needsManagement, managingFunction},
		{"HW-3", "Each U55C in the server is an LPU.", "compare the rows of lpuctl list with those of hyperdex-smi", eachIsLPU},
		{"HW-4", "The PCI class of both functions is 0x120000, unless the shell sets another one.", needsCard, classes},
		{"HW-5", "xocl makes exactly one render node for the user function.", needsDriver, renderNodes},
		{"HW-6", "XRT's udev rules let every user open render nodes and xclmgmt nodes.",
			"a node with a card under xocl, and its /dev", openToAll},
		{"HW-7", "HyperDex opens neither /dev/xclmgmt* nor anything in /dev/xfpga.",
			"strace -f -e trace=openat -o t PROGRAM with a model on one LPU; grep -c 'xclmgmt\\|xfpga' t", opensOthers},
		{"HW-8", "A U55C has no virtual functions.", needsCard, virtualFunctions},
		{"HW-9", "An Orion has eight cards, four behind each of two switches, a switch on each NUMA node; or two or four cards.",
			"an Orion server, not a virtual machine, with all of its cards", places},
		{"HW-10", "The link of a card is generation 3 with 16 lanes, and keeps them while the card is idle.", needsCard, links},
		{"HW-11", "The functions of a card have the files aer_dev_*.",
			"a card, and a kernel that counts the errors of the port above it", errorCounters},
		{"HW-12", "/sys/module/xocl/version has the version and, after a comma, the commit.",
			"that an image needs the same XRT: a container with another one", moduleVersion},
	}
}

// What several checks take.
const (
	needsCard       = "a node with an Alveo U55C"
	needsDriver     = "a node with an Alveo U55C under xocl that is not being reset"
	needsManagement = "a node that shows function 0 of an Alveo U55C, which a virtual machine may not"
)

func userFunction(f *Facts) answer {
	var t tally
	on := map[string]int{}
	for _, fn := range f.cards() {
		on[fn.Sibling(0).String()]++
		t.see(fn.Function == 1 && on[fn.Sibling(0).String()] == 1, f.shown(fn, "device"), "10ee:505d")
	}
	for _, fn := range f.functions {
		if fn.driver == "xocl" && (fn.vendor != xilinx || fn.device != userDevice) {
			t.see(false, f.shown(fn, "driver"), fmt.Sprintf("xocl, of %s:%s", fn.vendor, fn.device))
		}
	}
	return t.answer()
}

func managingFunction(f *Facts) answer {
	var t tally
	for _, fn := range f.cards() {
		m := f.at(fn.Sibling(0))
		switch {
		case m == nil:
			t.note(f.tree.Shown(fn.Sibling(0).Dir()), none)
		case m.vendor != xilinx || m.device != managingDevice:
			t.see(false, f.shown(*m, "device"), m.vendor+":"+m.device)
		case m.driver == "" || m.driver == "vfio-pci":
			t.note(f.shown(*m, "driver"), orNone(m.driver))
		case m.driver != "xclmgmt":
			t.see(false, f.shown(*m, "driver"), m.driver)
		default:
			devices := withPrefix(f.names(m.Dir()+"/xrt_mgmt"), "xclmgmt")
			t.see(len(devices) == 1, f.shown(*m, "xrt_mgmt"), orNone(strings.Join(devices, " ")))
		}
	}
	return t.answer()
}

func orNone(text string) string {
	if text == "" {
		return none
	}
	return text
}

// eachIsLPU compares with the number of cards that HyperDex has counted. A table that is
// older than the cards says another one, so only the same number decides; and a card
// whose logic has another name is none.
func eachIsLPU(f *Facts) answer {
	var t tally
	for _, fn := range f.up() {
		for _, name := range f.below(fn, "rom.u.", "VBNV") {
			if name.text != "" && !strings.HasPrefix(name.text, "xilinx_u55c_") {
				t.see(false, f.tree.Shown(name.path), name.text)
			}
		}
	}
	for _, table := range f.tables() {
		if table.parsed == nil || table.parsed.Count == 0 {
			continue
		}
		value := fmt.Sprintf("num_device %d, and %d cards on the bus", table.parsed.Count, len(f.cards()))
		if table.parsed.Count == len(f.cards()) {
			t.see(true, table.shown, value)
		} else {
			t.note(table.shown, value)
		}
	}
	return t.answer()
}

func classes(f *Facts) answer {
	var t tally
	for _, fn := range f.functions {
		if fn.vendor == xilinx && (fn.device == userDevice || fn.device == managingDevice) {
			t.see(fn.class == "0x120000", f.shown(fn, "class"), fn.class)
		}
	}
	return t.answer()
}

func renderNodes(f *Facts) answer {
	var t tally
	for _, fn := range f.up() {
		nodes := withPrefix(f.names(fn.Dir()+"/drm"), "renderD")
		t.see(len(nodes) == 1, f.shown(fn, "drm"), orNone(strings.Join(nodes, " ")))
	}
	return t.answer()
}

func openToAll(f *Facts) answer {
	var t tally
	for _, fn := range f.driven() {
		for _, node := range withPrefix(f.names(fn.Dir()+"/drm"), "renderD") {
			f.seeMode(&t, "/dev/dri/"+node)
		}
		for _, node := range withPrefix(f.names(fn.Sibling(0).Dir()+"/xrt_mgmt"), "xclmgmt") {
			f.seeMode(&t, "/dev/"+node)
		}
	}
	return t.answer()
}

func (f *Facts) seeMode(t *tally, node string) {
	if mode, err := f.mode(node); err == nil && f.isNode(node) {
		t.see(mode&0o666 == 0o666, f.tree.Shown(node), fmt.Sprintf("mode %04o", mode))
	}
}

// opensOthers looks at what processes have open that have an LPU open. What they have
// closed again is not seen, so this can only refute.
func opensOthers(f *Facts) answer {
	var t tally
	for _, pid := range slices.Sorted(maps.Keys(f.users())) {
		dir := fmt.Sprintf("proc/%d/fd", pid)
		opened, _ := f.tree.Links(dir)
		for _, fd := range slices.Sorted(maps.Keys(opened)) {
			target := opened[fd]
			if strings.HasPrefix(target, "/dev/xclmgmt") || strings.HasPrefix(target, "/dev/xfpga/") {
				t.see(false, f.tree.Shown(path.Join(dir, fd)), target)
			}
		}
	}
	return t.answer()
}

// users returns the LPUs under XRT's driver that each process has open.
func (f *Facts) users() map[int][]*discovery.LPU {
	users := map[int][]*discovery.LPU{}
	for _, fn := range f.driven() {
		if l := f.lpu(fn.Address); l != nil {
			for _, u := range l.Users {
				users[u.PID] = append(users[u.PID], l)
			}
		}
	}
	return users
}

func virtualFunctions(f *Facts) answer {
	var t tally
	for _, fn := range f.cards() {
		total, err := f.tree.Line(fn.Dir() + "/sriov_totalvfs")
		t.see(err != nil && !fn.names["sriov_totalvfs"] && !fn.names["physfn"], f.shown(fn, "sriov_totalvfs"), orNone(total))
	}
	return t.answer()
}

// places judges where the cards are. Where a card is missing, or the functions stand at
// no port as in a virtual machine, nothing is decided.
func places(f *Facts) answer {
	var t tally
	cards := f.cards()
	missing := slices.ContainsFunc(f.inventory.LPUs, func(l discovery.LPU) bool { return l.Absent })
	virtual := slices.ContainsFunc(cards, func(fn function) bool {
		l := f.lpu(fn.Address)
		return l == nil || f.at(fn.Sibling(0)) == nil || len(l.Reading.Ports) == 0
	})
	if len(cards) == 0 || missing || virtual {
		return t.answer()
	}
	behind := map[string]int{} // cards, by their switch and NUMA node
	for _, fn := range cards {
		behind[f.place(fn)]++
	}
	var said, nodes []string
	whole := len(behind) == 2
	for _, at := range slices.Sorted(maps.Keys(behind)) {
		said = append(said, fmt.Sprintf("%d %s", behind[at], at))
		nodes = append(nodes, at[strings.LastIndex(at, " "):])
		whole = whole && behind[at] == 4 && strings.HasPrefix(at, "behind") && !strings.HasSuffix(at, unknown)
	}
	whole = whole && nodes[0] != nodes[1]
	n := len(cards)
	t.see(n == 2 || n == 4 || n == 8 && whole, f.tree.Shown(pci.Devices), fmt.Sprintf("%d cards: %s", n, strings.Join(said, ", ")))
	return t.answer()
}

const unknown = "unknown"

// place says behind which switch an LPU is, and on which NUMA node.
func (f *Facts) place(fn function) string {
	l := f.lpu(fn.Address)
	at, node := "at a root port", unknown
	if l.Switch != nil {
		at = "behind switch " + l.Switch.String()
	}
	if l.NUMANode != nil {
		node = strconv.Itoa(*l.NUMANode)
	}
	return at + " on NUMA node " + node
}

func links(f *Facts) answer {
	var t tally
	for _, fn := range f.cards() {
		l := f.lpu(fn.Address)
		if l == nil || l.Link == nil || l.Reading.AllOnes || l.Link.MaxWidth == 0 {
			continue
		}
		t.see(l.Link.MaxSpeedGTs == 8 && l.Link.MaxWidth == 16, f.shown(fn, "max_link_speed"), "at most "+l.Link.Most())
		if l.Link.Width > 0 {
			t.see(l.Link.Width >= l.Reading.MaxLink.Width, f.shown(fn, "current_link_width"),
				fmt.Sprintf("%d of %d that card and slot have", l.Link.Width, l.Reading.MaxLink.Width))
		}
	}
	return t.answer()
}

// errorCounters expects the files where the kernel has them of the port above.
func errorCounters(f *Facts) answer {
	var t tally
	kinds := []string{"correctable", "fatal", "nonfatal"}
	for _, fn := range f.cards() {
		l := f.lpu(fn.Address)
		if l == nil {
			continue
		}
		functions := []function{fn}
		if m := f.at(fn.Sibling(0)); m != nil {
			functions = append(functions, *m)
		}
		counts := false
		for _, port := range l.Reading.Ports {
			counts = counts || f.tree.Exists(port.Dir()+"/aer_dev_fatal")
		}
		for _, of := range functions {
			for _, kind := range kinds {
				has := of.names["aer_dev_"+kind]
				if has || counts {
					t.see(has, f.shown(of, "aer_dev_"+kind), map[bool]string{true: "there", false: none}[has])
				}
			}
		}
	}
	return t.answer()
}

// versionForm is a version of XRT with its commit.
func versionForm() *regexp.Regexp { return regexp.MustCompile(`^\d+\.\d+\.\d+,[0-9a-fA-F]+$`) }

const xoclModule = "sys/module/xocl"

func moduleVersion(f *Facts) answer {
	var t tally
	if f.tree.Exists(xoclModule) {
		version, _ := f.tree.Line(xoclModule + "/version")
		t.see(versionForm().MatchString(version), f.tree.Shown(xoclModule+"/version"), orNone(version))
	}
	return t.answer()
}
