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

// toolkit is a runtime that has CDI whenever it is new enough, and whose TOML files say where it looks.
type toolkit struct {
	product
	since string   // the first release with CDI
	heeds string   // the first release that heeds cdi_spec_dirs
	files []string // patterns; what is read later wins
	table []string // that cdi_spec_dirs belongs in
	then  string   // what to do after a change
}

// bothDirs are the directories that the CDI library reads unless it is told others.
func bothDirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// crio reads CRI-O's files (crio.conf(5), crio.conf.d(5)).
func (c *checker) crio(_ context.Context, r *Runtime) bool {
	return c.check(r, toolkit{
		product: product{"crio", programDirs(), []string{"github.com/cri-o/cri-o"}, []string{"cri-o"}},
		since:   "1.23", heeds: "1.23",
		files: []string{"/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*"}, table: []string{"crio", "runtime"}, then: "; then systemctl restart crio",
	})
}

// podman reads podman's files (containers.conf(5)). Release 5.5 was the first to heed cdi_spec_dirs (podman pull request
// 25717), and alone in looking into /etc/cdi only (podman issue 26569).
func (c *checker) podman(_ context.Context, r *Runtime) bool {
	return c.check(r, toolkit{
		product: product{"podman", programDirs(), []string{"github.com/containers/podman/v4", "github.com/containers/podman/v5", "go.podman.io/podman/v6"}, []string{"podman"}},
		since:   "4.1", heeds: "5.5",
		files: []string{"/usr/share/containers/containers.conf", "/etc/containers/containers.conf", "/etc/containers/containers.conf.d/*.conf"}, table: []string{"engine"},
	})
}

// nerdctl reads nerdctl's file (nerdctl, docs/config.md). It does CDI itself, whatever containerd's CRI is told.
func (c *checker) nerdctl(_ context.Context, r *Runtime) bool {
	return c.check(r, toolkit{
		product: product{"nerdctl", programDirs(), []string{"github.com/containerd/nerdctl/v2", "github.com/containerd/nerdctl"}, []string{"nerdctl"}},
		since:   "2.1", heeds: "2.1",
		files: []string{"/etc/nerdctl/nerdctl.toml"},
	})
}

// defaults are the directories that are read without cdi_spec_dirs.
func (k toolkit) defaults(r release) []string {
	dirs := bothDirs()
	if k.binary == "podman" && !r.before("5.5") && r.before("5.6") {
		dirs = dirs[:1]
	}
	return dirs
}

// check judges a runtime by its version and its files.
func (c *checker) check(r *Runtime, k toolkit) bool {
	p := c.find(k.product)
	dirs, at, err := c.specDirs(k)
	if p.path == "" && at.file == "" {
		return false
	}
	r.Version, r.MaxCDIVersion = p.release.text, p.maxCDI
	stated := at.line > 0 && err == nil && !p.release.before(k.heeds)
	switch {
	case !r.supports(p, k.since):
	case err != nil:
		r.add(finding.ConfigUnreadable, at, host.Reason(err).Error(), "")
	default:
		r.CDI = On
		if !stated {
			dirs = k.defaults(p.release)
		}
		r.SpecDirs = append(r.SpecDirs, dirs...)
	}
	edit := at
	if !stated {
		edit = place{file: c.Shown(k.files[min(1, len(k.files)-1)])}
	}
	if !stated && r.CDI != Unknown {
		at = place{file: cmp.Or(at.file, c.Shown(p.path))}
	}
	r.settleByFiles(stated, at)
	if r.CDI == On {
		c.mustRead(r, dirs, at, fmt.Sprintf("in %s set %s = %s%s", edit, strings.Join(append(k.table, keyDirs), "."), c.withOurs(dirs), k.then))
	}
	return true
}

// supports tells whether a program's release is known and knows CDI.
func (r *Runtime) supports(p program, since string) bool {
	switch {
	case !p.release.known():
		r.add(finding.VersionUnknown, place{}, "its version is not known"+p.differ, "")
		return false
	case p.release.before(since):
		r.CDI = Unsupported
		r.add(finding.CDIUnsupported, place{}, fmt.Sprintf("%s %s knows no CDI", r.Name, r.Version), "install "+since+" or later")
		return false
	}
	return true
}

