package runtimes

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// home is where a containerd lives, and how it is run.
type home struct {
	product
	socket string // on the machine
	config string // likewise
	unit   string // of systemd
	log    string // how to read what it says
	// distribution makes the config anew from a template whenever it starts; "": nobody does.
	distribution string
}

// Where containerd's socket and config are unless it is told otherwise (containerd, defaults/defaults_linux.go).
const (
	containerdSocket = "/run/containerd/containerd.sock"
	containerdConfig = "/etc/containerd/config.toml"
)

// ownContainerd is the containerd that stands for itself.
func ownContainerd() home {
	return home{
		product: containerdProduct(programDirs()...),
		socket:  containerdSocket, config: containerdConfig,
		unit: "containerd", log: "journalctl -u containerd",
	}
}

// rancherContainerd is the one that k3s or rke2 brings along (k3s, pkg/agent/containerd; docs.k3s.io/advanced).
func rancherContainerd(name, unit, programs string) home {
	data := "/var/lib/rancher/" + name
	return home{
		product: containerdProduct(data + programs),
		socket:  "/run/k3s/containerd/containerd.sock", config: data + "/agent/etc/containerd/config.toml",
		unit: unit, log: data + "/agent/containerd/containerd.log", distribution: name,
	}
}

func k3s() home  { return rancherContainerd("k3s", "k3s (on an agent k3s-agent)", "/data/current/bin/") }
func rke2() home { return rancherContainerd("rke2", "rke2-server (on an agent rke2-agent)", "/bin/") }

func (h home) restart() string { return "systemctl restart " + h.unit }

func containerdProduct(dirs ...string) product {
	return product{"containerd", dirs, []string{"github.com/containerd/containerd/v2", "github.com/containerd/containerd"}, []string{"containerd.io", "containerd"}}
}

// containerd looks at the containerd that the kubelet uses, if that is told, or else the usual one.
func (c *checker) containerd(ctx context.Context, r *Runtime) bool {
	h := ownContainerd()
	if c.ContainerdAddress != "" {
		h.socket = strings.TrimPrefix(c.ContainerdAddress, "unix://")
		return c.judge(ctx, r, h, h.socket, true)
	}
	socket, by := c.kubeletSocket()
	told := path.Base(socket) == "containerd.sock" && !c.Same(socket, h.socket) && !c.Same(socket, k3s().socket)
	if told {
		h.socket = socket
		r.add(finding.KubeletSocket, place{file: by}, "the kubelet uses the containerd at "+socket+", so that one is looked at", "")
	}
	socket, err := c.Resolve(h.socket)
	return err == nil && c.judge(ctx, r, h, socket, told)
}

// rancher looks at the containerd of k3s or rke2, unless it is told to look at another. Both have the same socket.
func (c *checker) rancher(ctx context.Context, r *Runtime) bool {
	h := k3s()
	if !c.Exists(h.config) && c.Exists(rke2().config) {
		h = rke2()
	}
	r.Name = h.distribution
	socket, err := c.Resolve(h.socket)
	return err == nil && c.ContainerdAddress == "" && c.ContainerdConfig == "" && c.judge(ctx, r, h, socket, false)
}

// judge asks a running containerd what holds now, and its files what will after a restart. told says that somebody said
// that it is there.
func (c *checker) judge(ctx context.Context, r *Runtime, h home, socket string, told bool) bool {
	d, silence := h.ask(ctx, socket)
	use := c.process(d)
	p := c.find(h.product)
	next := use.next
	if !next.known() {
		next = p.release
	}
	v := c.containerdVerdict(h, use.config, next)
	if d == nil && p.path == "" && v.missing && !c.Exists(h.socket) && !told {
		return false
	}
	if d != nil {
		r.fromDaemon(d, v, socket)
		r.MaxCDIVersion = cmp.Or(use.maxCDI, d.release.maxCDI("containerd"))
	} else {
		r.fromFiles(v)
		r.MaxCDIVersion = cmp.Or(p.maxCDI, next.maxCDI("containerd"))
	}
	r.explain(d, v)
	c.judgeDirs(r, d, v)
	v.reportLost(r)
	if silence != nil {
		silence.File = cmp.Or(silence.File, socket)
		r.take(silence)
	}
	if v.state == Unknown && !next.known() {
		r.add(finding.VersionUnknown, place{}, v.unsure(p), "run this as root while it runs: it tells its version itself")
	}
	return true
}

// containerdVerdict judges the config that a restart would read.
func (c *checker) containerdVerdict(h home, told string, next release) *verdict {
	m, main, isTold := c.machine, cmp.Or(told, h.config), told != "" || c.ContainerdConfig != ""
	if c.ContainerdConfig != "" {
		m.Root, main = c.Locate(c.ContainerdConfig)
	}
	for _, other := range []home{k3s(), rke2()} { // its socket was told
		if main == other.config {
			h = other
		}
	}
	return m.loadConfig(h, main, next).judge(next, isTold)
}

