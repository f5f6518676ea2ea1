package finding

import "slices"

// Rule is one row of the table: what a finding of an id means, and what to do about it in
// general. A finding may have a remedy of its own, with names and paths.
type Rule struct {
	ID       ID
	Severity Severity
	Meaning  string
	Remedy   string
}

// Findings about one LPU. They are its reasons in the inventory.
const (
	Absent              ID = "absent"
	AERCorrectable      ID = "aer-correctable"
	AERFatal            ID = "aer-fatal"
	AERNonFatal         ID = "aer-nonfatal"
	AmbiguousModel      ID = "ambiguous-model"
	Asleep              ID = "asleep"
	BadNode             ID = "bad-node"
	BadState            ID = "bad-state"
	Cordoned            ID = "cordoned"
	ECCUncorrectable    ID = "ecc-uncorrectable"
	Firewall            ID = "firewall"
	GivenTwice          ID = "given-twice"
	Gone                ID = "gone"
	HeldByOther         ID = "held-by-other"
	Hot                 ID = "hot"
	InRecovery          ID = "in-recovery"
	LinkDegraded        ID = "link-degraded"
	NoAnswer            ID = "no-answer"
	NoDriver            ID = "no-driver"
	NoHostMemory        ID = "no-host-memory"
	NoNode              ID = "no-node"
	NodeForeign         ID = "node-foreign"
	NodeMismatch        ID = "node-mismatch"
	NodeMissing         ID = "node-missing" // of a spec too
	NotCalibrated       ID = "not-calibrated"
	NotInSpec           ID = "not-in-spec"
	NotReady            ID = "not-ready"
	Offline             ID = "offline"
	PassedThrough       ID = "passed-through"
	PowerLost           ID = "power-lost"
	ReadStalled         ID = "read-stalled"
	Rebound             ID = "rebound"
	Recovered           ID = "recovered"
	Recovering          ID = "recovering"
	RecoveryFailed      ID = "recovery-failed"
	RecoveryShell       ID = "recovery-shell"
	ResetBehindDriver   ID = "reset-behind-driver"
	SharedNode          ID = "shared-node"
	UnreadableAttribute ID = "unreadable-attribute"
	WrongDriver         ID = "wrong-driver"
)

// Findings about the machine as a whole.
const (
	AppArmorDenies     ID = "apparmor-denies"
	BesideKubernetes   ID = "beside-kubernetes"
	CardWithoutLPU     ID = "card-without-lpu"
	CordonsUnreadable  ID = "cordons-unreadable"
	DevCharMissing     ID = "dev-char-missing"
	DRAUnregistered    ID = "dra-unregistered"
	HostLacks          ID = "host-lacks"
	KubeletAway        ID = "kubelet-away"
	MemlockLow         ID = "memlock-low"
	ModelWithoutIDs    ID = "model-without-ids"
	MountStalled       ID = "mount-stalled"
	OddPCIEntry        ID = "odd-pci-entry"
	OtherPlugin        ID = "other-plugin"
	OwnerDRA           ID = "owner-dra"
	OwnerPlugin        ID = "owner-plugin"
	OwnerUnknown       ID = "owner-unknown"
	OwnerUnsettled     ID = "owner-unsettled"
	PluginUnregistered ID = "plugin-unregistered"
	PortErrors         ID = "port-errors"
	RingTableDetached  ID = "ring-table-detached"
	RingTableStale     ID = "ring-table-stale"
	SameCard           ID = "same-card"
	SELinuxDenies      ID = "selinux-denies"
	UeventsSilent      ID = "uevents-silent"
	UnitDown           ID = "unit-down"
	UnreadableClass    ID = "unreadable-class"
	UnreadableFunction ID = "unreadable-function"
	UsersHidden        ID = "users-hidden"
)

// Findings about a ring table.
const (
	RingAbsentCard   ID = "ring-absent-card"
	RingAllZero      ID = "ring-all-zero"
	RingChain        ID = "ring-chain"
	RingConflict     ID = "ring-conflict"
	RingCount        ID = "ring-count"
	RingDegree       ID = "ring-degree"
	RingDuplicateKey ID = "ring-duplicate-key"
	RingEmpty        ID = "ring-empty"
	RingFileOrder    ID = "ring-file-order"
	RingHyperdex     ID = "ring-hyperdex"
	RingIsolated     ID = "ring-isolated"
	RingKey          ID = "ring-key"
	RingKept         ID = "ring-kept"
	RingLinkTwice    ID = "ring-link-twice"
	RingOneSided     ID = "ring-one-sided"
	RingOrder        ID = "ring-order"
	RingSelfLink     ID = "ring-self-link"
	RingSeveral      ID = "ring-several"
	RingSyntax       ID = "ring-syntax"
	RingTooLarge     ID = "ring-too-large"
	RingTrailing     ID = "ring-trailing"
	RingType         ID = "ring-type"
	RingUnknownCard  ID = "ring-unknown-card"
	RingUnreadable   ID = "ring-unreadable"
	RingUnsafe       ID = "ring-unsafe"
)

