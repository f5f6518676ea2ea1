package doctor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/launch"
	"github.com/hyperaccel/lpuctl/internal/runtimes"
	"github.com/hyperaccel/lpuctl/internal/versions"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// The links before an installation: what a host needs.
const (
	Kernel  Link = "kernel"
	Machine Link = "machine" // its architecture
	Cgroups Link = "cgroup"
	Trees   Link = "sysfs" // and /dev
	Module  Link = "module"
	Engines Link = "engine"
	Room    Link = "room"
	Booted  Link = "systemd"
	People  Link = "group"
)

// preLinks are these in their order.
func preLinks() []Link {
	return []Link{Machine, Kernel, Cgroups, Trees, Module, Engines, Room, Booted, People}
}

// Host is a host on which lpuctl is to be installed.
type Host struct {
	Root    host.Root
	Drivers []string // of the models of cards; one is enough
	// Runtimes is what lpuctl runtime check says.
	Runtimes func(context.Context) []runtimes.Runtime
	// Free returns how many bytes are free where a directory of this machine lies; nil: as
	// its file system says.
	Free func(dir string) (uint64, error)
}

// stateRoom is how many bytes should be free for what lpuctl keeps: a thousand times what
// records of eight LPUs take, and a journal of who used what for a year.
const stateRoom = 16 << 20

// Before returns the checks of what a host lacks before an installation.
func Before(h Host) []Check {
	looks := []struct {
		link  Link
		about string
		run   func(*Result)
	}{
		{Machine, "the architecture", lookAtMachine},
		{Kernel, "the kernel", h.lookAtKernel},
		{Cgroups, "control groups", h.lookAtCgroups},
		{Trees, "sysfs and /dev", h.lookAtTrees},
		{Module, "the driver of the cards", h.lookAtModule},
		{Room, "the room for state", h.lookAtRoom},
		{Booted, "systemd", h.lookAtSystemd},
		{People, "the group lpu", h.lookAtGroup},
	}
	checks := []Check{{Engines, "container runtimes", h.engines}}
	for _, l := range looks {
		checks = append(checks, Check{l.link, l.about, func(context.Context) (r Result) {
			l.run(&r)
			return r
		}})
	}
	return checks
}

// lacks adds what a host lacks. It is a warning if the LPUs work in containers without.
func (r *Result) lacks(severity finding.Severity, what, message, remedy string) {
	r.Findings.Add(finding.HostLacks, what, message, remedy).Severity = severity
}

// unseen adds what an error hid.
func (r *Result) unseen(what string, err error) {
	r.Unseen = append(r.Unseen, Unseen{what, err.Error(), cmp.Or(right(err), "look on the host, and not in a container")})
}

func lookAtMachine(r *Result) {
	r.Says = runtime.GOARCH
	if !slices.Contains([]string{"amd64", "arm64"}, runtime.GOARCH) {
		r.lacks(finding.Warning, "architecture", "there are no packages for "+runtime.GOARCH, "build lpuctl from its source: make install")
	}
}

func (h *Host) release() (string, error) {
	text, err := h.Root.Read("/proc/sys/kernel/osrelease", policyMax)
	return strings.TrimSpace(string(text)), err
}

func (h *Host) lookAtKernel(r *Result) {
	release, err := h.release()
	if err != nil {
		r.unseen("the release of the kernel", err)
		return
	}
	r.Says = "Linux " + release
	switch number := versions.Parse(release); {
	case !number.Known():
		r.Unseen = append(r.Unseen, Unseen{"what the kernel can do", "its release has an unknown form: " + release, "look at it: uname -r"})
	case number.Before("4.11"):
		r.lacks(finding.Error, "kernel", "Linux "+release+" has no statx (4.11), by which files are told apart",
			"install a kernel of 5.6 or later")
	case number.Before("5.6"):
		r.lacks(finding.Note, "kernel", "Linux "+release+" has no openat2 (5.6): a slower way is taken",
			"nothing; a kernel of 5.6 or later is faster")
	}
}

func (h *Host) lookAtCgroups(r *Result) {
	switch {
	case h.Root.Exists("/sys/fs/cgroup/cgroup.controllers"):
		r.Says = "version 2"
	case h.Root.Exists("/sys/fs/cgroup"):
		r.Says = "version 1"
		r.lacks(finding.Warning, "cgroup", "the control groups are of version 1: a lease whose time is over ends its processes one by one",
			"boot with systemd.unified_cgroup_hierarchy=1")
	default:
		r.Unseen = append(r.Unseen, Unseen{"the version of control groups", "no /sys/fs/cgroup", "look on the host, and not in a container"})
	}
}

func (h *Host) lookAtTrees(r *Result) {
	r.Says = "both are there"
	devices, err := h.Root.Glob("/sys/bus/pci/devices/*")
	switch {
	case err != nil:
		r.unseen("/sys/bus/pci/devices", err)
	case len(devices) == 0:
		r.lacks(finding.Error, "sysfs", "/sys/bus/pci/devices has no device", "mount sysfs as a whole: mount -t sysfs sysfs /sys")
	}
	if !h.Root.Exists("/dev/null") {
		r.lacks(finding.Error, "/dev", "/dev is not that of a host", "look on the host, or mount its /dev")
	}
}

