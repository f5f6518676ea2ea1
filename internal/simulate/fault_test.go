package simulate

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestParseFault(t *testing.T) {
	for _, k := range FaultKinds() {
		if got, err := ParseFault(k.Name + "@12"); err != nil || got != (Fault{k.Name, 12}) {
			t.Errorf("%s@12: %v, %v", k.Name, got, err)
		}
		if k.Summary == "" {
			t.Errorf("%s has no summary", k.Name)
		}
	}
	for text, want := range map[string]string{
		"":                `unknown fault "" (choose one of no-modalias, `,
		"nomodalias@1":    `did you mean no-modalias?`,
		"node_mising@1":   `did you mean node-missing?`,
		"unbound":         `fault "unbound" is not NAME@INDEX (name the LPU by its index, such as unbound@3)`,
		"unbound@":        "is not NAME@INDEX",
		"unbound@x":       "is not NAME@INDEX",
		"unbound@-1":      "is not NAME@INDEX",
		"unbound@1@2":     "is not NAME@INDEX",
		"unbound@9999999": "is not NAME@INDEX",
	} {
		if got, err := ParseFault(text); err == nil || !strings.Contains(withRemedy(err), want) {
			t.Errorf("%q: %v, error %v, expected %s", text, got, err, want)
		}
	}
	if _, err := ParseFault("xyzzy@1"); err == nil || strings.Contains(withRemedy(err), "did you mean") {
		t.Errorf("a suggestion that is not near: %v", err)
	}
}

// withRemedy is an error about a Node as people read it; without a remedy it is "".
func withRemedy(err error) string {
	if e, ok := errors.AsType[*InvalidError](err); ok && e.Remedy != "" {
		return fmt.Sprintf("%v (%s)", e, e.Remedy)
	}
	return ""
}

// changes lists how one tree differs from another: "+path", "-path", "~path now".
func changes(before, after listing) []string {
	var list []string
	for p, what := range after {
		if old, ok := before[p]; !ok {
			list = append(list, "+"+p)
		} else if old != what {
			list = append(list, "~"+p+" "+strings.ReplaceAll(what, "\n", " "))
		}
	}
	for p := range before {
		if _, ok := after[p]; !ok {
			list = append(list, "-"+p)
		}
	}
	slices.Sort(list)
	return list
}

