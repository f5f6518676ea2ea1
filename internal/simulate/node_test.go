package simulate

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

const block = "sys/devices/pci0000:40/0000:40:00.0"

// A function of the capture and the simulated one at the same address have the same attributes in the same forms.
func TestFunctionsAreLikeTheCapturedOnes(t *testing.T) {
	captured := capture(t)
	simulated, _ := write(t, Node{Profile: "orion"})
	for name, dir := range map[string]string{
		"root port":           block,
		"upstream port":       block + "/0000:41:00.0",
		"downstream port":     block + "/0000:41:00.0/0000:42:01.0",
		"management function": block + "/0000:41:00.0/0000:42:01.0/0000:44:00.0",
		"user function":       block + "/0000:41:00.0/0000:42:01.0/0000:44:00.1",
	} {
		t.Run(name, func(t *testing.T) {
			compared := 0
			for p, want := range captured {
				rest, ok := strings.CutPrefix(p, dir+"/")
				if !ok || notSimulated.MatchString(rest) || childFunction.MatchString(rest) {
					continue
				}
				compared++
				if got, ok := simulated[p]; !ok {
					t.Errorf("%s is missing", rest)
				} else if problem := unlike(rest, want, got); problem != "" {
					t.Errorf("%s: %s", rest, problem)
				}
			}
			if compared < 28 {
				t.Errorf("compared %d attributes only", compared)
			}
		})
	}
}

