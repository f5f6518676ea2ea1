package broken

import "slices"

// row is a node that is broken by commands.
type row struct {
	name    string
	reports string // a report of a user of another project that is like it, as in its list of issues
	tree    string // arguments of lpuctl simulate
	before  string // script that makes more of the healthy node, before its spec is written
	breaks  string // script that breaks it
	finds   []cause
	devices bool // it needs device files, which only root can make
}

// cause is what is found first, and what mends it. A node with two faults has two of them, in the order in which they are found.
type cause struct {
	link string
	says string // expression that the finding matches: id, subject, file and message
	// told is an expression of a remedy in words; "": the commands of the remedy are carried out.
	told string
	// then is a script: what is done by the words, or what the kernel and the card do by themselves when the commands were carried out.
	then string
}

// refresh is the remedy of most of what is wrong with a spec.
func refresh(says string) []cause { return []cause{{link: "spec", says: says}} }

func both(a, b []cause) []cause { return slices.Concat(a, b) }

// What the rows break and bring back, more than once.
const (
	unbind = `
		aside $(readlink -f $CARD) $PCI/drivers/xocl/$ADDRESS $NODE
		rm $CARD/driver $PCI/drivers/xocl/$ADDRESS; rm -f $NODE; rm -r $CARD/drm
	`
	off = `has containerd containerd 1.7.35
		printf 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = true\n' | put /etc/containerd/config.toml
	`
	turnOff = "sed -i 3d $ROOT/etc/containerd/config.toml"
	turnOn  = `sed -i '2a enable_cdi = true' $ROOT/etc/containerd/config.toml`
	foreign = `printf 'cdiVersion: 0.5.0\nkind: %s\ndevices:\n- name: lpu0\n  containerEdits: {deviceNodes: [{path: /dev/dri/renderD132}]}\n' `
	byName  = `mkdir -p $ROOT/etc/lpuctl; rm $TABLE; cat > $ROOT/etc/lpuctl/ring.yaml <<END
apiVersion: lpuctl.hyperaccel.ai/v1alpha1
kind: RingTable
rings:
- ["0000:43:00", "0000:44:00", "0000:45:00", "0000:46:00"]
END
`
)

func noDriver() []cause {
	return []cause{{link: "driver", says: `^no-driver lpu2 .*it needs xocl`, then: "grep -q '^modprobe xocl' ran; back"}}
}

func cdiOff() []cause {
	return []cause{{
		link: "runtime", says: `^cdi-off containerd `, told: `in node/etc/containerd/config.toml under .* add: enable_cdi = true`,
		then: turnOn,
	}}
}

func noSpec() []cause { return refresh(`^no-spec hyperaccel.ai/lpu`) }

// rows are the broken nodes.
func rows() []row {
	return slices.Concat(cardRows(), nodeRows(), healthRows(), cablingRows(), specRows(), directoryRows(), runtimeRows(),
		machineRows(), pairs())
}