// Each fault changes what it says and nothing else: every change matches one of its patterns, and every
// pattern matches a change.
func TestEveryFaultMakesItsDifference(t *testing.T) {
	const (
		bridge = `sys/devices/pci0000:40/0000:40:00\.0/0000:41:00\.0/0000:42:01\.0`
		lpu    = bridge + `/0000:44:00\.1`
		oneLPU = bridge + `/0000:44:00\.0`
		card   = bridge + `/0000:44:00\.[01]`
	)
	for _, c := range []struct {
		fault, profile string
		nodes          bool // the difference is in dev
		want           []string
	}{
		{"no-modalias", "orion", false, []string{`-` + lpu + `/modalias`}},
		{"numa-unknown", "orion", false, []string{
			`~` + lpu + `/numa_node -\S+ -1 `,
			`~` + lpu + `/local_cpus -\S+ ffffffff,ffffffff `, `~` + lpu + `/local_cpulist -\S+ 0-63 `,
		}},
		{"numa-unknown", "edge", false, []string{`~sys/devices/pci0000:40/0000:40:01.0/0000:42:00.1/numa_node -\S+ -1 `}},
		{"unreadable", "orion", false, []string{`~` + lpu + `/numa_node d\S+`}},
		{"fifo", "orion", false, []string{`~` + lpu + `/numa_node p\S+`}},
		{"unbound", "orion", false, withoutXocl(lpu, `[-]`+lpu+`/driver`, `~`+lpu+`/enable -\S+ 0 `, `~`+lpu+`/power_state -\S+ unknown `,
			`~`+lpu+`/irq -\S+ 0 `, `~`+lpu+`/uevent -\S+ PCI_CLASS=120000 .*`,
			`~`+lpu+`/(consistent_)?dma_mask_bits -\S+ 32 `, `(?s)~`+lpu+`/config .*`)},
		{"vfio", "orion", false, withoutXocl(lpu, `~`+lpu+`/uevent -\S+ DRIVER=vfio-pci .*`, `~`+lpu+`/driver_override -\S+ vfio-pci `,
			`~`+lpu+`/driver -> .*/bus/pci/drivers/vfio-pci`, `\+sys/bus/pci/drivers/vfio-pci(/0000:44:00.1|/module)?`,
			`\+sys/module/vfio_pci(/.*)?`)},
		{"node-missing", "orion", true, []string{`-dev/dri/renderD132`}},
		{"node-missing", "lpu", true, []string{`-dev/lpu1`}},
		{"node-mismatch", "orion", true, []string{`~dev/dri/renderD132 Dcrw-rw-rw- 226:133`}},
		{"recovery", "orion", false, []string{
			`~` + lpu + `/rom\.u\.\d+/VBNV -\S+ xilinx_u55c_recovery `,
			`~` + bridge + `/0000:44:00\.0/rom\.m\.\d+/VBNV -\S+ xilinx_u55c_recovery `,
			`~` + bridge + `/0000:44:00\.0/recovery -\S+ 1 `,
		}},
		{"two-nodes", "orion", false, []string{
			`\+` + lpu + `/drm/renderD133(/.*)?`, `\+` + lpu + `/drm/card5(/.*)?`,
			`\+sys/class/drm/(renderD133|card5)`, `\+sys/dev/char/226:(133|5)`,
		}},
		{"two-nodes", "bertha", false, []string{
			`\+sys/devices/pci0000:40/.*/0000:44:00\.0/ha/ha3(/.*)?`, `\+sys/class/ha/ha3`, `\+sys/dev/char/510:3`,
		}},
		{"all-ones", "orion", false, deadCard(bridge)},
		{"power-lost", "orion", false, append(deadCard(bridge), `~`+card+`/power_state -\S+ D3cold `)},
		{"asleep", "orion", false, []string{
			`~` + card + `/power_state -\S+ D3hot `, `~` + card + `/power/runtime_status -\S+ suspended `,
		}},
		{"link-x4", "orion", false, []string{
			`~` + bridge + `(/0000:44:00\.\d)?/current_link_width -\S+ 4 `, `(?s)~` + bridge + `(/0000:44:00\.\d)?/config .*`,
		}},
		{"aer-correctable", "orion", false, []string{`~` + lpu + `/aer_dev_correctable -\S+ RxErr 0 BadTLP 7 .* TOTAL_ERR_COR 7 `}},
		{"aer-nonfatal", "bertha", false, []string{`~` + oneLPU + `/aer_dev_nonfatal -\S+ Undefined 0 DLP 7 .* TOTAL_ERR_NONFATAL 7 `}},
		{"aer-fatal", "lpu", false, []string{`~` + oneLPU + `/aer_dev_fatal -\S+ Undefined 0 DLP 7 .* TOTAL_ERR_FATAL 7 `}},
		{"reset-behind-driver", "orion", false, []string{`(?s)~` + lpu + `/config -\S+ .\x10\x5d\x50\x00\x00.*`}},
		{"bad-state", "orion", false, []string{`~` + lpu + `/device_bad_state -\S+ 1 `}},
		{"bad-state", "bertha", false, []string{`~` + oneLPU + `/ha/ha2/state -\S+ failed `}},
		{"firewall", "orion", false, []string{`~` + lpu + `/firewall\.u\.\d+/status -\S+ 2 `, `~` + lpu + `/firewall\.u\.\d+/level -\S+ 0 `}},
		{"not-calibrated", "orion", false, []string{`~` + lpu + `/mig_calibration -\S+ 0x0 `}},
		{"ecc", "orion", false, []string{`~` + lpu + `/mig\.u\.\d+/ecc_ue_cnt -\S+ 1 `}},
		{"ecc", "bertha", false, []string{`~` + oneLPU + `/ha/ha2/errors_uncorrectable -\S+ 1 `}},
		{"hot", "orion", false, []string{`~` + lpu + `/hwmon/hwmon2/temp1_input -\S+ 101000 `}},
		{"hot", "bertha", false, []string{`~` + oneLPU + `/hwmon/hwmon2/temp1_input -\S+ 101000 `}},
		{"no-host-memory", "orion", false, []string{`~` + lpu + `/host_mem_size -\S+ 0 `}},
		{"wide-domain", "lpu", false, []string{
			`[-]` + oneLPU + `(/.*)?`,
			`\+sys/devices/pci10000:00(/.*)?`,
			`[-+]sys/bus/pci/devices/(0000:44:00\.0|10000:0[01]:00\.0)`,
			`[-+]sys/bus/pci/drivers/(lpu|pcieport)/(0000:44:00\.0|10000:0[01]:00\.0)`,
			`[-]sys/kernel/iommu_groups/13/devices/0000:44:00\.0`,
			`\+sys/kernel/iommu_groups/13/devices/10000:0[01]:00\.0`,
			`\+sys/class/pci_bus/10000:0[01]`, `\+sys/bus/pci_express/.*/10000:00:00\.0:pcie\d+`,
			`~sys/(class/lpu/lpu1|dev/char/511:1) -> \.\./\.\./devices/pci10000:00/10000:00:00\.0/10000:01:00\.0/lpu/lpu1`,
			`~sys/bus/pci/slots/11/address -\S+ 10000:01:00 `,
			`~` + bridge + `/current_link_speed -\S+ 2\.5 GT/s PCIe `, `~` + bridge + `/current_link_width -\S+ 0 `,
			`(?s)~` + bridge + `/config .*`,
		}},
		{"foreign", "orion", false, []string{
			`\+sys/devices/pci0000:40/0000:40:09\.0(/.*)?`,
			`\+sys/bus/pci/devices/(0000:40:09|0000:51:00)\.0`,
			`\+sys/bus/pci/drivers/(pcieport/0000:40:09\.0|rebellions(/.*)?)`,
			`\+sys/module/rebellions(/.*)?`, `\+sys/dev/char/509:0`, `\+sys/class/rebellions(/rbln0)?`, `\+sys/class/pci_bus/0000:51`,
			`\+sys/bus/pci_express/.*/0000:40:09\.0:pcie\d+`,
			`\+sys/kernel/iommu_groups/\d+(/.*)?`,
		}},
	} {
		t.Run(c.fault+"-"+c.profile, func(t *testing.T) {
			before, _ := write(t, Node{Profile: c.profile, LPUs: 3})
			after, result := write(t, Node{Profile: c.profile, LPUs: 3, Faults: []Fault{{c.fault, 1}}})
			if c.nodes && !result.DeviceNodes {
				c.want = nil // without the right to make nodes there is nothing to see
			}
			used := make([]bool, len(c.want))
			for _, change := range changes(before, after) {
				i := slices.IndexFunc(c.want, func(p string) bool { return regexp.MustCompile("^" + p + "$").MatchString(change) })
				if i >= 0 {
					used[i] = true
				} else if c.nodes || !strings.HasPrefix(change[1:], "dev/") { // nodes follow sysfs: see below
					t.Errorf("unexpected: %s", change)
				}
			}
			for i, p := range c.want {
				if !used[i] {
					t.Errorf("nothing matches %s", p)
				}
			}
			if !c.nodes {
				checkNodes(t, after, result.DeviceNodes)
			}
			checkLinks(t, after)
		})
	}
}