var (
	// uio: the captured cards are under uio_pci_generic, ours under XRT. msi_irqs: there are no interrupts
	// here. link: power saving that the virtual machine's upstream port offers.
	notSimulated  = regexp.MustCompile(`^(uio|msi_irqs|link)/`)
	childFunction = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]/`)

	// Attributes that legitimately differ in form between that virtual machine and a server.
	form = map[string]*regexp.Regexp{
		"local_cpus":               regexp.MustCompile(`^[0-9a-f]{8}(,[0-9a-f]{8})*\n$`),
		"local_cpulist":            regexp.MustCompile(`^\d+-\d+\n$`),
		"pci_bus/cpuaffinity":      regexp.MustCompile(`^[0-9a-f]{8}(,[0-9a-f]{8})*\n$`),
		"pci_bus/cpulistaffinity":  regexp.MustCompile(`^\d+-\d+\n$`),
		"power_state":              regexp.MustCompile(`^(D0|unknown)\n$`),
		"reset_method":             regexp.MustCompile(`^(bus|flr)\n$`),
		"max_link_speed":           regexp.MustCompile(`^\d+\.\d GT/s PCIe\n$`),
		"consistent_dma_mask_bits": regexp.MustCompile(`^(32|64)\n$`),
		"dma_mask_bits":            regexp.MustCompile(`^(32|64)\n$`),
		"config":                   regexp.MustCompile(`(?s)^.{256}$`),
		"vpd":                      regexp.MustCompile(`(?s)^.*PN.*SN.*RV.*x$`),
	}
	number = regexp.MustCompile(`[0-9A-Fa-f]*[0-9][0-9A-Fa-f]*`)
)

// unlike says how an entry differs from the captured one; "" when it has the same form.
func unlike(name, want, got string) string {
	if wantTarget, isLink := strings.CutPrefix(want, "-> "); isLink {
		gotTarget, isLink := strings.CutPrefix(got, "-> ")
		switch path.Base(name) {
		case "driver", "iommu_group": // another driver, another number
			wantTarget, gotTarget = path.Dir(wantTarget), path.Dir(gotTarget)
		}
		if !isLink || gotTarget != wantTarget {
			return fmt.Sprintf("%q, captured %q", got, want)
		}
		return ""
	}
	_, want, _ = strings.Cut(want, " ")
	mode, got, isFile := strings.Cut(got, " ")
	if !isFile || mode[0] != '-' {
		return "not a file: " + got
	}
	if path.Base(name) == "uevent" {
		want, got = withoutDriver(want), withoutDriver(got)
	}
	if dir, attribute, found := strings.Cut(name, "/"); found && dir == "pci_bus" {
		name = "pci_bus/" + path.Base(attribute)
	}
	pattern := form[name]
	if pattern == nil {
		pattern = formOf(want)
	}
	if !pattern.MatchString(got) {
		return fmt.Sprintf("%q does not have the form %v", got, pattern)
	}
	return ""
}

// formOf is a captured text with every number replaced by any number, of as many digits if they are at least four.
func formOf(text string) *regexp.Regexp {
	pattern := number.ReplaceAllStringFunc(regexp.QuoteMeta(text), func(digits string) string {
		if len(digits) < 4 {
			return "[0-9A-Fa-f]+"
		}
		return fmt.Sprintf("[0-9A-Fa-f]{%d}", len(digits))
	})
	return regexp.MustCompile("^" + pattern + "$")
}

func withoutDriver(uevent string) string {
	return regexp.MustCompile(`(?m)^DRIVER=.*\n`).ReplaceAllString(uevent, "")
}

func TestEveryProfileIsWhole(t *testing.T) {
	for _, p := range Profiles() {
		nodes := []Node{{Profile: p.Name}, {Profile: p.Name, LPUs: 1}, {Profile: p.Name, LPUs: 11, Functions: 90}}
		if p.Name == "edge" { // one is enough for the virtual functions of a large node
			nodes = append(nodes, Node{Profile: p.Name, LPUs: 3, Functions: 500})
		}
		for _, n := range nodes {
			t.Run(fmt.Sprintf("%s-%d-%d", n.Profile, n.LPUs, n.Functions), func(t *testing.T) {
				tree, result := write(t, n)
				if want := cmp.Or(n.LPUs, p.LPUs); result.LPUs != want {
					t.Errorf("%d LPUs, expected %d", result.LPUs, want)
				}
				if n.Functions != 0 && result.Functions != n.Functions {
					t.Errorf("%d functions, expected %d", result.Functions, n.Functions)
				}
				if got := len(tree.children("sys/bus/pci/devices")); got != result.Functions {
					t.Errorf("%d entries in sys/bus/pci/devices, the result says %d", got, result.Functions)
				}
				if got := len(lpuFunctions(t, tree)); got != result.LPUs {
					t.Errorf("%d functions are LPUs by their ids, expected %d", got, result.LPUs)
				}
				checkLinks(t, tree)
				checkFunctions(t, tree)
				checkNodes(t, tree, result.DeviceNodes)
			})
		}
	}
}

func (l listing) children(dir string) []string {
	var names []string
	for p := range l {
		if path.Dir(p) == dir {
			names = append(names, path.Base(p))
		}
	}
	slices.Sort(names)
	return names
}

// lpuFunctions are the directories of the LPUs, in the order of their addresses.
func lpuFunctions(t *testing.T, tree listing) []string {
	t.Helper()
	found := map[pci.Address]string{}
	for _, name := range tree.children("sys/bus/pci/devices") {
		dir, err := tree.resolve("sys/bus/pci/devices/" + name)
		if err != nil {
			t.Fatal(err)
		}
		id := tree.content(t, dir+"/vendor") + tree.content(t, dir+"/device")
		if id == "0x10ee0x505d" || id == "0x20fb0x0010" {
			a, err := pci.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			found[a] = dir
		}
	}
	var dirs []string
	for _, a := range slices.SortedFunc(maps.Keys(found), pci.Address.Compare) {
		dirs = append(dirs, found[a])
	}
	return dirs
}

// checkLinks checks that all links are relative and lead to something in the tree, by the kernel's way.
func checkLinks(t *testing.T, tree listing) {
	t.Helper()
	for p, what := range tree {
		target, isLink := strings.CutPrefix(what, "-> ")
		if !isLink {
			continue
		}
		if resolved, err := tree.resolve(p); err != nil {
			t.Error(err)
		} else if want := linkTarget(p, resolved); target != want {
			t.Errorf("%s: %q, the kernel would write %q", p, target, want)
		}
	}
}

// checkFunctions checks that what lspci reads of each function, configuration space and text attributes, agrees.
func checkFunctions(t *testing.T, tree listing) {
	t.Helper()
	for _, name := range tree.children("sys/bus/pci/devices") {
		dir, _ := tree.resolve("sys/bus/pci/devices/" + name)
		_, config, _ := strings.Cut(tree[dir+"/config"], " ")
		c := []byte(config)
		if len(c) != 256 || path.Base(dir) != name {
			t.Errorf("%s: %d bytes of configuration in %s", name, len(c), dir)
			continue
		}
		checkAbove(t, tree, dir)
		if config == strings.Repeat("\xff", 256) {
			if width := tree.content(t, dir+"/current_link_width"); width != "63" {
				t.Errorf("%s: its configuration is all ones, and %s lanes", name, width)
			}
			continue
		}
		u16 := func(at int) string { return fmt.Sprintf("0x%04x", binary.LittleEndian.Uint16(c[at:])) }
		want := map[string]string{
			"vendor": u16(0), "device": u16(2),
			"class":    fmt.Sprintf("0x%02x%02x%02x", c[0xb], c[0xa], c[0x9]),
			"revision": fmt.Sprintf("0x%02x", c[8]),
		}
		if _, isVF := tree[dir+"/physfn"]; !isVF { // the header of a virtual function is not read
			_, several := tree["sys/bus/pci/devices/"+name[:len(name)-1]+"1"]
			if got := c[0x0e]&0x80 != 0; got != several {
				t.Errorf("%s: multi-function bit %v", name, got)
			}
		}
		resources := strings.Split(tree.content(t, dir+"/resource"), "\n")
		if c[0x0e]&0x7f == 1 {
			start := uint64(binary.LittleEndian.Uint32(c[0x28:]))<<32 | uint64(c[0x25])<<24 | uint64(c[0x24]&0xf0)<<16
			end := uint64(binary.LittleEndian.Uint32(c[0x2c:]))<<32 | uint64(c[0x27])<<24 | uint64(c[0x26])<<16 | 0xfffff
			if line := fmt.Sprintf("0x%016x 0x%016x 0x0000000000102201", start, end); len(resources) != 17 || resources[15] != line {
				t.Errorf("%s: window %q, its configuration says %s", name, resources[15:], line)
			}
			want["secondary_bus_number"], want["subordinate_bus_number"] = fmt.Sprint(c[0x19]), fmt.Sprint(c[0x1a])
			if address := fmt.Sprintf(":%02x:", c[0x18]); !strings.Contains(name, address) {
				t.Errorf("%s: primary bus %02x", name, c[0x18])
			}
		} else {
			want["subsystem_vendor"], want["subsystem_device"] = u16(0x2c), u16(0x2e)
			start := binary.LittleEndian.Uint64(c[0x10:]) &^ 0xf
			if len(resources) != 13 || !strings.HasPrefix(resources[0], fmt.Sprintf("0x%016x ", start)) {
				t.Errorf("%s: resource %q, its configuration says 0x%016x", name, resources[0], start)
			}
		}
		if at := c[0x34]; at != 0 {
			express := findCapability(c, at, 0x10)
			capability, status := binary.LittleEndian.Uint32(express[0xc:]), binary.LittleEndian.Uint16(express[0x12:])
			want["max_link_width"], want["current_link_width"] = fmt.Sprint(capability>>4&0x3f), fmt.Sprint(status>>4&0x3f)
			want["max_link_speed"], want["current_link_speed"] = speeds[capability&0xf], speeds[status&0xf]
		} else if _, ok := tree[dir+"/max_link_speed"]; ok {
			t.Errorf("%s: link attributes without a PCI Express capability", name)
		}
		for attribute, text := range want {
			if got := tree.content(t, dir+"/"+attribute); got != text {
				t.Errorf("%s: %s is %s, its configuration says %s", name, attribute, got, text)
			}
		}
		uevent := tree.content(t, dir+"/uevent")
		if !strings.Contains(uevent, "PCI_SLOT_NAME="+name+"\n") ||
			!strings.HasSuffix(uevent, "MODALIAS="+tree.content(t, dir+"/modalias")) {
			t.Errorf("%s: uevent %q", name, uevent)
		}
		driver := path.Base(tree[dir+"/driver"])
		if (driver != ".") != strings.HasPrefix(uevent, "DRIVER="+driver+"\n") {
			t.Errorf("%s: driver link %q, uevent %q", name, driver, uevent)
		}
	}
}

// checkAbove checks that a function is on a bus that the bridge above it leads to.
func checkAbove(t *testing.T, tree listing, dir string) {
	t.Helper()
	a, err := pci.Parse(path.Base(dir))
	if err != nil {
		t.Fatal(err)
	}
	bridge := path.Dir(dir)
	if _, config, ok := strings.Cut(tree[bridge+"/config"], " "); !ok {
		if want := fmt.Sprintf("sys/devices/pci%04x:%02x", a.Domain, a.Bus); bridge != want {
			t.Errorf("%s: not in %s", dir, want)
		}
	} else if a.Bus < config[0x19] || a.Bus > config[0x1a] {
		t.Errorf("%s: not on the buses %02x to %02x of its bridge", dir, config[0x19], config[0x1a])
	}
}

func findCapability(c []byte, at, id byte) []byte {
	for c[at] != id {
		at = c[at+1]
	}
	return c[at:]
}

// checkNodes checks that dev has exactly the nodes that the class devices say, with their numbers, and that sys/dev/char
// leads from these numbers to the class devices.
func checkNodes(t *testing.T, tree listing, deviceNodes bool) {
	t.Helper()
	want, byNumbers := map[string]string{}, map[string]string{}
	for p := range tree {
		if !isDevFile(p) {
			continue
		}
		byNumbers[tree.content(t, p)] = path.Dir(p)
		uevent := tree.content(t, path.Dir(p)+"/uevent")
		m := regexp.MustCompile(`^MAJOR=(\d+)\nMINOR=(\d+)\nDEVNAME=(\S+)(\nDEVTYPE=drm_minor)?$`).FindStringSubmatch(uevent)
		if m == nil || m[1]+":"+m[2] != tree.content(t, p) {
			t.Errorf("%s: %q beside %q", p, uevent, tree.content(t, p))
			continue
		}
		if deviceNodes {
			want["dev/"+m[3]] = "Dcrw-rw-rw- " + m[1] + ":" + m[2]
		}
	}
	got := map[string]string{}
	for p, what := range tree {
		if strings.HasPrefix(p, "dev/") && what[0] != 'd' {
			got[p] = what
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("nodes differ (-class devices +dev):\n%s", diff)
	}
	if _, ok := tree["dev"]; ok != deviceNodes {
		t.Errorf("dev is there: %v; the result says %v", ok, deviceNodes)
	}
	leadTo := map[string]string{}
	for _, numbers := range tree.children("sys/dev/char") {
		leadTo[numbers], _ = tree.resolve("sys/dev/char/" + numbers)
	}
	if diff := gocmp.Diff(byNumbers, leadTo); diff != "" {
		t.Errorf("sys/dev/char differs (-class devices +sys/dev/char):\n%s", diff)
	}
}

// isDevFile tells whether a path of a tree is the attribute dev of a class device.
func isDevFile(p string) bool { return strings.HasPrefix(p, "sys/devices/") && path.Base(p) == "dev" }

// A caller who may not make device nodes, such as an ordinary user, gets a tree without dev.
func TestWithoutTheRightToMakeNodes(t *testing.T) {
	dir := t.TempDir()
	var result Result
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // not unlocked: the thread, without its capability, ends here
		if err = dropMknod(); err == nil {
			result, err = Node{Profile: "orion", LPUs: 2}.Write(dir)
		}
	}()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	if result.DeviceNodes {
		t.Error("the result has device nodes")
	}
	checkNodes(t, list(t, dir), result.DeviceNodes)
}

func dropMknod() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_MKNOD
	return unix.Capset(&header, &data[0])
}

func TestOrion(t *testing.T) {
	tree, _ := write(t, Node{Profile: "orion", LPUs: 9})
	lpus := lpuFunctions(t, tree)
	var addresses, renders, serials []string
	for _, dir := range lpus {
		addresses = append(addresses, path.Base(dir))
		renders = append(renders, childNamed(t, tree, dir+"/drm", "renderD"))
		sensors := dir + "/" + childNamed(t, tree, dir, "xmc.u.")
		serials = append(serials, tree.content(t, sensors+"/serial_num"))
		rom := dir + "/" + childNamed(t, tree, dir, "rom.u.")
		if got := tree.content(t, rom+"/VBNV"); got != "xilinx_u55c_gen3x16_xdma_base_3" {
			t.Errorf("%s: shell %s", dir, got)
		}
		checkProductData(t, tree, dir, tree.content(t, sensors+"/serial_num"))
		checkStates(t, tree, dir, "/dev/dri/renderD128")
	}
	if diff := gocmp.Diff([]string{"0000:43:00.1", "0000:44:00.1", "0000:45:00.1", "0000:46:00.1",
		"0000:83:00.1", "0000:84:00.1", "0000:85:00.1", "0000:86:00.1", "0001:43:00.1"}, addresses); diff != "" {
		t.Error(diff)
	}
	if diff := gocmp.Diff([]string{"renderD134", "renderD135", "renderD136", "renderD137",
		"renderD130", "renderD131", "renderD132", "renderD133", "renderD138"}, renders); diff != "" {
		t.Errorf("render nodes are not in probe order:\n%s", diff)
	}
	if slices.Sort(serials); len(slices.Compact(serials)) != 9 {
		t.Errorf("serial numbers are not unique: %v", serials)
	}
	for node, dir := range map[string]string{"0": lpus[0], "1": lpus[4]} {
		if got := tree.content(t, dir+"/numa_node"); got != node {
			t.Errorf("%s: NUMA node %s, expected %s", dir, got, node)
		}
	}
	if got := tree.content(t, path.Dir(lpus[1])+"/0000:44:00.0/instance"); got != strconv.Itoa(0x4400) {
		t.Errorf("instance %s of 0000:44:00.0", got)
	}
	for minor, address := range map[string]string{"128": "0000:21:00.0", "129": "0000:a1:00.0"} {
		if dir, err := tree.resolve("sys/class/drm/renderD" + minor + "/device"); err != nil || path.Base(dir) != address {
			t.Errorf("renderD%s is of %s, not of the GPU %s (%v)", minor, dir, address, err)
		}
	}
}

// checkProductData checks the serial number in vpd, and that the bytes up to the checksum add up to 0.
func checkProductData(t *testing.T, tree listing, dir, serial string) {
	t.Helper()
	mode, vpd, _ := strings.Cut(tree[dir+"/vpd"], " ")
	field := fmt.Sprintf("SN%c%s", len(serial), serial)
	var sum byte
	for i := range len(vpd) - 1 { // without the end tag
		sum += vpd[i]
	}
	if mode != "-rw-------" || sum != 0 || !strings.Contains(vpd, field) {
		t.Errorf("%s: product data %s %q, expected serial number %s", dir, mode, vpd, serial)
	}
}

func childNamed(t *testing.T, tree listing, dir, prefix string) string {
	t.Helper()
	for _, name := range tree.children(dir) {
		if strings.HasPrefix(name, prefix) {
			return name
		}
	}
	t.Fatalf("%s: nothing named %s...", dir, prefix)
	return ""
}

// checkStates: a card has each attribute by which its driver says how it is.
func checkStates(t *testing.T, tree listing, dir, node string) {
	t.Helper()
	for _, name := range discovery.DriverStates([]discovery.Node{{Path: node}}) {
		if strings.HasPrefix(name, "ha/") == strings.HasPrefix(node, "/dev/ha") {
			tree.content(t, dir+"/"+name)
		}
	}
}

func TestNumbersOfTheClassLPU(t *testing.T) {
	tree, _ := write(t, Node{Profile: "lpu", LPUs: 9})
	for i, dir := range lpuFunctions(t, tree) {
		if got, want := tree.content(t, fmt.Sprintf("%s/lpu/lpu%d/dev", dir, i)), fmt.Sprint("511:", i); got != want {
			t.Errorf("%s: %s, expected %s", dir, got, want)
		}
	}
}

func TestBerthaNodesAreNotInAddressOrder(t *testing.T) {
	tree, _ := write(t, Node{Profile: "bertha"})
	var names []string
	for _, dir := range lpuFunctions(t, tree) {
		name := childNamed(t, tree, dir+"/ha", "ha")
		names = append(names, name)
		checkProductData(t, tree, dir, tree.content(t, dir+"/ha/"+name+"/serial"))
		checkStates(t, tree, dir, "/dev/"+name)
	}
	if diff := gocmp.Diff([]string{"ha4", "ha5", "ha6", "ha7", "ha0", "ha1", "ha2", "ha3"}, names); diff != "" {
		t.Error(diff)
	}
	if got := tree.content(t, "etc/lpuctl/config.yaml"); !strings.Contains(got, `{vendor: "20fb", device: "0010"}`) {
		t.Errorf("config.yaml: %s", got)
	}
}

func TestRingTable(t *testing.T) {
	for lpus, want := range map[int]string{
		2: "0>1 1>0",
		8: "0>1 1>2 2>3 3>4 4>5 5>6 6>7 7>0",
		// Two cards alone in a second ring; the first card moves to the end of the order.
		10: "9>0 0>1 1>2 2>3 3>4 4>5 5>6 6>9 7>8 8>7",
	} {
		n := Node{Profile: "orion", LPUs: lpus}
		if lpus == 10 {
			n.Faults = []Fault{{"wide-domain", 0}}
		}
		tree, _ := write(t, n)
		var table struct {
			Network []struct {
				Src       int    `json:"src_id"`
				Dst       int    `json:"dst_id"`
				Direction string `json:"direction"`
			} `json:"network"`
			Count int `json:"num_device"`
		}
		if err := json.Unmarshal([]byte(tree.content(t, "opt/hyperdex/hrt/xclbin/table.json")), &table); err != nil {
			t.Fatal(err)
		}
		var links []string
		for _, l := range table.Network {
			links = append(links, fmt.Sprintf("%d>%d", l.Src, l.Dst))
		}
		if got := strings.Join(links, " "); got != want || table.Count != lpus || table.Network[0].Direction != "Right" {
			t.Errorf("%d LPUs: %s of %d, expected %s", lpus, got, table.Count, want)
		}
	}
	tree, _ := write(t, Node{Profile: "edge", LPUs: 1})
	if _, ok := tree["opt/hyperdex/hrt/xclbin/table.json"]; ok {
		t.Error("a single card has a ring table")
	}
}

func TestNumbers(t *testing.T) {
	tree, result := write(t, Node{
		Profile: "orion", LPUs: 2, Numbers: []Numbers{{10, 229}, {10, 237}},
		Faults: []Fault{{"two-nodes", 0}, {"node-mismatch", 1}, {"foreign", 1}},
	})
	got := map[string]string{}
	for p := range tree {
		if isDevFile(p) {
			got[path.Base(path.Dir(p))] = tree.content(t, p)
		}
	}
	want := map[string]string{
		"renderD128": "226:128", "card0": "226:0", "renderD129": "226:129", "card1": "226:1", // GPUs
		"renderD130": "10:237", "card2": "226:2", "renderD131": "10:229", "card3": "226:3",
		"renderD132": "226:132", "card4": "226:4",
		"xclmgmt17152": "238:1", "xclmgmt17408": "238:0", "rbln0": "509:0",
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if result.DeviceNodes {
		for name, want := range map[string]string{"renderD130": "10:238", "renderD131": "10:229", "renderD132": "226:132"} {
			if got := tree["dev/dri/"+name]; got != "Dcrw-rw-rw- "+want {
				t.Errorf("dev/dri/%s: %s, expected %s", name, got, want)
			}
		}
	}
}

// The largest nodes are checked without writing them: nothing that must be unique occurs twice.
func TestLargestNodes(t *testing.T) {
	for _, p := range Profiles() {
		base, err := Node{Profile: p.Name, LPUs: maxLPUs}.server()
		if err != nil {
			t.Fatal(err)
		}
		want := len(base.functions) + maxFill
		s, err := Node{Profile: p.Name, LPUs: maxLPUs, Functions: want}.server()
		if err != nil {
			t.Fatal(err)
		}
		if len(s.functions) != want || len(s.cards) != maxLPUs {
			t.Errorf("%s: %d functions, %d LPUs", p.Name, len(s.functions), len(s.cards))
		}
		seen := map[string]bool{}
		unique := func(what ...any) {
			key := fmt.Sprintln(what...)
			if seen[key] {
				t.Errorf("%s: twice %s", p.Name, key)
			}
			seen[key] = true
		}
		last := pci.Address{}
		for _, f := range s.functions {
			unique("function", f.address)
			if f.slot > 0 {
				unique("slot", f.slot)
			}
			if f.parent == nil && f.secondary > 0 {
				unique("bus", f.address.Domain, f.secondary)
			}
			for _, c := range f.children {
				unique("child", c.class, c.name)
				if c.hasNode() {
					unique("node", c.node())
					unique("numbers", c.numbers)
				}
			}
			if last.Compare(f.address) < 0 {
				last = f.address
			}
		}
		if last.Domain != 0x3f {
			t.Errorf("%s: the last function is %s", p.Name, last)
		}
	}
}

func TestSameNodeSameTree(t *testing.T) {
	n := Node{Profile: "orion", LPUs: 9, Functions: 100}
	n.Faults = []Fault{{"foreign", 2}, {"recovery", 3}, {"two-nodes", 3}, {"wide-domain", 1}}
	first, _ := write(t, n)
	slices.Reverse(n.Faults)
	second, _ := write(t, n)
	if diff := gocmp.Diff(first, second); diff != "" {
		t.Error(diff)
	}
}

func TestInvalidNodes(t *testing.T) {
	faults := func(texts ...string) []Fault {
		var list []Fault
		for _, text := range texts {
			name, index, _ := strings.Cut(text, "@")
			i, _ := strconv.Atoi(index)
			list = append(list, Fault{name, i})
		}
		return list
	}
	for _, c := range []struct {
		node Node
		want string
	}{
		{Node{}, `unknown profile "" (choose one of orion, lpu, bertha, edge)`},
		{Node{Profile: "orin"}, `unknown profile "orin" (did you mean orion?)`},
		{Node{Profile: "lpu", LPUs: -1}, "cannot have -1 LPUs (give a number from 1 to 512)"},
		{Node{Profile: "lpu", LPUs: 513}, "cannot have 513 LPUs (give a number from 1 to 512)"},
		{Node{Profile: "orion", Functions: 39}, "cannot have 39 PCI functions (give a number from 40 to 4136, or give none)"},
		{Node{Profile: "orion", Functions: 4137}, "cannot have 4137 PCI functions (give a number from 40 to 4136, or give none)"},
		{Node{Profile: "orion", Functions: -1}, "cannot have -1 PCI functions (give a number from 40 to 4136, or give none)"},
		{Node{Profile: "orion", Functions: 40, Faults: faults("foreign@0")}, "give a number from 42 to 4138"},
		{Node{Profile: "lpu", LPUs: 3, Numbers: []Numbers{{10, 229}, {10, 237}, {10, 229}}},
			"device numbers 10:229 are those of lpu0 and of lpu2 (give each LPU numbers of its own)"},
		{Node{Profile: "orion", LPUs: 2, Numbers: []Numbers{{226, 128}}}, "device numbers 226:128 are those of renderD128 and of renderD131"},
		{Node{Profile: "orion", Faults: faults("unbound@8")}, "fault unbound@8: there is no LPU 8 (give an index from 0 to 7, or more LPUs)"},
		{Node{Profile: "orion", Faults: faults("unbound@-1")}, "fault unbound@-1: there is no LPU -1 (give an index from 0 to 7, or more LPUs)"},
		{Node{Profile: "orion", Faults: faults("unbond@0")}, "did you mean unbound?"},
		{Node{Profile: "bertha", Faults: faults("recovery@0")},
			"fault recovery@0: LPUs of profile bertha do not show it (choose profile orion or edge)"},
		{Node{Profile: "orion", Faults: faults("fifo@1", "fifo@1")},
			"one LPU cannot have both fifo@1 and fifo@1 (leave one of them out, or give it another LPU)"},
		{Node{Profile: "orion", Faults: faults("fifo@1", "numa-unknown@1")}, "cannot have both fifo@1 and numa-unknown@1"},
		{Node{Profile: "orion", Faults: faults("vfio@1", "unbound@1")}, "cannot have both"},
		{Node{Profile: "orion", Faults: faults("vfio@1", "node-missing@1")}, "cannot have both"},
		{Node{Profile: "orion", Faults: faults("two-nodes@1", "unbound@1")}, "cannot have both"},
	} {
		dir := filepath.Join(t.TempDir(), "node")
		_, err := c.node.Write(dir)
		if !strings.Contains(withRemedy(err), c.want) {
			t.Errorf("%+v: error %v, expected %s", c.node, err, c.want)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%+v: something was written (%v)", c.node, err)
		}
	}
}