func cardRows() []row {
	return []row{
		{
			name: "a card is pulled", breaks: "aside $PCI/devices/0000:45:00.*; rm $PCI/devices/0000:45:00.*",
			finds: []cause{{link: "card", says: `^absent lpu2 .*no card at 0000:45:00`, told: `reseat or replace the card`, then: "back"}},
		},
		{
			name: "a card is pulled for good", before: byName, breaks: "rm $PCI/devices/0000:45:00.*",
			finds: []cause{{
				link: "card", says: `^absent lpu2 `, told: `if it was taken out for good, make a new table \(lpuctl ring install\)`,
				then: `sed 's/"0000:45:00", //' $ROOT/etc/lpuctl/ring.yaml > new.yaml; lpuctl ring install new.yaml; lpuctl cdi refresh`,
			}},
		},
		{
			name: "the LPU's function is lost", reports: "NVIDIA/k8s-device-plugin#231", breaks: "aside $CARD; rm $CARD",
			finds: []cause{{
				link: "card", says: `^absent lpu2 .*management function 0000:45:00.0 is there`,
				then: "test $(cat $PCI/rescan) = 1; back",
			}},
		},
		{
			name: "the LPU's function is lost, and no table says so", before: "rm $TABLE", breaks: "aside $CARD; rm $CARD",
			finds: []cause{{link: "card", says: `^card-without-lpu `, then: "test $(cat $PCI/rescan) = 1; back"}},
		},
		{
			name: "a card runs its factory image", reports: "Xilinx/FPGA_as_a_Service#28",
			breaks: `aside $CARD/rom.u.*/VBNV $PCI/devices/0000:45:00.0/rom.m.*/VBNV $PCI/devices/0000:45:00.0/recovery
				echo 1 > $PCI/devices/0000:45:00.0/recovery
				for f in $CARD/rom.u.*/VBNV $PCI/devices/0000:45:00.0/rom.m.*/VBNV; do echo xilinx_u55c_recovery > $f; done`,
			finds: []cause{{
				link: "card", says: `^recovery-shell lpu2 .*factory image`, told: `xbmgmt program --base --device 0000:45:00.0, then power-cycle`,
				then: "back",
			}},
		},
		{
			name: "two functions of a card have the model's ids", tree: "--lpus 1",
			before: "mkdir -p $ROOT/etc/lpuctl; printf 'models:\\n" +
				"- {name: orion-u55c, match: [{vendor: 10ee, device: 505d}], nodes: [\"drm:render\"]}\\n' > $ROOT/etc/lpuctl/config.yaml",
			breaks: `cd $PCI/devices; real=$(readlink -f 0000:43:00.1); cp -r $real ${real%1}2
				ln -s $(readlink 0000:43:00.1 | sed 's/1$/2/') 0000:43:00.2; echo 0x000f > 0000:43:00.2/subsystem_device`,
			finds: []cause{{
				link: "card", says: `^same-card `, told: `narrow the match of its model in the config file`,
				then: `sed -i 's/device: 505d/device: 505d, subdevice: "000e"/' $ROOT/etc/lpuctl/config.yaml`,
			}},
		},
		{
			name: "the model has no ids", tree: "--profile bertha",
			breaks: "aside $ROOT/etc/lpuctl/config.yaml; rm $ROOT/etc/lpuctl/config.yaml",
			finds:  []cause{{link: "card", says: `^model-without-ids `, told: `models:`, then: "back"}},
		},
		{name: "no driver is bound", reports: "ROCm/legacy-rocm-build#629", breaks: unbind, finds: noDriver()},
		{
			name: "a card is left to a virtual machine", reports: "ROCm/legacy-rocm-build#629",
			breaks: unbind + "mkdir $PCI/drivers/vfio-pci; ln -sr $PCI/drivers/vfio-pci $(readlink -f $CARD)/driver",
			finds: []cause{{
				link: "driver", says: `^passed-through lpu2 .*vfio-pci`,
				then: "test $(cat $CARD/driver_override) = xocl; rm $CARD/driver; back",
			}},
		},
		{
			name:   "another driver is bound",
			breaks: unbind + "mkdir $PCI/drivers/foo; ln -sr $PCI/drivers/foo $(readlink -f $CARD)/driver",
			finds: []cause{{
				link: "driver", says: `^wrong-driver lpu2 .*foo is bound to it \(it needs xocl\)`,
				then: "test $(cat $CARD/driver_override) = xocl; rm $CARD/driver; back",
			}},
		},
		{
			name: "the management side does not answer", reports: "Xilinx/FPGA_as_a_Service#39",
			breaks: "aside $CARD/ready; echo 0 > $CARD/ready",
			finds:  []cause{{link: "driver", says: `^not-ready lpu2 `, then: "grep '^xbutil reset --device 0000:45:00.1' ran; back"}},
		},
		{
			name:   "a card was reset behind its driver",
			breaks: `aside $CARD/config; printf '\000' | dd of=$CARD/config bs=1 seek=4 conv=notrunc status=none`,
			finds:  []cause{{link: "driver", says: `^reset-behind-driver lpu2 `, then: "test $(cat $PCI/drivers/xocl/bind) = $ADDRESS; back"}},
		},
	}
}