// lookAtModule finds out whether the running kernel has a driver of the cards.
func (h *Host) lookAtModule(r *Result) {
	if len(h.Drivers) == 0 {
		r.Absent = "no model names a driver"
		return
	}
	for _, name := range h.Drivers {
		if h.Root.Exists("/sys/module/" + name) {
			r.Says = name + " is loaded"
			return
		}
	}
	release, err := h.release()
	if err != nil {
		r.unseen("the release of the kernel", err)
		return
	}
	files, err := h.Root.Glob("/lib/modules/*/modules.dep")
	dir := "/lib/modules/" + release
	if err != nil || !h.Root.Exists(dir) {
		r.Unseen = append(r.Unseen, Unseen{"which modules the kernel has", "no " + dir, "look on the host, and not in a container"})
		return
	}
	var others []string
	for _, file := range files {
		name := h.moduleIn(file)
		of := path.Base(path.Dir(file))
		switch {
		case name != "" && of == release:
			r.Says = name + " for " + of
			return
		case name != "":
			others = append(others, name+" for "+of)
		}
	}
	names := strings.Join(h.Drivers, " or ")
	if len(others) > 0 {
		r.lacks(finding.Error, "driver", fmt.Sprintf("the running kernel %s has no module %s, and there is %s", release, names,
			strings.Join(others, ", ")),
			"build it for this kernel: dkms autoinstall -k "+release)
		return
	}
	r.lacks(finding.Error, "driver", fmt.Sprintf("the kernel %s has no module %s", release, names),
		"install the driver of the cards for this kernel")
}

// moduleIn returns which of the drivers a list of modules has (modules.dep(5)); "": none.
func (h *Host) moduleIn(file string) string {
	text, _ := h.Root.Read(file, 16<<20)
	for line := range bytes.Lines(text) {
		name, _, _ := bytes.Cut(line, []byte(":"))
		name, _, found := bytes.Cut([]byte(path.Base(string(name))), []byte(".ko"))
		if found && slices.Contains(h.Drivers, strings.ReplaceAll(string(name), "-", "_")) {
			return string(name)
		}
	}
	return ""
}

// engines looks for a container runtime that knows CDI.
func (h *Host) engines(ctx context.Context) (r Result) {
	var said []string
	for _, found := range h.Runtimes(ctx) {
		old := slices.IndexFunc(found.Findings, func(f finding.Finding) bool { return f.ID == finding.CDIUnsupported })
		if old < 0 {
			said = append(said, strings.TrimSpace(found.Name+" "+found.Version))
			continue
		}
		r.Findings = append(r.Findings, found.Findings[old])
	}
	switch {
	case len(said) > 0:
		r.Says = strings.Join(said, ", ")
		for i := range r.Findings {
			r.Findings[i].Severity = finding.Warning // there is another one
		}
	case len(r.Findings) == 0:
		r.lacks(finding.Warning, "container runtime", "none is installed",
			"install one that knows CDI: podman 4.1, containerd 1.7, Docker 25, CRI-O 1.23, or a later release")
	}
	return r
}

func (h *Host) lookAtRoom(r *Result) {
	dir, err := h.Root.Resolve("/var/lib")
	var free uint64
	if err == nil {
		of := h.Free
		if of == nil {
			of = freeAt
		}
		free, err = of(dir)
	}
	if err != nil {
		r.unseen("how much room /var/lib has", err)
		return
	}
	r.Says = launch.SizeText(free>>20<<20) + " free in /var/lib"
	if free < stateRoom {
		r.lacks(finding.Error, "/var/lib", fmt.Sprintf("%s are free, and %s may be needed", launch.SizeText(free>>10<<10),
			launch.SizeText(stateRoom)),
			"free some space on its file system")
	}
}

// freeAt returns how many bytes a user may still write where a directory lies.
func freeAt(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return st.Bavail * uint64(max(st.Bsize, 0)), nil
}

func (h *Host) lookAtSystemd(r *Result) {
	if !runtimes.Systemd(h.Root) {
		r.lacks(finding.Warning, "systemd", "it does not run: the spec is not kept up to date, and there are no leases",
			"have lpuctl cdi refresh run at each boot, and lpuctl serve, exporter and lease serve by the host's own means")
		return
	}
	r.Says = "it runs"
	if v := runtimes.SystemdVersion(h.Root); v.Known() {
		r.Says = fmt.Sprintf("%d", v.Number[0])
	}
}

// lookAtGroup says whether the group of those who lease LPUs is there, which the package
// makes.
func (h *Host) lookAtGroup(r *Result) {
	text, err := h.Root.Read("/etc/group", policyMax)
	switch {
	case errors.Is(err, os.ErrPermission):
		r.unseen("the groups", err)
	case bytes.Contains(append([]byte("\n"), text...), []byte("\nlpu:")):
		r.Says = "it is there"
	default:
		r.Absent = "not there yet: the package makes it"
	}
}
