package simulate

// Profile is a kind of simulated node: what the server and its LPU cards are like.
type Profile struct {
	Name    string // as in Node.Profile
	Summary string // one line for people
	LPUs    int    // unless Node.LPUs says otherwise

	// Of the whole server, which are near a device whose NUMA node is unknown (-1), then of
	// each NUMA node.
	cpus []cpus
	gpus int
	gpu  uint16 // device id
	// LPUs are behind PCI Express switches, four by four, else at root ports.
	switched bool
	link     link               // of a card
	class    string             // subsystem of the LPU's node
	major    int                // of the LPU's node, where it is no DRM device
	tells    func(*card) string // attributes of the class device of that node; nil: none
	// Nodes are numbered in address order, not as the driver met the cards.
	inOrder  bool
	card     func(*card) []*function // from function 0 on; the last is the LPU
	ring     bool                    // has the ring table that hyperdex-net writes
	software string                  // files that are installed, as lines PATH=TEXT
	config   string                  // lpuctl's configuration; "": none
}

// cpus are those near a device, as sysfs prints them: a list and a mask.
type cpus struct{ list, mask string }

// Profiles lists the profiles. A command takes the first where none is named.
func Profiles() []*Profile {
	orion := Profile{
		Name: "orion", Summary: "Orion server: Alveo U55C cards under xocl, with two GPUs beside them", LPUs: 8,
		cpus: []cpus{{"0-63", "ffffffff,ffffffff"}, {"0-31", "00000000,ffffffff"}, {"32-63", "ffffffff,00000000"}},
		gpus: 2, gpu: 0x20f1, switched: true, link: link{3, 16, 3, 16},
		class: "drm", card: orionCard, ring: true,
		software: hyperdexFiles,
	}

	edge := orion
	edge.Name, edge.Summary, edge.LPUs = "edge", "Orion Edge server: Alveo U55C cards at root ports, one NUMA node, one GPU", 2
	edge.cpus = []cpus{{"0-15", "ffff"}, {"0-15", "ffff"}}
	edge.gpus, edge.gpu, edge.switched = 1, 0x2236, false

	lpu := Profile{
		Name: "lpu", Summary: "cards with /dev/lpuN, the generic form", LPUs: 8,
		cpus: orion.cpus, switched: true, link: link{4, 16, 4, 16},
		class: "lpu", major: 511, inOrder: true, card: plainCard,
		software: hyperaccelFiles,
	}

	bertha := Profile{
		Name: "bertha", Summary: "Bertha cards with /dev/haN in probe order, and the configuration that names their ids", LPUs: 8,
		cpus: orion.cpus, switched: true, link: link{5, 16, 5, 16},
		class: "ha", major: 510, card: berthaCard,
		tells:    func(c *card) string { return "serial=" + c.serial() + "\nstate=ok\nerrors_uncorrectable=0" },
		software: berthaFiles, config: berthaConfig,
	}
	return []*Profile{&orion, &lpu, &bertha, &edge}
}

// What is installed, as lines PATH=TEXT. The version of a module is its MODULE_VERSION.
const (
	placeholder = "This file stands for a library of a simulated node; it has no code."
	xrtVersion  = "2.15.225,51a1c0de51a1c0de51a1c0de51a1c0de51a1c0de" // version and commit

	systemFiles = `sys/module/nvme/version=1.0
sys/module/ahci/version=3.0
`
	hyperdexFiles = `sys/module/nvidia/version=550.163.01
sys/module/xocl/version=` + xrtVersion + `
sys/module/xclmgmt/version=` + xrtVersion + `
opt/xilinx/xrt/version.json={"BUILD_VERSION" : "2.15.225", "BUILD_BRANCH" : "2023.1"}
opt/xilinx/xrt/lib/libxrt_core.so=` + placeholder + `
opt/xilinx/xrt/lib/libxrt_coreutil.so=` + placeholder + `
opt/hyperdex/setup.sh=export HYPERDEX_HRT=/opt/hyperdex/hrt
opt/hyperdex/hrt/lib/libhrt.so=` + placeholder + `
`
	hyperaccelFiles = `sys/module/lpu/version=1.0.0
opt/hyperaccel/lib/version=1.0.0
opt/hyperaccel/lib/libhyperaccel.so=` + placeholder + `
`
	berthaFiles = `sys/module/ha/version=0.9.0
usr/local/lib/libha_driver.so=` + placeholder + `
usr/local/include/ha_driver.h=` + placeholder + `
usr/local/lib/pkgconfig/libha_driver.pc=` + placeholder + `
`
	rebellionsFiles = `sys/module/rebellions/version=1.2.92
`
	berthaConfig = `# Bertha's PCI ids are not public; these are the ids of the simulated cards.
apiVersion: lpuctl.hyperaccel.ai/v1alpha1
kind: Config
models:
  - name: bertha
    enabled: true
    match:
      - {vendor: "20fb", device: "0010"}`
)
