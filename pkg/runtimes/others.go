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

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// toolkit is a runtime that has CDI whenever it is new enough, and whose TOML files say where it looks.
type toolkit struct {
	product
	since    []int                    // the first release with CDI
	heeds    []int                    // the first release that heeds cdi_spec_dirs
	files    []string                 // patterns; what is read later wins
	table    []string                 // that cdi_spec_dirs belongs in
	defaults func(r release) []string // without cdi_spec_dirs
	then     string                   // what to do after a change
}

// bothDirs are the directories that the CDI library reads unless it is told others.
func bothDirs(release) []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// crio reads CRI-O's files (crio.conf(5), crio.conf.d(5)).
func (c *checker) crio(_ context.Context, r *Runtime) bool {
	return c.check(r, toolkit{
		product: product{"crio", programDirs(), []string{"github.com/cri-o/cri-o"}, []string{"cri-o"}},
		since:   []int{1, 23}, heeds: []int{1, 23}, defaults: bothDirs,
		files: []string{"/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*"}, table: []string{"crio", "runtime"}, then: "; then systemctl restart crio",
	})
}

// podman reads podman's files (containers.conf(5)). Release 5.5 was the first to heed cdi_spec_dirs (podman pull request
// 25717), and alone in looking into /etc/cdi only (podman issue 26569).
func (c *checker) podman(_ context.Context, r *Runtime) bool {
	return c.check(r, toolkit{
		product: product{"podman", programDirs(), []string{"github.com/containers/podman/v4", "github.com/containers/podman/v5", "go.podman.io/podman/v6"}, []string{"podman"}},
		since:   []int{4, 1}, heeds: []int{5, 5},
		defaults: func(r release) []string {
			if r.before(5, 5) || !r.before(5, 6) {
				return bothDirs(r)
			}
			return []string{"/etc/cdi"}
		},
		files: []string{"/usr/share/containers/containers.conf", "/etc/containers/containers.conf", "/etc/containers/containers.conf.d/*.conf"}, table: []string{"engine"},
	})
}

// nerdctl reads nerdctl's file (nerdctl, docs/config.md). It does CDI itself, whatever containerd's CRI is told.
func (c *checker) nerdctl(_ context.Context, r *Runtime) bool {
	return c.check(r, toolkit{
		product: product{"nerdctl", programDirs(), []string{"github.com/containerd/nerdctl/v2", "github.com/containerd/nerdctl"}, []string{"nerdctl"}},
		since:   []int{2, 1}, heeds: []int{2, 1}, defaults: bothDirs,
		files: []string{"/etc/nerdctl/nerdctl.toml"},
	})
}

// check judges a runtime by its version and its files.
func (c *checker) check(r *Runtime, k toolkit) bool {
	p, differ := c.find(k.product)
	dirs, at, err := c.specDirs(k)
	if p.path == "" && at.file == "" {
		return false
	}
	r.Version, r.MaxCDIVersion = p.release.text, p.maxCDI
	stated := at.line > 0 && err == nil && !p.release.before(k.heeds...)
	switch {
	case !r.supports(p, differ, k.since):
	case err != nil:
		r.add(found(finding.ConfigUnreadable, at, host.Reason(err).Error(), "correct it; make it readable"))
	default:
		r.CDI = On
		if !stated {
			dirs = k.defaults(p.release)
		}
		r.SpecDirs = append(r.SpecDirs, dirs...)
	}
	if stated || r.CDI == Unknown {
		r.settle(Files, at, "read from its files; nobody was asked", r.CDI)
	} else {
		at = place{file: cmp.Or(at.file, c.Shown(p.path))}
		r.settle(Default, at, "its files say nothing, so this is what the release does; nobody was asked", r.CDI)
	}
	fix := fmt.Sprintf("in %s set %s = %s", c.Shown(k.files[min(1, len(k.files)-1)]), dotted(append(k.table, keyDirs)), c.withOurs(dirs))
	if stated {
		fix = fmt.Sprintf("in %s on line %d write cdi_spec_dirs = %s", at.file, at.line, c.withOurs(dirs))
	}
	c.checkDirs(r, at, fix+k.then)
	return true
}

