package simulate

import "fmt"

// The shell of a U55C as its ROM names it, and that of the golden image.
const (
	shell         = "xilinx_u55c_gen3x16_xdma_base_3"
	recoveryShell = "xilinx_u55c_recovery"
)

// orionCard is an Alveo U55C: the management function under xclmgmt, the user function under xocl. The
// attributes and their forms are those of XRT 2.15 (src/runtime_src/core/pcie/driver/linux/xocl).
func orionCard(c *card) []*function {
	instance := c.address.Domain<<16 | uint32(c.address.Bus)<<8
	name := fmt.Sprint("xclmgmt", instance)
	first := 16 + 4*c.probe // instance numbers, as the drivers count the devices below their functions
	management := &function{
		ids:    ids{0x10ee, 0x505c, 0x10ee, 0x000e, 0x120000, 0},
		driver: "xclmgmt",
		vpd:    productData("HyperAccel LPU (simulated)", "LPU-SIM-U55C", c.serial()),
		extra: linkAttributes(map[string]string{
			"mgmt_pf": "", "instance": fmt.Sprint(instance), "ready": "1", "dev_offline": "0", "recovery": "0",
			"mig_calibration": "1", "board_name": "u55c", "version": "2015225", "slot": "0", "xpr": "1", "mfg": "0",
			"error": "", "flash_type": "spi", "versal": "0", "interface_uuids": interfaceUUID, "logic_uuids": logicUUID,
		}),
		children: []*child{
			classDevice("xrt_mgmt", name, &node{name: name, numbers: Numbers{238, uint32(c.probe)}}, nil),
			platformDevice("rom.m", first, rom()),
		},
	}
	user := &function{
		ids:    ids{0x10ee, 0x505d, 0x10ee, 0x000e, 0x120000, 0},
		driver: "xocl",
		vpd:    management.vpd,
		extra: linkAttributes(map[string]string{
			"user_pf": "", "ready": "0x1", "dev_offline": "0", "device_bad_state": "0", "shutdown": "0", "dev_hotplug_done": "0",
			"mig_calibration": "0x1", "xclbinuuid": "5a1c0de5-0000-4000-8000-000000000001", "board_name": "u55c",
			"interface_uuids": interfaceUUID, "logic_uuids": logicUUID, "host_mem_size": "4294967296", "userbar": "0",
			"mailbox_connect_state": "0x7", "config_mailbox_channel_disable": "0x0", "config_mailbox_channel_switch": "0x0",
			"kds_interrupt": "ert", "nodma": "0", "versal": "0",
		}),
		children: []*child{
			platformDevice("rom.u", first, rom()),
			platformDevice("xmc.u", first+1, map[string]string{"serial_num": c.serial(), "bd_name": "ALVEO U55C PQ", "bmc_ver": "7.1.20"}),
		},
	}
	return []*function{management, user}
}

const (
	interfaceUUID = "51a1c0de00000000000000000000055c"
	logicUUID     = "51a1c0de0000000000000000000505c3"
)

// linkAttributes adds what XRT says of the link itself: generation and lanes.
func linkAttributes(a map[string]string) map[string]string {
	a["link_speed"], a["link_speed_max"], a["link_width"], a["link_width_max"] = "3", "3", "16", "16"
	return a
}

func rom() map[string]string {
	return map[string]string{"VBNV": shell, "timestamp": "0", "uuid": logicUUID, "FPGA": "xcu55c-fsvh2892-2L-e"}
}

func drmNodes(number int, _ *card) []*child { return drmDevices(number) }

func hyperdexFiles() map[string]string {
	return map[string]string{
		"opt/xilinx/xrt/version.json":           `{"BUILD_VERSION" : "2.15.225", "BUILD_BRANCH" : "2023.1"}`,
		"opt/xilinx/xrt/lib/libxrt_core.so":     placeholder,
		"opt/xilinx/xrt/lib/libxrt_coreutil.so": placeholder,
		"opt/hyperdex/setup.sh":                 "export HYPERDEX_HRT=/opt/hyperdex/hrt",
		"opt/hyperdex/hrt/lib/libhrt.so":        placeholder,
	}
}

// lpuCard is a card of the generic form.
func lpuCard(c *card) []*function { return plainCard(c, "lpu") }

func lpuNode(number int, _ *card) []*child { return numbered("lpu", "lpu", 511, number, nil) }

// berthaCard is a Bertha card under its ha driver. Its PCI ids are not public: these occur in
// HyperAccel's go-halib, and the configuration of the tree names them.
func berthaCard(c *card) []*function { return plainCard(c, "ha") }

func berthaNode(number int, c *card) []*child {
	return numbered("ha", "ha", 510, number, map[string]string{"serial": c.serial()})
}

func plainCard(c *card, driver string) []*function {
	return []*function{{
		ids:    ids{0x20fb, 0x0010, 0x20fb, 0x0001, 0x120000, 1},
		driver: driver,
		vpd:    productData("HyperAccel LPU (simulated)", "LPU-SIM", c.serial()),
	}}
}

// numbered is the class device, with its node, that a driver names by a prefix and a number.
func numbered(class, prefix string, major uint32, number int, attributes map[string]string) []*child {
	name := fmt.Sprint(prefix, number)
	return []*child{classDevice(class, name, &node{name: name, numbers: Numbers{major, uint32(number)}}, attributes)}
}

const berthaConfig = `# Bertha's PCI ids are not public; these are the ids of the simulated cards.
apiVersion: lpuctl.hyperaccel.ai/v1alpha1
kind: Config
models:
  - name: bertha
    enabled: true
    match:
      - {vendor: "20fb", device: "0010"}`
