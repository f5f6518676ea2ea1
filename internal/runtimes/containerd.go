package runtimes

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// installation says where one containerd has its socket and files, and how it is started.
type installation struct {
	product
	socket  string // on the machine
	config  string // likewise; "": not known
	flag    string // the config that its service names; such a file must exist
	service string // the command that starts and restarts it, with %s for the verb
	log     string // how to read its log
	// rootDir and stateDir are the directories that its service gives it; "": those of
	// its config.
	rootDir, stateDir string
	// fault is why it is not known how its service starts it, or why that does not.
	fault *finding.Finding
	// distribution is what brings this containerd along and writes its config; "" for one
	// that stands for itself.
	distribution string
}

// The defaults of containerd for its socket and its config (containerd,
// defaults/defaults_linux.go).
const (
	containerdSocket = "/run/containerd/containerd.sock"
	containerdConfig = "/etc/containerd/config.toml"
)

// standardContainerd is a containerd that no distribution of Kubernetes brought along.
func standardContainerd() installation {
	return installation{
		product: containerdProduct(),
		socket:  containerdSocket, config: containerdConfig,
		service: "systemctl %s containerd", log: "journalctl -u containerd",
	}
}

// rancherContainerd is the containerd of k3s or rke2 (k3s, pkg/agent/containerd;
// docs.k3s.io/advanced).
func rancherContainerd(name, unit, programs string) installation {
	data := "/var/lib/rancher/" + name
	return installation{
		product: containerdProduct(data + programs),
		socket:  "/run/k3s/containerd/containerd.sock", config: data + "/agent/etc/containerd/config.toml",
		service: "systemctl %s " + unit, log: data + "/agent/containerd/containerd.log", distribution: name,
	}
}

func k3s() installation {
	return rancherContainerd("k3s", "k3s (on an agent k3s-agent)", "/data/current/bin/")
}
func rke2() installation {
	return rancherContainerd("rke2", "rke2-server (on an agent rke2-agent)", "/bin/")
}

// k0s is the containerd of k0s (k0s, docs/runtime.md).
func k0s() installation {
	return installation{
		product: containerdProduct("/var/lib/k0s/bin/"),
		socket:  "/run/k0s/containerd.sock", config: "/etc/k0s/containerd.toml",
		service: "systemctl %s k0sworker (on a controller k0scontroller)", log: "journalctl -u k0sworker", distribution: "k0s",
	}
}

// microK8s is the containerd of MicroK8s (microk8s, microk8s-resources/default-args).
func microK8s() installation {
	return installation{
		product: containerdProduct("/snap/microk8s/current/bin/"),
		socket:  "/var/snap/microk8s/common/run/containerd.sock", config: "/var/snap/microk8s/current/args/containerd.toml",
		service: "snap %s microk8s.daemon-containerd", log: "snap logs microk8s.daemon-containerd", distribution: "microk8s",
	}
}

// talos is the containerd of Talos, which has the usual socket (talos,
// pkg/machinery/constants).
func talos() installation {
	return installation{
		product: containerdProduct("/bin/", "/usr/bin/"),
		socket:  containerdSocket, config: "/etc/cri/containerd.toml",
		service: "talosctl service cri %s", log: "talosctl logs cri", distribution: "talos",
	}
}

// distributions are those with a socket of their own. k3s and rke2 share one.
func distributions() []installation { return []installation{k3s(), rke2(), k0s(), microK8s()} }

func (inst installation) restart() string { return fmt.Sprintf(inst.service, "restart") }

func containerdProduct(dirs ...string) product {
	modules := []string{"github.com/containerd/containerd/v2", "github.com/containerd/containerd"}
	return product{"containerd", dirs, modules, []string{"containerd.io", "containerd"}}
}

// standard is the containerd that stands for itself, as its service starts it, or that of
// Talos.
func (c *checker) standard() installation {
	inst := standardContainerd()
	service := c.service("containerd.service")
	args := service.args
	if inst.fault = service.fault; len(args) == 0 {
		if inst.fault == nil && c.Exists(talos().config) {
			return talos()
		}
		return inst
	}
	inst.socket = cmp.Or(flagValue(args, "a", "address"), inst.socket)
	inst.rootDir, inst.stateDir = flagValue(args, "root"), flagValue(args, "state")
	named := flagValues(args, "c", "config")
	if inst.flag = flagValue(args, "c", "config"); len(named) > 0 && (inst.flag == "" || strings.Contains(inst.flag, "%")) {
		// Only the machine knows what that is: the manager of services may have variables
		// of its own.
		inst.flag, inst.config = "", ""
	}
	if path.Base(args[0]) == inst.binary && c.Exists(args[0]) {
		inst.dirs = []string{path.Dir(args[0]) + "/"}
	}
	return inst
}