func nodeRows() []row {
	rebound := "test $(cat $PCI/drivers/xocl/unbind) = $ADDRESS; test $(cat $PCI/drivers/xocl/bind) = $ADDRESS; back"
	return []row{
		{
			name: "a device file is missing", reports: "NVIDIA/nvidia-container-toolkit#885", devices: true, breaks: "aside $NODE; rm $NODE",
			finds: []cause{{link: "device-file", says: `^node-missing lpu2 .*/dev/dri/renderD130`, then: rebound}},
		},
		{
			name: "a regular file is in place of a device file", devices: true, breaks: "aside $NODE; rm $NODE; : > $NODE",
			finds: []cause{{link: "device-file", says: `^node-mismatch lpu2 .*regular file`, then: "test ! -e $NODE; " + rebound}},
		},
		{
			name: "a device file has the numbers of another card", reports: "NVIDIA/k8s-device-plugin#536", devices: true,
			breaks: "aside $NODE; rm $NODE; mknod $NODE c 226 131",
			finds: []cause{{link: "device-file", says: `^node-mismatch lpu2 .*226:131, but the LPU is 226:130`,
				then: "test ! -e $NODE; " + rebound}},
		},
		{
			name: "a device file is a directory", devices: true, breaks: "aside $NODE; rm $NODE; mkdir $NODE",
			finds: []cause{{link: "device-file", says: `^node-mismatch lpu2 .*directory`, then: "test ! -e $NODE; " + rebound}},
		},
		{
			name: "a device file is a dangling link", devices: true, breaks: "aside $NODE; rm $NODE; ln -s gone $NODE",
			finds: []cause{{link: "device-file", says: `^node-m[a-z]+ lpu2 `, then: rebound}},
		},
		{
			name: "the driver made no device file", breaks: "aside $(readlink -f $CARD)/drm; rm -r $CARD/drm",
			finds: []cause{{link: "device-file", says: `^no-node lpu2 `, told: "see dmesg for the driver's complaint", then: "back"}},
		},
		{
			name: "a second node of the class",
			breaks: "d=$(readlink -f $ROOT/sys/class/drm/renderD130); cp -r $d ${d%/*}/renderD199; " +
				"ln -sr ${d%/*}/renderD199 $ROOT/sys/class/drm/renderD199",
			finds: []cause{{
				link: "device-file", says: `^(bad-node|shared-node) lpu2 `, told: "reload the driver",
				then: "d=$(readlink -f $ROOT/sys/class/drm/renderD199); rm -r $d $ROOT/sys/class/drm/renderD199",
			}},
		},
		{
			name:   "two cards claim one device file",
			breaks: "d=$(readlink -f $ROOT/sys/class/drm/renderD130); aside $d; echo 226:133 > $d/dev; sed -i s/130/133/ $d/uevent",
			finds:  []cause{{link: "device-file", says: `^(shared-node|node-foreign|node-mismatch|bad-node) `, told: ".", then: "back"}},
		},
		{
			name: "all device files are missing", devices: true, tree: "--profile lpu --lpus 1",
			breaks: "aside $ROOT/dev/lpu0; rm $ROOT/dev/lpu0",
			finds:  []cause{{link: "device-file", says: `^node-missing lpu0 .*/dev/lpu0`, then: "back"}},
		},
	}
}

func healthRows() []row {
	reset := "grep -q '^xbutil reset --device 0000:45:00.1' ran; back"
	attribute := func(name, value, file string) string {
		return "aside " + file + "; echo " + value + " > " + file + " # " + name
	}
	return []row{
		{
			name: "a card is off the bus",
			breaks: `aside $CARD/config $CARD/current_link_width; echo 63 > $CARD/current_link_width
				tr '\000-\377' '\377' < $CARD/config > ff; cp ff $CARD/config`,
			finds: []cause{{link: "health", says: `^no-answer lpu2 `, told: `power-cycle the server`, then: "back"}},
		},
		{
			name: "a card lost power", breaks: attribute("power", "D3cold", "$CARD/power_state"),
			finds: []cause{{
				link: "health", says: `^power-lost lpu2 `, told: "when it has power again, rebind the driver, by unbind and bind in .*/xocl",
				then: "back",
			}},
		},
		{
			name: "the driver calls a card bad", breaks: attribute("state", "1", "$CARD/device_bad_state"),
			finds: []cause{{link: "health", says: `^bad-state lpu2 `, then: reset}},
		},
		{
			name: "a firewall has tripped", reports: "Xilinx/FPGA_as_a_Service#39",
			breaks: "f=$(echo $CARD/firewall.u.*); aside $(readlink -f $f); echo 0 > $f/level; echo 2 > $f/status",
			finds:  []cause{{link: "health", says: `^firewall lpu2 `, then: reset}},
		},
		{
			name: "a card's memory is not calibrated", reports: "Xilinx/FPGA_as_a_Service#39",
			breaks: attribute("memory", "0x0", "$CARD/mig_calibration"),
			finds:  []cause{{link: "health", says: `^not-calibrated lpu2 `, then: reset}},
		},
		{
			name: "a card is held offline", reports: "Xilinx/FPGA_as_a_Service#17", breaks: attribute("offline", "1", "$CARD/dev_offline"),
			finds: []cause{{link: "health", says: `^offline lpu2 `, then: reset}},
		},
		{
			name: "a card is offline, and its spec is away", breaks: attribute("offline", "1", "$CARD/dev_offline") + "\nrm $SPEC",
			finds: both([]cause{{link: "health", says: `^offline lpu2 `, then: reset}}, noSpec()),
		},
		{
			name: "a card has no host memory", breaks: attribute("memory", "0", "$CARD/host_mem_size"),
			finds: []cause{{link: "health", says: `^no-host-memory lpu2 `, then: "grep -q '^xbutil configure --host-mem' ran; back"}},
		},
		{
			name: "a link has a quarter of its lanes", breaks: attribute("lanes", "4", "$CARD/current_link_width"),
			finds: []cause{{link: "health", says: `^link-degraded lpu2 .*x4 of x16`, told: "reseat the card", then: "back"}},
		},
		{
			name: "an attribute cannot be read", breaks: "aside $CARD/numa_node; rm $CARD/numa_node; mkdir $CARD/numa_node",
			finds: []cause{{link: "health", says: `^unreadable-attribute lpu2 `, told: "see dmesg", then: "rmdir $CARD/numa_node; back"}},
		},
	}
}