// fromDaemon takes the answer of a running daemon.
func (r *Runtime) fromDaemon(d *daemon, v *verdict, socket string) {
	r.Version, r.CDI, r.SpecDirs = d.release.text, d.state, append(r.SpecDirs, d.dirs...)
	if d.state == On {
		r.SpecDirs = orDefault(d.release, r.SpecDirs)
	}
	at := v.decides()
	if at.line == 0 || v.state != d.state {
		at = place{file: socket}
	}
	r.settle(Live, at, "the running daemon says so", v.state)
}

// fromFiles takes what the files say, and what holds without them.
func (r *Runtime) fromFiles(v *verdict) {
	r.Version, r.CDI, r.SpecDirs = v.release.text, v.state, append(r.SpecDirs, v.dirs...)
	at := v.decides()
	r.settleByFiles(at.line > 0 || v.failure != nil, at)
}

// explain says why CDI is off, now or after a restart, and what to do about it.
func (r *Runtime) explain(d *daemon, v *verdict) {
	causes := v.causes()
	for _, f := range causes {
		if d != nil && d.state == On {
			f = found(finding.RestartChanges, place{f.File, f.Line}, "it works now, but would not after a restart: "+f.Message, f.Remedy)
		}
		r.take(f)
	}
	if d == nil || d.state == On {
		return
	}
	if f := d.trouble; f != nil && v.criOff == nil {
		r.take(f)
		if f.ID == "cri-failed" && v.state == On { // its files do not tell why, and so not whether it would again
			r.AfterRestart = Unknown
		}
		return
	}
	switch {
	case v.state == On:
		r.add(finding.RestartNeeded, v.decides(), fmt.Sprintf("CDI is %s in the running daemon, and on by its files", d.state), v.home.restart())
	case len(causes) == 0:
		r.add(finding.ID("cdi-"+d.state), place{}, fmt.Sprintf("CDI is %s in the running daemon, and its files do not tell why", d.state),
			"set enable_cdi = true in CRI's table of its config; --containerd-config FILE says how")
	}
}

// judgeDirs holds the directories that containerd reads against where lpuctl writes.
func (c *checker) judgeDirs(r *Runtime, d *daemon, v *verdict) {
	at, fix := v.at(), v.home.restart()
	if v.specDirs != nil {
		at = v.specDirs.place
	}
	later := v.state == On && c.readsOurs(v.dirs)
	if !later {
		fix = v.edit(v.specDirs, keyDirs, c.withOurs(v.dirs)) + "; then " + v.home.restart()
	}
	switch {
	case r.CDI == On:
		c.mustRead(r, r.SpecDirs, at, fix)
	case r.CDI == Off && v.failure == nil && (v.state == On || v.state == Off): // these are read once CDI is on
		c.mustRead(r, v.dirs, at, fix)
	}
	if d != nil && r.CDI == On && v.state == On && !later && c.readsOurs(r.SpecDirs) {
		r.add(finding.RestartChanges, at, fmt.Sprintf("it works now, but after a restart specs would be read from %s only", strings.Join(v.dirs, ", ")), fix)
	}
}

// inUse is what a running containerd was started with, as far as it can be seen.
type inUse struct {
	config string  // file on the machine that it was told to read
	maxCDI string  // of the program that runs
	next   release // of the program that a restart would run
}

// process finds out what a daemon was started with (proc_pid_cmdline(5), proc_pid_exe(5)), if its process is one that
// can be seen from here.
func (c *checker) process(d *daemon) (use inUse) {
	proc, err := c.Resolve("/proc")
	if d == nil || err != nil {
		return use
	}
	unseen := inUse{next: d.release}
	dir := filepath.Join(proc, strconv.FormatUint(d.pid, 10))
	namespace, err := os.Readlink(dir + "/ns/pid")
	if err != nil || namespace != fmt.Sprintf("pid:[%d]", d.pidns) {
		return unseen
	}
	cmdline, err := os.ReadFile(dir + "/cmdline")
	args := strings.Split(string(cmdline), "\x00")
	if err != nil || !strings.Contains(path.Base(args[0]), "containerd") {
		return unseen
	}
	use = unseen
	if use.config = flagValue(args, "c", "config"); use.config != "" && !path.IsAbs(use.config) {
		cwd, err := os.Readlink(dir + "/cwd")
		if err != nil {
			return unseen
		}
		use.config = path.Join(cwd, use.config)
	}
	if exe, err := os.Readlink(dir + "/exe"); err == nil {
		exe, replaced := strings.CutSuffix(exe, " (deleted)")
		if onDisk := c.inspect(exe, containerdProduct()).release; onDisk.known() || replaced {
			use.next = onDisk
		}
		_, use.maxCDI = readBuild(dir+"/exe", nil)
	}
	return use
}