// containerd checks the containerd that the kubelet is configured to use, or else the
// standard one.
func (c *checker) containerd(ctx context.Context, r *Runtime) bool {
	inst := c.standard()
	if c.ContainerdAddress != "" {
		inst.socket = strings.TrimPrefix(c.ContainerdAddress, "unix://")
		return c.checkContainerd(ctx, r, inst, inst.socket, true)
	}
	k := c.kubelet()
	if k.fault != nil {
		r.addFinding(new(*k.fault))
	}
	known := slices.ContainsFunc(append(distributions(), inst), func(i installation) bool { return c.Same(k.socket, i.socket) })
	other := strings.HasSuffix(k.socket, "containerd.sock") && !known
	if other { // nothing says where its files are
		inst.socket, inst.config, inst.flag, inst.dirs = k.socket, "", "", []string{}
		r.add(finding.KubeletSocket, k.by, "the kubelet uses the containerd at "+k.socket+", and that one is checked", "")
	}
	socket, err := c.Resolve(inst.socket)
	expected := c.kubeletUses(inst.socket) && (k.socket != "" || c.find(crio().product).path == "")
	return err == nil && c.checkContainerd(ctx, r, inst, socket, other || expected)
}

// distribution returns the check of the containerd of some distributions that share a
// socket: of the first whose config is there, or else of the first. Options that name
// another one take it off the list.
func (c *checker) distribution(candidates ...installation) func(context.Context, *Runtime) bool {
	return func(ctx context.Context, r *Runtime) bool {
		inst := candidates[max(0, slices.IndexFunc(candidates, func(i installation) bool { return c.Exists(i.config) }))]
		r.Name = inst.distribution
		socket, err := c.Resolve(inst.socket)
		return err == nil && c.ContainerdAddress == "" && c.ContainerdConfig == "" &&
			c.checkContainerd(ctx, r, inst, socket, c.kubeletUses(inst.socket))
	}
}

// checkContainerd asks the daemon for its state now, and reads from the files its state
// after a restart. explicit says that an option or the kubelet names this containerd, so
// that it is reported even if it is not there.
func (c *checker) checkContainerd(ctx context.Context, r *Runtime, inst installation, socket string, explicit bool) bool {
	var d *daemon
	var silence *finding.Finding
	if !c.filesOnly {
		d, silence = inst.ask(ctx, socket)
	}
	use := c.process(d)
	p := c.find(inst.product)
	// The release that a restart would run.
	next := cmp.Or(use.next, p.release)
	if use.seen { // containerd has a default for what its flags do not say
		inst.config = cmp.Or(inst.config, containerdConfig)
	}
	v := c.containerdVerdict(inst, cmp.Or(use.config, inst.flag), next)
	v.wanted, r.UsedByKubelet = c.kubeletUses(inst.socket), c.usedByKubelet(inst)
	absent := d == nil && p.path == ""
	if absent && v.missing && !c.Exists(inst.socket) && !explicit {
		return false
	}
	r.Unused = c.ContainerdAddress == "" && !v.wanted && (absent || v.withoutCRI(d) && !r.UsedByKubelet)
	if d != nil {
		r.isOf(program{release: d.release, maxCDI: use.maxCDI}, inst.binary)
		r.fromDaemon(d, v, socket)
	} else {
		r.isOf(program{release: next, maxCDI: p.maxCDI}, inst.binary)
		r.fromFiles(v)
	}
	r.addCauses(d, v)
	c.checkSpecDirs(r, d, v)
	v.reportIgnored(r)
	if silence != nil {
		silence.File = socket
		r.addFinding(silence)
	}
	v.reportRelease(r, p, next)
	return true
}

// withoutCRI reports whether the kubelet cannot use containerd, by the files or by the
// daemon.
func (v *verdict) withoutCRI(d *daemon) bool {
	return v.disabled != nil || d != nil && d.trouble != nil && d.trouble.ID == finding.CRIDisabled
}

// reportRelease adds that nothing is known because the release is not.
func (v *verdict) reportRelease(r *Runtime, p program, next release) {
	if v.state == Unknown && v.failure == nil && !next.Known() {
		r.add(finding.VersionUnknown, location{}, v.acrossReleases(p), "run this as root while containerd runs: the daemon gives its version")
	}
}

// containerdVerdict evaluates the config that a restart would read. flag is the file that
// the daemon was started with; "": none is known.
func (c *checker) containerdVerdict(inst installation, flag string, next release) *verdict {
	m, main, explicit := c.machine, cmp.Or(flag, inst.config), flag != "" || c.ContainerdConfig != ""
	if c.ContainerdConfig != "" {
		m.Root, main = c.Locate(c.ContainerdConfig)
		inst.fault = nil
	}
	for _, other := range distributions() { // the socket was given, but the config is theirs
		if main == other.config {
			inst = other
		}
	}
	if main == "" {
		unknown := newFinding(finding.ConfigUnknown, location{}, "it is not known which file is its config", "")
		return (&config{machine: m, installation: inst, failure: unknown}).evaluate(next, false)
	}
	return m.loadConfig(inst, main, next).evaluate(next, explicit)
}

// fromDaemon fills in the answer of a running daemon.
func (r *Runtime) fromDaemon(d *daemon, v *verdict, socket string) {
	r.CDI, r.SpecDirs = d.state, append(r.SpecDirs, d.dirs...)
	if d.state == On {
		r.SpecDirs = orDefault(d.release, r.SpecDirs)
	}
	at := v.origin()
	if at.line == 0 || v.state != d.state {
		at = location{file: socket}
	}
	r.setSource(Live, at, "the running daemon says so", v.state)
}