// Findings about a CDI spec, one that is made or one that is validated.
const (
	CommonNode       ID = "common-node"
	DeviceMissing    ID = "device-missing"
	DeviceUnknown    ID = "device-unknown"
	DuplicateEnv     ID = "duplicate-env"
	DuplicateNode    ID = "duplicate-node"
	EnvCollision     ID = "env-collision"
	FactoryImage     ID = "factory-image"
	ForeignSpec      ID = "foreign-spec"
	HookMissing      ID = "hook-missing"
	HookTimeout      ID = "hook-timeout"
	ImageEnv         ID = "image-env"
	LeftOut          ID = "left-out"
	MountLeftOut     ID = "mount-left-out"
	MountMissing     ID = "mount-missing"
	RingTableBroken  ID = "ring-table-broken"
	RingTableLeftOut ID = "ring-table-left-out"
	RingTablePart    ID = "ring-table-part"
	NoSpec           ID = "no-spec"
	NodeNotDevice    ID = "node-not-device"
	NodeNumbers      ID = "node-numbers"
	NodeUnverified   ID = "node-unverified"
	NodeWrong        ID = "node-wrong"
	OldKind          ID = "old-kind"
	OlderLibrary     ID = "older-library"
	OneLetterName    ID = "one-letter-name"
	OtherFile        ID = "other-file"
	RelativePath     ID = "relative-path"
	SetWrong         ID = "set-wrong"
	Shadowed         ID = "shadowed"
	SpecConflict     ID = "conflict"
	SpecCrashes      ID = "spec-crashes"
	SpecDirLink      ID = "spec-dir-link"
	SpecDirMode      ID = "spec-dir-mode"
	SpecDirUnread    ID = "spec-dir-unread"
	SpecDrift        ID = "spec-drift"
	SpecHangs        ID = "spec-hangs"
	SpecMode         ID = "spec-mode"
	SpecRefused      ID = "spec-refused"
	SpecSecond       ID = "spec-second-document"
	SpecSyntax       ID = "spec-syntax"
	SpecUnknownKey   ID = "spec-unknown-key"
	SpecUnreadable   ID = "spec-unreadable"
	SpecVersion      ID = "spec-version"
	SpecYML          ID = "spec-yml"
	StaleDevice      ID = "stale-device"
	Target           ID = "target"
)

// Findings about a container runtime.
const (
	CDIOff ID = "cdi-off"
	// CDISource is the one finding of each runtime that says who answered, and where that
	// is written.
	CDISource        ID = "cdi-source"
	CDIUnknown       ID = "cdi-unknown"
	CDIUnsupported   ID = "cdi-unsupported"
	ConfigRefused    ID = "config-refused"
	ConfigUnknown    ID = "config-unknown"
	ConfigUnreadable ID = "config-unreadable"
	CRIDisabled      ID = "cri-disabled"
	CRIFailed        ID = "cri-failed"
	CRINotJudged     ID = "cri-not-judged"
	CRISilent        ID = "cri-silent"
	CRIWouldFail     ID = "cri-would-fail"
	FilesStalled     ID = "files-stalled"
	KubeletSocket    ID = "kubelet-socket"
	RestartChanges   ID = "restart-changes"
	RestartNeeded    ID = "restart-needed"
	SettingLost      ID = "setting-lost"
	SocketDenied     ID = "socket-denied"
	SocketForeign    ID = "socket-foreign"
	SocketMissing    ID = "socket-missing"
	SocketNoAnswer   ID = "socket-no-answer"
	SocketRefused    ID = "socket-refused"
	SpecDirAbsent    ID = "spec-dir-absent"
	SpecDirNotRead   ID = "spec-dir-not-read"
	UnknownKey       ID = "unknown-key"
	VersionUnknown   ID = "version-unknown"
)

// Findings about leases and reservations of LPUs.
const (
	LeaseBusy        ID = "lease-busy"
	LeaseClosed      ID = "lease-closed"
	LeaseEnded       ID = "lease-ended"
	LeaseHookFailed  ID = "lease-hook-failed"
	LeaseHookUnsafe  ID = "lease-hook-unsafe"
	LeaseImpossible  ID = "lease-impossible"
	LeaseLimit       ID = "lease-limit"
	LeaseNoneFree    ID = "lease-none-free"
	LeaseNoContainer ID = "lease-no-container"
	LeaseNoStore     ID = "lease-no-store"
	LeaseNoUsage     ID = "lease-no-usage"
	LeaseOver        ID = "lease-over"
	LeaseRecords     ID = "lease-records"
	LeaseRequest     ID = "lease-request"
	LeaseUnclear     ID = "lease-unclear"
	LeaseUnknown     ID = "lease-unknown"
	LeaseUnreachable ID = "lease-unreachable"
	LeaseUnrecorded  ID = "lease-unrecorded"
	LeaseUsage       ID = "lease-usage"
	LeaseUser        ID = "lease-user"
)

// Findings about claims of Kubernetes that the DRA driver has prepared.
const (
	ClaimFile    ID = "claim-file"
	ClaimOverlap ID = "claim-overlap"
	ClaimRecord  ID = "claim-record"
)

// BadConfig is the finding about lpuctl's own config file.
const BadConfig ID = "bad-config"

const (
	ringTables     = "Ring tables" // the area
	ringWriteAgain = "check the QSFP cables, then run hyperdex-net again"
	ringCorrect    = "correct the table at the line that is named"
	specRefresh    = "lpuctl cdi refresh"
)