// deadCard is what a card below a bridge shows that answers nothing, as Linux 6.1 shows it. Its ids stay.
func deadCard(bridge string) []string {
	card := bridge + `/0000:44:00\.[01]`
	return []string{
		`~` + card + `/current_link_speed -\S+ Unknown `, `~` + card + `/current_link_width -\S+ 63 `,
		`~` + card + `/max_link_speed -\S+ 64\.0 GT/s PCIe `, `~` + card + `/max_link_width -\S+ 63 `,
		`~` + card + `/config -\S+ (\x{ff}|\x{fffd}){256}`,
	}
}

// withoutXocl is what goes with the driver of the LPU 0000:44:00.1, and more.
func withoutXocl(lpu string, more ...string) []string {
	return append(more,
		`[-]sys/bus/pci/drivers/xocl/0000:44:00\.1`,
		`[-]`+lpu+`/(user_pf|ready|dev_\w+|device_bad_state|shutdown|\w+uuids?|link_\w+|\w*mailbox_\w+|mig_calibration)`,
		`[-]`+lpu+`/(board_name|host_mem_size|userbar|kds_interrupt|nodma|versal)`,
		`[-]`+lpu+`/(drm|hwmon|(rom|xmc|firewall|mig)\.u\.\d+)(/.*)?`,
		`[-]sys/class/(drm/renderD132|drm/card4|hwmon/hwmon2)`, `[-]sys/dev/char/226:(132|4)`,
		`[-]sys/bus/platform/(devices|drivers/[a-z]+\.u)/[a-z]+\.u\.\d+`,
	)
}
