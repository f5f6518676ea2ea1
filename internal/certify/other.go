package certify

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// otherChecks are HW-52 to HW-62: Bertha, other cards, and XRT's tools.
func otherChecks() []Check {
	return []Check{
		{"HW-52", "A Bertha has one of the PCI ids in go-halib: 20fb:0010, or vendor 1f26 or 1eff.", needsBertha, berthaIDs},
		{"HW-53", "Bertha's driver is named ha.", needsBertha, berthaDriver},
		{"HW-54", "Bertha's node is /dev/haN, of the class device ha/haN; N follows the order in which the driver met the cards.",
			needsBertha + "; of the order, two starts of it", berthaNode},
		{"HW-55", "Below ha/haN are serial, state (ok, resetting or failed) and errors_uncorrectable.", needsBertha, berthaAttributes},
		{"HW-56", "A container needs libha_driver.so in /usr/local/lib, its header and its pkg-config file.",
			"a node with Bertha's library", berthaLibrary},
		{"HW-57", "Bertha's library counts the cards of a container from 0 in the order of PCI addresses.",
			"in a container with /dev/ha3 alone, open index 0 and index 3", nil},
		{"HW-58", "Whether Berthas are cabled in a ring, and how much memory one has, is not known.", "ask HyperAccel", nil},
		{"HW-59", "A driver makes /dev/lpuN with a class lpu, and its library is in /opt/hyperaccel/lib.",
			"a node with devices of class lpu", genericDriver},
		{"HW-60", "The CDI kind is hyperaccel.ai/lpu; HyperAccel's own tools have used hyperaccel.ai/bertha.",
			"a node on which HyperAccel's tools have written a spec", kinds},
		{"HW-61", "There is no other LPU than those of lpuctl's models.", "a node with LPUs", otherLPUs},
		{"HW-62", "XRT's tools are xbutil and xbmgmt, with the options that remedies name.",
			"XRT on the host; of the options: xbutil reset --help; xbutil configure --help; xbmgmt program --help", tools},
	}
}

const needsBertha = "a node with a Bertha"

// ofClass returns the PCI functions of the devices of a class, with the names of the
// devices.
func (f *Facts) ofClass(class string) map[pci.Address][]string {
	devices := map[pci.Address][]string{}
	targets, _ := f.tree.Links("sys/class/" + class)
	for name, target := range targets {
		if a, ok := pci.Find(path.Base(path.Dir(path.Dir(target)))); ok {
			devices[a] = append(devices[a], name)
			slices.Sort(devices[a])
		}
	}
	return devices
}

// berthas are the functions with a device of class ha, and the LPUs that the config calls
// so.
func (f *Facts) berthas() (berthas []function) {
	devices := f.ofClass("ha")
	for _, fn := range f.functions {
		l := f.lpu(fn.Address)
		if len(devices[fn.Address]) > 0 || l != nil && l.Model == "bertha" {
			berthas = append(berthas, fn)
		}
	}
	return berthas
}

func berthaIDs(f *Facts) answer {
	var t tally
	for a := range f.ofClass("ha") {
		if fn := f.at(a); fn != nil {
			ids := fn.vendor + ":" + fn.device
			t.see(ids == "0x20fb:0x0010" || fn.vendor == "0x1f26" || fn.vendor == "0x1eff", f.shown(*fn, "device"), ids)
		}
	}
	return t.sorted().answer()
}

func berthaDriver(f *Facts) answer {
	var t tally
	for _, fn := range f.berthas() {
		if fn.driver == "" || fn.driver == "vfio-pci" {
			t.note(f.shown(fn, "driver"), orNone(fn.driver))
		} else {
			t.see(fn.driver == "ha", f.shown(fn, "driver"), fn.driver)
		}
	}
	return t.answer()
}

func berthaNode(f *Facts) answer {
	var t tally
	name := regexp.MustCompile(`^ha\d+$`)
	for _, fn := range f.berthas() {
		if fn.driver == "" || fn.driver == "vfio-pci" {
			continue
		}
		devices := f.names(fn.Dir() + "/ha")
		good := len(devices) == 1 && name.MatchString(devices[0]) && f.tree.Exists(fn.Dir()+"/ha/"+devices[0]+"/dev")
		t.see(good, f.shown(fn, "ha"), orNone(strings.Join(devices, " ")))
	}
	return t.answer()
}