func cablingRows() []row {
	fresh := "rm $ROOT/var/lib/lpuctl/last-ring.yaml; aside $TABLE; "
	table := func(says, told string) []cause {
		return []cause{{link: "cabling", says: says, told: told, then: "back; lpuctl cdi refresh"}}
	}
	return []row{
		{
			name: "a ring table has a wrong word", breaks: "aside $TABLE; sed -i 0,/Right/s//Wrong/ $TABLE",
			finds: table(`^ring-type .*"Wrong"`, `write "Right" or "Left"`),
		},
		{
			name: "a ring table is cut", breaks: fresh + "head -c 100 $TABLE > cut; cp cut $TABLE",
			finds: table(`^ring-(syntax|type) .*table.json`, "."),
		},
		{name: "a ring table is empty", breaks: fresh + ": > $TABLE", finds: table(`^ring-(empty|syntax|type|key) .*table.json`, ".")},
		{name: "a ring table is all zero", breaks: fresh + `sed -i 's/: [1-7]/: 0/' $TABLE`,
			finds: table(`^ring-all-zero `, "run hyperdex-net again")},
		{
			name: "a ring table is of fewer cards", before: "cp $TABLE table",
			breaks: fresh + `printf '{"num_device": 2, "network": [%s, %s]}' '{"src_id": 0, "dst_id": 1, "direction": "Right"}' ` +
				`'{"src_id": 1, "dst_id": 0, "direction": "Right"}' > $TABLE`,
			finds: table(`^ring-count .*table.json`, "run hyperdex-net again"),
		},
		{
			name: "a ring table may be written by all", breaks: "chmod 0666 $TABLE",
			finds: []cause{{link: "cabling", says: `^ring-unsafe .*table.json`}},
		},
		{
			name: "a ring table names a stranger", before: byName,
			breaks: "aside $ROOT/etc/lpuctl/ring.yaml; sed -i s/0000:45:00/XFL1SIM9999X/ $ROOT/etc/lpuctl/ring.yaml",
			finds:  table(`^ring-unknown-card .*ring.yaml`, "."),
		},
		{
			name: "cordons cannot be read", reports: "kubernetes/kubernetes#53532",
			breaks: "lpuctl cordon lpu1 --reason test; echo '{' > $ROOT/var/lib/lpuctl/cordon.json",
			finds: []cause{{
				link: "owner", says: `^cordons-unreadable .*cordon.json`, told: "see in the file which LPUs were cordoned, and cordon them again",
				then: "lpuctl cordon lpu1 --reason test",
			}},
		},
		{
			name: "the owner cannot be read", reports: "kubernetes/kubernetes#53532",
			breaks: `echo '{"apiVersion": "lpuctl.hyperaccel.ai/v2", "kind": "Owner", "owner": "dra"}' > $ROOT/var/lib/lpuctl/owner.json`,
			finds:  []cause{{link: "owner", says: `^owner-unknown .*owner.json`}},
		},
	}
}

