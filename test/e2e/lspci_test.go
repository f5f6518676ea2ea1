package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hyperaccel/lpuctl/test/e2e/machine"
)

// lpuFacts is what both lpuctl and lspci say of a function.
type lpuFacts struct {
	Address    string
	IDs        string // vendor:device subvendor:subdevice
	Driver     string
	NUMANode   string
	IOMMUGroup string
	Link       string // speed and width, now and at most
	Root       string // the host bridge it hangs on
	Upstream   string // the port of the switch above it, "" if there is none
}

// factsOfLPUs is what `lpuctl list` says.
func factsOfLPUs(t *testing.T, args ...string) map[string]lpuFacts {
	t.Helper()
	var inventory struct {
		LPUs []struct {
			Address, Vendor, Device, Subvendor, Subdevice, Driver, PCIeRoot, Switch string
			NUMANode, IOMMUGroup                                                    *int
			Link                                                                    *struct {
				SpeedGTs, MaxSpeedGTs float64
				Width, MaxWidth       int
			}
		}
	}
	if err := json.Unmarshal([]byte(machine.Lpuctl(t, append(args, "list", "-o", "json")...)), &inventory); err != nil {
		t.Fatal(err)
	}
	facts := map[string]lpuFacts{}
	for _, l := range inventory.LPUs {
		f := lpuFacts{
			Address:  l.Address,
			IDs:      l.Vendor + ":" + l.Device + " " + l.Subvendor + ":" + l.Subdevice,
			Driver:   l.Driver,
			Root:     l.PCIeRoot,
			Upstream: l.Switch,
		}
		if l.NUMANode != nil {
			f.NUMANode = fmt.Sprint(*l.NUMANode)
		}
		if l.IOMMUGroup != nil {
			f.IOMMUGroup = fmt.Sprint(*l.IOMMUGroup)
		}
		if l.Link != nil {
			f.Link = fmt.Sprintf("%gGT/s x%d of %gGT/s x%d", l.Link.SpeedGTs, l.Link.Width, l.Link.MaxSpeedGTs, l.Link.MaxWidth)
		}
		facts[l.Address] = f
	}
	return facts
}

// factsOfLspci is what lspci says of all functions of that vendor and device: it reads the link from the
// configuration space, not from sysfs's link attributes, and the path through bridges from the tree.
func factsOfLspci(t *testing.T, root, ids string) map[string]lpuFacts {
	t.Helper()
	access := []string{"lspci", "-A", "linux-sysfs", "-O", "sysfs.path=" + filepath.Join(root, "sys/bus/pci"), "-D", "-d", ids}
	facts := map[string]lpuFacts{}
	roots, upstreams := map[string]string{}, map[string]string{}
	for line := range strings.Lines(machine.Run(t, append(access, "-PP", "-n")...).Stdout) {
		path, _, _ := strings.Cut(line, " ") // 0000:40:00.0/41:00.0/42:00.0/43:00.1
		domain, path, _ := strings.Cut(path, ":")
		ports := strings.Split(path, "/")
		slot := domain + ":" + ports[len(ports)-1]
		bus, _, _ := strings.Cut(ports[0], ":")
		roots[slot] = "pci" + domain + ":" + bus
		if len(ports) >= 4 {
			upstreams[slot] = domain + ":" + ports[len(ports)-3]
		}
	}
	for record := range strings.SplitSeq(machine.Run(t, append(access, "-vvmmnnk")...).Stdout, "\n\n") {
		fields := map[string]string{}
		for line := range strings.Lines(record) {
			key, value, _ := strings.Cut(line, ":\t")
			fields[key] = strings.TrimSpace(value)
		}
		slot := fields["Slot"]
		if slot == "" {
			continue
		}
		facts[slot] = lpuFacts{
			Address: slot, Driver: fields["Driver"], NUMANode: fields["NUMANode"], IOMMUGroup: fields["IOMMUGroup"],
			IDs:  id(fields["Vendor"]) + ":" + id(fields["Device"]) + " " + id(fields["SVendor"]) + ":" + id(fields["SDevice"]),
			Link: linkOf(t, append(access[:6:6], "-s", slot, "-vv")),
			Root: roots[slot], Upstream: upstreams[slot],
		}
	}
	return facts
}

// id is the number that lspci -nn puts after a name: "Xilinx Corporation [10ee]".
func id(text string) string {
	m := regexp.MustCompile(`\[([0-9a-f]{4})\]$`).FindStringSubmatch(text)
	if m == nil {
		return text
	}
	return m[1]
}

func linkOf(t *testing.T, command []string) string {
	t.Helper()
	out := machine.Run(t, command...).Stdout
	most := regexp.MustCompile(`LnkCap:.*Speed ([0-9.]+)GT/s, Width x([0-9]+)`).FindStringSubmatch(out)
	now := regexp.MustCompile(`LnkSta:\s+Speed ([0-9.]+)GT/s(?: \([a-z]+\))?, Width x([0-9]+)`).FindStringSubmatch(out)
	if most == nil || now == nil {
		return ""
	}
	return fmt.Sprintf("%sGT/s x%s of %sGT/s x%s", now[1], now[2], most[1], most[2])
}

func TestListAgreesWithLspci(t *testing.T) {
	need(t, "lspci", "tar")
	config := []string{"--config", "../../testdata/config.yaml"}
	for name, c := range map[string]struct {
		root, ids string
		args      []string
		lpus      int
	}{
		"capture of U55C stand-ins":   {unpack(t, "sysfs-u55c-x8-iommu.tar.gz"), "10ee:505d", config, 8},
		"capture of e1000e stand-ins": {unpack(t, "sysfs-e1000e-aer-x8.tar.gz"), "8086:10d3", config, 8},
		"orion":                       {simulate(t), "10ee:505d", nil, 8},
		"orion, three, many others":   {simulate(t, "--lpus", "24", "--functions", "400", "--fault", "wide-domain@3"), "10ee:505d", nil, 24},
		"edge":                        {simulate(t, "--profile", "edge"), "10ee:505d", nil, 2},
		"lpu":                         {simulate(t, "--profile", "lpu", "--lpus", "4"), "20fb:0010", nil, 4},
		"bertha":                      {simulate(t, "--profile", "bertha"), "20fb:0010", nil, 8},
		"sick": {
			simulate(t, "--fault", "unbound@1", "--fault", "numa-unknown@2", "--fault", "vfio@3"), "10ee:505d", nil, 8,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := factsOfLPUs(t, append([]string{"--root", c.root}, c.args...)...), factsOfLspci(t, c.root, c.ids)
			if diff := cmp.Diff(theirs, ours); diff != "" || len(ours) != c.lpus {
				t.Errorf("%d LPUs, want %d; lspci (-) and lpuctl (+):\n%s", len(ours), c.lpus, diff)
			}
		})
	}
}

// unpack writes a capture into a directory of the test's.
func unpack(t *testing.T, name string) string {
	t.Helper()
	root := t.TempDir()
	if r := machine.Run(t, "tar", "xzf", "../../testdata/"+name, "-C", root); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	groups, err := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*/iommu_group"))
	if err != nil {
		t.Fatal(err)
	}
	// lspci names a group only if its directory is there, and a capture has the links to it alone.
	for _, link := range groups {
		target, err := os.Readlink(link)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(root, "sys/kernel/iommu_groups", filepath.Base(target)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
