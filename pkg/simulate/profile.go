package simulate

// Profile is a kind of simulated node: what the server and its LPU cards are like.
type Profile struct {
	Name, Summary string
	LPUs          int // unless Node.LPUs says otherwise

	cpus     []cpus // of each NUMA node
	allCPUs  cpus
	gpus     int
	gpu      uint16 // device id
	switched bool   // LPUs sit behind PCI Express switches, four by four, else at root ports
	link     link   // of a card
	modules  []string
	class    string                             // subsystem of the LPU's node
	nodes    func(number int, c *card) []*child // class devices with the LPU's node, which is the first
	inOrder  bool                               // nodes are numbered in address order, not as the driver met the cards
	card     func(*card) []*function            // from function 0 on; the last is the LPU
	ring     bool                               // has the ring table that hyperdex-net writes
	files    map[string]string                  // outside of sys
}

// cpus are those near a device, as sysfs prints them: a list and a mask.
type cpus struct{ list, mask string }

// Profiles lists the profiles; the first is the usual one.
func Profiles() []*Profile {
	two, all := []cpus{{"0-31", "00000000,ffffffff"}, {"32-63", "ffffffff,00000000"}}, cpus{"0-63", "ffffffff,ffffffff"}
	gen3, gen4, gen5 := link{3, 16, 3, 16}, link{4, 16, 4, 16}, link{5, 16, 5, 16}
	return []*Profile{
		{
			Name: "orion", Summary: "Orion server: Alveo U55C cards under xocl, with two GPUs beside them", LPUs: 8,
			cpus: two, allCPUs: all, gpus: 2, gpu: 0x20f1, switched: true, link: gen3,
			modules: []string{"xocl", "xclmgmt"}, class: "drm", nodes: drmNodes, card: orionCard, ring: true,
			files: hyperdexFiles(),
		},
		{
			Name: "lpu", Summary: "cards with /dev/lpuN, the generic form", LPUs: 8,
			cpus: two, allCPUs: all, switched: true, link: gen4,
			modules: []string{"lpu"}, class: "lpu", nodes: lpuNode, inOrder: true, card: lpuCard,
			files: map[string]string{
				"opt/hyperaccel/lib/libhyperaccel.so": placeholder,
				"opt/hyperaccel/lib/version":          "1.0.0",
			},
		},
		{
			Name: "bertha", Summary: "Bertha cards with /dev/haN in probe order, and the configuration that names their ids", LPUs: 8,
			cpus: two, allCPUs: all, switched: true, link: gen5,
			modules: []string{"ha"}, class: "ha", nodes: berthaNode, card: berthaCard,
			files: map[string]string{
				"etc/lpuctl/config.yaml":                  berthaConfig,
				"usr/local/lib/libha_driver.so":           placeholder,
				"usr/local/include/ha_driver.h":           placeholder,
				"usr/local/lib/pkgconfig/libha_driver.pc": placeholder,
			},
		},
		{
			Name: "edge", Summary: "Orion Edge server: Alveo U55C cards at root ports, one NUMA node, one GPU", LPUs: 2,
			cpus: []cpus{{"0-15", "ffff"}}, allCPUs: cpus{"0-15", "ffff"}, gpus: 1, gpu: 0x2236, link: gen3,
			modules: []string{"xocl", "xclmgmt"}, class: "drm", nodes: drmNodes, card: orionCard, ring: true,
			files: hyperdexFiles(),
		},
	}
}

const placeholder = "This file stands for a library of a simulated node; it has no code."
