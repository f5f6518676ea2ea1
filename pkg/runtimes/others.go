package runtimes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// tomlRuntime is a runtime that has CDI whenever it is new enough, and whose TOML files say where it looks.
type tomlRuntime struct {
	product
	since     string // the first release with CDI
	dirsSince string // the first release that reads cdi_spec_dirs
	main      string // the file of the administrator
	// files are all that a release reads, in the order of reading. It does not start if one of them
	// is named and not there.
	files  func(c *checker, r release, cmd command) ([]string, error)
	table  []string // the table of cdi_spec_dirs
	keys   string   // the types of its keys, as in knownKeys; "": not known
	then   string   // what to do after a change
	unit   string   // the service that starts it; "": none does
	socket string   // of its CRI, which tells its version; "": it has none
}

// bothDirs are the directories that the CDI library reads by default.
func bothDirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// crio reads CRI-O's files (crio.conf(5), crio.conf.d(5)), those in directories below crio.conf.d
// too, and its flags and variables (crio(8)). Release 1.24 was the first with CDI.
func crio() tomlRuntime {
	return tomlRuntime{
		product: product{"crio", nil, []string{"github.com/cri-o/cri-o"}, []string{"cri-o"}},
		since:   "1.24", dirsSince: "1.24", main: "/etc/crio/crio.conf", files: (*checker).crioFiles, table: []string{"crio", "runtime"},
		then: "; then systemctl restart crio", unit: "crio.service", socket: "/var/run/crio/crio.sock",
	}
}

// crioFiles are the files that CRI-O reads. One that a flag or a variable names must be there.
func (c *checker) crioFiles(_ release, cmd command) (files []string, err error) {
	named := cmp.Or(flagValue(cmd.args, "c", "config"), cmd.env["CONTAINER_CONFIG"])
	files, err = c.Glob(cmp.Or(named, "/etc/crio/crio.conf"))
	if err == nil && named != "" && len(files) == 0 {
		err = &tomlError{message: "there is no " + c.Shown(named) + ", which --config or CONTAINER_CONFIG names"}
	}
	if err != nil {
		return nil, err
	}
	dir := cmp.Or(flagValue(cmd.args, "d", "config-dir"), cmd.env["CONTAINER_CONFIG_DIR"], "/etc/crio/crio.conf.d")
	more, err := c.filesBelow(dir)
	return append(files, more...), err
}

// crioDirs are the directories that CRI-O's flags or else its variables name; nil without any.
func crioDirs(cmd command) (dirs []string) {
	given := flagValues(cmd.args, "cdi-spec-dirs")
	if given == nil && cmd.env["CONTAINER_CDI_SPEC_DIRS"] != "" {
		given = []string{cmd.env["CONTAINER_CDI_SPEC_DIRS"]}
	}
	for _, list := range given {
		for dir := range strings.SplitSeq(list, ",") {
			dirs = append(dirs, strings.TrimSpace(dir))
		}
	}
	return dirs
}

// podman reads podman's files (containers.conf(5)). Release 5.5 was the first to read cdi_spec_dirs (podman pull request
// 25717), and the only one that reads /etc/cdi only by default (podman issue 26569).
func podman() tomlRuntime {
	modules := []string{"github.com/containers/podman/v4", "github.com/containers/podman/v5", "go.podman.io/podman/v6"}
	return tomlRuntime{
		product: product{"podman", nil, modules, []string{"podman"}},
		since:   "4.1", dirsSince: "5.5", main: "/etc/containers/containers.conf", files: (*checker).podmanFiles,
		table: []string{"engine"}, keys: podmanKeys,
	}
}