// table is sorted by area, then by id.
var table = [...]Group{ //nolint:gochecknoglobals // never changed; Go has no constant arrays
	{"LPUs", []Rule{
		{Absent, Error, "The ring table names a card that is not in the machine. It keeps its index.",
			"reseat or replace the card; if it was taken out for good, make a new table (lpuctl ring install)"},
		{AERCorrectable, Warning, "The PCI bus corrected many errors of the card in a short time.",
			"reseat the card; if the errors go on, try another slot"},
		{AERFatal, Error, "The card reported a fatal error on the PCI bus. It counts until there was none for a while. " +
			"The total of its counter is a warning.",
			"see dmesg; reset the card and start its jobs again; if it comes back, replace the card"},
		{AERNonFatal, Warning, "The card reported errors on the PCI bus that the hardware did not correct.",
			"see dmesg, and look at the results of the jobs; if the errors go on, reseat the card"},
		{AmbiguousModel, Error, "Two models match the card equally well.",
			"make the match of one of them narrower, or disable one, in the config file"},
		{Asleep, Note, "The kernel has put the card to sleep, and so it was not read. Its driver wakes it when it is used.",
			"nothing; to keep it awake: echo on > /sys/bus/pci/devices/ADDRESS/power/control"},
		{BadNode, Error, "The kernel's description of the device node cannot be used.",
			"reload the driver; check the model's node rules (lpuctl config show)"},
		{BadState, Error, "The driver says that the card is in a state from which it does not recover.",
			"reset the card (an Alveo card by xbutil reset --device ADDRESS), or power-cycle the server"},
		{Cordoned, Note, "An administrator has taken the LPU out of use. Running containers keep it; new ones do not get it.",
			"when it may be handed out again: lpuctl uncordon LPU"},
		{ECCUncorrectable, Error, "The card's memory had an error that it could not correct. It counts until there was none for a while. " +
			"The total of its counter is a warning.",
			"start the card's jobs again; if it comes back, replace the card"},
		{Firewall, Error, "The card's firewall has tripped: it stopped the logic on the card.", "xbutil reset --device ADDRESS"},
		{GivenTwice, Error, "Two pods have the LPU. A program ignores lpuctl owner, or the record of a claim was lost.",
			"delete one of the pods that are named"},
		{Gone, Error, "The card was there before and is gone now.", "see dmesg; reset the slot or power-cycle the server"},
		{HeldByOther, Error, "A pod of the other one of device plugin and DRA driver has the LPU, or a user has leased or reserved it. " +
			"No other pod gets it meanwhile.",
			"wait until that pod has ended, or delete it; of a lease, until it is given back (lpuctl list)"},
		{Hot, Warning, "A sensor of the card shows its critical temperature. If the config file sets a limit, more than that is an error.",
			"check fans and air flow"},
		{InRecovery, Error, "The kernel is recovering the card from an error on the PCI bus.", "wait; see dmesg if it does not end"},
		{LinkDegraded, Warning, "The card's PCI Express link has fewer lanes than card and slot have, or is slower or narrower than it was.",
			"reseat the card; if it stays so, try another slot"},
		{NoAnswer, Error, "The card does not answer on the PCI bus: it reads as all ones. It is in a reset, or dead.",
			"if it stays so, nothing resets it: reset the slot or power-cycle the server, then reseat or replace the card"},
		{NoDriver, Error, "No driver is bound to the card.", "modprobe DRIVER; echo ADDRESS > /sys/bus/pci/drivers_probe"},
		{NoHostMemory, Warning, "The card has no memory of the host, which HyperDex needs.",
			"xbutil configure --host-mem --size 1G enable --device ADDRESS"},
		{NoNode, Error, "The driver made no device node, the model does not say where the node is, or that cannot be read.",
			"see dmesg for the driver's complaint; reload the driver"},
		{NodeForeign, Error, "The node in /dev has the device numbers of another device, and not of the LPU.",
			"correct the node rules of the model in the config file (lpuctl config show); if they are right, reload the driver"},
		{NodeMismatch, Error, "The file in /dev is not the LPU's device node.",
			"remove the file, then rebind the driver, so that its node is made again"},
		{NodeMissing, Error, "The device node is not in /dev.",
			"rebind the driver, so that its node is made again; in a container, hand the node in"},
		{NotCalibrated, Error, "The card's memory is not calibrated.",
			"if this does not help, power-cycle the server: xbutil reset --device ADDRESS"},
		{NotInSpec, Error, "The installed CDI spec does not define the LPU: no container gets it.",
			"see the log of lpuctl serve, and lpuctl cdi validate"},
		{NotReady, Error, "The card's management side does not answer.",
			"check that xclmgmt is loaded and bound to the card's management function"},
		{Offline, Error, "The driver holds the card offline.",
			"wait for the reset to end; if it stays so, reset the card, or power-cycle the server"},
		{PassedThrough, Error, "The card is given to a virtual machine (driver vfio-pci).", "unbind it from vfio-pci to take it back"},
		{PowerLost, Error, "The card lost power behind its driver: the kernel calls it active, and it has none.",
			"when it has power again, rebind the driver, by unbind and bind in /sys/bus/pci/drivers/DRIVER"},
		{ReadStalled, Error, "The card was not read in time. Its state is unknown.",
			"the card or its driver hangs: see dmesg, then reset the card or the server"},
		{Rebound, Warning, "The card's driver was bound again, or its node was made anew. What used it before may have lost it.",
			"start the containers again that had the card before"},
		{Recovered, Warning, "The kernel recovered the card from an error on the PCI bus.",
			"look at the results of its jobs; if it comes back, reseat the card"},
		{Recovering, Warning, "The card answers again. It counts as healthy when it has stayed well for a moment.",
			"wait; if this comes back, see dmesg"},
		{RecoveryFailed, Error, "The kernel could not recover the card from an error on the PCI bus.",
			"rebind the driver; if that does not help, power-cycle the server"},
		{RecoveryShell, Error, "The card runs its factory image and not the LPU shell.",
			"flash the LPU shell, then power-cycle the server"},
		{ResetBehindDriver, Error, "Something reset the card while its driver was bound, and the driver does not know.",
			"rebind the driver: echo ADDRESS > /sys/bus/pci/drivers/DRIVER/unbind; echo ADDRESS > /sys/bus/pci/drivers/DRIVER/bind"},
		{SharedNode, Error, "Two LPUs claim one device node: the same path, or the same device numbers.",
			"reload the driver; if it stays so, report it to the maker of the driver"},
		{UnreadableAttribute, Warning, "An attribute of the card cannot be read, and is left out.",
			"see dmesg for the device"},
		{WrongDriver, Error, "The card is bound to a driver that is not its model's.", "unbind this driver, and bind the model's"},
	}},
	{"The machine", []Rule{
		{AppArmorDenies, Warning, "A profile of AppArmor keeps containers that have it from opening the device file of an LPU.",
			"take the rule out of the profile that is named, and load it again"},
		{BesideKubernetes, Warning, "Kubernetes allocates the LPUs of this node too: a pod may have one that looks free, or get it at any " +
			"time. A note if this user cannot see whether it does.",
			"ask for the LPUs by a pod; or name LPUs in leases.pool of /etc/lpuctl/config.yaml, which no pod gets, and lease them with lpuctl run"},
		{CardWithoutLPU, Warning, "A card shows its management function and no LPU: the LPU's function left the bus, or the card runs its " +
			"factory (golden) image or another shell.",
			"have the kernel look for it again (echo 1 > /sys/bus/pci/rescan), then power-cycle the server; if that does not help, " +
				"flash the LPU shell"},
		{CordonsUnreadable, Warning,
			"The file with the cordons cannot be read. A running serve keeps those that it had read; " +
				"for other programs no LPU is cordoned.",
			"see in the file which LPUs were cordoned, and cordon them again (lpuctl cordon), which puts the file aside"},
		{DevCharMissing, Warning, "A device file of an LPU has no link in /dev/char. With this runc, a container loses the device when systemd " +
			"reads its units again.",
			"make the link: ln -s ../NAME /dev/char/MAJOR:MINOR; or install runc 1.1.7 or later"},
		{DRAUnregistered, Error, "The DRA driver runs, but its socket for the kubelet is missing, or no program listens there.",
			"see the log of lpuctl-dra, and restart it"},
		{HostLacks, Error, "The host lacks something that LPUs in containers need. A warning if only a part of lpuctl needs it.",
			"install or set up what is named"},
		{KubeletAway, Warning, "The kubelet does not run or does not answer, and so no pod gets an LPU.",
			"start the kubelet: systemctl start kubelet; its log has the reason: journalctl -u kubelet"},
		{MemlockLow, Warning, "A program may lock less memory than the library of the LPUs may need.",
			"as root, put the line \"* - memlock unlimited\" into /etc/security/limits.d/lpuctl.conf, and log in again; in a systemd unit: " +
				"LimitMEMLOCK=infinity"},
		{ModelWithoutIDs, Warning, "A model has no PCI ids, and so matches no card. This machine has devices that look like its LPUs.",
			"write the ids of the cards into the config file, as the finding shows"},
		{MountStalled, Warning, "A path that containers need does not answer.",
			"check the file system on which the path lies, above all a network file system"},
		{OddPCIEntry, Warning, "The list of PCI devices has an entry that the kernel does not make.",
			"check what is mounted at sys/bus/pci/devices"},
		{OtherPlugin, Warning, "Another device plugin allocates the same cards: the kubelet gives one card to two pods.",
			"keep one of the two plugins off this node; docs/kubernetes-operations.md says how to move from one to the other"},
		{OwnerDRA, Error, "The DRA driver owns the LPUs of this node, so the device plugin offers none.",
			"nothing, if it is meant to; else lpuctl owner set plugin"},
		{OwnerPlugin, Error, "The device plugin owns the LPUs of this node, so the DRA driver offers none.",
			"nothing, if it is meant to; else lpuctl owner set dra"},
		{OwnerUnknown, Error, "The file with the owner of this node's LPUs cannot be used. No LPU is offered.",
			"say who it is to be: lpuctl owner set plugin, or lpuctl owner set dra"},
		{OwnerUnsettled, Error, "It is not known which LPUs pods still have from the other of device plugin and DRA driver, " +
			"or which users have leased. None is offered.",
			"wait; if it stays so, see the reason"},
		{PluginUnregistered, Error, "The device plugin runs, but the kubelet does not list its LPUs. A warning if the kubelet lists some.",
			"see the log of lpuctl serve; it registers again when it is restarted: systemctl restart lpuctl-serve.service"},
		{PortErrors, Warning, "A PCI port above LPUs has counted errors: its own, or at the root those that anything below it reported.",
			"see dmesg for what reported them; if they go on, reseat the cards below the port"},
		{RingTableDetached, Warning, "A container reads the host's ring table in place of its own, and may compute over cables that do not " +
			"exist. The host's file was replaced, which removes mounts over it; or the container never had its own table.",
			"start the container again; of a pod: delete the pod, so that it is made again"},
		{RingTableStale, Warning, "The cables were changed after a pod got its ring table: it may compute over cables that do not exist.",
			"delete the pod, so that it is made again"},
		{SameCard, Warning, "An LPU is part of another LPU's card: a virtual function (SR-IOV) of it, or a second function whose ids match.",
			"if the card is one LPU, take the virtual functions away, or narrow the match of its model in the config file"},
		{SELinuxDenies, Warning, "SELinux keeps containers from opening a device file of the host, as an ordinary user's podman gives it." +
			" An error if it keeps the device plugin from making its socket.",
			"as root: setsebool -P container_use_devices on; of the plugin: give its pod the type container_device_plugin_t"},
		{UeventsSilent, Note, "The kernel's events do not arrive: changes are seen by polling, up to a second later.",
			"nothing; in a pod with hostUsers: false this is normal"},
		{UnitDown, Error, "A unit of lpuctl is enabled and does not do its work.",
			"its log has the reason: journalctl -u UNIT; then: systemctl restart UNIT"},
		{UnreadableClass, Error, "A class of devices cannot be listed: its LPUs are not seen.",
			"check that sysfs is mounted as a whole"},
		{UnreadableFunction, Error, "The ids of a PCI function cannot be read. It may be an LPU, and then the indices are wrong.",
			"see the kernel log for the device (dmesg)"},
		{UsersHidden, Note,
			"This user cannot see the open files of some processes, which may use an LPU. In lpuctl allocate it is a warning.",
			"run it as root, and not in a container, to see every user of an LPU"},
	}},
	{ringTables, []Rule{
		{RingAbsentCard, Warning, "The table names a card that is not in the machine. Its cables are dead.",
			"bring the card up, or write the table again without it"},
		{RingAllZero, Error, "Every value is 0: the tool that wrote the table did not complete.",
			"check that every card is up and every QSFP cable is in, and run hyperdex-net again"},
		{RingChain, Warning, "A ring lacks a cable, and so is a chain. Sets of neighbours still work.", "check the cables that are named"},
		{RingConflict, Error, "Two cards claim one port, or one card has two ids.", ringCorrect},
		{RingCount, Error, "The table does not list as many cards as it says, or as the node has.",
			"bring up every card and run hyperdex-net again, or key the table by PCI address"},
		{RingDegree, Error, "A card has more than two neighbours.", "remove the links that are not cables"},
		{RingDuplicateKey, Error, "An object has one key twice.", "keep one of them"},
		{RingEmpty, Error, "The table names no cables.", ringWriteAgain},
		{RingFileOrder, Warning,
			"The links are not listed in the order of the cables. HyperDex's program takes the order of the file for that of the ring.",
			"write the table in the order of the cables: lpuctl ring convert --to hyperdex --output FILE FILE"},
		{RingHyperdex, Warning, "HyperDex's program cannot read the table, or takes it for another cabling.",
			"write the table as HyperDex needs it: lpuctl ring convert --to hyperdex --output FILE FILE"},
		{RingIsolated, Warning, "A card has no cable. It can be used by itself.", "check its cables, if it should have any"},
		{RingKey, Error, "A key is unknown, or missing.", ringCorrect},
		{RingKept, Warning, "The ring table cannot be used. The last cabling that could be used stays in force.",
			"correct the table (lpuctl ring check says what is wrong), or remove the file if the cards are not cabled any more"},
		{RingLinkTwice, Error, "A link is listed twice.", "remove it"},
		{RingOneSided, Error, "One cable is listed from one end only, others from both.",
			"list every cable once, or every cable from both ends"},
		{RingOrder, Warning, "The order of the ring is not the order of the PCI addresses.",
			"nothing is wrong, but a container numbers the cards by address, and so its job needs a table of its own"},
		{RingSelfLink, Error, "A link leads from a card to itself.",
			"remove it; look for a loop-back plug or a cable with both ends in one card"},
		{RingSeveral, Warning, "The table has several rings. HyperDex's program takes those of its own table for one.",
			"nothing, if the cards are meant to be cabled so; HyperDex' own table is to be written with lpuctl ring convert"},
		{RingSyntax, Error, "The file is not JSON or YAML, or is nested too deeply.", "correct the syntax of this line or the line above"},
		{RingTooLarge, Error, "The file is too large to be a ring table.", "give the ring table, not another file"},
		{RingTrailing, Error, "Something follows the table, such as a second document.", "keep one table in the file"},
		{RingType, Error, "A value is of the wrong kind, or the file is no ring table.", ringCorrect},
		{RingUnknownCard, Error, "The table names an id that no card has.",
			"correct it, or write the table again for this machine with hyperdex-net"},
		{RingUnreadable, Error, "The file cannot be read.", "make it readable, or remove it: without a table neighbours are not known"},
		{RingUnsafe, Error, "Somebody other than root or this user may have written the file.",
			"look at what it says; then: lpuctl ring install FILE"},
	}},
	{"CDI specs", []Rule{
		{CommonNode, Error, "The common edits of the file have a node: every container with a device of the file gets it.", specRefresh},
		{SpecConflict, Error, "Two files in one directory define the same device: runtimes give neither.",
			"remove one of the two files"},
		{DeviceMissing, Error,
			"No spec file defines an LPU with a device file, one of its two names, or a set of LPUs: " +
				"a container that asks for it does not start.",
			specRefresh},
		{DeviceUnknown, Error, "No spec file defines a device that was asked for.", "see lpuctl cdi list for every name"},
		{DuplicateEnv, Warning, "A variable is set twice: the last silently wins.", "keep one of them"},
		{DuplicateNode, Warning, "A node is listed twice: the last silently wins.", "keep one of them"},
		{EnvCollision, Warning,
			"Two devices give a variable different values: a container with both gets the last. cdi validate says so only if no device covers both.",
			"leave the variable out of devices that are meant to be combined, or define a device that covers both"},
		{FactoryImage, Warning, "An LPU of the spec runs its factory image: a container gets a card that computes nothing.",
			"flash the LPU shell, then power-cycle the server"},
		{ForeignSpec, Note, "A spec of another kind is refused by the CDI library.", "ask whoever wrote the file"},
		{HookMissing, Error, "A hook's program is missing or cannot be run: the container does not start.",
			"install the program, or remove the hook"},
		{HookTimeout, Error, "A hook has a timeout of 0 or less, which low-level runtimes refuse.", "leave it out, or write seconds"},
		{ImageEnv, Warning, "PATH or LD_LIBRARY_PATH replaces what the image says.",
			"leave it to the image; mount libraries where the loader looks"},
		{LeftOut, Warning, "An LPU is not in the spec, because its device node is not known.", "see lpuctl describe LPU"},
		{MountLeftOut, Note, "Containers do not get a mount, because this host does not have the path.",
			"install what provides it, or use --unchecked-mounts if the host cannot be seen from here"},
		{MountMissing, Error, "A path that is mounted is missing: the container does not start.",
			"install what provides it, or write the spec without it: lpuctl cdi refresh"},
		{RingTableBroken, Error, "The file of a ring table of containers was changed. A program could use cables that are not there.",
			specRefresh},
		{RingTableLeftOut, Note, "Containers do not get a ring table of their own.",
			"put a table there, as a file and not a link; or set ringTable of the model to off (config file)"},
		{RingTablePart, Warning,
			"Devices that are combined give a container the ring table of some of its LPUs only, or leave it the host's.",
			"use the device that covers them, or lpuctl run"},
		{NoSpec, Error, "No file defines devices of our kind: runtimes resolve none.", specRefresh},
		{NodeNotDevice, Error, "A node of the spec is not a device node.", "see what made the file; then: lpuctl cdi refresh"},
		{NodeNumbers, Error, "The device numbers in the spec are not those of the node.",
			"leave major and minor out: runtimes look them up"},
		{NodeUnverified, Note, "The spec has device nodes of which lpuctl cannot verify that they are the LPUs' own.",
			"run it where it sees /dev and /sys of the host; in a container, mount both"},
		{NodeWrong, Error, "A device of a spec gives a node that is not its LPU's, whichever file serves it.", specRefresh},
		{OldKind, Warning,
			"A spec of another kind has devices for the LPUs of this node. It is from before cdi.kind was changed, and lpuctl does not renew it.",
			"remove the file if nothing asks for its kind any more"},
		{OlderLibrary, Warning,
			"Runtimes with a CDI library up to 1.1.0 (containerd before 2.4, and what is as old) refuse the file or read another value.",
			"write what the message names so that every release reads it the same way"},
		{OneLetterName, Error, "Runtimes with a CDI library up to 1.1.0 crash on a kind with a name of one letter.",
			"give vendor and class two letters or more"},
		{OtherFile, Warning, "Another file defines devices of our kind. lpuctl cdi refresh does not renew it.",
			"remove it if it is a leftover"},
		{RelativePath, Error, "A path is not absolute: the container does not start.", "write an absolute path"},
		{SetWrong, Error, "A device for several LPUs lacks the node of one of them, or has the node of another LPU.", specRefresh},
		{Shadowed, Warning, "A file in a directory of lower priority defines the same device and is not used for it.",
			"remove the file that is not used, if it is a leftover"},
		{SpecCrashes, Error,
			"A list of nodes, mounts or hooks has an empty item: every runtime that reads the directory crashes (CDI library up to 1.1.1).",
			"remove the item, or the file"},
		{SpecDirLink, Warning, "The spec directory is a symbolic link: runtimes with a CDI library up to 1.1.0 find no spec in it.",
			"put the directory in the place of the link"},
		{SpecDirMode, Warning, "Only some users may read the spec directory: podman and Docker without root find no device.",
			"chmod 0755 DIR"},
		{SpecDirUnread, Warning, "No container runtime of this machine reads the directory in which our spec lies.",
			"name one that they read in the config file (cdi.specDir) or with --spec-dir, " +
				"or have a runtime read this one (lpuctl runtime check says how)"},
		{SpecDrift, Warning, "The installed spec differs from one generated now.", specRefresh},
		{SpecHangs, Error, "A FIFO has the name of a spec: runtimes that read the directory wait for ever.", "rm FILE"},
		{SpecMode, Warning, "Only some users may read the file: podman and Docker without root do not find its devices.",
			"chmod 0644 FILE"},
		{SpecRefused, Error, "The CDI library refuses the whole file.", "correct the file"},
		{SpecSecond, Warning, "Something follows the first YAML document, and runtimes do not read it.", "keep one document in the file"},
		{SpecSyntax, Error,
			"The file is not YAML or JSON, a value has the wrong type, or a key is there twice: runtimes refuse the whole file.",
			"correct it"},
		{SpecUnknownKey, Error, "The CDI specification has no such key (case counts): runtimes refuse the whole file.", "remove the key"},
		{SpecUnreadable, Error, "The file cannot be read.", "make it a readable file, or remove it"},
		{SpecVersion, Error, "cdiVersion is unknown, or lower than something in the file needs: runtimes refuse the whole file.",
			"write the version that is named"},
		{SpecYML, Warning, "Runtimes read .json and .yaml files only.", "rename it to .yaml if it is meant to be read"},
		{StaleDevice, Warning, "The spec has devices that a spec generated now would not have.",
			"see lpuctl list for the state of the LPUs; then: lpuctl cdi refresh"},
		{Target, Error, "A release named by --target does not load the spec, or reads another value.",
			"use a newer release, or a lower cdiVersion"},
	}},
	{"Container runtimes", []Rule{
		{CDIOff, Error, "CDI is off: containers start without the device, or not at all.", "turn it on as the finding says"},
		{CDISource, Note, "Says who answered, and in which file it is written.", "none is needed"},
		{CDIUnknown, Warning, "It is not known whether CDI is enabled in the kubelet's runtime: the result of the self-check is missing, " +
			"or cannot be used.", "see on the node: lpuctl runtime check"},
		{CDIUnsupported, Error, "The release is too old to know CDI.", "install a newer release"},
		{ConfigRefused, Error, "The runtime does not start with its config file.", "correct it"},
		{ConfigUnknown, Warning, "It is not known which config file the runtime would read.",
			"start it and ask again as root, or name the file with --containerd-config"},
		{ConfigUnreadable, Warning, "A config file cannot be read.", "run as root; make it a readable file"},
		{CRIDisabled, Error, "containerd's CRI is disabled, so that Kubernetes cannot use it; Docker and nerdctl do not need it.",
			"remove it from disabled_plugins, and restart containerd"},
		{CRIFailed, Error, "containerd's CRI did not start.", "see the log of containerd"},
		{CRINotJudged, Warning, "The files do not tell whether containerd's CRI starts with a setting.",
			"start containerd and ask again, because the running daemon knows"},
		{CRISilent, Warning, "containerd's CRI does not answer, or does not tell its config.",
			"ask again when it has started; else see its log"},
		{CRIWouldFail, Error, "containerd's CRI does not start with a setting of its config.", "correct the setting, and restart containerd"},
		{FilesStalled, Warning, "The runtime's files cannot be read in time.", "look for a file system that hangs (dmesg, mount)"},
		{KubeletSocket, Note, "The kubelet uses a containerd at another socket, which is checked.",
			"none is needed"},
		{RestartChanges, Warning, "It works now, but not after a restart.", "correct the config file as the finding says"},
		{RestartNeeded, Error, "The config file turns CDI on, and the running daemon has not read it yet.", "restart the daemon"},
		{SettingLost, Warning, "A setting has no effect. It is a note where a later setting replaces it.",
			"move or remove it as the finding says"},
		{SocketDenied, Warning, "The socket may not be opened by this user.", "run as root to ask it"},
		{SocketForeign, Warning, "What answers on the socket is not containerd.", "see who listens there: ss -xlp"},
		{SocketMissing, Note, "The daemon does not run: its socket is not there.", "start it, if it is meant to run"},
		{SocketNoAnswer, Warning, "What listens on the socket does not answer.", "see the daemon's log for what hangs"},
		{SocketRefused, Warning, "The daemon does not run: nobody listens on its socket.", "start it"},
		{SpecDirAbsent, Error, "A spec directory is missing, and this release (CDI library before 0.5.1) then finds no device" +
			" in the others either.", "make the directory: mkdir -m 0755 DIR"},
		{SpecDirNotRead, Error, "The runtime does not read the directory that lpuctl writes to.",
			"add the directory to the runtime's config, or write to one that it reads (--spec-dir)"},
		{UnknownKey, Warning, "A key looks like a misspelt CDI setting.", "write the key that is named"},
		{VersionUnknown, Warning, "The version of the runtime is unknown.", "ask it: PROGRAM --version"},
	}},
	{"Leases", []Rule{
		{LeaseBusy, Error, "The lease service has too many requests, or this user has too many connections to it.",
			"end some of the commands that lease LPUs or wait for them, or ask again"},
		{LeaseClosed, Error, "Kubernetes allocates the LPUs of this node, or may do so, and the config file sets none apart for leases.",
			"name the LPUs that can be leased, by PCI address, as leases.pool in /etc/lpuctl/config.yaml"},
		{LeaseEnded, Warning,
			"A recorded lease has no holder, or a reservation is of an earlier boot. Or root has ended a lease, or removed a request " +
				"from the queue.",
			"nothing; who needs the LPUs asks for them again"},
		{LeaseHookFailed, Warning, "The program in leases.hook failed after a lease, or did not end in time. No user gets the LPU meanwhile.",
			"see what the program says, and mend that; then have it run again, as root: lpuctl lease hooks --retry"},
		{LeaseHookUnsafe, Error, "The program in leases.hook cannot be executed, or other users than root can change it. It is not run, and " +
			"LPUs are kept back after their leases.",
			"give the program and the directories above it to root, writable by no other user, and make it executable"},
		{LeaseImpossible, Error, "No LPUs of this node that can be leased fulfil the request, even if all were free.",
			"ask for fewer LPUs, or leave out what they must have in common"},
		{LeaseLimit, Error, "The config file does not allow this user so many LPUs, so long a time, or so many waiting requests.",
			"ask for fewer LPUs or a shorter time, or release a reservation; root can raise leases.maxLPUs, leases.maxHours and " +
				"leases.maxWaiting"},
		{LeaseNoneFree, Error, "Others have the LPUs, or an earlier request waits for them.",
			"wait for them (--wait), or ask for fewer"},
		{LeaseNoContainer, Error, "The container to which the lease is to be bound does not run.",
			"start the container, then bind the lease to it"},
		{LeaseNoStore, Warning, "No service manager keeps the connections of the lease service: leases end with it.",
			"run it as a unit of systemd: systemctl enable --now lpuctl-lease.socket"},
		{LeaseNoUsage, Error, "No usage is recorded, it cannot be read, or it is another user's.",
			"have it recorded (leases.usageDays in /etc/lpuctl/config.yaml), or ask as root"},
		{LeaseOver, Warning, "The time of a lease is over, but its container still runs: the lease service may not end it.",
			"stop the container; the message has its id"},
		{LeaseRecords, Warning, "A file with the records of leases cannot be used, and was put aside.",
			"see in the file that was put aside which LPUs were reserved, and reserve them again"},
		{LeaseRequest, Error, "The lease service does not understand a request, or cannot carry it out now.",
			"after an update start the arbiter again: systemctl try-restart lpuctl-lease.service"},
		{LeaseUnclear, Warning, "A lease has ended, but a process of its user may still use the LPUs: it holds descriptors that cannot " +
			"be seen, or has mapped a device file. Other users do not get these LPUs meanwhile.",
			"end the process: the arbiter's log has its number"},
		{LeaseUnknown, Error, "There is no such reservation or lease, or this user may not end it.", "see who has what: lpuctl list"},
		{LeaseUnreachable, Error, "The lease service cannot be reached.",
			"have systemd listen: systemctl enable --now lpuctl-lease.socket; who is not root must be in the group lpu"},
		{LeaseUnrecorded, Error, "The lease service cannot record leases, and so gives none.",
			"free some space on the file system that is named"},
		{LeaseUsage, Warning, "The usage journal cannot be written, or some lines cannot be read. Leases go on.",
			"free some space on the file system that is named; what was cut by a crash stays lost"},
		{LeaseUser, Error, "The lease service cannot tell which user of this machine asks.",
			"ask as a user of this machine, or give the uid to a user in /etc/subuid"},
	}},
	{"Claims of Kubernetes", []Rule{
		{ClaimFile, Error, "The CDI file of a prepared claim is missing, out of date or cannot be written: its containers may not start again.",
			"the driver writes it anew when it can; on a full or read-only file system, mend that"},
		{ClaimOverlap, Error, "Two claims have one LPU.", "delete the pods of one of the two, and then its claim"},
		{ClaimRecord, Warning, "The record of a prepared claim is missing, or cannot be used.",
			"nothing, if the claim was made anew of its CDI file; otherwise delete its pods, so that they are prepared again"},
	}},
	{"The config file", []Rule{
		{BadConfig, Error, "A key is unknown or there twice, or a value has the wrong type or meaning.",
			"correct it; see lpuctl config show for every key"},
	}},
}

// Group is the rows of one area, which is what their findings are about.
type Group struct {
	Area  string
	Rules []Rule
}

// Groups is the whole table.
func Groups() []Group { return slices.Clone(table[:]) }

// RuleOf is the row of an id. An id that the table does not have is an error without a
// meaning; a test holds that there is none.
func RuleOf(id ID) Rule {
	for _, g := range table[:] {
		for _, r := range g.Rules {
			if r.ID == id {
				return r
			}
		}
	}
	return Rule{ID: id, Severity: Error}
}