func specRows() []row {
	edit := func(sed string) string { return "sed -i '" + sed + "' $SPEC" }
	return []row{
		{name: "no spec is in place", reports: "NVIDIA/nvidia-container-toolkit#146", breaks: "rm $SPEC", finds: noSpec()},
		{name: "the spec gives the node of another card", reports: "NVIDIA/k8s-device-plugin#536",
			breaks: edit("0,/renderD132/s//renderD133/"), finds: refresh(`^node-wrong lpu0 `)},
		{name: "the spec lacks a card", breaks: edit("0,/lpu0/s//lpu9/"), finds: refresh(`^(node-wrong lpu9|device-missing) `)},
		{name: "the spec has a device more", breaks: edit("0,/lpu0-1/s//lpu1-0/"),
			finds: refresh(`^(stale-device|device-missing|set-wrong) `)},
		{name: "the device for all lacks a card", breaks: edit(`/"name": "all"/,$s/renderD133/renderD999/`),
			finds: refresh(`^(set-wrong|node-missing) `)},
		{name: "the spec gives every container a node", breaks: edit(`s,^  "containerEdits": {,& "deviceNodes": [{"path": "/dev/null"}]\,,`),
			finds: refresh(`^(common-node|node-missing) `)},
		{name: "the spec is cut", breaks: "head -c 3000 $SPEC > cut; cp cut $SPEC",
			finds: refresh(`^spec-(syntax|refused) .*hyperaccel.ai-lpu.json`)},
		{name: "the spec is empty", breaks: ": > $SPEC", finds: refresh(`^spec-(refused|syntax) .*hyperaccel.ai-lpu.json`)},
		{name: "the spec is a directory", breaks: "rm $SPEC; mkdir $SPEC", finds: refresh(`^spec-unreadable .*hyperaccel.ai-lpu.json`)},
		{name: "the spec is a link to nowhere", breaks: "rm $SPEC; ln -s gone $SPEC", finds: refresh(`^spec-unreadable .*a symbolic link`)},
		{name: "the spec has a key of a later day", breaks: edit(`0,/"name"/s//"nmae": "x", "name"/`), finds: refresh(`^spec-unknown-key `)},
		{name: "the spec says a version that is too low", breaks: edit(`s/"cdiVersion": ".*"/"cdiVersion": "9.9.9"/`),
			finds: refresh(`^spec-version `)},
		{name: "only root may read the spec", breaks: "chmod 0600 $SPEC", finds: refresh(`^spec-mode .*hyperaccel.ai-lpu.json`)},
		{name: "a mounted directory is gone", breaks: "mv $ROOT/opt/xilinx/xrt $ROOT/opt/xilinx/old",
			finds: refresh(`^mount-missing .*/opt/xilinx/xrt`)},
		{name: "the ring table of containers was changed", breaks: "for f in $ROOT/run/lpuctl/ring/*; do echo {} > $f; done",
			finds: refresh(`^ring-table-broken `)},
		{name: "the ring tables of containers are gone", breaks: "rm -r $ROOT/run/lpuctl",
			finds: refresh(`^mount-missing .*/run/lpuctl/ring/`)},
		{name: "the spec is from another driver", reports: "NVIDIA/gpu-operator#1651",
			breaks: edit(`s/LPU_DRIVER_VERSION=[0-9.]*/LPU_DRIVER_VERSION=1.0/`),
			finds:  refresh(`^spec-drift `)},
		{name: "node numbers that are old", reports: "ROCm/k8s-gpu-dra-driver#86", devices: true,
			breaks: edit(`0,/"path": "\/dev\/dri\/renderD132"/s//& , "type": "c", "major": 226, "minor": 200/`),
			finds:  refresh(`^node-numbers `)},
		{name: "a second file defines our devices", breaks: foreign + "hyperaccel.ai/lpu > $SPECS/copy.yaml",
			finds: []cause{{link: "spec", says: `^conflict .*copy.yaml`}}},
		{name: "a file in the other directory hides ours", breaks: "mkdir -p $ROOT/etc/cdi; cp $SPEC $ROOT/etc/cdi/old.json",
			finds: []cause{{link: "spec", says: `^(shadowed|other-file) .*old.json`}}},
	}
}

