package simulate

import (
	"fmt"
	"strings"
)

// The shell of a U55C as its ROM names it, and that of the golden image.
const (
	shell         = "xilinx_u55c_gen3x16_xdma_base_3"
	recoveryShell = "xilinx_u55c_recovery"
)

// orionCard is an Alveo U55C: the management function under xclmgmt, the user function
// under xocl. The attributes and their forms are those of XRT 2.15
// (src/runtime_src/core/pcie/driver/linux/xocl), but for what HW-16, HW-23 and HW-24 of
// docs/hardware.md say.
func orionCard(c *card) []*function {
	instance := int(c.address.Domain<<16 | uint32(c.address.Bus)<<8) // 32 bits, as XRT has it
	// The drivers number the devices below their functions.
	first := 16 + 4*c.probe
	vpd := productData("LPU-SIM-U55C", c.serial())
	return []*function{
		{
			ids: ids{0x10ee, 0x505c, 0x10ee, 0x000e, 0x120000, 0},
			vpd: vpd,
			binding: binding{driver: "xclmgmt", children: []*child{
				classDevice("xrt_mgmt", "xclmgmt", instance, 238, c.probe),
				platformDevice("rom.m", first, romAttributes),
			}, extra: fmt.Sprintf("instance=%d\n", instance) + managementAttributes + xrtAttributes},
		},
		{
			ids: ids{0x10ee, 0x505d, 0x10ee, 0x000e, 0x120000, 0},
			vpd: vpd,
			binding: binding{driver: "xocl", children: []*child{
				platformDevice("rom.u", first, romAttributes),
				platformDevice("xmc.u", first+1, "serial_num="+c.serial()+"\nbd_name=ALVEO U55C PQ\nbmc_ver=7.1.20"),
				platformDevice("firewall.u", first+2, "status=0\nlevel=18446744073709551615"),
				platformDevice("mig.u", first+3, "ecc_ue_cnt=0\necc_ce_cnt=0"),
				sensorChip(c.probe, "xmc", "FPGA TEMP", "HBM TEMP"),
			}, extra: userAttributes + xrtAttributes},
		},
	}
}

// Attributes of XRT's drivers, as lines NAME=TEXT.
const (
	logicUUID = "51a1c0de0000000000000000000505c3"

	managementAttributes = `mgmt_pf=
ready=1
recovery=0
mig_calibration=1
version=2015225
slot=0
xpr=1
mfg=0
error=
flash_type=spi
`
	userAttributes = `user_pf=
ready=0x1
device_bad_state=0
shutdown=0
dev_hotplug_done=0
mig_calibration=0x1
xclbinuuid=5a1c0de5-0000-4000-8000-000000000001
host_mem_size=4294967296
userbar=0
mailbox_connect_state=0x7
config_mailbox_channel_disable=0x0
config_mailbox_channel_switch=0x0
kds_interrupt=ert
nodma=0
`
	// xrtAttributes are those of both functions. The last four are what XRT says of the
	// link: generation and lanes.
	xrtAttributes = `dev_offline=0
board_name=u55c
versal=0
interface_uuids=51a1c0de00000000000000000000055c
logic_uuids=` + logicUUID + `
link_speed=3
link_speed_max=3
link_width=16
link_width_max=16`

	romAttributes = `VBNV=` + shell + `
timestamp=0
uuid=` + logicUUID + `
FPGA=xcu55c-fsvh2892-2L-e`
)

// flashGoldenImage makes the card run the image that it falls back to when the flash
// holds no good shell.
func flashGoldenImage(c *card) {
	golden := strings.NewReplacer("recovery=0", "recovery=1", shell, recoveryShell)
	for _, f := range c.functions {
		f.extra = golden.Replace(f.extra)
		for _, child := range f.children {
			child.attributes = golden.Replace(child.attributes)
		}
	}
}

// sensorChip is the class device by which a driver tells temperatures and power
// (Documentation/hwmon/sysfs-interface.rst).
func sensorChip(number int, name string, labels ...string) *child {
	lines := []string{"name=" + name, "power1_input=38500000"}
	for i, label := range labels {
		lines = append(lines, fmt.Sprintf("temp%[1]d_label=%[2]s\ntemp%[1]d_input=%[3]d\ntemp%[1]d_crit=97000", i+1, label, 41000+3000*i))
	}
	return &child{class: hwmon, name: fmt.Sprint(hwmon, number), attributes: strings.Join(lines, "\n")}
}

// plainCard is a card of one function, whose driver has the name of its class. The PCI
// ids of such cards are not public: these occur in HyperAccel's go-halib, and Bertha's
// configuration names them.
func plainCard(c *card) []*function {
	return []*function{{
		ids:     ids{0x20fb, 0x0010, 0x20fb, 0x0001, 0x120000, 1},
		binding: binding{driver: c.server.class},
		vpd:     productData("LPU-SIM", c.serial()),
	}}
}

// berthaCard is a plain card whose driver tells of its sensors, as docs/health-notes.md asks of
// it.
func berthaCard(c *card) []*function {
	functions := plainCard(c)
	functions[0].children = []*child{sensorChip(c.probe, "ha", "LPU", "HBM")}
	return functions
}