// fromFiles fills in what the files say, or the default of the release.
func (r *Runtime) fromFiles(v *verdict) {
	at := v.origin()
	r.CDI, r.SpecDirs = v.state, append(r.SpecDirs, v.dirs...)
	r.setFileSource(at.line > 0 || v.failure != nil, at)
}

// addCauses says why CDI is off, now or after a restart, and what to do about it. d is
// nil if no daemon answered.
func (r *Runtime) addCauses(d *daemon, v *verdict) {
	causes, isOn := v.causes(), d != nil && d.state == On
	for _, f := range causes {
		if isOn && f.Severity == finding.Error {
			f = newFinding(finding.RestartChanges, location{f.File, f.Line}, "it works now, but would not after a restart: "+f.Message, f.Remedy)
		}
		r.addFinding(f)
	}
	if v.state == Unknown {
		for _, f := range v.unjudged {
			if isOn {
				note(f).Remedy = "nothing, unless its config was changed since it started: then restart it and ask again"
			}
			r.addFinding(f)
		}
	}
	if d != nil && !isOn {
		r.addTrouble(d, v, len(causes) > 0)
	}
}

// addTrouble says why CDI is not on in a running daemon, as far as its files do not
// explain it.
func (r *Runtime) addTrouble(d *daemon, v *verdict, explained bool) {
	switch f := d.trouble; {
	case f != nil && v.disabled == nil:
		if f.ID == finding.CRIDisabled && !v.wanted {
			note(f)
		}
		r.addFinding(f)
		// If CDI is on by its files, they do not say why CRI failed, and so not whether it
		// would fail again.
		if f.ID == finding.CRIFailed && v.state == On {
			r.AfterRestart = Unknown
		}
	case v.state == On:
		r.add(finding.RestartNeeded, v.origin(),
			fmt.Sprintf("CDI is %s in the running daemon, and on by its files", d.state), v.restart())
	case !explained:
		r.add(finding.ID("cdi-"+d.state), location{}, fmt.Sprintf("CDI is %s in the running daemon, and its files do not say why", d.state),
			"set enable_cdi = true in CRI's table of its config; --containerd-config FILE says how")
	}
}

// checkSpecDirs compares the directories that containerd reads with the one that lpuctl
// writes to.
func (c *checker) checkSpecDirs(r *Runtime, d *daemon, v *verdict) {
	at, fix := v.at(), v.restart()
	if v.specDirs != nil {
		at = v.specDirs.location
	}
	later := v.state == On && c.includesSpecDir(v.dirs)
	if !later {
		fix = v.edit(v.specDirs, keyDirs, c.addSpecDir(v.dirs)) + "; then " + v.restart()
	}
	switch {
	case r.CDI == On:
		c.requireSpecDir(r, r.SpecDirs, at, fix)
	// These directories would be read with CDI on.
	case r.CDI == Off && v.failure == nil && (v.state == On || v.state == Off):
		c.requireSpecDir(r, v.dirs, at, fix)
	}
	if d != nil && r.CDI == On && v.state == On && !later && c.includesSpecDir(r.SpecDirs) {
		r.add(finding.RestartChanges, at,
			fmt.Sprintf("it works now, but after a restart specs would be read from %s only", strings.Join(v.dirs, ", ")), fix)
	}
}

// processInfo is what is known of the process of a running containerd.
type processInfo struct {
	seen   bool
	config string  // file on the machine that it was explicit to read
	maxCDI string  // of the program that runs
	next   release // of the program that a restart would run
}

// process reads how a daemon was started (proc_pid_cmdline(5), proc_pid_exe(5)), if its
// process is in our PID namespace.
func (c *checker) process(d *daemon) (use processInfo) {
	if d == nil {
		return use
	}
	use.next = d.release
	dir, err := c.Resolve(fmt.Sprintf("/proc/%d", d.pid))
	namespace, _ := os.Readlink(dir + "/ns/pid")
	cmdline, _ := os.ReadFile(dir + "/cmdline") // what cannot be read is empty, and not as below
	args := strings.Split(string(cmdline), "\x00")
	if err != nil || namespace != fmt.Sprintf("pid:[%d]", d.pidns) || !strings.Contains(path.Base(args[0]), "containerd") {
		return use
	}
	use.seen = true
	if config := flagValue(args, "c", "config"); config != "" {
		cwd, err := os.Readlink(dir + "/cwd")
		if err != nil && !path.IsAbs(config) {
			return use
		}
		use.config = absolute(cwd+"/", config)
	}
	link, _ := os.Readlink(dir + "/exe") // "" is the root, which is no program
	exe, replaced := strings.CutSuffix(link, " (deleted)")
	if onDisk := c.inspect(exe, containerdProduct()).release; onDisk.Known() || replaced {
		use.next = onDisk
	}
	_, use.maxCDI = readBuild(dir+"/exe", nil)
	return use
}