func directoryRows() []row {
	remove := func(file string) string { return "rm $SPECS/" + file }
	return []row{
		{name: "a FIFO is in the spec directory", breaks: "mkfifo $SPECS/wait.json", finds: refresh(`^spec-hangs .*wait.json`)},
		{name: "a file of another crashes runtimes",
			breaks: `printf 'cdiVersion: 0.5.0\nkind: example.com/lpu\ndevices:\n- name: x\n  containerEdits:\n    deviceNodes:\n    -\n'` +
				` > $SPECS/x.yaml`,
			finds: []cause{{link: "spec", says: `^spec-crashes .*x.yaml`, told: "remove it, or write a value", then: remove("x.yaml")}}},
		{name: "a kind of one letter crashes runtimes", breaks: foreign + "example.com/l > $SPECS/l.yaml",
			finds: []cause{{link: "spec", says: `^one-letter-name .*l.yaml`, told: "two letters or more", then: remove("l.yaml")}}},
		{name: "others may not read the spec directory", breaks: "chmod 0700 $SPECS", finds: refresh(`^spec-dir-mode .*/var/run/cdi`)},
		{name: "the spec directory is a link", breaks: "mv $SPECS $ROOT/var/specs; ln -s ../specs $SPECS",
			finds: refresh(`^spec-dir-link .*/var/run/cdi`)},
		{name: "a hook is missing", reports: "", breaks: `cat > $SPECS/hook.yaml <<END
cdiVersion: 0.5.0
kind: hyperaccel.ai/lpu
devices:
- name: hooked
  containerEdits: {hooks: [{hookName: createContainer, path: /usr/bin/hook}]}
END
`, finds: []cause{{link: "spec", says: `^hook-missing .*hook.yaml`, told: "install the program, or remove the hook",
			then: "lpuctl cdi validate || :; rm $SPECS/hook.yaml"}}},
		{name: "a spec ends in yml", breaks: foreign + "hyperaccel.ai/lpu > $SPECS/copy.yml", finds: []cause{{
			link: "spec", says: `^spec-yml .*copy.yml`, told: "rename it to .yaml if it is meant to be read", then: remove("copy.yml")}}},
	}
}

func runtimeRows() []row {
	const containerd = `has containerd containerd 1.7.35
put /etc/containerd/config.toml <<'END'
version = 2
[plugins."io.containerd.grpc.v1.cri"]
enable_cdi = true
END
`
	const cdiIsOn = `echo '{"features": {"cdi": true}}' | put /etc/docker/daemon.json`
	mended := func(says, told, then string) []cause {
		return []cause{{link: "runtime", says: says, told: told, then: then}}
	}
	return []row{
		{name: "containerd has CDI off", reports: "NVIDIA/gpu-operator#598", before: off, breaks: turnOff, finds: cdiOff()},
		{name: "containerd's key is misspelt", before: containerd,
			breaks: "sed -i s/enable_cdi/enabel_cdi/ $ROOT/etc/containerd/config.toml",
			finds:  mended(`^cdi-off containerd `, `enable_cdi`, "sed -i s/enabel_cdi/enable_cdi/ $ROOT/etc/containerd/config.toml")},
		{name: "containerd's key is in the wrong table", before: containerd,
			breaks: "sed -i '2a [plugins.\"io.containerd.grpc.v1.cri\".containerd]' $ROOT/etc/containerd/config.toml",
			finds:  mended(`^cdi-off containerd `, `enable_cdi = true`, "sed -i '3d' $ROOT/etc/containerd/config.toml")},
		{name: "containerd's config is no TOML", before: containerd, breaks: "sed -i '2s/]//' $ROOT/etc/containerd/config.toml",
			finds: mended(`^config-refused containerd .*config.toml`, "correct", "sed -i '2s/$/]/' $ROOT/etc/containerd/config.toml")},
		{name: "containerd's CRI is disabled, and Kubernetes needs it", before: containerd +
			"echo 'containerRuntimeEndpoint: unix:///run/containerd/containerd.sock' | put /var/lib/kubelet/config.yaml",
			breaks: `sed -i '1a disabled_plugins = ["io.containerd.grpc.v1.cri"]' $ROOT/etc/containerd/config.toml`,
			finds:  mended(`^cri-disabled containerd `, "remove .* from disabled_plugins", "sed -i 2d $ROOT/etc/containerd/config.toml")},
		{name: "containerd reads another directory", reports: "kubernetes-sigs/dra-driver-nvidia-gpu#736", before: containerd,
			breaks: `sed -i '$a cdi_spec_dirs = ["/opt/cdi"]' $ROOT/etc/containerd/config.toml`,
			finds: mended(`^spec-dir-not-read containerd `, `cdi_spec_dirs`,
				`sed -i 's,"/opt/cdi","/opt/cdi"\, "/var/run/cdi",' $ROOT/etc/containerd/config.toml`)},
		{name: "containerd is too old", breaks: "has containerd containerd 1.6.20",
			finds: mended(`^cdi-unsupported containerd `, "install", `sed -i s/1.6.20/2.2.0/ $ROOT/var/lib/dpkg/status`)},
		{name: "Docker has CDI off", reports: "moby/moby#45192", breaks: "has dockerd docker-ce 5:27.5.1-1",
			finds: mended(`^cdi-off docker`, `daemon.json add, or write if there is no such file: \{"features": \{"cdi": true\}\}`, cdiIsOn)},
		{name: "Docker is told to have CDI off", before: "has dockerd docker-ce 5:28.5.2-1; " + cdiIsOn,
			breaks: "sed -i s/true/false/ $ROOT/etc/docker/daemon.json",
			finds:  mended(`^cdi-off docker`, `daemon.json:1 set "cdi": true`, "sed -i s/false/true/ $ROOT/etc/docker/daemon.json")},
		{name: "Docker's config is refused", before: "has dockerd docker-ce 5:28.5.2-1; " + cdiIsOn,
			breaks: `sed -i 's/true/"true"/' $ROOT/etc/docker/daemon.json`,
			finds:  mended(`^config-refused docker`, ".", `sed -i 's/"true"/true/' $ROOT/etc/docker/daemon.json`)},
		{name: "Docker is too old", breaks: "has dockerd docker.io 20.10.24+dfsg1-1",
			finds: mended(`^cdi-unsupported docker`, "install 25.0 or later",
				"sed -i 's/20.10.24+dfsg1-1/28.2.0/' $ROOT/var/lib/dpkg/status")},
		{name: "podman is too old", reports: "NVIDIA/nvidia-container-toolkit#63", breaks: "has podman podman 3.0.1+dfsg1-3",
			finds: mended(`^cdi-unsupported podman`, "install 4.1 or later", "sed -i 's/3.0.1+dfsg1-3/4.3.1/' $ROOT/var/lib/dpkg/status")},
		{name: "podman stops at a directory that is missing", reports: "cncf-tags/container-device-interface#78",
			breaks: "has podman podman 4.2.0", finds: mended(`^spec-dir-absent podman .*/etc/cdi is not there`, "", "")},
		{name: "CRI-O stops at a directory that is missing", reports: "cncf-tags/container-device-interface#115",
			breaks: "has crio cri-o 1.24.2", finds: mended(`^spec-dir-absent cri-?o .*/etc/cdi is not there`, "", "")},
		{name: "podman's config is refused", before: "has podman podman 5.6.0",
			breaks: "echo '[engine' | put /etc/containers/containers.conf",
			finds:  mended(`^config-refused podman`, ".", "rm $ROOT/etc/containers/containers.conf")},
		{name: "podman's own directories are not ours", reports: "containers/podman#25691", before: "has podman podman 5.6.0",
			breaks: `printf '[engine]\ncdi_spec_dirs = ["/opt/cdi"]\n' | put /etc/containers/containers.conf`,
			finds: mended(`^spec-dir-not-read podman`, "cdi_spec_dirs",
				`sed -i 's,"/opt/cdi","/opt/cdi"\, "/var/run/cdi",' $ROOT/etc/containers/containers.conf`)},
		{name: "CRI-O reads another directory", before: "has crio cri-o 1.30.0",
			breaks: `printf '[crio.runtime]\ncdi_spec_dirs = ["/opt/cdi"]\n' | put /etc/crio/crio.conf`,
			finds: mended(`^spec-dir-not-read cri-?o`, "cdi_spec_dirs",
				`sed -i 's,"/opt/cdi","/opt/cdi"\, "/var/run/cdi",' $ROOT/etc/crio/crio.conf`)},
	}
}