// supports tells whether a program's release is known and knows CDI.
func (r *Runtime) supports(p program, differ string, since []int) bool {
	switch {
	case !p.release.known():
		r.add(found(finding.VersionUnknown, place{}, "its version is not known"+differ, "ask it: "+cmp.Or(p.path, r.Name)+" --version"))
		return false
	case p.release.before(since...):
		r.CDI = Unsupported
		r.add(found(finding.CDIUnsupported, place{}, fmt.Sprintf("%s %s knows no CDI", r.Name, r.Version), fmt.Sprintf("install %d.%d or later", since[0], since[1])))
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
				return nil, faultyAt(c.Shown(file), err), err
			}
			table := d.tree
			for _, name := range k.table {
				table, _ = table[name].(map[string]any)
			}
			if table[keyDirs] == nil {
				at.file = cmp.Or(at.file, d.at().file)
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

// daemonJSON is what of Docker's config matters here, and where it stands.
type daemonJSON struct {
	Features map[string]bool `json:"features"`
	Dirs     []string        `json:"cdi-spec-dirs"`

	there                      bool
	features, cdi, cdiSpecDirs place
}

// docker reads Docker's daemon.json (dockerd(8)). From 25.0 on features.cdi turns CDI on, from 28.2 on it is on without
// (moby pull requests 47087 and 49963).
func (c *checker) docker(_ context.Context, r *Runtime) bool {
	p, differ := c.find(product{"dockerd", programDirs(), []string{"github.com/docker/docker", "github.com/moby/moby/v2"}, []string{"docker-ce", "docker.io"}})
	set, err := c.readDaemonJSON("/etc/docker/daemon.json")
	if p.path == "" && !set.there {
		return false
	}
	r.Version, r.MaxCDIVersion = p.release.text, p.maxCDI
	decides := set.cdi
	switch {
	case errors.Is(err, fs.ErrPermission):
		r.add(found(finding.ConfigUnreadable, decides, host.Reason(err).Error(), "run as root"))
	case err != nil:
		r.CDI = Off
		r.add(found(finding.ConfigRefused, decides, "Docker does not start with this: "+host.Reason(err).Error(), "correct it"))
	case r.supports(p, differ, []int{25, 0}):
		decides = r.dockerState(set, p.release)
	}
	if decides.line > 0 || err != nil || r.CDI == Unknown {
		r.settle(Files, decides, "read from its file; the daemon was not asked", r.CDI)
	} else {
		r.settle(Default, decides, "its file says nothing, so this is what the release does; the daemon was not asked", r.CDI)
	}
	c.checkDirs(r, set.cdiSpecDirs, fmt.Sprintf("in %s write \"cdi-spec-dirs\": %s; then systemctl restart docker", set.cdi.file, c.withOurs(r.SpecDirs)))
	return true
}

// dockerState is what daemon.json means to a release that knows CDI, and where that is decided.
func (r *Runtime) dockerState(set *daemonJSON, docker release) place {
	r.CDI = Off
	on, stated := set.Features["cdi"]
	at, why, fix := set.features, "before 28.2 Docker has it off unless features.cdi is true", `add, or write if there is no such file: {"features": {"cdi": true}}`
	switch {
	case len(set.Dirs) == 1 && set.Dirs[0] == "":
		at, why, fix = set.cdiSpecDirs, "cdi-spec-dirs names no directory", "take out cdi-spec-dirs"
	case stated && !on:
		at, why, fix = set.cdi, "features.cdi is false", fmt.Sprintf("on line %d write \"cdi\": true", set.cdi.line)
	case stated || !docker.before(28, 2):
		r.CDI = On
		r.SpecDirs = append(r.SpecDirs, set.Dirs...)
		if len(set.Dirs) == 0 {
			r.SpecDirs = bothDirs(docker)
		}
		return set.cdi
	case set.features.line > 0:
		fix = fmt.Sprintf("on line %d add to features: \"cdi\": true", set.features.line)
	}
	r.add(found(finding.CDIOff, at, "CDI is off: "+why, "in "+at.file+" "+fix+"; then systemctl restart docker"))
	return at
}

// readDaemonJSON reads Docker's config. After an error the place of cdi is where that is.
func (c *checker) readDaemonJSON(path string) (*daemonJSON, error) {
	set := &daemonJSON{there: c.Exists(path), cdi: place{file: c.Shown(path)}}
	set.features, set.cdiSpecDirs = set.cdi, set.cdi
	data, err := c.Read(path, configMax)
	if !set.there || len(bytes.TrimSpace(data)) == 0 {
		if !set.there {
			err = nil
		}
		return set, err
	}
	lineAt := func(offset int) int { return 1 + bytes.Count(data[:offset], []byte("\n")) }
	if err = json.Unmarshal(data, set); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			set.cdi.line = lineAt(int(syntax.Offset))
		}
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			set.cdi.line = lineAt(int(wrong.Offset))
			err = fmt.Errorf("%s cannot be of type %s", cmp.Or(wrong.Field, "the document"), wrong.Value)
		}
		return set, err
	}
	lineOfKey := func(key string, from int) (line, offset int) {
		if i := bytes.Index(data[from:], []byte(strconv.Quote(key))); i >= 0 {
			return lineAt(from + i), from + i
		}
		return 0, 0
	}
	set.cdiSpecDirs.line, _ = lineOfKey("cdi-spec-dirs", 0)
	var offset int
	set.features.line, offset = lineOfKey("features", 0)
	if _, stated := set.Features["cdi"]; stated {
		set.cdi.line, _ = lineOfKey("cdi", offset)
	}
	return set, nil
}
