package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lazy"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// Confinement is where is looked for what SELinux and AppArmor deny.
type Confinement struct {
	Root      host.Root
	Scan      Scan
	PluginDir string // where the kubelet and its plugins have their sockets, under the root
	// Label returns the label of a file of this machine; nil: by its attribute
	// security.selinux. "" is that it has none.
	Label func(path string) (string, error)
}

// The files of the kernel.
const (
	enforceFile  = "/sys/fs/selinux/enforce"
	booleanFile  = "/sys/fs/selinux/booleans/container_use_devices"
	apparmorFile = "/sys/module/apparmor/parameters/enabled"
	profilesFile = "/sys/kernel/security/apparmor/profiles"
	policyMax    = 1 << 20 // bytes of such a file, or of a profile
)

// Types of the policy container-selinux: what containers run as, and what they may use.
const (
	containerType     = "container_t"
	containerFileType = "container_file_t"
)

// Confined returns the check of SELinux and AppArmor.
func Confined(c Confinement) Check {
	const about = "SELinux and AppArmor"
	return Check{Security, about, func(ctx context.Context) Result {
		var r Result
		var said []string
		enforces, err := c.Root.Read(enforceFile, policyMax)
		switch {
		case host.IsAbsent(err):
		case err != nil:
			r.Unseen = append(r.Unseen, Unseen{"whether SELinux enforces", err.Error(), right(err)})
		case strings.TrimSpace(string(enforces)) == "1":
			said = append(said, "SELinux enforces")
			c.selinux(ctx, &r)
		default:
			said = append(said, "SELinux is permissive")
		}
		if on, _ := c.Root.Read(apparmorFile, policyMax); bytes.HasPrefix(on, []byte("Y")) {
			said = append(said, "AppArmor is on")
			c.apparmor(ctx, &r)
		}
		r.Says = strings.Join(said, ", ")
		if len(said) == 0 && len(r.Unseen) == 0 {
			r.Absent = "neither SELinux nor AppArmor is on"
		}
		return r
	}}
}

// selinux finds what is known to be denied while SELinux enforces.
func (c *Confinement) selinux(ctx context.Context, r *Result) {
	// The values now and after the next commit (security/selinux/selinuxfs.c). A policy
	// without containers has no such boolean.
	value, err := c.Root.Read(booleanFile, policyMax)
	if err == nil && strings.HasPrefix(string(value), "0") {
		var denied []string
		for _, node := range c.nodes(ctx) {
			if of, ok := c.typeOf(r, node); ok && of != containerFileType {
				denied = append(denied, fmt.Sprintf("%s (%s)", node, of))
			}
		}
		if len(denied) > 0 {
			r.Findings.Add(finding.SELinuxDenies, "container_use_devices",
				"a container that gets its device file from the host, as by a user's podman, may not open "+strings.Join(denied, ", "), "")
		}
	} else if err != nil && !host.IsAbsent(err) {
		r.Unseen = append(r.Unseen, Unseen{"whether containers may open device files", err.Error(), right(err)})
	}
	of, ok := c.typeOf(r, c.PluginDir)
	if !ok || of == containerFileType {
		return
	}
	for _, serve := range c.serving() {
		if label, _ := c.Root.Read(serve+"/attr/current", policyMax); typeIn(string(label)) == containerType {
			r.Findings.Add(finding.SELinuxDenies, "lpuctl serve", fmt.Sprintf(
				"it runs as %s, which may not make its socket in %s (%s)", containerType, c.PluginDir, of),
				"give its pod the type container_device_plugin_t (seLinuxOptions of the container; of the chart: "+
					"--set seLinuxOptions.type=container_device_plugin_t)").Severity = finding.Error
		}
	}
}

// nodes are the device files of the LPUs.
func (c *Confinement) nodes(ctx context.Context) (all []string) {
	inv, err := c.Scan(ctx)
	if err != nil {
		return nil // another link says it
	}
	count(inv, func(l *discovery.LPU) bool {
		for _, n := range l.Nodes {
			all = append(all, n.Path)
		}
		return true
	})
	return all
}

// typeOf is the type in the label of a file under the root. ok is that it has one.
func (c *Confinement) typeOf(r *Result, file string) (of string, ok bool) {
	label := c.Label
	if label == nil {
		label = labelOf
	}
	real, err := c.Root.Resolve(file)
	var text string
	if err == nil {
		text, err = label(real)
	}
	if errors.Is(err, fs.ErrPermission) {
		r.Unseen = append(r.Unseen, Unseen{"the label of " + file, host.Reason(err).Error(), "run it as root"})
	}
	of = typeIn(text)
	return of, err == nil && of != ""
}