// podmanFiles are the files that podman reads if root starts it: since 5.0 those in root's home
// too, and since 6.0 the first main file of three alone, and of each drop-in the first of its name
// (containers/common, pkg/config).
func (c *checker) podmanFiles(r release, _ command) (files []string, err error) {
	const name = "containers/containers.conf"
	ofRoot := path.Join("/root", ".config", name)
	mains := []string{"/usr/share/" + name, "/etc/" + name, ofRoot}
	if r.before("5.0") {
		mains = mains[:2]
	}
	for i, main := range mains {
		found, globErr := c.Glob(main)
		if err = cmp.Or(err, globErr); len(found) > 0 && !r.before("6.0") {
			files = nil
		}
		files = append(files, found...)
		if i > 0 && r.before("6.0") {
			more, listErr := c.Glob(main + ".d/*.conf")
			files, err = append(files, c.noDirectories(more)...), cmp.Or(err, listErr)
		}
	}
	if r.before("6.0") {
		return files, err
	}
	more, listErr := c.dropIns(ofRoot+".d/*.conf", "/etc/containers/containers.rootful.conf.d/*.conf", "/etc/"+name+".d/*.conf",
		"/usr/share/containers/containers.rootful.conf.d/*.conf", "/usr/share/"+name+".d/*.conf")
	return append(files, c.noDirectories(more)...), cmp.Or(err, listErr)
}

// nerdctl reads nerdctl's file (nerdctl, docs/config.md). It does CDI itself, whatever the config of containerd's CRI is.
func nerdctl() tomlRuntime {
	modules := []string{"github.com/containerd/nerdctl/v2", "github.com/containerd/nerdctl"}
	const main = "/etc/nerdctl/nerdctl.toml"
	return tomlRuntime{
		product: product{"nerdctl", nil, modules, []string{"nerdctl"}},
		since:   "2.1", dirsSince: "2.1", main: main,
		files: func(c *checker, _ release, _ command) ([]string, error) { return c.Glob(main) },
	}
}

// read returns the check of a runtime, which finds its state from its version, its files, and how
// its service starts it.
func (c *checker) read(k tomlRuntime) func(context.Context, *Runtime) bool {
	return func(ctx context.Context, r *Runtime) bool {
		p, cmd := c.installed(ctx, k)
		usual := k.usualDirs(p.release)
		dirs, at, err := c.specDirs(k, p.release, cmd, usual)
		if p.isAbsent(at, cmd) {
			return false
		}
		r.Version, r.MaxCDIVersion = p.release.text, cmp.Or(p.maxCDI, p.release.maxCDI(r.Name))
		r.UsedByKubelet = c.kubelet().uses(c, k.socket)
		r.Unused = p.path == "" && !p.release.known() && !r.UsedByKubelet
		inService := at.file != "" && at.file == c.Shown(cmd.by)
		edit, stated := at, err == nil && k.counts(at.line > 0 || inService, p.release)
		if !stated {
			dirs, edit = usual, location{file: c.Shown(k.main)}
		}
		if r.supports(p, k.since) && r.startsWith(cmd, at, err) {
			r.CDI, r.SpecDirs = On, dirs
		}
		if r.CDI != Unknown && !stated {
			at = location{file: cmp.Or(at.file, c.Shown(p.path))}
		}
		r.setFileSource(stated || r.CDI == Off, at)
		if r.CDI == On {
			c.requireSpecDir(r, dirs, at, fmt.Sprintf("in %s set %s = %s%s", edit, k.key(inService), c.addSpecDir(dirs), k.then))
		}
		return true
	}
}

// counts reports whether a release reads directories that are given.
func (k tomlRuntime) counts(given bool, r release) bool { return given && !r.before(k.dirsSince) }

// key names what sets the directories, in a file or in the service.
func (k tomlRuntime) key(inService bool) string {
	if inService {
		return "--cdi-spec-dirs or CONTAINER_CDI_SPEC_DIRS"
	}
	return strings.Join(append(slices.Clone(k.table), keyDirs), ".")
}

// installed finds the program of a runtime, and how its service starts it.
func (c *checker) installed(ctx context.Context, k tomlRuntime) (p program, cmd command) {
	p = c.find(k.product)
	if !p.release.known() && p.differ == "" && k.socket != "" && !c.filesOnly {
		p.release = c.askVersion(ctx, k.socket)
	}
	if k.unit != "" {
		cmd = c.commandOf(k.unit, func(string) bool { return true }, k.binary)
	}
	return p, cmd
}

// isAbsent reports whether there is neither a program nor a file of its nor a service.
func (p program) isAbsent(at location, cmd command) bool {
	return p.path == "" && at.file == "" && len(cmd.args) == 0
}

