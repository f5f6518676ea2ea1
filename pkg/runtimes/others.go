package runtimes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
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
}

// bothDirs are the directories that the CDI library reads by default.
func bothDirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// crio reads CRI-O's files (crio.conf(5), crio.conf.d(5)).
func crio() tomlRuntime {
	return tomlRuntime{
		product: product{"crio", nil, []string{"github.com/cri-o/cri-o"}, []string{"cri-o"}},
		since:   "1.23", dirsSince: "1.23",
		files: []string{"/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*"}, table: []string{"crio", "runtime"},
		then: "; then systemctl restart crio",
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
	return func(_ context.Context, r *Runtime) bool {
		p := c.find(k.product)
		dirs, at, err := c.specDirs(k)
		if p.path == "" && at.file == "" {
			return false
		}
		r.Version, r.MaxCDIVersion = p.release.text, p.maxCDI
		stated := at.line > 0 && err == nil && !p.release.before(k.dirsSince)
		if !stated {
			dirs = bothDirs()
			if k.binary == "podman" && !p.release.before("5.5") && p.release.before("5.6") {
				dirs = dirs[:1]
			}
		}
		switch {
		case !r.supports(p, k.since):
		case err != nil:
			r.add(finding.ConfigUnreadable, at, host.Reason(err).Error(), "")
		default:
			r.CDI = On
			r.SpecDirs = dirs
		}
		edit := at
		if !stated {
			edit = location{file: c.Shown(k.files[min(1, len(k.files)-1)])}
			if r.CDI != Unknown {
				at = location{file: cmp.Or(at.file, c.Shown(p.path))}
			}
		}
		r.setFileSource(stated, at)
		if r.CDI == On {
			key := strings.Join(append(k.table, keyDirs), ".")
			c.requireSpecDir(r, dirs, at, fmt.Sprintf("in %s set %s = %s%s", edit, key, c.addSpecDir(dirs), k.then))
		}
		return true
	}
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
func (c *checker) specDirs(k tomlRuntime) (dirs []string, at location, err error) {
	for _, pattern := range k.files {
		files, err := c.Glob(pattern)
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
			if dirs, err = list(table[keyDirs]); err != nil {
				return nil, at, fmt.Errorf("%s %w", keyDirs, err)
			}
		}
	}
	return dirs, at, nil
}

// docker reads Docker's daemon.json (dockerd(8)). From 25.0 on features.cdi turns CDI on, from 28.2 on it is on without
// (moby pull requests 47087 and 49963).
func (c *checker) docker(_ context.Context, r *Runtime) bool {
	const file = "/etc/docker/daemon.json"
	modules := []string{"github.com/docker/docker", "github.com/moby/moby/v2"}
	p := c.find(product{"dockerd", nil, modules, []string{"docker-ce", "docker.io"}})
	if p.path == "" && !c.Exists(file) {
		return false
	}
	r.Version, r.MaxCDIVersion = p.release.text, p.maxCDI
	d, at, err := c.readDaemonJSON(file)
	switch {
	case errors.Is(err, fs.ErrPermission):
		r.add(finding.ConfigUnreadable, at, host.Reason(err).Error(), "")
	case err != nil:
		r.CDI = Off
		r.add(finding.ConfigRefused, at, "Docker does not start with this: "+host.Reason(err).Error(), "")
	case r.supports(p, "25.0"):
		at = r.dockerState(d, p.release)
	}
	r.setFileSource(at.line > 0 || err != nil, at)
	if r.CDI == On {
		c.requireSpecDir(r, r.SpecDirs, d.at("cdi-spec-dirs"),
			fmt.Sprintf("in %s set \"cdi-spec-dirs\": %s; then systemctl restart docker", d.file, c.addSpecDir(r.SpecDirs)))
	}
	return true
}

// dockerState fills in what daemon.json means to a release that has CDI, and returns where that is decided.
func (r *Runtime) dockerState(d *daemonJSON, docker release) location {
	on, stated := d.Features["cdi"]
	none := len(d.Dirs) == 1 && d.Dirs[0] == ""
	if !none && (on || !stated && !docker.before("28.2")) {
		r.CDI, r.SpecDirs = On, d.Dirs
		if len(d.Dirs) == 0 {
			r.SpecDirs = bothDirs()
		}
		if !stated {
			return location{file: d.file}
		}
		return d.at("features", "cdi")
	}
	at, why := d.at("features"), "before 28.2 it is off, unless features.cdi is true"
	fix := `add, or write if there is no such file: {"features": {"cdi": true}}`
	switch {
	case none:
		at, why, fix = d.at("cdi-spec-dirs"), "cdi-spec-dirs names no directory", "remove cdi-spec-dirs"
	case stated:
		at, why, fix = d.at("features", "cdi"), "features.cdi is false", `set "cdi": true`
	case at.line > 0:
		fix = `add to features: "cdi": true`
	}
	r.CDI = Off
	r.add(finding.CDIOff, at, "CDI is off: "+why, "in "+at.String()+" "+fix+"; then systemctl restart docker")
	return at
}

// daemonJSON is the part of Docker's config that concerns CDI.
type daemonJSON struct {
	Features map[string]bool `json:"features"`
	Dirs     []string        `json:"cdi-spec-dirs"`

	file string // its path, for messages
	data []byte
}

// readDaemonJSON reads Docker's config, which may be missing or empty. After an error, at is where it is.
func (c *checker) readDaemonJSON(path string) (d *daemonJSON, at location, err error) {
	d = &daemonJSON{file: c.Shown(path)}
	at = location{file: d.file}
	switch d.data, err = c.Read(path, configMax); {
	case err != nil && !c.Exists(path):
		return d, at, nil
	case err == nil && len(bytes.TrimSpace(d.data)) > 0:
		err = json.Unmarshal(d.data, d)
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = d.lineOf(int(e.Offset))
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		at = d.lineOf(int(e.Offset))
		err = fmt.Errorf("%s cannot be of type %s", cmp.Or(e.Field, "the document"), e.Value)
	}
	return d, at, err
}

func (d *daemonJSON) lineOf(offset int) location {
	return location{d.file, 1 + bytes.Count(d.data[:offset], []byte("\n"))}
}

// at is the location of the last of some nested keys; the file as a whole if it is not there.
func (d *daemonJSON) at(keys ...string) location {
	offset := 0
	for _, key := range keys {
		i := bytes.Index(d.data[offset:], []byte(strconv.Quote(key)))
		if i < 0 {
			return location{file: d.file}
		}
		offset += i
	}
	return d.lineOf(offset)
}