func machineRows() []row {
	enabled := func(unit string) string {
		return "mkdir -p $ROOT/run/systemd/system $ROOT/run/systemd/units $ROOT/lib/systemd/system $ROOT/etc/systemd/system/x.target.wants\n" +
			"printf '[Service]\\nExecStart=/usr/bin/true\\n' > $ROOT/lib/systemd/system/" + unit + "; " +
			"ln -s /lib/systemd/system/" + unit + " $ROOT/etc/systemd/system/x.target.wants/\n"
	}
	const running = "ln -s 0123456789abcdef $ROOT/run/systemd/units/invocation:lpuctl-serve.service"
	const limits = `mkdir -p $ROOT/proc/9; echo containerd > $ROOT/proc/9/comm; echo 0::/system.slice/k3s.service > $ROOT/proc/9/cgroup
		printf 'NSpid:\t9\n' > $ROOT/proc/9/status
		limit() { printf '%-26s%-21s%-21s%-10s\n' Limit 'Soft Limit' 'Hard Limit' Units 'Max locked memory' $1 $1 bytes > $ROOT/proc/9/limits; }
	`
	const profile = `mkdir -p $ROOT/sys/module/apparmor/parameters $ROOT/sys/kernel/security/apparmor
		echo Y > $ROOT/sys/module/apparmor/parameters/enabled; echo 'strict (enforce)' > $ROOT/sys/kernel/security/apparmor/profiles
		printf 'profile strict {\n  file,\n}\n' | put /etc/apparmor.d/strict
	`
	return []row{
		{name: "serve is enabled and does not run", before: enabled("lpuctl-serve.service") + running,
			breaks: "rm $ROOT/run/systemd/units/invocation:lpuctl-serve.service",
			finds: []cause{{link: "units", says: `^unit-down lpuctl-serve.service `,
				then: "grep -q '^systemctl restart lpuctl-serve.service' ran; " + running}}},
		{name: "the kubelet is enabled and does not run",
			before: "has containerd containerd.io 2.2.0-1; echo 'kind: KubeletConfiguration' | put /var/lib/kubelet/config.yaml",
			breaks: enabled("kubelet.service"),
			finds: []cause{{link: "kubelet", says: `^kubelet-away kubelet `,
				then: "grep -q '^systemctl start kubelet' ran; rm -r $ROOT/lib/systemd $ROOT/etc/systemd"}}},
		{name: "a link in /dev/char is missing", reports: "NVIDIA/nvidia-container-toolkit#48", devices: true,
			before: "mkdir -p $ROOT/run/systemd/system $ROOT/usr/lib/systemd $ROOT/dev/char; : > $ROOT/usr/lib/systemd/libsystemd-shared-252.so\n" +
				"has runc runc 1.1.5+ds1-1+deb12u1; for n in 130 131 132 133; do ln -s ../dri/renderD$n $ROOT/dev/char/226:$n; done",
			breaks: "rm $ROOT/dev/char/226:130",
			finds:  []cause{{link: "dev-char", says: `^dev-char-missing lpu2 .*runc 1.1.5`}}},
		{name: "containers may lock too little memory", reports: "NVIDIA/nvidia-container-toolkit#2037", before: limits + "limit unlimited",
			breaks: limits + "limit 8388608",
			finds: []cause{{link: "memlock", says: `^memlock-low k3s.service .*8 MiB`, told: "k3s.service.d/lpuctl-memlock.conf",
				then: limits + "limit unlimited"}}},
		{name: "a profile of AppArmor denies the device files", before: profile,
			breaks: `sed -i '2a deny /dev/dri/renderD* rw,' $ROOT/etc/apparmor.d/strict`,
			finds: []cause{{link: "security", says: `^apparmor-denies strict .*renderD1`, told: "apparmor_parser -r .*/etc/apparmor.d/strict",
				then: "sed -i 3d $ROOT/etc/apparmor.d/strict"}}},
	}
}