// berthaAttributes takes what the scan has read, and does not say the serial number.
func berthaAttributes(f *Facts) answer {
	var t tally
	for _, fn := range f.berthas() {
		for _, device := range f.ofClass("ha")[fn.Address] {
			for _, name := range []string{"serial", "state", "errors_uncorrectable"} {
				attribute := "ha/" + device + "/" + name
				text, read := f.text(fn, attribute)
				value := map[bool]string{true: "there", false: none}[read]
				if name == "state" && read {
					value = text
					read = slices.Contains([]string{"ok", "resetting", "failed"}, text)
				}
				t.see(read && text != "", f.shown(fn, attribute), value)
			}
		}
	}
	return t.answer()
}

// berthaLibrary decides nothing where no file of the library is to be found.
func berthaLibrary(f *Facts) answer {
	var t tally
	if len(f.berthas()) == 0 {
		return t.answer()
	}
	const name = "libha_driver.so"
	files := []string{"/usr/local/lib/" + name, "/usr/local/include/ha_driver.h", "/usr/local/lib/pkgconfig/libha_driver.pc"}
	if f.tree.Exists(files[0]) {
		for _, p := range files {
			t.see(f.tree.Exists(p), f.tree.Shown(p), map[bool]string{true: "there", false: none}[f.tree.Exists(p)])
		}
		return t.answer()
	}
	for _, dir := range []string{"/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/local/lib64", "/opt/hyperaccel/lib"} {
		if f.tree.Exists(dir + "/" + name) {
			t.see(false, f.tree.Shown(dir+"/"+name), "there, and not in /usr/local/lib")
		}
	}
	return t.answer()
}

func genericDriver(f *Facts) answer {
	var t tally
	for a, devices := range f.ofClass("lpu") {
		fn := f.at(a)
		if fn == nil {
			continue
		}
		t.see(len(devices) == 1 && f.tree.Exists(fn.Dir()+"/lpu/"+devices[0]+"/dev"), f.shown(*fn, "lpu"), strings.Join(devices, " "))
	}
	t.sorted()
	if len(t.good) > 0 {
		const library = "/opt/hyperaccel/lib"
		t.see(f.tree.Exists(library), f.tree.Shown(library), map[bool]string{true: "there", false: none}[f.tree.Exists(library)])
	}
	return t.answer()
}

// specMost is the most bytes that are read of a spec of another tool.
const specMost = 16 << 20

// kinds looks at the specs of HyperAccel's cards that lpuctl has not written.
func kinds(f *Facts) answer {
	var t tally
	for _, dir := range []string{"/etc/cdi", "/var/run/cdi"} {
		for _, name := range f.names(dir) {
			if ext := path.Ext(name); ext != ".json" && ext != ".yaml" && ext != ".yml" || strings.HasPrefix(name, "hyperaccel.ai-lpu") {
				continue
			}
			data, err := f.tree.Read(dir+"/"+name, specMost)
			var spec struct {
				Kind string `json:"kind"`
			}
			if err != nil || yaml.Unmarshal(data, &spec) != nil || !strings.HasPrefix(spec.Kind, "hyperaccel.ai/") {
				continue
			}
			t.see(spec.Kind == "hyperaccel.ai/lpu" || spec.Kind == "hyperaccel.ai/bertha", f.tree.Shown(dir+"/"+name), spec.Kind)
		}
	}
	return t.answer()
}

// otherLPUs looks for functions that have the driver or the ids of an LPU and are none by
// lpuctl's models.
func otherLPUs(f *Facts) answer {
	var t tally
	for _, fn := range f.functions {
		f2 := fn.vendor == "0x1d0f" && (fn.device == "0x9048" || fn.device == "0x9248")
		driven := slices.Contains([]string{"xocl", "ha", "lpu"}, fn.driver)
		if f.lpu(fn.Address) == nil && (f2 || driven) {
			t.see(false, f.shown(fn, "device"), strings.TrimSpace(fmt.Sprintf("%s:%s %s", fn.vendor, fn.device, fn.driver)))
		}
	}
	if len(t.bad) == 0 && len(f.inventory.LPUs) > 0 {
		t.see(true, f.tree.Shown(pci.Devices), fmt.Sprintf("%d functions, %d LPUs, and no other one under xocl, ha or lpu",
			len(f.functions), len(f.inventory.LPUs)))
	}
	return t.answer()
}

// tools looks for the programs. What options they have, only they can say.
func tools(f *Facts) answer {
	var t tally
	for _, dir := range []string{"/opt/xilinx/xrt/bin", "/usr/bin", "/usr/local/bin"} {
		has := func(name string) bool { return f.tree.Exists(dir + "/" + name) }
		switch {
		case has("xbutil") && has("xbmgmt"):
			t.see(true, f.tree.Shown(dir), "xbutil, xbmgmt")
		case has("xrt-smi"):
			t.see(false, f.tree.Shown(dir+"/xrt-smi"), "there, and no xbutil beside it")
		}
	}
	return t.answer()
}
