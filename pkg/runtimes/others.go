package runtimes

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// tomlRuntime is a runtime that has CDI whenever it is new enough, and whose TOML files say where it looks.
type tomlRuntime struct {
	product
	since     string   // the first release with CDI
	dirsSince string   // the first release that reads cdi_spec_dirs
	files     []string // patterns; a later file overrides an earlier one
	table     []string // the table of cdi_spec_dirs
	then      string   // what to do after a change
	socket    string   // of its CRI, which tells its version; "": it has none
}

// bothDirs are the directories that the CDI library reads by default.
func bothDirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// crio reads CRI-O's files (crio.conf(5), crio.conf.d(5)), those in directories below crio.conf.d too. Release 1.24 was the
// first with CDI.
func crio() tomlRuntime {
	return tomlRuntime{
		product: product{"crio", nil, []string{"github.com/cri-o/cri-o"}, []string{"cri-o"}},
		since:   "1.24", dirsSince: "1.24",
		files: []string{"/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*"}, table: []string{"crio", "runtime"},
		then: "; then systemctl restart crio", socket: "/var/run/crio/crio.sock",
	}
}

// podman reads podman's files (containers.conf(5)). Release 5.5 was the first to read cdi_spec_dirs (podman pull request
// 25717), and the only one that reads /etc/cdi only by default (podman issue 26569).
func podman() tomlRuntime {
	modules := []string{"github.com/containers/podman/v4", "github.com/containers/podman/v5", "go.podman.io/podman/v6"}
	return tomlRuntime{
		product: product{"podman", nil, modules, []string{"podman"}},
		since:   "4.1", dirsSince: "5.5",
		files: []string{
			"/usr/share/containers/containers.conf", "/etc/containers/containers.conf", "/etc/containers/containers.conf.d/*.conf",
		},
		table: []string{"engine"},
	}
}

// nerdctl reads nerdctl's file (nerdctl, docs/config.md). It does CDI itself, whatever the config of containerd's CRI is.
func nerdctl() tomlRuntime {
	modules := []string{"github.com/containerd/nerdctl/v2", "github.com/containerd/nerdctl"}
	return tomlRuntime{
		product: product{"nerdctl", nil, modules, []string{"nerdctl"}},
		since:   "2.1", dirsSince: "2.1",
		files: []string{"/etc/nerdctl/nerdctl.toml"},
	}
}

// read returns the check of a runtime, which finds its state from its version and its files.
func (c *checker) read(k tomlRuntime) func(context.Context, *Runtime) bool {
	return func(ctx context.Context, r *Runtime) bool {
		p := c.find(k.product)
		if !p.release.known() && p.differ == "" && k.socket != "" && !c.filesOnly {
			p.release = c.askVersion(ctx, k.socket)
		}
		usual := k.usualDirs(p.release)
		dirs, at, err := c.specDirs(k, usual)
		if p.path == "" && at.file == "" {
			return false
		}
		r.Version, r.MaxCDIVersion = p.release.text, cmp.Or(p.maxCDI, p.release.maxCDI(r.Name))
		r.UsedByKubelet = c.kubelet().uses(c, k.socket)
		edit, stated := at, at.line > 0 && err == nil && !p.release.before(k.dirsSince)
		if !stated {
			dirs, edit = usual, location{file: c.Shown(k.files[min(1, len(k.files)-1)])}
		}
		switch {
		case !r.supports(p, k.since):
		case err != nil:
			r.add(finding.ConfigUnreadable, at, host.Reason(err).Error(), "")
		default:
			r.CDI, r.SpecDirs = On, dirs
		}
		if !stated && r.CDI != Unknown {
			at = location{file: cmp.Or(at.file, c.Shown(p.path))}
		}
		r.setFileSource(stated, at)
		if r.CDI == On {
			key := strings.Join(append(k.table, keyDirs), ".")
			c.requireSpecDir(r, dirs, at, fmt.Sprintf("in %s set %s = %s%s", edit, key, c.addSpecDir(dirs), k.then))
		}
		return true
	}
}

// usualDirs are the directories that a release reads if its files do not say.
func (k tomlRuntime) usualDirs(r release) []string {
	if k.binary == "podman" && !r.before("5.5") && r.before("5.6") {
		return bothDirs()[:1]
	}
	return bothDirs()
}

// supports tells whether the release of a program is known and has CDI, and adds a finding if not.
func (r *Runtime) supports(p program, since string) bool {
	switch {
	case !p.release.known():
		r.add(finding.VersionUnknown, location{}, "its version is not known"+p.differ, "")
		return false
	case p.release.before(since):
		r.CDI = Unsupported
		r.add(finding.CDIUnsupported, location{}, fmt.Sprintf("%s %s has no CDI", r.Name, r.Version), "install "+since+" or later")
		return false
	}
	return true
}

// specDirs reads cdi_spec_dirs. If no file sets it, at is the first file that exists, without a line.
func (c *checker) specDirs(k tomlRuntime, usual []string) (dirs []string, at location, err error) {
	dirs, appends := usual, false
	for _, pattern := range k.files {
		files, err := c.configFiles(pattern, k.binary == "crio")
		if err != nil {
			return nil, location{file: c.Shown(pattern)}, err
		}
		for _, file := range files {
			d, err := c.readTOML(file)
			if err != nil {
				return nil, errorLocation(c.Shown(file), err), err
			}
			table := d.tree
			for _, name := range k.table {
				table, _ = table[name].(map[string]any)
			}
			if table[keyDirs] == nil {
				at.file = cmp.Or(at.file, d.shown)
				continue
			}
			at = d.at(append(slices.Clone(k.table), keyDirs)...)
			value := table[keyDirs]
			if k.binary == "podman" {
				value, appends = withoutAttributes(value, appends)
			}
			given, err := list(value)
			if err != nil {
				return nil, at, fmt.Errorf("%s %w", keyDirs, err)
			}
			if dirs = given; appends {
				dirs = append(slices.Clone(usual), given...)
				usual = dirs
			}
		}
	}
	return dirs, at, nil
}

// withoutAttributes leaves the tables out of a list of podman's. One with append = true says that this list, and those in
// later files, are added to what was there (containers.conf(5)).
func withoutAttributes(value any, appends bool) (any, bool) {
	items, isList := value.([]any)
	if !isList {
		return value, appends
	}
	kept := []any{}
	for _, item := range items {
		attributes, isTable := item.(map[string]any)
		if on, isBool := attributes["append"].(bool); isTable && isBool && len(attributes) == 1 {
			appends = on
			continue
		}
		kept = append(kept, item)
	}
	return kept, appends
}

// configFiles are the files of a pattern, in order; those in directories below too if deep, and otherwise no directories.
func (c *checker) configFiles(pattern string, deep bool) (files []string, err error) {
	matches, err := c.Glob(pattern)
	for _, name := range matches {
		info, statErr := statIn(c.machine, name)
		switch {
		case statErr != nil || !info.IsDir() || !strings.Contains(pattern, "*"):
			files = append(files, name)
		case deep:
			below, belowErr := c.configFiles(name+"/*", true)
			files, err = append(files, below...), cmp.Or(err, belowErr)
		}
	}
	return files, err
}

func statIn(m machine, path string) (os.FileInfo, error) {
	real, err := m.Resolve(path)
	if err != nil {
		return nil, err
	}
	return os.Stat(real)
}
