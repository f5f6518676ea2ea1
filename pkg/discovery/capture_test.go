package discovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// captureModels are the models of ../../testdata/config.yaml.
func captureModels() []Model {
	return MergeModels(BuiltinModels(), []Model{
		{
			Name: "vm-u55c", Match: []Match{{Vendor: "10ee", Device: "505d"}}, Drivers: []string{"uio_pci_generic"},
			Nodes: []string{"class:uio"}, Management: &ManagementMatch{Device: "505c"},
		},
		{
			Name: "vm-e1000e", Match: []Match{{Vendor: "8086", Device: "10d3", Subvendor: "10ee", Subdevice: "505c"}},
			Drivers: []string{"uio_pci_generic"}, Nodes: []string{"class:uio"},
		},
	})
}

func scanOf(t testing.TB, root string, models []Model) *Inventory {
	t.Helper()
	inv, err := Scan(context.Background(), root, Options{Models: models})
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

const u55c, e1000e = "sysfs-u55c-x8-iommu.tar.gz", "sysfs-e1000e-aer-x8.tar.gz"

func TestScanOfARealKernel(t *testing.T) {
	inv := scanOf(t, plant.Capture(t, u55c), captureModels())
	if len(inv.LPUs) != 8 || len(inv.Problems) != 0 {
		t.Fatalf("%d LPUs, problems %v", len(inv.LPUs), inv.Problems)
	}
	numa, group := 1, 8
	upstream := pci.Address{Bus: 0x81}
	want := LPU{
		Name: "lpu5", Index: 5, Model: "vm-u55c", Address: pci.Address{Bus: 0x84, Function: 1},
		IDs: IDs{Vendor: "10ee", Device: "505d", Subvendor: "10ee", Subdevice: "000e"}, Driver: "uio_pci_generic",
		Nodes: []Node{{Path: "/dev/uio1", Major: 245, Minor: 1}},
		Place: Place{
			NUMANode: &numa, PCIeRoot: "pci0000:80", Switch: &upstream, Link: &Link{8, 16, 8, 16},
			IOMMUGroup: &group, Management: &Management{Address: pci.Address{Bus: 0x84}},
		},
		Usable: true, Health: Healthy, Reasons: finding.List{},
	}
	want.PowerState, want.Reading = "D0", inv.LPUs[5].Reading
	if diff := cmp.Diff(want, inv.LPUs[5]); diff != "" {
		t.Error(diff)
	}
	if r := inv.LPUs[5].Reading; r.Link != (health.Link{SpeedGTs: 8, Width: 16}) || r.MaxLink != r.Link || r.Enabled != 1 || r.Driver == "" ||
		r.AERFatal != nil || r.Command != nil || r.Device == 0 {
		t.Errorf("the reading is %+v", r)
	}
	inv = scanOf(t, plant.Capture(t, e1000e), captureModels())
	if len(inv.LPUs) != 8 || inv.LPUs[0].Model != "vm-e1000e" || inv.LPUs[0].Link.SpeedGTs != 2.5 {
		t.Errorf("the e1000e capture gives %+v", inv.LPUs)
	}
	if r := inv.LPUs[0].Reading; r.AERFatal == nil || r.AERNonFatal == nil || r.AERCorrectable == nil {
		t.Errorf("it counts its errors, and the reading is %+v", r)
	}
}

func TestScanIsTheSameWithoutOpenat2(t *testing.T) {
	root := plant.Capture(t, u55c)
	tr, err := host.Root(root).Open()
	if err != nil {
		t.Fatal(err)
	}
	tr.NoOpenat2 = true
	s := newScan(tr, Options{Models: captureModels()})
	fallback, err := s.run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(scanOf(t, root, captureModels()), fallback); diff != "" {
		t.Error(diff)
	}
}

// without is a card without the attributes of a link, and with one file besides.
func without(file, content string) map[string]string {
	return map[string]string{
		"current_link_speed": "", "current_link_width": "", "max_link_speed": "", "max_link_width": "", file: content,
	}
}

// TestBrokenCard breaks the third card of a real kernel's tree in one way after the other.
func TestBrokenCard(t *testing.T) {
	const card = "sys/devices/pci0000:40/0000:40:00.0/0000:41:00.0/0000:42:02.0/0000:45:00.1"
	root := plant.Capture(t, u55c)
	for name, c := range map[string]struct {
		breakIt map[string]string // file in the card's directory: new content, as plant.Tree knows it; "" removes
		want    string            // reasons' ids
		health  Health
	}{
		"all ones":          {map[string]string{"current_link_width": "63\n", "current_link_speed": "Unknown\n"}, "no-answer", HealthUnknown},
		"all ones, no link": {without("config", strings.Repeat("\xff", 64)), "no-answer", HealthUnknown},
		"memory off":        {without("config", "\xee\x10\x5d\x50\x04\x04\x10\x00"), "reset-behind-driver", Unhealthy},
		"asleep, not dead":  {map[string]string{"current_link_width": "63\n", "power/runtime_status": "suspended\n"}, "asleep", Healthy},
		"power lost":        {map[string]string{"power_state": "D3cold\n", "power/runtime_status": "active\n"}, "power-lost", Unhealthy},
		"powered by whom":   {map[string]string{"power_state": "D3cold\n", "power/runtime_status": ""}, "", Healthy},
		"counter of words":  {map[string]string{"aer_dev_fatal": "TOTAL_ERR_FATAL many\n"}, "unreadable-attribute", Healthy},
		"no driver":         {map[string]string{"driver": ""}, "no-driver", Unhealthy},
		"another driver":    {map[string]string{"driver": "-> ../x/other"}, "wrong-driver", Unhealthy},
		"vfio":              {map[string]string{"driver": "-> ../x/vfio-pci"}, "passed-through", Unhealthy},
		"numa FIFO":         {map[string]string{"numa_node": "fifo"}, "unreadable-attribute", Healthy},
		"numa junk":         {map[string]string{"numa_node": "\x80\x00"}, "unreadable-attribute", Healthy},
		"numa words":        {map[string]string{"numa_node": "zero\n"}, "unreadable-attribute", Healthy},
		"numa unknown":      {map[string]string{"numa_node": "-1\n"}, "", Healthy},
		"no link files":     {without("numa_node", "0\n"), "", Healthy},
		"link unknown":      {map[string]string{"current_link_speed": "Unknown\n", "current_link_width": "0\n"}, "", Healthy},
		"dev junk":          {map[string]string{"uio/uio6/dev": "245\n"}, "bad-node", Unhealthy},
		"dev FIFO":          {map[string]string{"uio/uio6/dev": "fifo"}, "bad-node", Unhealthy},
		"no dev":            {map[string]string{"uio/uio6/dev": ""}, "no-node", Unhealthy},
		"name climbs":       {map[string]string{"uio/uio6/uevent": "MAJOR=245\nDEVNAME=../etc/passwd\n"}, "bad-node", Unhealthy},
		"another's node":    {map[string]string{"uio/uio6/uevent": "DEVNAME=uio7\n"}, "shared-node", Unhealthy},
		"another's numbers": {map[string]string{"uio/uio6/dev": "245:7\n"}, "shared-node", Unhealthy},
		"no uevent":         {map[string]string{"uio/uio6/uevent": ""}, "", Healthy},
		"no modalias":       {map[string]string{"modalias": ""}, "", Healthy},
		"iommu group words": {map[string]string{"iommu_group": "-> ../x/none"}, "", Healthy},
	} {
		t.Run(name, func(t *testing.T) {
			for file, content := range c.breakIt {
				replace(t, filepath.Join(root, card, file), content)
			}
			inv := scanOf(t, root, captureModels())
			if len(inv.LPUs) != 8 {
				t.Fatalf("%d LPUs", len(inv.LPUs))
			}
			l := inv.LPUs[2]
			var ids []string
			for _, r := range l.Reasons {
				ids = append(ids, string(r.ID))
				if r.Remedy == "" || r.Message == "" || r.Subject != "lpu2" {
					t.Errorf("a reason without words: %+v", r)
				}
			}
			if got := strings.Join(ids, ","); got != c.want || l.Health != c.health || l.Usable != (c.health == Healthy) {
				t.Errorf("reasons %q, health %s, usable %v; want %q, %s", got, l.Health, l.Usable, c.want, c.health)
			}
			for i, other := range inv.LPUs {
				if i != 2 && !other.Usable && c.want != "shared-node" {
					t.Errorf("%s suffers too: %v", other.Name, other.Reasons)
				}
			}
		})
	}
}

// replace puts something else in a file's place until the test ends; "" leaves the place empty.
func replace(t *testing.T, file, content string) {
	t.Helper()
	err := os.Rename(file, file+".kept")
	had := err == nil // a capture has not every file
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if content != "" {
		plant.File(t, file, content)
	}
	t.Cleanup(func() {
		if content != "" {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		if had {
			if err := os.Rename(file+".kept", file); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestScanOfWhatIsNoMachine(t *testing.T) {
	file := filepath.Join(plant.Tree(t, map[string]string{"file": "x"}), "file")
	for name, root := range map[string]string{
		"missing":      filepath.Join(t.TempDir(), "nothing"),
		"a file":       file,
		"empty":        t.TempDir(),
		"no pci":       plant.Tree(t, map[string]string{"sys/class": "dir"}),
		"pci a file":   plant.Tree(t, map[string]string{"sys/bus/pci/devices": "x"}),
		"devices FIFO": plant.Tree(t, map[string]string{"sys/bus/pci/devices": "fifo"}),
		"devices loop": plant.Tree(t, map[string]string{"sys/bus/pci/devices": "-> devices"}),
	} {
		inv, err := Scan(context.Background(), root, Options{})
		if inv != nil || !errors.Is(err, ErrNoSysfs) || !strings.Contains(err.Error(), root) {
			t.Errorf("%s: %v, %v", name, inv, err)
		}
	}
}

func TestOddPCIEntries(t *testing.T) {
	root := plant.Tree(t, map[string]string{
		"sys/bus/pci/devices/lost+found":          "dir",
		"sys/bus/pci/devices/0000:01:00.0":        "-> nowhere",
		"sys/bus/pci/devices/0000:02:00.0":        "a file",
		"sys/bus/pci/devices/0000:03:00.0/vendor": "fifo",
		"sys/bus/pci/devices/0000:04:00.0/vendor": "0xnonsense",
		"sys/bus/pci/devices/0000:05:00.0/vendor": "0x10ee\n", // and no device
		"sys/bus/pci/devices/0000:06:00.0/vendor": "0x8086\n", // somebody else's: nothing more is asked
	})
	inv := scanOf(t, root, nil)
	var got []string
	for _, p := range inv.Problems {
		got = append(got, string(p.ID)+" "+filepath.Base(p.Subject))
	}
	want := []string{"odd-pci-entry lost+found"}
	for bus := 1; bus <= 5; bus++ {
		want = append(want, fmt.Sprintf("unreadable-function 0000:0%d:00.0", bus))
	}
	if diff := cmp.Diff(want, got); diff != "" || len(inv.LPUs) != 0 {
		t.Errorf("%v\n%s", inv.LPUs, diff)
	}
}

func TestTwoModelsOfOneRankAreRefused(t *testing.T) {
	match := []Match{{Vendor: "10ee", Device: "505d"}}
	models := MergeModels(BuiltinModels(), []Model{{Name: "one", Match: match}, {Name: "two", Match: []Match{{Class: "1200"}}}})
	l := scanOf(t, plant.Capture(t, u55c), models).LPUs
	var ambiguous int
	for _, lpu := range l {
		for _, r := range lpu.Reasons {
			if r.ID == "ambiguous-model" && strings.Contains(r.Message, "one and two") && !lpu.Usable {
				ambiguous++
			}
		}
	}
	if ambiguous != 8 {
		t.Errorf("%d of %d LPUs are ambiguous", ambiguous, len(l))
	}
}

func TestAPathRule(t *testing.T) {
	models := captureModels()
	models[0].Nodes = []string{"class:nothing", "path:/dev/lpu{index}-{address}"}
	root := plant.Capture(t, u55c)
	inv := scanOf(t, root, models)
	if got := inv.LPUs[3].Nodes; len(got) != 1 || got[0].Path != "/dev/lpu3-0000:46:00.1" || got[0].Verified {
		t.Errorf("nodes %+v", got)
	}
	plant.File(t, filepath.Join(root, "dev/lpu3-0000:46:00.1"), "no device")
	inv = scanOf(t, root, models)
	if got := inv.LPUs[3]; len(got.Nodes) != 0 || got.Reasons[0].ID != "node-mismatch" {
		t.Errorf("got %+v", got)
	}
	if got := inv.LPUs[2]; len(got.Nodes) != 0 || got.Reasons[0].ID != "node-missing" {
		t.Errorf("got %+v", got)
	}
}

func TestAScanEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Scan(ctx, plant.Capture(t, u55c), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func FuzzAttributes(f *testing.F) {
	f.Add([]byte("0x10ee\n"), []byte("8.0 GT/s PCIe\n"), []byte("245:3\n"), []byte("DEVNAME=dri/renderD130\n"))
	f.Add([]byte("0xffffffffff"), []byte("1e999 GT/s"), []byte("-1:-1"), []byte("DEVNAME=..\n"))
	f.Add([]byte{0}, []byte{0xff}, []byte("4096:0"), []byte("DEVNAME=a b\nDEVNAME=\n"))
	const card = "sys/devices/pci0000:00/0000:00:01.0"
	f.Fuzz(func(t *testing.T, id, link, dev, uevent []byte) {
		root := plant.Tree(t, map[string]string{
			"sys/bus/pci/devices/0000:00:01.0":    "-> ../../../devices/pci0000:00/0000:00:01.0",
			"sys/class/lpu/lpu0":                  "-> ../../devices/pci0000:00/0000:00:01.0/lpu/lpu0",
			card + "/vendor":                      "0x1234\n",
			card + "/device":                      "0x1234\n",
			card + "/lpu/lpu0/dev":                "f",
			card + "/lpu/lpu0/uevent":             "f",
			card + "/numa_node":                   "f",
			card + "/subsystem_vendor":            "f",
			card + "/current_link_speed":          "f",
			card + "/max_link_speed":              "8.0 GT/s PCIe\n",
			"sys/bus/pci/drivers/lpu/module/none": "x",
		})
		for name, data := range map[string][]byte{
			"subsystem_vendor": id, "numa_node": id, "current_link_speed": link, "lpu/lpu0/dev": dev, "lpu/lpu0/uevent": uevent,
		} {
			if err := os.WriteFile(filepath.Join(root, card, name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		inv := scanOf(t, root, nil)
		if len(inv.LPUs) != 1 {
			t.Fatalf("%d LPUs", len(inv.LPUs))
		}
		for _, n := range inv.LPUs[0].Nodes {
			if filepath.Clean(n.Path) != n.Path || !strings.HasPrefix(n.Path, "/dev/") {
				t.Errorf("node %q", n.Path)
			}
		}
	})
}