// typeIn is the type in a label: USER:ROLE:TYPE:LEVEL.
func typeIn(label string) string {
	if parts := strings.Split(strings.TrimRight(label, "\x00\n"), ":"); len(parts) > 2 {
		return parts[2]
	}
	return ""
}

// labelOf reads the label of a file.
func labelOf(file string) (string, error) {
	text := make([]byte, 4096)
	n, err := unix.Lgetxattr(file, "security.selinux", text)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return "", nil
	case err != nil:
		return "", &fs.PathError{Op: "getxattr", Path: file, Err: err}
	}
	return string(text[:n]), nil
}

// serving are the directories in proc of the processes of lpuctl serve.
func (c *Confinement) serving() (dirs []string) {
	all, _ := c.Root.Glob("/proc/[0-9]*/comm")
	for _, file := range all {
		dir := path.Dir(file)
		comm, _ := c.Root.Read(file, policyMax)
		args, _ := c.Root.Read(dir+"/cmdline", policyMax)
		if strings.TrimSpace(string(comm)) == "lpuctl" && slices.Contains(strings.Split(string(args), "\x00"), "serve") {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// denyRule is a rule of a profile that denies a path (apparmor.d(5)), and profileHead
// begins a profile.
var (
	denyRule = lazy.Regexp(`^\s*(?:(?:audit|quiet|other|owner)\s+)*deny\s+(?:owner\s+|file\s+)*"?(/[^\s"]+)"?\s+[a-zA-Z]*[rwa][a-zA-Z]*\s*,`)

	profileHead = lazy.Regexp(`^\s*(?:profile\s+"?([^\s"{]+)"?|"?(/[^\s"{]+)"?)[^{,]*\{`)
)

// denied is a rule that denies a path in containers with a profile.
type denied struct{ profile, path string }

// apparmor finds profiles that deny the device file of an LPU and are loaded. Only root may
// see which are.
func (c *Confinement) apparmor(ctx context.Context, r *Result) {
	files, err := c.Root.Glob("/etc/apparmor.d/*")
	if err != nil {
		r.Unseen = append(r.Unseen, Unseen{"what the profiles of AppArmor deny", err.Error(), right(err)})
		return
	}
	nodes := c.nodes(ctx)
	var loaded map[string]bool
	for _, file := range files {
		text, _ := c.Root.Read(file, policyMax)
		for _, d := range deniedBy(string(text), nodes) {
			if loaded == nil {
				if loaded, err = c.loaded(); err != nil {
					r.Unseen = append(r.Unseen, Unseen{"whether AppArmor enforces " + d.profile + ", which denies " + d.path,
						host.Reason(err).Error(), "run it as root"})
					return
				}
			}
			if loaded[d.profile] {
				r.Findings.Add(finding.AppArmorDenies, d.profile, "it denies "+d.path, fmt.Sprintf(
					"take that rule out; then: apparmor_parser -r %s", file)).At(c.Root.Shown(file), 0)
			}
		}
	}
}

// loaded are the profiles that are enforced.
func (c *Confinement) loaded() (map[string]bool, error) {
	text, err := c.Root.Read(profilesFile, policyMax)
	names := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutSuffix(strings.TrimSpace(line), " (enforce)"); ok {
			names[name] = true
		}
	}
	return names, err
}

// deniedBy are the paths that a file of profiles denies.
func deniedBy(text string, paths []string) (all []denied) {
	profile := ""
	for line := range strings.Lines(text) {
		if head := profileHead().FindStringSubmatch(line); head != nil {
			profile = head[1] + head[2]
		}
		rule := denyRule().FindStringSubmatch(line)
		if rule == nil {
			continue
		}
		for _, p := range paths {
			if matches(rule[1], p) {
				all = append(all, denied{profile, p})
			}
		}
	}
	return all
}

// matches reports whether a path is one of a pattern of AppArmor (apparmor.d(5),
// Globbing). A pattern with variables matches none.
func matches(pattern, file string) bool {
	text := strings.NewReplacer(`\*\*`, `.*`, `\*`, `[^/]*`, `\?`, `[^/]`, `\{`, `(?:`, `\}`, `)`, `,`, `|`, `\[`, `[`, `\]`, `]`).
		Replace(regexp.QuoteMeta(pattern))
	form, err := regexp.Compile("^" + text + "$")
	return err == nil && form.MatchString(file)
}