// startsWith reports whether a runtime starts with its service and its files, of which err says
// what is wrong, and adds a finding if it is not known to.
func (r *Runtime) startsWith(cmd command, at location, err error) bool {
	switch {
	case cmd.fault != nil:
		r.addFault(cmd.fault)
	case err != nil && errors.As(err, new(*tomlError)):
		r.addFault(newFinding(finding.ConfigRefused, at, r.Name+" does not start with this: "+err.Error(), ""))
	case err != nil:
		r.addFault(newFinding(finding.ConfigUnreadable, at, host.Reason(err).Error(), ""))
	default:
		return true
	}
	return false
}

// addFault adds why a runtime does not start, and then CDI is off, or why its files do not tell.
func (r *Runtime) addFault(f *finding.Finding) {
	if r.addFinding(f); f.Severity == finding.Error {
		r.CDI = Off
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

// specDirs reads cdi_spec_dirs. If nothing sets it, at is the first file that exists, without a
// line.
func (c *checker) specDirs(k tomlRuntime, r release, cmd command, usual []string) (dirs []string, at location, err error) {
	files, err := k.files(c, r, cmd)
	if err != nil {
		return nil, location{file: c.Shown(k.main)}, err
	}
	dirs, appends := usual, false
	for _, file := range files {
		d, err := c.readTOML(file)
		if host.IsAbsent(err) { // a link that leads nowhere
			continue
		}
		if err == nil {
			err = k.checkTypes(d, r)
		}
		if err != nil {
			return nil, errorLocation(c.Shown(file), err), err
		}
		table := d.tree
		for _, name := range k.table {
			table, _ = lookup(table, name).(map[string]any)
		}
		value := lookup(table, keyDirs)
		if value == nil {
			at.file = cmp.Or(at.file, d.shown)
			continue
		}
		at = d.at(append(slices.Clone(k.table), keyDirs)...)
		if k.binary == "podman" {
			value, appends = withoutAttributes(value, appends)
		}
		given, err := list(value)
		if err != nil && !r.before(k.dirsSince) {
			return nil, at, &tomlError{at.line, fmt.Sprintf("%s %v", keyDirs, err)}
		}
		if dirs = given; appends {
			dirs = append(slices.Clone(usual), given...)
			usual = dirs
		}
	}
	if given := crioDirs(cmd); given != nil { // above all files
		dirs, at = given, location{file: c.Shown(cmd.by)}
	}
	return dirs, at, nil
}

// checkTypes returns what is wrong with the type of a value, because of which the runtime does not
// start.
func (k tomlRuntime) checkTypes(d *document, r release) (err error) {
	for _, key := range keysKnownTo(k.keys, r) {
		each(lookup(d.tree, key.plugin), key.path, func(at []string, value any) {
			items := value
			if !r.before("4.8") && key.kind == "strings" {
				items, _ = withoutAttributes(value, false)
			}
			must := key.wrong(at, items)
			if at = append([]string{key.plugin}, at...); must != "" && err == nil {
				err = &tomlError{d.at(at...).line, fmt.Sprintf("%s must be %s, not %s", strings.Join(at, "."), must, shown(value))}
			}
		})
	}
	return err
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

// filesBelow are the files in a directory and in those below it, in the order of their paths. As
// CRI-O does, it takes a link for a file, also one to a directory, which may lead in a circle.
func (c *checker) filesBelow(dir string) (files []string, err error) {
	matches, err := c.Glob(dir + "/*")
	real, resolveErr := c.Resolve(dir)
	err = cmp.Or(err, resolveErr)
	for _, name := range matches {
		if info, statErr := os.Lstat(filepath.Join(real, path.Base(name))); statErr != nil || !info.IsDir() {
			files = append(files, name)
			continue
		}
		below, belowErr := c.filesBelow(name)
		files, err = append(files, below...), cmp.Or(err, belowErr)
	}
	return files, err
}

func (m machine) noDirectories(files []string) []string {
	return slices.DeleteFunc(files, m.isDirectory)
}

func (m machine) isDirectory(path string) bool {
	info, err := statIn(m, path)
	return err == nil && info.IsDir()
}

func statIn(m machine, path string) (os.FileInfo, error) {
	real, err := m.Resolve(path)
	if err != nil {
		return nil, err
	}
	return os.Stat(real)
}
