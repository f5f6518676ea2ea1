package runtimes

import (
	"cmp"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/versions"
)

// Unit is what the files of systemd say of a unit. systemd itself is not asked.
type Unit struct {
	Installed bool // it has a file that is not masked
	Masked    bool
	Enabled   bool // another unit wants it
	// Ran: systemd has started a process of it, which runs. Only services have it:
	// run/systemd/units/invocation:UNIT, which goes when the unit ends or fails.
	Ran bool
}

// UnitOf returns what is known of a unit of the machine under root.
func UnitOf(root host.Root, name string) (u Unit) {
	m := machine{root}
	file := m.unitFile(name)
	u.Masked = file != "" && m.isNull(file)
	u.Installed = file != "" && !u.Masked
	for _, dir := range []string{"/etc", "/run"} {
		wanted, _ := m.Glob(dir + "/systemd/system/*.wants/" + name)
		required, _ := m.Glob(dir + "/systemd/system/*.requires/" + name)
		u.Enabled = u.Enabled || len(wanted)+len(required) > 0
	}
	running, _ := m.Glob("/run/systemd/units/invocation:" + name + "*")
	u.Ran = slices.Contains(running, "/run/systemd/units/invocation:"+name)
	return u
}

// unitFile is the file of a unit that counts; "": there is none. It may be masked.
func (m machine) unitFile(unit string) string {
	for _, dir := range unitDirs() {
		if file := dir + "/systemd/system/" + unit; m.Exists(file) || m.isNull(file) {
			return file
		}
	}
	return ""
}

// unitDirs are where systemd looks for its directories of units, the first counts.
func unitDirs() []string { return []string{"/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"} }

// Systemd reports whether systemd runs the machine under root (sd_booted(3)).
func Systemd(root host.Root) bool { return root.Exists("/run/systemd/system") }

// SystemdVersion returns the release of systemd, by the name of its library or the
// package database; unknown if neither says it.
func SystemdVersion(root host.Root) versions.Release {
	m := machine{root}
	for _, dir := range []string{"/usr/lib/systemd", "/lib/systemd", "/usr/lib/*/systemd", "/lib/*/systemd"} {
		files, _ := m.Glob(dir + "/libsystemd-shared-*.so")
		for _, file := range files {
			number, _, _ := strings.Cut(strings.TrimPrefix(path.Base(file), "libsystemd-shared-"), ".")
			number, _, _ = strings.Cut(number, "-")
			if _, err := strconv.Atoi(number); err == nil {
				return versions.Parse(number + ".0")
			}
		}
	}
	return m.packaged([]string{"systemd"})
}

// Runc returns the release of the runc of the machine under root. It is unknown if its
// file does not tell, or if there are several that differ.
func Runc(root host.Root) (there bool, release versions.Release) {
	p := machine{root}.find(product{
		binary: "runc", modules: []string{"github.com/opencontainers/runc"}, packages: []string{"runc"},
		dirs: []string{
			"/usr/bin/", "/usr/local/bin/", "/usr/sbin/", "/usr/local/sbin/", "/var/lib/rancher/k3s/data/current/bin/", "/var/lib/k0s/bin/",
		},
	})
	return p.path != "", p.release
}

// Kubelet reports whether the machine under root has a kubelet, and whether it runs. k3s
// and MicroK8s have it in a process of their own.
func Kubelet(root host.Root) (there, runs bool) {
	c := &checker{machine: machine{root}}
	runs = len(c.processes("kubelet", "kubelite", "k3s-server", "k3s-agent")) > 0
	return runs || c.findKubelet().there, runs
}

// Starter is a daemon whose containers inherit how much memory it may lock, unless they
// are started with another limit.
type Starter struct {
	Unit  string // "containerd.service"
	Limit uint64 // bytes; math.MaxUint64 is any amount
}

// Starters are the daemons of the machine under root whose limit is known: that of the
// process if it runs, else what its unit sets.
func Starters(root host.Root) (all []Starter) {
	m := machine{root}
	for _, name := range []string{"containerd", "crio"} {
		found := m.running(name)
		if len(found) == 0 {
			if limit, set := m.unitMemlock(name + ".service"); set {
				found = []Starter{{name + ".service", limit}}
			}
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b Starter) int { return cmp.Or(cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.Limit, b.Limit)) })
	// Of several in one unit the lowest limit counts.
	return slices.CompactFunc(all, func(a, b Starter) bool { return a.Unit == b.Unit })
}

// running are the processes with a name, by the units that they are of. One of a user's
// own is left out: its limit is the user's.
func (m machine) running(name string) (all []Starter) {
	for _, dir := range m.processes(name) {
		text, err := m.Read(dir+"/limits", configMax)
		group, _ := m.Read(dir+"/cgroup", configMax)
		_, rest, ok := strings.Cut(string(text), "Max locked memory")
		words := strings.Fields(rest)
		if err != nil || !ok || len(words) < 2 || strings.Contains(string(group), "/user.slice/") {
			continue
		}
		all = append(all, Starter{cmp.Or(unitOfGroup(string(group)), name+".service"), size(words[1])})
	}
	return all
}

// unitOfGroup is the service in the path of a control group (cgroups(7)); "": none is.
func unitOfGroup(text string) string {
	for line := range strings.Lines(text) {
		for part := range strings.SplitSeq(strings.TrimSpace(line), "/") {
			if strings.HasSuffix(part, ".service") {
				return part
			}
		}
	}
	return ""
}

// unitMemlock is the hard limit that the files of a unit set (systemd.exec(5),
// LimitMEMLOCK=).
func (m machine) unitMemlock(unit string) (limit uint64, set bool) {
	files, _ := m.unitFiles(unit)
	for _, file := range files {
		data, _ := m.Read(file, configMax)
		serviceSettings(string(data), func(key, value string) {
			if key == "LimitMEMLOCK" {
				_, hard, two := strings.Cut(value, ":")
				if !two {
					hard = value
				}
				limit, set = size(hard), value != ""
			}
		})
	}
	return limit, set
}

// size reads a number of bytes as systemd does: 64M, infinity. What is no number is 0.
func size(text string) uint64 {
	if text == "infinity" || text == "unlimited" {
		return math.MaxUint64
	}
	digits := strings.TrimRight(text, "KMGTPE")
	n, err := strconv.ParseUint(digits, 10, 64)
	if unit := text[len(digits):]; err == nil && unit != "" {
		n <<= 10 * (1 + strings.Index("KMGTPE", unit[:1]))
	}
	return n
}