// specDirs reads cdi_spec_dirs. Where no file has it, the place is the last file that there is, without a line.
func (c *checker) specDirs(k toolkit) (dirs []string, at place, err error) {
	for _, pattern := range k.files {
		files, err := c.Glob(pattern)
		if err != nil {
			return nil, place{file: c.Shown(pattern)}, err
		}
		for _, file := range files {
			d, err := c.readTOML(file)
			if err != nil {
				return nil, errorPlace(c.Shown(file), err), err
			}
			table := d.tree
			for _, name := range k.table {
				table, _ = table[name].(map[string]any)
			}
			if table[keyDirs] == nil {
				at.file = cmp.Or(at.file, d.Shown(d.path))
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
	p := c.find(product{"dockerd", programDirs(), []string{"github.com/docker/docker", "github.com/moby/moby/v2"}, []string{"docker-ce", "docker.io"}})
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
	r.settleByFiles(at.line > 0 || err != nil, at)
	if r.CDI == On {
		c.mustRead(r, r.SpecDirs, d.at("cdi-spec-dirs"), fmt.Sprintf("in %s set \"cdi-spec-dirs\": %s; then systemctl restart docker", d.file, c.withOurs(r.SpecDirs)))
	}
	return true
}

// dockerState is what daemon.json means to a release that knows CDI, and where that is decided.
func (r *Runtime) dockerState(d *daemonJSON, docker release) place {
	on, stated := d.Features["cdi"]
	none := len(d.Dirs) == 1 && d.Dirs[0] == ""
	if !none && (on || !stated && !docker.before("28.2")) {
		r.CDI, r.SpecDirs = On, d.Dirs
		if len(d.Dirs) == 0 {
			r.SpecDirs = bothDirs()
		}
		if !stated {
			return place{file: d.file}
		}
		return d.at("features", "cdi")
	}
	at, why, fix := d.at("features"), "before 28.2 Docker has it off unless features.cdi is true", `add, or write if there is no such file: {"features": {"cdi": true}}`
	switch {
	case none:
		at, why, fix = d.at("cdi-spec-dirs"), "cdi-spec-dirs names no directory", "take out cdi-spec-dirs"
	case stated:
		at, why, fix = d.at("features", "cdi"), "features.cdi is false", `set "cdi": true`
	case at.line > 0:
		fix = `add to features: "cdi": true`
	}
	r.CDI = Off
	r.add(finding.CDIOff, at, "CDI is off: "+why, "in "+at.String()+" "+fix+"; then systemctl restart docker")
	return at
}

// daemonJSON is what of Docker's config matters here.
type daemonJSON struct {
	Features map[string]bool `json:"features"`
	Dirs     []string        `json:"cdi-spec-dirs"`

	file string // as people know it
	data []byte
}

// readDaemonJSON reads Docker's config, which may be missing or empty. After an error the place is where that is.
func (c *checker) readDaemonJSON(path string) (d *daemonJSON, at place, err error) {
	d = &daemonJSON{file: c.Shown(path)}
	at = place{file: d.file}
	if d.data, err = c.Read(path, configMax); err != nil && !c.Exists(path) {
		return d, at, nil
	}
	if err != nil || len(bytes.TrimSpace(d.data)) == 0 {
		return d, at, err
	}
	err = json.Unmarshal(d.data, d)
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = d.lineOf(int(e.Offset))
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		at = d.lineOf(int(e.Offset))
		err = fmt.Errorf("%s cannot be of type %s", cmp.Or(e.Field, "the document"), e.Value)
	}
	return d, at, err
}

func (d *daemonJSON) lineOf(offset int) place {
	return place{d.file, 1 + bytes.Count(d.data[:offset], []byte("\n"))}
}

// at is where the last of some keys is, each looked for after the one before; the file as a whole if it is not there.
func (d *daemonJSON) at(keys ...string) place {
	offset := 0
	for _, key := range keys {
		i := bytes.Index(d.data[offset:], []byte(strconv.Quote(key)))
		if i < 0 {
			return place{file: d.file}
		}
		offset += i
	}
	return d.lineOf(offset)
}
