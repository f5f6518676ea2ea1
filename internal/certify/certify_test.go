package certify

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/simulate"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// TestNumbers holds that each assumption of the page has a check, and each check an assumption.
func TestNumbers(t *testing.T) {
	page, err := os.ReadFile("../../docs/hardware.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, heading := range regexp.MustCompile(`(?m)^### (HW-\d+)$`).FindAllSubmatch(page, -1) {
		want = append(want, string(heading[1]))
	}
	for _, c := range Checks() {
		got = append(got, c.Number)
		if c.Claim == "" || c.Takes == "" {
			t.Errorf("%s: claim %q, takes %q", c.Number, c.Claim, c.Takes)
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error("docs/hardware.md and the checks: ", diff)
	}
}

// tree is a simulated node that is changed before it is judged.
type tree struct {
	*testing.T
	root      string
	machine   *simulate.Machine
	record    *Record
	inventory *discovery.Inventory
}

func newTree(t *testing.T, n simulate.Node) *tree {
	t.Helper()
	root := filepath.Join(t.TempDir(), "node")
	machine, err := n.Start(root)
	if err != nil {
		t.Fatal(err)
	}
	return &tree{T: t, root: root, machine: machine}
}

// of is the path of an attribute of the i-th LPU; one "*" stands for what differs.
func (n *tree) of(i int, name string) string { return n.ofDir(n.machine.Card(i).Dir, name) }

// management is the same of its management function.
func (n *tree) management(i int, name string) string {
	return n.ofDir(strings.TrimSuffix(n.machine.Card(i).Dir, "1")+"0", name)
}

func (n *tree) ofDir(dir, name string) string {
	n.Helper()
	pattern := filepath.Join(n.root, dir, name)
	if !strings.Contains(name, "*") {
		return pattern
	}
	found, _ := filepath.Glob(pattern)
	if len(found) == 0 {
		n.Fatalf("there is no %s", pattern)
	}
	return found[0]
}

// file is a path below the root.
func (n *tree) file(p string) string { return filepath.Join(n.root, p) }

func (n *tree) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// write writes a file, with the directories above it.
func (n *tree) write(p, text string) {
	n.Helper()
	n.must(os.MkdirAll(filepath.Dir(p), 0o755))
	n.must(os.WriteFile(p, []byte(text), 0o644))
}

// copy puts a ring table of pkg/ring/testdata in a place.
func (n *tree) copy(name, p string) {
	n.Helper()
	data, err := os.ReadFile("../../pkg/ring/testdata/" + name)
	n.must(err)
	n.write(n.file(p), string(data))
}

func (n *tree) remove(p string) {
	n.Helper()
	if _, err := os.Lstat(p); err != nil {
		n.Fatal(err)
	}
	n.must(os.RemoveAll(p))
}

// link makes a link, in place of one that is there.
func (n *tree) link(p, target string) {
	n.Helper()
	_ = os.Remove(p)
	n.must(os.MkdirAll(filepath.Dir(p), 0o755))
	n.must(os.Symlink(target, p))
}

// uses lets a process have LPUs open, and other files.
func (n *tree) uses(lpus int, files ...string) {
	n.Helper()
	n.write(n.file("proc/12/comm"), "vllm\n")
	n.write(n.file("proc/2/comm"), "kthreadd\n")
	for i := range lpus {
		files = append(files, n.machine.Card(i).Node)
	}
	for i, target := range files {
		n.link(n.file(fmt.Sprintf("proc/12/fd/%d", 3+i)), target)
	}
}

func (n *tree) scan() {
	n.Helper()
	models := discovery.BuiltinModels()
	if _, err := os.Stat(n.file("sys/class/ha")); err == nil { // as the config file of the profile says
		match := []discovery.Match{{Vendor: "20fb", Device: "0010"}}
		models = discovery.MergeModels(models, []discovery.Model{{Name: "bertha", Match: match}})
	}
	var end func()
	n.record, end = Watch(host.Root(n.root))
	inv, err := discovery.Scan(context.Background(), n.root, discovery.Options{Models: models, Management: true})
	end()
	n.must(err)
	discovery.FindUsers(context.Background(), n.root, inv)
	n.inventory = inv
}

func (n *tree) certify() []Result {
	n.Helper()
	facts, err := NewFacts(host.Root(n.root), n.inventory, n.record)
	n.must(err)
	defer facts.Close()
	return Certify(facts)
}

// cased is an assumption that a tree can decide: on one tree it holds, on the other it is
// refuted. Each begins as a healthy node.
type cased struct {
	number string
	node   simulate.Node // the zero value: an Edge server of two LPUs
	// nil: no tree can show that.
	holds, refutes func(*tree)
	// late is done after the scan, and before the judgement of the tree that refutes.
	late func(*tree)
}

func unchanged(*tree) {}

const olderTable = discovery.HyperdexRingTable

// ringOf4 is a table of four cards whose ids are given in the order of the ring.
func ringOf4(ids ...string) string {
	var links []string
	for i, id := range ids {
		links = append(links, fmt.Sprintf(`{"src_id": %s, "dst_id": %s, "direction": "Right"}`, id, ids[(i+1)%len(ids)]))
	}
	return `{"network": [` + strings.Join(links, ", ") + `], "num_device": 4}`
}

func fault(name string) func(*tree) {
	values := map[string][2]string{
		"not-calibrated": {"mig_calibration", "0x0"},
		"firewall":       {"firewall.u/status", "2"},
	}
	return func(n *tree) { n.must(n.machine.Set(0, values[name][0], values[name][1])) }
}

func cases() []cased {
	edge4, bertha := simulate.Node{Profile: "edge", LPUs: 4}, simulate.Node{Profile: "bertha", LPUs: 2}
	return []cased{
		{number: "HW-1", holds: unchanged, refutes: func(n *tree) { n.write(n.of(0, "device"), "0x5001\n") }},
		{number: "HW-2", holds: unchanged, refutes: func(n *tree) { n.remove(n.management(0, "xrt_mgmt")) }},
		{number: "HW-3", holds: unchanged, refutes: func(n *tree) { n.write(n.of(0, "rom.u.*/VBNV"), "lab_network_card_1\n") }},
		{number: "HW-4", holds: unchanged, refutes: func(n *tree) { n.write(n.of(0, "class"), "0x058000\n") }},
		{number: "HW-5", holds: unchanged, refutes: func(n *tree) { n.write(n.of(0, "drm/renderD200/dev"), "226:200\n") }},
		{number: "HW-6", holds: unchanged, refutes: func(n *tree) { n.must(os.Chmod(n.file(n.machine.Card(0).Node), 0o660)) }},
		{number: "HW-7", refutes: func(n *tree) { n.uses(1, "/dev/xclmgmt17152") }},
		{number: "HW-8", holds: unchanged, refutes: func(n *tree) { n.write(n.of(0, "sriov_totalvfs"), "4\n") }},
		{number: "HW-9", node: simulate.Node{Profile: "orion"}, holds: unchanged, refutes: func(n *tree) {
			n.write(n.of(4, "device"), "0x5001\n")
		}},
		{number: "HW-10", holds: unchanged, refutes: func(n *tree) { n.must(n.machine.LinkNow(0, 0, 4)) }},
		{number: "HW-11", holds: unchanged, refutes: func(n *tree) { n.remove(n.of(0, "aer_dev_fatal")) }},
		{number: "HW-12", holds: unchanged, refutes: func(n *tree) { n.write(n.file(xoclModule+"/version"), "2.15.225\n") }},
		{number: "HW-13", refutes: func(n *tree) { n.remove(n.of(0, "dev_offline")) }},
		{number: "HW-15", holds: unchanged, refutes: func(n *tree) { n.remove(n.management(0, "driver")) }},
		{number: "HW-16", holds: unchanged, refutes: func(n *tree) {
			n.remove(n.of(0, "device_bad_state"))
			n.write(n.file(xoclModule+"/version"), "2.16.204,51a1c0de\n")
		}},
		{number: "HW-17", holds: unchanged, refutes: unchanged, late: func(n *tree) {
			n.inventory.LPUs[0].Reasons.Add(finding.ReadStalled, "lpu0", "a read has not ended within 1s", "")
		}},
		{number: "HW-18", holds: unchanged, refutes: func(n *tree) { n.remove(n.of(0, "xmc.u.*")) }},
		{number: "HW-19", holds: unchanged, refutes: func(n *tree) { n.write(n.of(0, "rom.u.*/VBNV"), "base_3\n") }},
		{number: "HW-20", holds: func(n *tree) {
			n.write(n.management(0, "recovery"), "1\n")
			n.remove(n.file(n.machine.Card(0).Address.Dir()))
		}},
		{number: "HW-21", holds: unchanged, refutes: fault("not-calibrated")},
		{number: "HW-22", holds: unchanged, refutes: fault("firewall")},
		{number: "HW-23", holds: unchanged, refutes: func(n *tree) {
			n.must(os.Rename(n.of(0, "mig.u.*"), filepath.Join(n.of(0, ""), "mig.hbm.u.9")))
		}},
		{number: "HW-24", holds: unchanged, refutes: func(n *tree) { n.remove(n.of(0, "hwmon/hwmon*/temp1_crit")) }},
		{number: "HW-25", holds: unchanged, refutes: func(n *tree) { n.write(n.of(0, "hwmon/hwmon*/power1_input"), "38500\n") }},
		{number: "HW-26", refutes: func(n *tree) {
			n.must(n.machine.Set(0, "host_mem_size", "0"))
			n.uses(1)
		}},
		{number: "HW-27", holds: unchanged, refutes: func(n *tree) {
			serial, err := os.ReadFile(n.of(0, "xmc.u.*/serial_num"))
			n.must(err)
			n.write(n.of(1, "xmc.u.*/serial_num"), string(serial))
		}},
		{number: "HW-28", holds: unchanged, refutes: unchanged, late: func(n *tree) { n.record.note(n.management(0, "error"), "") }},
		{number: "HW-30", holds: func(n *tree) { n.must(n.machine.AllOnes(0, true)) }, refutes: func(n *tree) {
			n.must(n.machine.AllOnes(0, true))
			n.remove(n.of(0, "current_link_width"))
		}},
		{number: "HW-33", holds: unchanged, refutes: func(n *tree) {
			n.remove(n.file("opt/xilinx"))
			n.write(n.file("usr/lib/libxrt_core.so.2"), "")
		}},
		{number: "HW-34", holds: unchanged},
		{number: "HW-36", holds: func(n *tree) { n.write(n.file("opt/hyperdex/hrt/lib/libhrt.so"), "\x7fELF NUM_LPU_DEVICES\x00") },
			refutes: func(n *tree) { n.write(n.file("opt/hyperdex/hrt/lib/libhrt.so"), "\x7fELF LPU_VISIBLE_DEVICES\x00") }},
		{number: "HW-39", holds: unchanged, refutes: func(n *tree) { n.copy("ring-degree_star.json", olderTable) }},
		{number: "HW-40", holds: unchanged, refutes: func(n *tree) { n.copy("ring-key_link.json", olderTable) }},
		{number: "HW-41", holds: func(n *tree) { n.copy("good-8-bdf-left-right.json", newerTable) },
			refutes: func(n *tree) { n.copy("good-8-vendor.json", newerTable) }},
		{number: "HW-42", node: edge4, holds: func(n *tree) { n.write(n.file(newerTable), ringOf4(n.addresses(0, 1, 2, 3)...)) },
			refutes: func(n *tree) { n.write(n.file(newerTable), ringOf4(n.addresses(0, 2, 1, 3)...)) }},
		{number: "HW-43", holds: unchanged, refutes: func(n *tree) {
			text, err := os.ReadFile(n.file(olderTable))
			n.must(err)
			n.write(n.file(olderTable), strings.ReplaceAll(string(text), "Right", "up"))
		}},
		{number: "HW-44", holds: func(n *tree) { n.copy("ring-all-zero.json", olderTable) },
			refutes: func(n *tree) { n.copy("ring-chain.json", olderTable) }},
		{number: "HW-50", node: edge4, refutes: func(n *tree) { n.uses(3) }},
		{number: "HW-51", node: edge4, holds: func(n *tree) { n.write(n.file(olderTable), ringOf4("0", "2", "1", "3")) }},
		{number: "HW-52", node: bertha, holds: unchanged, refutes: func(n *tree) { n.write(n.of(0, "vendor"), "0x1eee\n") }},
		{number: "HW-53", node: bertha, holds: unchanged, refutes: func(n *tree) {
			n.link(n.of(0, "driver"), "../../../../bus/pci/drivers/hyperaccel")
		}},
		{number: "HW-54", node: bertha, holds: unchanged, refutes: func(n *tree) { n.write(n.of(0, "ha/ha99/dev"), "510:99\n") }},
		{number: "HW-55", node: bertha, holds: unchanged, refutes: func(n *tree) { n.remove(n.of(0, "ha/ha*/errors_uncorrectable")) }},
		{number: "HW-56", node: bertha, holds: unchanged, refutes: func(n *tree) { n.remove(n.file("usr/local/include/ha_driver.h")) }},
		{number: "HW-59", node: simulate.Node{Profile: "lpu", LPUs: 2}, holds: unchanged, refutes: func(n *tree) {
			n.remove(n.file("opt/hyperaccel"))
		}},
		{number: "HW-60", holds: func(n *tree) { n.write(n.file("etc/cdi/ha.yaml"), "cdiVersion: 0.5.0\nkind: hyperaccel.ai/bertha\n") },
			refutes: func(n *tree) { n.write(n.file("etc/cdi/ha.yaml"), "cdiVersion: 0.5.0\nkind: hyperaccel.ai/npu\n") }},
		{number: "HW-61", holds: unchanged, refutes: func(n *tree) {
			n.write(n.of(0, "vendor"), "0x1d0f\n")
			n.write(n.of(0, "device"), "0x9048\n")
		}},
		{number: "HW-62", holds: func(n *tree) {
			n.write(n.file("opt/xilinx/xrt/bin/xbutil"), "")
			n.write(n.file("opt/xilinx/xrt/bin/xbmgmt"), "")
		}, refutes: func(n *tree) { n.write(n.file("opt/xilinx/xrt/bin/xrt-smi"), "") }},
	}
}

// addresses are the addresses of LPUs as JSON.
func (n *tree) addresses(lpus ...int) (all []string) {
	for _, i := range lpus {
		all = append(all, fmt.Sprintf("%q", n.machine.Card(i).Address))
	}
	return all
}

// TestVerdicts shows each assumption that files can decide two trees: it holds on one, and
// the other refutes it. The undecided say what it takes. A check without a judgement needs
// a program that runs, and no tree.
func TestVerdicts(t *testing.T) {
	judged := map[string]bool{}
	for _, c := range cases() {
		judged[c.number] = true
		node := c.node
		node.Profile = cmp.Or(node.Profile, "edge")
		for want, change := range map[Verdict]func(*tree){Held: c.holds, Refuted: c.refutes} {
			if change == nil {
				continue
			}
			t.Run(c.number+" "+string(want), func(t *testing.T) {
				n := newTree(t, node)
				if c.number == "HW-6" && !n.machine.DeviceNodes() {
					return // only root can make device files
				}
				change(n)
				n.scan()
				if want == Refuted && c.late != nil {
					c.late(n)
				}
				results := n.certify()
				i := slices.IndexFunc(results, func(r Result) bool { return r.Number == c.number })
				r := results[i]
				if r.Verdict != want || len(r.Evidence) == 0 || want == Refuted && r.Takes != "" {
					t.Fatalf("got %s by %v, takes %q; want %s", r.Verdict, r.Evidence, r.Takes, want)
				}
				for _, e := range r.Evidence {
					if !strings.HasPrefix(e.Path, n.root) || e.Value == "" {
						t.Errorf("evidence %+v", e)
					}
				}
			})
		}
	}
	for _, c := range Checks() {
		if judged[c.Number] != (c.judge != nil) {
			t.Errorf("%s: there is a tree: %v; it judges trees: %v", c.Number, judged[c.Number], c.judge != nil)
		}
	}
}

// TestNothingToSee holds that a node without LPUs, and one that a scan could not read, decide nothing.
func TestNothingToSee(t *testing.T) {
	n := newTree(t, simulate.Node{Profile: "edge", LPUs: 1})
	for _, dir := range []string{"opt", "dev", "sys/module", "sys/class"} {
		_ = os.RemoveAll(n.file(dir))
	}
	for _, p := range []string{n.of(0, "vendor"), n.management(0, "vendor")} {
		n.write(p, "0x8086\n")
	}
	n.remove(n.of(0, "driver"))
	n.scan()
	for _, r := range n.certify() {
		if r.Verdict != Undecided || !strings.Contains(r.Says(), "takes: ") {
			t.Errorf("%s: %s by %v", r.Number, r.Verdict, r.Evidence)
		}
	}
}

// TestFaults says which assumptions the faults of simulated nodes refute.
func TestFaults(t *testing.T) {
	refuted := map[string]string{
		"two-nodes":      "HW-5",
		"link-x4":        "HW-10",
		"not-calibrated": "HW-21",
		"firewall":       "HW-22",
	}
	for _, kind := range simulate.FaultKinds() {
		n := newTree(t, simulate.Node{Profile: "edge", Faults: []simulate.Fault{{Name: kind.Name, Index: 1}}})
		n.scan()
		var got []string
		for _, r := range n.certify() {
			if r.Verdict == Refuted {
				got = append(got, r.Number)
			}
		}
		if strings.Join(got, " ") != refuted[kind.Name] {
			t.Errorf("%s refutes %v, want %q", kind.Name, got, refuted[kind.Name])
		}
	}
	for _, p := range simulate.Profiles() {
		n := newTree(t, simulate.Node{Profile: p.Name})
		n.scan()
		for _, r := range n.certify() {
			if r.Verdict == Refuted {
				t.Errorf("profile %s: %s is refuted by %v", p.Name, r.Number, r.Evidence)
			}
		}
	}
}

// TestAsksNoCard holds that all that drivers say is taken from the scan: whatever the attributes say after it,
// and if they are FIFOs on which a read would wait, the certificate is the same.
func TestAsksNoCard(t *testing.T) {
	for _, profile := range []string{"edge", "bertha"} {
		n := newTree(t, simulate.Node{Profile: profile, LPUs: 2})
		n.scan()
		want := n.certify()
		core := []string{"vendor", "device", "class"}
		for i := range 2 {
			for _, dir := range []string{n.of(i, ""), n.management(i, "")} {
				n.must(filepath.WalkDir(dir, func(p string, entry os.DirEntry, err error) error {
					if err != nil || !entry.Type().IsRegular() || slices.Contains(core, entry.Name()) {
						return nil //nolint:nilerr // a Bertha has no management function
					}
					n.must(os.Remove(p))
					return unix.Mkfifo(p, 0o644)
				}))
			}
		}
		if diff := gocmp.Diff(want, n.certify()); diff != "" {
			t.Errorf("%s: a certificate depends on what was read after the scan: %s", profile, diff)
		}
	}
}

// TestNoSerialNumber holds that a certificate can be sent: it has no serial number of a card.
func TestNoSerialNumber(t *testing.T) {
	for _, p := range simulate.Profiles() {
		n := newTree(t, simulate.Node{Profile: p.Name, LPUs: 2})
		n.scan()
		for _, r := range n.certify() {
			for _, e := range r.Evidence {
				if strings.Contains(e.Value, "XFL1SIM") {
					t.Errorf("%s: %s: %+v", p.Name, r.Number, e)
				}
			}
		}
	}
}