func pairs() []row {
	return []row{
		{name: "no driver, and containerd has CDI off", before: off, breaks: unbind + turnOff, finds: both(noDriver(), cdiOff())},
		{name: "no driver, and no spec", breaks: unbind + "rm $SPEC", finds: both(noDriver(), noSpec())},
		{name: "no spec, and containerd has CDI off", before: off, breaks: turnOff + "\nrm $SPEC", finds: both(noSpec(), cdiOff())},
		{name: "no spec, and the owner cannot be read", breaks: "echo junk > $ROOT/var/lib/lpuctl/owner.json; rm $SPEC",
			finds: both([]cause{{link: "owner", says: `^owner-unknown `}}, noSpec())},
		{name: "a FIFO and a changed spec", breaks: "mkfifo $SPECS/wait.json; sed -i 0,/renderD132/s//renderD133/ $SPEC",
			finds: both(refresh(`^node-wrong lpu0 `), refresh(`^spec-hangs .*wait.json`))},
		{name: "no driver, after the spec was written without the card", breaks: unbind + "lpuctl cdi refresh",
			finds: both(noDriver(), refresh(`^(device-missing|not-in-spec|spec-drift|set-wrong) `))},
		{name: "not calibrated, and a table that all may write to",
			breaks: "aside $CARD/mig_calibration; echo 0x0 > $CARD/mig_calibration; chmod 0666 $TABLE",
			finds: []cause{
				{link: "health", says: `^not-calibrated lpu2 `, then: "back"},
				{link: "cabling", says: `^ring-unsafe .*table.json`},
			}},
		{name: "a mount is gone, and Docker has CDI off",
			before: `has dockerd docker-ce 5:27.5.1-1; echo '{"features": {"cdi": true}}' | put /etc/docker/daemon.json`,
			breaks: "mv $ROOT/opt/xilinx/xrt $ROOT/opt/xilinx/old; rm $ROOT/etc/docker/daemon.json",
			finds: both(refresh(`^mount-missing .*/opt/xilinx/xrt`), []cause{{link: "runtime", says: `^cdi-off docker`, told: "daemon.json",
				then: `echo '{"features": {"cdi": true}}' | put /etc/docker/daemon.json`}})},
	}
}
